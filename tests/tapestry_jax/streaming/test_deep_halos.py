"""Grids in files: several steps for each pass, by a map whose window is the deep halo, beside steps in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp

DEPTH, ROWS, COLUMNS = 3, 29, 6
REACH = {"y": (-1, 1), "x": (-1, 1)}


def gray_scott(u: Any, v: Any) -> tuple[Any, Any]:
    def spread(w: Any) -> Any:
        return w[-1, 0] + w[1, 0] + (w[0, -1] + w[0, 1]) - 4 * w.here

    made = u.here * v.here**2
    return (
        u.here + 0.16 * spread(u) - made + 0.035 * (1 - u.here),
        v.here + 0.08 * spread(v) + made - 0.1 * v.here,
    )


STEP = tp.stencil(gray_scott, REACH, boundary="periodic")
INSIDE = tp.stencil(gray_scott, REACH, boundary={"y": "valid", "x": "periodic"})


def steps(u: Any, v: Any) -> Any:
    for _ in range(DEPTH):
        u, v = INSIDE(u, v)
    return u, v


def deep() -> Any:
    window = f"(y+[dy]-{DEPTH}) [x]"
    kernel = tp.Map(steps, f"{window}, {window} -> y [x], y [x]", sizes={"dy": 2 * DEPTH + 1}, boundary="periodic")

    @tp.program("y x, y x -> y x, y x")
    def one_pass(u, v):
        return kernel(u, v)

    return one_pass


@pytest.mark.parametrize(
    ("size", "devices"), [(5, 1), *(pytest.param(*n, marks=pytest.mark.thorough) for n in ((4, 2), (2, 1), (16, 1)))]
)
def test_a_coupled_system_in_passes_is_that_in_memory(tmp_path: Path, size: int, devices: int) -> None:
    random = np.random.default_rng(0)
    fields = [random.uniform(size=(ROWS, COLUMNS)).astype(np.float32) for _ in range(2)]
    expected = jax.jit(tp.iterate(STEP, 2 * DEPTH))(*map(jnp.asarray, fields))
    given: Any = fields
    mesh, axes = (tp.mesh(data=devices), ("data",)) if devices > 1 else (None, ())
    graph = tp.trace(deep(), *(tp.TensorType({"y": ROWS, "x": COLUMNS}),) * 2)
    names = [name for name, _ in graph.outputs]
    for number in range(2):
        sinks = {name: tp.create(tmp_path / f"{number}-{name}.zarr", chunks=(4, COLUMNS)) for name in names}
        job = tp.stream(graph, {"y": (*axes, tp.chunks(size=size))}, given, sinks, mesh=mesh)
        assert len(job.split.passes) == 1
        given = job.run()
    for stored, want in zip(given, expected, strict=True):
        found = np.empty(stored.shape, stored.dtype)
        stored.read(((0, ROWS), (0, COLUMNS)), found).result()
        np.testing.assert_allclose(found, want, atol=1e-6)


@pytest.mark.parametrize(
    ("boundary", "follows"), [("periodic", True), ("reflect", True), ("edge", False), ("zero", False)]
)
def test_a_deep_window_is_several_steps_where_its_rim_changes_as_the_boundary_does(
    boundary: str, follows: bool
) -> None:
    def heat(u: Any) -> Any:
        return u.here + 0.2 * (u[-1, 0] + u[1, 0] + (u[0, -1] + u[0, 1]) - 4 * u.here)

    inside = tp.stencil(heat, REACH, boundary={"y": "valid", "x": "zero"})
    each = tp.stencil(heat, REACH, boundary={"y": boundary, "x": "zero"})

    def several(block: Any) -> Any:
        for _ in range(DEPTH):
            block = inside(block)
        return block

    u = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
    window = tp.Map(several, f"(y+[dy]-{DEPTH}) [x] -> y [x]", sizes={"dy": 2 * DEPTH + 1}, boundary=boundary)
    found, wanted = (np.asarray(jax.jit(run)(u)) for run in (window, tp.iterate(each, DEPTH)))
    np.testing.assert_allclose(found[DEPTH:-DEPTH], wanted[DEPTH:-DEPTH], atol=1e-6)
    # What lies outside was copied once, or is zero: it takes the steps of a cell, and not those of a boundary.
    assert bool(np.abs(found - wanted).max() < 1e-6) is follows
    streamed = tp.stream(window, {"y": tp.chunks(size=5)}, u).run()
    np.testing.assert_allclose(streamed, found, atol=1e-6)
