"""Kernels whose derivative is infinite on windows of padding: gradients are those of the program without a plan.

Thorough: chunks on one device, which are on several in every run, even sizes, and more aggregators.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.lowering.padding import valid
from tapestry_jax.lowering.padding.level import is_level
from tapestry_jax.planning.geometry.layout import Cut, Window
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tests.simulated.evaluate import simulated
from tests.thoroughly import thoroughly

Program = Callable[..., Any]


def _log_change(x: Any) -> Any:
    return jnp.log(jnp.abs(x[..., 1:] - x[..., :-1]))


def _change(mode: str = "valid") -> Any:
    return tp.Map(_log_change, "(y+[dy]) -> y", sizes={"dy": 2}, boundary=mode)


_SCALE = tp.Map(lambda s, x: s * x, "1, y -> y")
_NORM = tp.Map(lambda x: x / jnp.sqrt(x * x) + x)
_SUM = tp.Reduce(lambda x: jnp.log(jnp.abs(x)).sum(-1), "y -> ", tp.monoids.Sum)
_CHANGES = tp.Reduce(lambda x: _log_change(x).sum(0), "c (y+[dy]) -> y", tp.monoids.Sum, sizes={"dy": 2})
_BACKWARDS = tp.Scan(tp.monoids.Sum, "y -> y", over="y", kernel=lambda x: jnp.log(jnp.abs(x)), reverse=True)


def _agrees(program: Program, size: int, mesh: dict[str, int], entries: dict[str, Any], channels: int = 0) -> None:
    """Value, and gradients by all cells and by a scale that they share, in NumPy on all devices."""
    shape, names = ((channels, size), ("c", "y")) if channels else ((size,), ("y",))
    types = tp.TensorType({"s": 1}, jnp.float32), tp.TensorType(dict(zip(names, shape, strict=True)), jnp.float32)
    args = np.ones(1, np.float32), np.random.default_rng(size).normal(size=shape).astype(np.float32)
    graph = tp.trace(program, *types)
    run = tp.plan(graph, tp.mesh(None, **mesh), entries).compile()

    def both(of: Any) -> Any:
        def weighed(s: Any, x: Any) -> Any:
            (found,) = jax.tree.leaves(of(s, x))
            return (found * (jnp.arange(found.size).reshape(found.shape) - 1.7)).sum(), found

        return simulated(jax.grad(weighed, argnums=(0, 1), has_aux=True), *args)

    for got, want in zip(jax.tree.leaves(both(run)), jax.tree.leaves(both(graph)), strict=True):
        assert np.isfinite(want).all()
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("mode", "size", "mesh"), [("valid", 7, {"a": 2}), ("periodic", 7, {"a": 2}), ("reflect", 9, {"a": 8})]
)
def test_windows_are_read_where_the_program_has_some(mode: str, size: int, mesh: dict[str, int]) -> None:
    # Behind the last index lie copies, which differ by nothing.
    _agrees(lambda s, x: _change(mode)(_SCALE(s, x)), size, mesh, {"y": "a"})


@pytest.mark.parametrize(
    "entry",
    [("a", tp.chunks(2)), tp.striped("a"), ("a", "b"), pytest.param(tp.chunks(size=2), marks=pytest.mark.thorough)],
)
def test_chunks_stripes_and_several_axes_read_what_there_is(entry: Any) -> None:
    _agrees(lambda s, x: _change()(_SCALE(s, x)), 10, {"a": 2, "b": 2}, {"y": entry})


@pytest.mark.parametrize("after", [_NORM, _SUM, _BACKWARDS, _change()], ids=["map", "fold", "scan", "window"])
def test_a_device_without_an_index_hands_on_nothing_that_is_read(after: Any) -> None:
    # Nine differences in blocks of two: three devices have none, and their rows are nobody's.
    _agrees(lambda s, x: after(_SCALE(s, _NORM(_change()(x)))), 10, {"a": 8}, {"y": "a"})


@jax.custom_vjp
def _doubled(x: Any) -> Any:
    return x * 2


def _pulled(x: Any, cotangent: Any) -> Any:
    """A derivative that somebody wrote, and which is not zero where its cotangent is."""
    return (cotangent + jnp.cos(x),)


_doubled.defvjp(lambda x: (x * 2, x), _pulled)


@pytest.mark.parametrize(
    ("mesh", "entries"),
    [
        ({"a": 8}, {"y": "a"}),
        pytest.param({"a": 1}, {"y": tp.chunks(3)}, marks=pytest.mark.thorough),
        ({"a": 2}, {"y": ("a", tp.chunks(3))}),
    ],
)
def test_a_derivative_that_makes_something_of_nothing_meets_no_padding(mesh: Any, entries: Any) -> None:
    _agrees(lambda s, x: tp.Map(_doubled)(_SCALE(s, x)), 7, mesh, entries)


_AVERAGE = tp.aggregators.Mean()
_LENGTH = tp.Aggregator(lambda x: x * x, tp.monoids.Sum, jnp.sqrt)
_DIFFERENCE = tp.Map(lambda x: x[:, 1:] - x[:, :-1], "c (y+[dy]) -> c y", sizes={"dy": 2}, boundary="periodic")


@pytest.mark.parametrize(
    ("of", "chunks"),
    [
        pytest.param(_LENGTH, {}, id="length-whole", marks=pytest.mark.thorough),
        pytest.param(_LENGTH, {"c": tp.chunks(2)}, id="length-chunks", marks=pytest.mark.thorough),
        pytest.param(_AVERAGE, {}, id="mean-whole"),
        pytest.param(_AVERAGE, {"c": tp.chunks(2)}, id="mean-chunks", marks=pytest.mark.thorough),
        pytest.param(tp.aggregators.LogSumExp(), {}, id="logsumexp-whole", marks=pytest.mark.thorough),
        pytest.param(tp.aggregators.LogSumExp(), {"c": tp.chunks(2)}, id="logsumexp-chunks"),
    ],
)
def test_what_is_presented_is_of_rows_that_there_are(of: tp.Aggregator, chunks: dict[str, Any]) -> None:
    # The kernels are level, what is made of their sums is not: the root of no difference, and a mean of nothing.
    for size, devices in ((5, 2), (5, 4))[not thoroughly() :]:
        _agrees(
            lambda s, x: _SCALE(s, tp.fold(of, "c y -> y")(_DIFFERENCE(x))),
            size,
            {"a": devices},
            {"y": "a", **chunks},
            3,
        )


def test_prefixes_of_nothing_are_not_presented() -> None:
    running = tp.scan(_AVERAGE, "c y -> c y", over="c")
    entries = {"y": "a", "c": tp.chunks(2)}
    _agrees(
        lambda s, x: _SCALE(s, tp.fold(tp.aggregators.Sum(), "c y -> y")(running(_DIFFERENCE(x)))),
        5,
        {"a": 4},
        entries,
        3,
    )


def _looked_up(x: Any) -> Any:
    """Rows of a table, which are NaN outside of it; neighbours that are equal, as copies are, lie there."""
    return jnp.take(jnp.arange(1.0, 4.0), (x[1:] == x[:-1]).astype(jnp.int32) * 9, mode="fill") * x[1:]


def _weighed(x: Any) -> Any:
    return jnp.where(x[1:] == x[:-1], jnp.inf, 1.0) * x[1:]


def _from_table(x: Any) -> Any:
    return jnp.stack([jnp.float32(1.0), jnp.float32(jnp.inf)])[(x[1:] == x[:-1]).astype(jnp.int32)] * x[1:]


@pytest.mark.parametrize("kernel", [_looked_up, _weighed, _from_table])
def test_infinite_slopes_come_from_constants_and_from_rows_outside_of_a_table_too(kernel: Any) -> None:
    slopes = tp.Map(kernel, "(y+[dy]) -> y", sizes={"dy": 2})
    _agrees(lambda s, x: slopes(_SCALE(s, x)), 10, {"a": 2}, {"y": ("a", tp.chunks(2))})


@pytest.mark.parametrize(
    ("kernel", "dtype", "expected"),
    [
        (lambda x: x[1:] * x[:-1] / 2.0, jnp.float32, True),
        (lambda x: x[1:] * x[:-1], jnp.float16, False),
        (lambda x: x[1:] * 2.0 - x[:-1], jnp.float16, True),
        (lambda x: x[1:] ** 3, jnp.float16, False),
        (lambda x: x[1:] / 0.0, jnp.float32, False),
        (lambda x: x[1:] * np.array([1.0, np.inf], np.float32)[0], jnp.float32, True),
        (lambda x: x[1:] * jnp.asarray(np.array([np.nan] * 3, np.float32)), jnp.float32, False),
        (lambda x: jnp.take(x, jnp.array([3, 9]), mode="fill"), jnp.float32, False),
        (lambda x: jnp.take(x, jnp.array([3, 9]), mode="fill", fill_value=0.0), jnp.float32, True),
        (lambda x: jnp.take(x, jnp.array([3, 9]), mode="clip"), jnp.float32, True),
        (lambda x: jnp.tanh(x[1:]) + jnp.cos(x[:-1]), jnp.float32, True),
        (lambda x: jnp.abs(x[1:] * x[:-1]), jnp.complex64, True),
        (lambda x: jnp.tanh(x[1:]), jnp.complex64, False),
        (lambda x: jax.nn.sigmoid(x[1:]), jnp.complex64, False),
        (lambda x: jnp.sin(x[1:]), jnp.complex64, False),
        (lambda x: jnp.cos(1j * x[1:]).real, jnp.float32, False),
        (lambda x: jax.lax.scan(lambda c, _: (jnp.sqrt(c), None), x, None, length=2)[0], jnp.float32, False),
    ],
)
def test_what_makes_slopes_infinite_is_read_off_the_program(kernel: Any, dtype: Any, expected: bool) -> None:
    assert is_level(jax.make_jaxpr(kernel)(jnp.zeros(4, dtype))) is expected


def test_complex_functions_grow_where_real_ones_are_bounded() -> None:
    def steep(x: Any) -> Any:
        # Of copies it is the hyperbolic cosine of 1000, which no float64 holds.
        change = jnp.abs(x[1:] - x[:-1])
        return change * jnp.cos(1j * jnp.maximum(1000.0 - 1e5 * change, 0.0)).real

    slopes = tp.Map(steep, "(y+[dy]) -> y", sizes={"dy": 2})
    _agrees(lambda s, x: slopes(_SCALE(s, x)), 10, {"a": 2}, {"y": ("a", tp.chunks(2))})


def test_folds_of_windows_read_what_there_is() -> None:
    def program(s: Any, x: Any) -> Any:
        return _CHANGES(tp.Map(lambda s, x: s * x, "1, c y -> c y")(s, x))

    _agrees(program, 8, {"a": 2, "b": 3}, {"y": "b", "c": "a"}, channels=3)


@pytest.mark.parametrize(
    ("size", "mode"), [pytest.param(8, "zero", marks=pytest.mark.thorough), (11, "zero"), (11, "periodic")]
)
def test_indices_computed_again_before_the_first_and_behind_the_last_are_none(size: int, mode: str) -> None:
    # Those round the end of a periodic axis are indices, and stay.
    centred = tp.Map(
        lambda x: x[1:-1] + jnp.sqrt((x[2:] - x[:-2]) ** 2), "(y+[dy]-1) -> y", sizes={"dy": 3}, boundary=mode
    )
    _agrees(lambda s, x: tp.iterate(centred, 4)(_SCALE(s, x)), size, {"a": 2}, {"y": ("a", tp.halo(depth=2))})


def test_slices_of_ordinary_functions_read_what_there_is() -> None:
    def change(s: Any, x: Any) -> Any:
        return jnp.log(jnp.abs(s * x[1:] - s * x[:-1]))

    args = jnp.ones(1), jax.random.normal(jax.random.key(0), (8,))
    graph = tp.lift(change, *args, names={"x": "y"})
    (dim,) = [name for name in graph.type_of(graph.outputs[0][1]).names if name is not None]
    run = tp.plan(graph, tp.mesh(a=2), {dim: "a"}).compile()
    got, want = (simulated(jax.grad(lambda *a, of=of: of(*a).sum(), argnums=(0, 1)), *args) for of in (run, change))
    for left, right in zip(got, want, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-4)


def test_the_first_and_the_last_device_tell_whether_any_has_padding() -> None:
    seen = set[bool]()
    offsets = itertools.product((-2, 0, 1), (1, 2), (0, 1, 2), (0, 1, 2), (False, True))
    windows = [
        Window(offset, width, 1, 4, "valid", before, after, wraps) for offset, width, before, after, wraps in offsets
    ]
    for window, block, size, devices in itertools.product((None, *windows), (1, 3), (1, 5), (1, 3)):
        cut, mesh = Cut(("a",), block, window), MeshShape((("a", devices),))
        told, (kinds, _) = valid.is_full(cut, size, mesh), valid.ranges_of(cut, size, mesh)
        assert told == (kinds == [(0, cut.extent)]), (cut, size, devices)
        seen.add(told)
    assert seen == {False, True}
