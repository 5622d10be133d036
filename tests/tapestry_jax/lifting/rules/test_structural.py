"""Rules of lookups, windows, running totals, slices, loops, random bits and what is whole along some axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tapestry_jax as tp
from combinators.graphs.nodes import Loop
from combinators.graphs.walk import loops, operations
from combinators.index_space.axis import Axis, Term
from combinators.index_space.operand import Operand
from combinators.index_space.signature import Signature
from combinators.operations.operation import Operation
from tapestry_jax.lifting.walk import Walk
from tests.tapestry_jax.lifting.agree import agrees, close, dims, mesh, weighed
from tests.thoroughly import thoroughly

_SOURCE = np.random.default_rng(1)


def floats(*shape: int) -> Any:
    return _SOURCE.standard_normal(shape).astype(np.float32)


def integers(below: int, *shape: int) -> Any:
    return _SOURCE.integers(0, below, shape).astype(np.int32)


X, IMAGE, KEY = floats(4, 6), floats(2, 8, 6, 3), np.array([3, 4], np.uint32)
SPECIAL = (lax.erf, lax.erfc, lax.erf_inv, lax.lgamma, lax.digamma, lax.bessel_i0e, lax.bessel_i1e, lax.cbrt, lax.expm1,
           lax.log1p, lax.rsqrt, lax.logistic, lax.asinh, lax.atanh, lax.cosh, lax.tan)  # fmt: skip
NHWC = ("NHWC", "HWIO", "NHWC")

CASES: dict[str, tuple[Any, ...]] = {
    "rows": (lambda x, t: x[t], X, integers(4, 3)),
    "rows that are not there": (lambda x, t: jnp.take(x, t, axis=0), X, np.array([[0, 3], [-1, 9]], np.int32)),
    "columns, clipped": (lambda x, t: jnp.take(x, t, axis=1, mode="clip"), X, integers(9, 3)),
    "one of each row": (lambda x, t: jnp.take_along_axis(x, t[:, None], 1)[:, 0], floats(3, 5), integers(5, 3)),
    "cells by two numbers": (lambda x, t: x[t, t], X, integers(4, 3)),
    "running": (lambda x: (jnp.cumsum(x, 1), jnp.cumprod(x, 0)), X),
    "running from the end": (lambda x: lax.cummin(x, 1, reverse=True), X),
    "slices": (lambda x: (x[1:3], x[:, ::2], x[0], x[..., -1], x[2:2]), X),
    "slices at places known later": (lambda x, i: lax.dynamic_slice_in_dim(x, i, 2, 0), X, np.int32(1)),
    "updates": (lambda x, i: lax.dynamic_update_slice_in_dim(x, x[:2] * 2, i, 0), X, np.int32(1)),
    "put together": (lambda x: (jnp.concatenate([x, x * 2], 1), jnp.pad(x, ((1, 2), (0, 0))), jnp.stack([x, x])), X),
    "turned": (lambda x: (x[::-1], jnp.roll(x, 1, 1), jnp.tile(x, (2, 1))), X),
    "sorted": (lambda x: (lax.top_k(x, 2), jnp.sort(x, 0), jnp.argsort(x)), X),
    "convolution": (lambda x, k: lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=NHWC), IMAGE,
                    floats(3, 3, 3, 4)),
    "convolution with strides": (lambda x, k: lax.conv_general_dilated(x, k, (2, 2), "VALID", dimension_numbers=NHWC),
                                 IMAGE[:, :, :5], floats(3, 3, 3, 4)),
    "dilated, padded unevenly": (lambda x, k: lax.conv_general_dilated(x, k, (2,), [(1, 2)], rhs_dilation=(2,)),
                                 floats(2, 3, 9), floats(4, 3, 3)),
    "in groups": (lambda x, k: lax.conv_general_dilated(x, k, (1,), "SAME", feature_group_count=4),
                  floats(2, 4, 8), floats(4, 1, 3)),
    "transposed": (lambda x, k: lax.conv_transpose(x, k, (2,), "SAME"), floats(2, 8, 3), floats(3, 3, 4)),
    "pooling": (lambda x: (lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
                           lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 1, 1, 1), "SAME"),
                           lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")), IMAGE),
    "a scan": (lambda x: lax.scan(lambda c, x: (jnp.tanh(c + x), c * x), jnp.zeros(6), x), X),
    "a scan from the end": (lambda x, w: lax.scan(lambda c, x: (jnp.tanh(c @ w + x), c), jnp.zeros((3, 6)), x,
                                                  reverse=True), floats(4, 3, 6), floats(6, 6)),
    "a counted loop": (lambda x: lax.fori_loop(0, 3, lambda i, c: c * 2 + i, x), X),
    "scattered sums": (lambda x, s: jnp.asarray(x).at[s].add(1.0), X, integers(4, 3)),
    "segments": (lambda x, s: jax.ops.segment_sum(x, s, 5), floats(3, 2), integers(5, 3)),
    "updates that are not there": (lambda x, s, u: x.at[s].add(u, mode="drop"), floats(5, 2),
                                   np.array([4, 0, 9, -7, -1, 5, 4], np.int32), floats(7, 2)),
    "cells that are set": (lambda x, s, u: x.at[s].set(u), floats(5, 2), np.array([4, 0, 3], np.int32), floats(3, 2)),
    "counts by bytes": (lambda s: jnp.bincount(s, length=300), integers(250, 7).astype(np.uint8)),
    "one row set": (lambda x, i: jnp.asarray(x).at[i].set(2.0), X, np.int32(2)),
    "an associative scan": (lambda x: lax.associative_scan(jnp.add, x), X),
    "halves": (lambda x: jnp.split(x, 2, 1), X),
    "a transform": (lambda x: jnp.abs(jnp.fft.fft(x)), X),
    "factors": (lambda x: jnp.linalg.cholesky(x @ x.swapaxes(-1, -2) + jnp.eye(4)), floats(2, 4, 4)),
    "drawn": (lambda k, x: x * jax.random.normal(jax.random.wrap_key_data(k), (4, 6)), KEY, X),
    "drawn from keys of keys": (
        lambda k, x: x * jax.random.bernoulli(jax.random.split(jax.random.fold_in(k, 3), 2)[1], 0.5, (4, 6)), KEY, X),
    "attention of groups": (lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True),
                            floats(2, 4, 4, 4), floats(2, 4, 2, 4), floats(2, 4, 2, 4)),
    "a loss": (lambda x, t: -jnp.take_along_axis(jax.nn.log_softmax(x), t[..., None], -1).mean(),
               floats(2, 4, 6), integers(6, 2, 4)),
    "scattered otherwise": (lambda x, s: (x.at[s].multiply(2), x.at[s].min(3), x.at[s].max(4), x.at[s].subtract(5)),
                            integers(9, 4, 6), integers(4, 3)),
    "convolution of three axes": (lambda x, k: lax.conv_general_dilated(x, k, (1, 2, 1), "SAME"),
                                  floats(2, 2, 4, 4, 4), floats(2, 2, 3, 3, 1)),
    "smallest of windows": (lambda x: lax.reduce_window(x, jnp.inf, lax.min, (2, 1), (2, 1), "VALID"), X),
    "sums of exponentials": (lambda x: lax.cumlogsumexp(x, 1), X),
    "factors of batches": (
        lambda x: (jnp.abs(lax.linalg.qr(x)[1]), lax.linalg.svd(x, compute_uv=False), lax.linalg.lu(x)[0],
                   jnp.linalg.eigvalsh(x), lax.linalg.triangular_solve(x, x, lower=True)),
        floats(2, 3, 3) + 4 * np.eye(3, dtype=np.float32)),
    "eigenvalues": (lambda x: jnp.sort(jnp.abs(jnp.linalg.eigvals(x)), -1),
                    np.diag(np.arange(1.0, 4)).astype("f4")[None] + floats(2, 3, 3) / 9),
    "drawn in a loop": (lambda k, x: lax.scan(lambda c, x: (jax.random.split(c)[0], x * jax.random.normal(c, (6,))),
                                              jax.random.wrap_key_data(k), x)[1], KEY, X),
    "error functions": (lambda x: (lax.erf(x), lax.erfc(x)), X),
    "special functions": (
        lambda x, y: (*(f(x) for f in SPECIAL), lax.atan2(x, y), lax.nextafter(*map(lax.stop_gradient, (x, y))),
                      lax.rem(y, x), lax.igamma(x, y)),
        np.linspace(0.1, 0.9, 24, dtype=np.float32).reshape(4, 6), floats(4, 6) ** 2 + 1),
}  # fmt: skip


# The same rules, of other options or beside others that have rows of their own.
THOROUGH = {
    *("running from the end", "dilated, padded unevenly", "convolution of three axes", "smallest of windows"),
    *("attention of groups", "a loss", "drawn", "factors", "convolution with strides", "rows that are not there"),
    *("drawn from keys of keys", "factors of batches", "halves", "running", "eigenvalues", "drawn in a loop"),
    # Sums of segments in messages along edges, below; sums of rows in updates that are not there.
    *("a scan from the end", "segments", "scattered sums"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] * (name in THOROUGH)) for name in CASES]
)
def test_every_cut_of_what_is_lifted_gives_what_the_function_gives(name: str) -> None:
    function, *args = CASES[name]
    # Each of them is a map of cells, as others that have rows of their own; compiling what derives them takes seconds.
    alone: dict[str, Any] = {"plans": [], "grads": False} if name == "special functions" and not thoroughly() else {}
    # XLA lays out what a transform and its gradient share as it likes, and then refuses the program on CPUs.
    assert agrees(function, *args, apart=name == "a transform", **alone).opaque() == ()


def test_layers_that_are_scanned_are_one_loop() -> None:
    def layers(x: Any, w: Any) -> Any:
        return lax.scan(lambda carry, w: (jnp.tanh(carry @ w), None), x, w)[0]

    graph = agrees(layers, X, floats(3, 6, 6), names="batch embed, layer _ _")
    (loop,) = (node for node in graph.nodes if isinstance(node, Loop))
    assert loop.over == "layer" and loop.length == 3
    assert {"batch", "embed"} <= set(dims(graph))


def test_loops_that_hand_nothing_on_are_maps_where_that_is_asked_for() -> None:
    def rows(x: Any, w: Any, keys: Any) -> Any:
        def row(given: Any) -> Any:
            x, key = given
            return jnp.sort(jnp.tanh(x @ w)) + jax.random.uniform(jax.random.wrap_key_data(key), (3,))

        return lax.map(row, (x, keys))

    w, names = floats(6, 3), {"x": "row in", "w": "in out"}
    keys = jax.random.key_data(jax.random.split(jax.random.key(0), 4))
    with pytest.raises(tp.PlanError, match=r"turns hand nothing on.*\n.*maps=True"):
        tp.plan(tp.lift(rows, X, w, keys, names=names), mesh(), {"row": "a"})
    plans = [{"row": "b", "in": "a"}, {"row": ("a", tp.chunks(size=1))}]
    graph = agrees(rows, X, w, keys, names=names, plans=plans, maps=True)
    assert {"row", "in"} <= set(dims(graph)) and not list(loops(graph))


def test_turns_that_take_different_branches_stay_a_loop() -> None:
    def roots(x: Any) -> Any:  # of all branches at once the slope would be NaN
        return lax.map(lambda cell: lax.cond(cell > 0, jnp.sqrt, lambda cell: cell * 0, cell), x)

    graph = agrees(roots, np.asarray([4.0, 0.0, 1.0], np.float32), plans=[{}], maps=True)
    assert len(list(loops(graph))) == 1


def _drawn(key: Any) -> Any:
    return jax.random.uniform(jax.random.wrap_key_data(key, impl="rbg"), (3,))


def _called(method: str | None) -> Callable[[Any], Any]:
    return lambda row: jax.pure_callback(np.sin, jax.typeof(row), row, vmap_method=method)


@pytest.mark.parametrize(
    ("turn", "x"),
    [
        (_drawn, np.arange(12, dtype=np.uint32).reshape(3, 4)),  # all at once it draws other numbers
        (_called("sequential"), X),  # jax.vmap makes a loop of it again
        (_called(None), X),  # jax.vmap refuses it
    ],
    ids=["drawn", "sequential", "unmapped"],
)
def test_turns_that_jax_maps_otherwise_or_not_at_all_stay_a_loop(turn: Callable[[Any], Any], x: Any) -> None:
    graph = tp.lift(lambda x: lax.map(turn, x), x, maps=True)
    assert len(list(loops(graph))) == 1
    np.testing.assert_allclose(graph(x), np.stack([turn(row) for row in x]), rtol=1e-6)


WHOLE: dict[str, tuple[Any, ...]] = {
    "sort": (lambda x: jnp.sort(x, 1), X),
    "rev": (lambda x: x[:, ::-1] * 1, X),
    "top_k": (lambda x: lax.top_k(x, 6)[0], X),
    "fft": (lambda x: jnp.abs(jnp.fft.fft(x)), X),
    "cumsum": (lambda x: jnp.cumsum(x, 1), X),
    "cumlogsumexp": (lambda x: lax.cumlogsumexp(x, 1), X),
    "concatenate": (lambda x: jnp.concatenate([x, x[:, :0]], 1), X),
    "dynamic_update_slice": (lambda x, i: lax.dynamic_update_slice_in_dim(x, x[:, :2], i, 1), X, np.int32(4)),
}


@pytest.mark.parametrize("primitive", WHOLE)
def test_what_is_needed_whole_is_mapped_by_no_rule(primitive: str) -> None:
    function, *args = WHOLE[primitive]
    graph = tp.lift(function, *args, names={"x": "a0 a1"})
    node = next(node for _, node in operations(graph) if node.operation.name == primitive)
    names = {node.bound[dim] for dim in node.operation.signature.map_dims if dim != node.operation.over}
    assert "a0" in names and "a1" not in names


def mapped(operation: Operation) -> Operation:
    """As if each block of what is needed whole had what it needs."""
    told = operation.signature
    return replace(operation, signature=Signature(tuple(map(_cut, told.operands)), tuple(map(_cut, told.results))))


def _cut(operand: Operand) -> Operand:
    axes = tuple(Axis(a.kind, tuple(Term(t.name, t.coefficient) for t in a.terms), a.offset) for a in operand.axes)
    return replace(operand, axes=axes)


def swapped(operation: Operation) -> Operation:
    """As if the first two axes of its first result were each other."""
    first, *others = operation.signature.results
    turned = replace(first, axes=(first.axes[1], first.axes[0], *first.axes[2:]))
    return replace(operation, signature=Signature(operation.signature.operands, (turned, *others)))


def unmerged(operation: Operation) -> Operation:
    """As if a block had all that is folded or scanned."""
    kernel = operation.dense[0] if operation.dense else operation.kernel
    return replace(operation, kernel=kernel, monoid=None, over=None, reverse=False, pad=None, dense=())


SQUARE = floats(4, 4)
DAMAGED: list[tuple[Callable[[Operation], Operation], str, tuple[Any, ...]]] = [
    *((mapped if primitive != "cumsum" else unmerged, primitive, case) for primitive, case in WHOLE.items()),
    (mapped, "cholesky", CASES["factors"]),
    (mapped, "pad", (lambda x: jnp.pad(x, ((1, 1), (0, 0))), X)),
    (mapped, "split", (lambda x: jnp.split(x, 2, 1), X)),
    (mapped, "tile", (lambda x: lax.tile(x, (2, 1)), X)),
    (mapped, "dynamic_slice", CASES["slices at places known later"]),
    (mapped, "gather", CASES["cells by two numbers"]),
    (mapped, "scatter-add", (lambda x, s, t: x.at[s, t].add(1.0), X, integers(4, 5), integers(6, 5))),
    (unmerged, "scatter-add", CASES["segments"]),
    (mapped, "reshape", (lambda x: (x * 2).reshape(6, 4) * 3, X)),
    (swapped, "dot_general", (lambda x, w: x @ w, SQUARE, floats(4, 4))),
    (swapped, "conv", (lambda x, k: lax.conv_general_dilated(x, k, (1,), "SAME"), floats(4, 4, 4), floats(4, 4, 3))),
    (swapped, "gather", (lambda x, t: x[t], SQUARE, integers(4, 4))),
    (swapped, "cumsum", (lambda x: jnp.cumsum(x, 1), SQUARE)),
    (swapped, "slice", (lambda x: x[:, 1:, 1:], floats(2, 4, 4))),
    (swapped, "reduce_sum", (lambda x: x.sum(2), floats(4, 4, 2))),
    (swapped, "sort", (lambda x: jnp.sort(x, 2), floats(4, 4, 2))),
    (unmerged, "dot_general", (lambda x, w: x @ w, SQUARE, floats(4, 4))),
    (unmerged, "reduce_max", (lambda x: x.max(1), X)),
    (unmerged, "gather", CASES["rows"]),
    (unmerged, "conv", (lambda x, k: lax.conv_general_dilated(x, k, (1,), "SAME"), floats(4, 4, 4), floats(4, 4, 3))),
]


@pytest.mark.parametrize("mode", ["clip", "drop"])
def test_one_update_goes_to_its_cell_alone(mode: str) -> None:
    x, s, u = floats(5, 7), np.array([-1], np.int32), floats(1, 7)
    graph = tp.lift(lambda x, s, u: x.at[s].max(u, mode=mode), x, s, u, names={"x": "row _"})
    plan = tp.plan(graph, tp.mesh(a=2), {"row": "a"})
    # The row that begins the second block, of which the first one has no place, is found in the first one too.
    np.testing.assert_array_equal(plan.compile()(*map(jnp.asarray, (x, s, u)))[:4], x[:4])


@pytest.mark.parametrize(
    "entries", [pytest.param({"edge": "b"}, marks=pytest.mark.thorough), {"edge": tp.chunks(2), "node": "a"}]
)
def test_equal_extrema_of_segments_share_a_gradient_under_every_plan(entries: Any) -> None:
    x, s = np.array([5, 5, 5, 2, 2, 1, 5, 0], np.float32), np.array([1, 1, 1, 0, 0, 2, 1, 2], np.int32)
    args = tuple(map(jnp.asarray, (np.array([2, 5, -np.inf, 0], np.float32), x, s)))

    def extrema(start: Any, x: Any, s: Any) -> Any:
        return start.at[s].max(x), (-3 * start).at[s].min(-3 * x)

    graph = tp.lift(extrema, *args, names={"start": "node", "x": "edge", "s": "edge"})
    planned = tp.plan(graph, mesh(), entries).compile()
    ours, whole = (jax.jit(weighed(run, args))() for run in (planned, extrema))
    close(ours, whole, 1e-6, "equal extrema")


def test_largest_integers_of_segments_are_merged() -> None:
    x, s = integers(100, 7), integers(4, 7)
    graph = agrees(
        lambda x, s: jax.ops.segment_max(x, s, 4), x, s, names={"x": "edge", "s": "edge"}, plans=[{"edge": "b"}]
    )
    assert {each.kind for each in tp.plan(graph, mesh(), {"edge": "b"}).collectives()} == {"all-reduce"}


@pytest.mark.parametrize(
    "entries",
    [
        *(pytest.param(each, marks=pytest.mark.thorough) for each in ({"row": tp.chunks(2)}, {"edge": "b"})),
        {"row": "b"},
    ],
)
def test_products_at_unique_numbers_have_derivatives_under_every_plan(entries: Any) -> None:
    x, s, u = floats(6, 2), np.array([4, 2, 3, 5], np.int32), floats(4, 2)
    names = {"x": "row _", "s": "edge", "u": "edge _"}
    agrees(lambda x, s, u: (x + 1).at[s].multiply(u, unique_indices=True), x, s, u, names=names, plans=[entries])


def test_numbers_that_are_clipped_or_bytes_find_their_block() -> None:
    rows, outside, updates = floats(5, 2), np.array([9, 0, -7, 4], np.int32), floats(4, 2)
    plans = [{"row": "a"}, {"row": tp.striped("a")}]
    agrees(lambda x, s, u: x.at[s].add(u, mode="clip"), rows, outside, updates, names={"x": "row _"}, plans=plans)
    if thoroughly():
        return  # all is compiled there, and XLA's older emitters (tests/conftest.py) alone write elsewhere
    few = np.array([3, 250, 3, 44], np.uint8)  # the second block begins at 150, and a byte has no 256
    numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    ones = np.ones(4, np.float32)

    def added(x: Any, s: Any) -> Any:
        return lax.scatter_add(x, s[:, None], ones, numbers)

    agrees(added, floats(300), few, names={"x": "row"}, plans=plans)


def test_messages_along_edges_are_cut_by_edges_and_by_nodes() -> None:
    def step(nodes: Any, senders: Any, receivers: Any, w: Any) -> Any:
        return nodes + jax.ops.segment_sum(jnp.tanh(nodes[senders] @ w), receivers, 6)

    args = floats(6, 3), integers(6, 11), integers(6, 11), floats(3, 3)
    names = {"nodes": "node _", "senders": "edge", "receivers": "edge"}
    plans = [{"edge": "b"}, {"edge": tp.chunks(3), "node": tp.striped("a")}]
    if thoroughly():  # along nodes alone, and along both without chunks
        plans += [{"node": "b"}, {"edge": "b", "node": "a"}]
    graph = agrees(step, *args, names=names, plans=plans)
    assert graph.opaque() == ()
    sent = [each for each in tp.plan(graph, mesh(), {"edge": "b"}).collectives() if each.kind == "all-reduce"]
    assert [(each.path, each.bytes) for each in sent] == [("scatter-add", 72)]


def test_convolutions_that_group_batches_are_known_whole() -> None:
    def grouped(x: Any, k: Any) -> Any:
        return lax.conv_general_dilated(x, k, (1,), "SAME", batch_group_count=2)

    graph = tp.lift(grouped, x := floats(4, 2, 5), k := floats(4, 2, 3))
    assert [found.primitive for found in graph.opaque()] == ["conv_general_dilated"]
    np.testing.assert_allclose(graph(x, k), grouped(x, k), rtol=1e-5, atol=1e-5)


# What cuts agree with is seen to be damaged in some of each kind.
SEEN = {
    *((mapped, "sort"), (mapped, "gather"), (swapped, "slice"), (swapped, "reduce_sum")),
    *((unmerged, "cumsum"), (unmerged, "reduce_max"), (unmerged, "dot_general")),
}


@pytest.mark.parametrize(
    ("how", "primitive", "case"),
    [pytest.param(*each, marks=[pytest.mark.thorough] * (each[:2] not in SEEN)) for each in DAMAGED],
    ids=[f"{how.__name__} {p}" for how, p, _ in DAMAGED],
)
def test_a_damaged_rule_is_seen(how: Any, primitive: str, case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    written, met = Walk.leaf, set[str]()

    def leaf(walk: Walk, operation: Operation, operands: Any, outs: Any) -> Any:
        met.add(operation.name)
        return written(walk, how(operation) if operation.name == primitive else operation, operands, outs)

    monkeypatch.setattr(Walk, "leaf", leaf)
    function, *args = case
    with pytest.raises((AssertionError, tp.TapestryError, TypeError, ValueError)):
        agrees(function, *args, grads=False)
    assert primitive in met


def test_random_bits_of_any_width_are_those_of_jax() -> None:
    def bits(key: Any) -> Any:
        key = jax.random.wrap_key_data(key)
        return [jax.random.bits(key, (3, 1, 5), kind) for kind in (jnp.uint8, jnp.uint16, jnp.uint32)]

    graph = tp.lift(bits, KEY)
    for got, want in zip(graph(KEY), bits(KEY), strict=True):
        np.testing.assert_array_equal(got, want)
