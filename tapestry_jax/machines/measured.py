"""The machine that is here, timed: products, elementwise work, copies, and collectives by kind, axis and size."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from combinators.errors import MeshError, first_line, message
from tapestry_jax.machines.figures import Figure, Link, Table
from tapestry_jax.machines.machine import Machine

_SIZES = (1 << 12, 1 << 16, 1 << 20)
"""Bytes of the collectives that are timed."""
_REPEATS = 5


def measure(mesh: Any) -> Machine:
    """Time the machine that a mesh is on: a second or two.

    Args:
      mesh: a `jax.sharding.Mesh` of devices that run programs; its axes name the tables of collectives.

    Returns:
      A machine whose figures say what was measured; each figure is the fastest of a few runs. Collectives go by its
      tables.

    Raises:
      MeshError: when the mesh has no devices that run.
    """
    if not isinstance(mesh, Mesh) or not all(hasattr(device, "memory_stats") for device in mesh.devices.flat):
        raise MeshError(
            message("only a mesh of devices can be measured", f"got {mesh!r:.80}", remedy="Make one with tp.mesh().")
        )
    device: Any = mesh.devices.flat[0]
    try:
        jax.block_until_ready(jax.device_put(jnp.zeros(1), device))
    except (RuntimeError, ValueError) as error:
        raise MeshError(
            message(
                "the devices of this mesh run nothing",
                f"{first_line(error):.140}",
                remedy="Measure on devices that are here; machines that are not are in tp.machines.KNOWN.",
            )
        ) from error
    source = f"measured on {len(mesh.devices.flat)} x {device.device_kind}, jax {jax.__version__}"
    tables = tuple(_tables(mesh))
    matmul = tuple((name, Figure(_matmul(device, dtype), source)) for name, dtype in _dtypes())
    slowest = min((_rate(table) for table in tables), default=1e9)
    first = min((table.points[0][1] for table in tables), default=1e-6)
    link = Link("switch", Figure(slowest, source), Figure(max(first, 1e-9), source))
    return Machine(
        name=str(device.device_kind),
        platform="cuda" if device.platform == "gpu" else device.platform,
        matmul=matmul,
        vector=Figure(_vector(device), source),
        memory=Figure(_memory(device), source),
        bandwidth=Figure(_copy(device), source),
        cache=Figure(32e6, "of a CPU, typically", estimate=True),
        inside=link,
        group=len(mesh.devices.flat),
        between=link,
        start=Figure(_start(device), source),
        tables=tables,
    )


def _dtypes() -> tuple[tuple[str, Any], ...]:
    return ("float32", jnp.float32), ("bfloat16", jnp.bfloat16)


def _fastest(function: Callable[..., Any], *arguments: Any) -> float:
    jax.block_until_ready(function(*arguments))
    found = float("inf")
    for _ in range(_REPEATS):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        found = min(found, time.perf_counter() - start)
    return max(found, 1e-9)


def _matmul(device: Any, dtype: Any, size: int = 512) -> float:
    square = jax.device_put(jnp.ones((size, size), dtype), device)
    return 2 * size**3 / _fastest(jax.jit(jnp.matmul), square, square)


def _vector(device: Any, size: int = 1 << 20, steps: int = 32) -> float:
    def work(x: Any) -> Any:
        for _ in range(steps):
            x = x * 1.0001 + 0.5
        return x

    return 2 * steps * size / _fastest(jax.jit(work), jax.device_put(jnp.ones(size, jnp.float32), device))


def _copy(device: Any, size: int = 1 << 22) -> float:
    array = jax.device_put(jnp.ones(size, jnp.float32), device)
    return 2 * array.nbytes / _fastest(jax.jit(lambda x: x + 1), array)


def _start(device: Any) -> float:
    one = jax.device_put(jnp.ones(8, jnp.float32), device)

    def many(x: Any, count: int) -> Any:
        return lax.fori_loop(0, count, lambda _, x: lax.optimization_barrier(x * 1.5), x)

    run = jax.jit(many)
    return max((_fastest(run, one, 2000) - _fastest(run, one, 1000)) / 1000, 1e-9)


def _memory(device: Any) -> float:
    stats = device.memory_stats() or {}
    if stats.get("bytes_limit"):
        return float(stats["bytes_limit"])
    # Simulated devices share the memory of their host.
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return float(total) / jax.local_device_count(device.platform)


def _rate(table: Table) -> float:
    size, seconds = table.points[-1]
    return size / seconds


def _tables(mesh: Mesh) -> Any:
    for axis, devices in mesh.shape.items():
        if devices > 1:
            for kind in _RUNS:
                times = [_collective(mesh, axis, devices, kind, size) for size in _SIZES]
                # More bytes do not take less time; what says so is noise.
                yield Table(kind, (axis,), tuple(zip(map(float, _SIZES), accumulate(times, max), strict=True)))


def _collective(mesh: Mesh, axis: str, devices: int, kind: str, size: int) -> float:
    """Seconds of one, of a chain of them, so that what it takes to start a program is left out."""
    run, result = _RUNS[kind]
    count = max(size // 4 // devices, 1) * devices
    own = count // devices if result == "larger" else count
    cells = own * devices

    def chain(x: Any, length: Any) -> Any:
        def turn(_: Any, x: Any) -> Any:
            y = lax.optimization_barrier(run(x, axis, devices))
            # Back to what the next one takes, without another collective.
            return x * 0.5 + (y[:1] if y.size < x.size else y[: x.size])

        return lax.fori_loop(0, length, turn, x)

    places = PartitionSpec(axis), PartitionSpec()
    timed = jax.jit(jax.shard_map(chain, mesh=mesh, in_specs=places, out_specs=places[0], check_vma=False))
    array = jax.device_put(jnp.ones(cells, jnp.float32), jax.NamedSharding(mesh, places[0]))
    return max((_fastest(timed, array, 8) - _fastest(timed, array, 0)) / 8, 1e-9)


_RUNS: dict[str, tuple[Callable[..., Any], str]] = {
    "all-gather": (lambda x, axis, n: lax.all_gather(x, axis, tiled=True), "larger"),
    "reduce-scatter": (lambda x, axis, n: lax.psum_scatter(x, axis, tiled=True), "smaller"),
    "all-reduce": (lambda x, axis, n: lax.psum(x, axis), "same"),
    "all-to-all": (lambda x, axis, n: lax.all_to_all(x, axis, 0, 0, tiled=True), "same"),
    "collective-permute": (
        lambda x, axis, n: lax.ppermute(x, axis, [(i, (i + 1) % n) for i in range(n)]),
        "same",
    ),
}
"""Every kind, and whether its result is larger than its operand."""
