"""The machine that is here, timed: products, elementwise work, copies, and collectives by kind, axis and size."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from combinators.errors import MeshError, first_line, message, spelt
from combinators.frozen import dataclass
from tapestry_jax.machines.cpu import shared_memory
from tapestry_jax.machines.figures import Figure, Link, Table
from tapestry_jax.machines.machine import Machine
from tapestry_jax.machines.of_mesh import machine_of_devices

_SIZES = (1 << 12, 1 << 16, 1 << 20)
"""Bytes of the collectives that are timed."""
_REPEATS = 5
_CALLS = 4
"""Calls that are timed together, where one is waited for as long as it takes to be asked for."""
_LONG = 12
"""How much longer than the smallest call a run has to be for its time to be that of its work."""


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
            message("only a mesh of devices can be measured", f"got {spelt(mesh)}", remedy="Make one with tp.mesh().")
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
    largest = _memory(device)
    work = _Work(device, _LONG * _fastest(jax.jit(lambda x: x + 1), _normal(device, 8)), largest / 32)
    return Machine(
        name=str(device.device_kind),
        platform="cuda" if device.platform == "gpu" else device.platform,
        matmul=tuple((name, Figure(work.products(dtype), source)) for name, dtype in _dtypes()),
        vector=Figure(work.arithmetic(), source),
        memory=Figure(largest, source),
        bandwidth=Figure(work.copies(), source),
        start=Figure(_start(device), source),
        group=len(mesh.devices.flat),
        tables=tables,
        **_untimed(device, tables, source),
    )


def _untimed(device: Any, tables: tuple[Table, ...], source: str) -> dict[str, Any]:
    """What is not timed: the memory on the chip, and links where no two devices are there; as its data sheet says."""
    known = machine_of_devices(str(device.device_kind), ())
    typical = Figure(32e6, f"of a {device.platform.upper()}, typically", estimate=True)
    if tables:
        slowest, first = min(map(_rate, tables)), min(table.points[0][1] for table in tables)
        link = Link("switch", Figure(slowest, source), Figure(max(first, 1e-9), source))
        inside = between = link
    elif known is not None:
        inside, between = known.inside, known.between
    else:
        told = "one device sends nothing"
        inside = between = Link("switch", Figure(1e9, told, estimate=True), Figure(1e-6, told, estimate=True))
    return {"cache": typical if known is None else known.cache, "inside": inside, "between": between}


def _dtypes() -> tuple[tuple[str, Any], ...]:
    return ("float32", jnp.float32), ("bfloat16", jnp.bfloat16)


def _fastest(function: Callable[..., Any], *arguments: Any, calls: int = 1) -> float:
    """Seconds of a call, of `calls` that are waited for together."""
    jax.block_until_ready(function(*arguments))
    found = float("inf")
    for _ in range(_REPEATS):
        start = time.perf_counter()
        for _ in range(calls - 1):
            function(*arguments)
        jax.block_until_ready(function(*arguments))
        found = min(found, (time.perf_counter() - start) / calls)
    return max(found, 1e-9)


@dataclass(frozen=True)
class _Work:
    """Work that grows until a run takes far longer than the smallest call: a GPU would else be timed at being asked.

    Attributes:
      device: where.
      long: seconds of a run that count as far longer.
      most: bytes of an array.
    """

    device: Any
    long: float
    most: float

    def products(self, dtype: Any) -> float:
        """FLOP/s of products of square matrices."""
        itemsize = jnp.dtype(dtype).itemsize

        def run(size: int) -> float:
            square = _normal(self.device, (size, size), dtype)
            return _fastest(jax.jit(jnp.matmul), square, square, calls=_CALLS)

        size, seconds = self._grown(512, 4, lambda size: size * size * itemsize, run)
        return 2 * size**3 / seconds

    def arithmetic(self, steps: int = 256) -> float:
        """FLOP/s of elementwise work, so much for each number that memory is not what it takes."""

        def work(x: Any) -> Any:
            for _ in range(steps):
                x = x * 0.9999 + 0.5
            return x

        size, seconds = self._over_rows(1 << 18, work)
        return 2 * steps * size / seconds

    def copies(self) -> float:
        """Bytes per second, read and written."""
        size, seconds = self._over_rows(1 << 22, lambda x: x + 1)
        return 8 * size / seconds

    def _over_rows(self, size: int, function: Callable[..., Any]) -> tuple[int, float]:
        run = jax.jit(function)
        return self._grown(size, 8, lambda size: 4 * size, lambda size: self._rowwise(run, size))

    def _rowwise(self, run: Callable[..., Any], size: int) -> float:
        return _fastest(run, _normal(self.device, size), calls=_CALLS)

    def _grown(
        self, size: int, by: int, nbytes: Callable[[int], int], run: Callable[[int], float]
    ) -> tuple[int, float]:
        """The first size of which a run is long, or the largest that memory is there for, and its seconds."""
        while True:
            seconds = run(size)
            if seconds >= self.long or nbytes(size * by) > self.most:
                return size, seconds
            size *= by


def _normal(device: Any, shape: int | tuple[int, ...], dtype: Any = jnp.float32) -> Any:
    """Normal numbers: products of ones and zeros take less power, and less time."""
    whole = (shape,) if isinstance(shape, int) else shape
    with jax.default_device(device):
        return jax.block_until_ready(jax.random.normal(jax.random.key(0), whole, dtype))


def _start(device: Any) -> float:
    """Seconds of one kernel more: of several runs, the difference of the fastest."""
    few, many = (1000, 2000) if device.platform == "cpu" else (32, 96)

    def turn(_: Any, x: Any) -> Any:
        return lax.optimization_barrier(x * 1.5)

    def chain(x: Any, count: int) -> Any:
        # CPUs run as one what follows each other; GPUs ask their host whether a loop has another turn.
        if device.platform == "cpu":
            return lax.fori_loop(0, count, turn, x)
        for number in range(count):
            x = turn(number, x)
        return x

    run = jax.jit(chain, static_argnums=() if device.platform == "cpu" else (1,))
    eight = _normal(device, 8)
    times = [_fastest(lambda count=count: run(eight, count)) for count in (few, many)]
    return max((times[1] - times[0]) / (many - few), 1e-9)


def _memory(device: Any) -> float:
    stats = device.memory_stats() or {}
    if stats.get("bytes_limit"):
        return float(stats["bytes_limit"])
    return shared_memory()


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
