"""Scans by an associative function: one operation, cut along its steps as well."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tapestry_jax as tp
from combinators.graphs.walk import operations
from tapestry_jax.lifting.trees import prefixes
from tests.tapestry_jax.lifting.agree import agrees

SOURCE = np.random.default_rng(0)


def some(*shape: int) -> Any:
    return SOURCE.uniform(0.3, 1.1, shape).astype("f4")


def recurrence(left: Any, right: Any) -> Any:
    return left[0] * right[0], left[1] * right[0] + right[1]


def by_segment(left: Any, right: Any) -> Any:
    return left[0] | right[0], jnp.where(right[0], right[1], left[1] + right[1])


def dense(left: Any, right: Any) -> Any:
    return jnp.einsum("...ij,...jk->...ik", right[0], left[0]), jnp.einsum(
        "...ij,...j->...i", right[0], left[1]
    ) + right[1]


def diagonal(decay: Any, drive: Any) -> Any:
    """As S5 has it: decays that no batch has, under `vmap`."""

    def one(drive: Any) -> Any:
        return lax.associative_scan(recurrence, (decay * jnp.ones(drive.shape), drive))[1]

    return jax.vmap(one)(drive)


def first_largest(left: Any, right: Any) -> Any:
    kept = left[0] >= right[0]
    return jnp.where(kept, left[0], right[0]), jnp.where(kept, left[1], right[1])


# The function, its arguments, the monoid, the axis of x0 that is scanned, and a plan.
CASES: dict[str, Any] = {
    "products from the end": (
        lambda x0: lax.associative_scan(jnp.multiply, x0, axis=1, reverse=True),
        (some(3, 13),),
        "Prod",
        {"x0_1": "b", "x0_0": "a"},
    ),
    "the largest of few steps": (
        lambda x0: lax.associative_scan(jnp.maximum, x0),
        (some(5, 4),),
        "Max",
        {"x0_0": ("a", "b"), "x0_1": tp.chunks(2)},
    ),
    "a recurrence, both results": (
        lambda x0, x1: lax.associative_scan(recurrence, (x0, x1)),
        (some(13, 4), some(13, 4)),
        "AffineRecurrence",
        {"x0_0": "b", "x0_1": "a"},
    ),
    "a recurrence from the end, in chunks": (
        lambda x0, x1: lax.associative_scan(recurrence, (x0, x1), reverse=True)[1],
        (some(12, 5), some(12, 5)),
        "dual AffineRecurrence",
        {"x0_0": ("a", tp.chunks(2)), "x0_1": "b"},
    ),
    "one decay for several states": (
        lambda x0, x1: lax.associative_scan(recurrence, (x0[:, :, None], x1))[1],
        (some(12, 2), some(12, 2, 5)),
        "AffineRecurrence",
        {"x0_0": "a", "x1_2": "b"},
    ),
    "decays without the batch": (diagonal, (some(3), some(2, 13, 3)), "AffineRecurrence", {"mul": "b", "drive_0": "a"}),
    "segments": (
        lambda x0: lax.associative_scan(by_segment, (x0 > 0.9, x0))[1],
        (some(16, 3),),
        "associative_scan",
        {"x0_0": "b", "x0_1": "a"},
    ),
    "the largest and where it is": (
        lambda x0: lax.associative_scan(first_largest, (x0, jnp.sin(x0))),
        (some(12, 3),),
        "associative_scan",
        {"x0_0": "b", "x0_1": "a"},
    ),
    "segments from the end": (
        lambda x0: lax.associative_scan(by_segment, (x0 > 0.9, x0), reverse=True)[1],
        (some(11, 2),),
        "dual associative_scan",
        {"x0_0": "b"},
    ),
    "matrices, under vmap": (
        lambda x0, x1: jax.vmap(lambda x1: lax.associative_scan(dense, (x0 * 0.6, x1))[1])(x1),
        (some(12, 3, 3), some(2, 12, 3)),
        "associative_scan",
        {"x0_0": "b", "x1_0": "a"},
    ),
}


# From the end as from the start, by fewer leaves, and of other monoids that were found as these are.
THOROUGH = {
    *("segments from the end", "decays without the batch", "the largest of few steps"),
    *("a recurrence, both results", "the largest and where it is", "products from the end"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] * (name in THOROUGH)) for name in CASES]
)
def test_a_scan_is_one_operation_and_equal_where_its_steps_are_cut(name: str) -> None:
    function, args, monoid, plan = CASES[name]
    graph = agrees(function, *args, plans=[plan])
    found = [node.operation for _, node in operations(graph) if node.operation.name == prefixes.NAME]
    assert [str(operation.monoid) for operation in found][-1:] == [f"Monoid({monoid})"]
    assert not any(node.operation.name in ("slice", "pad", "concatenate") for _, node in operations(graph))
    assert graph.opaque() == ()


def test_leaves_that_need_no_others_are_scanned_alone() -> None:
    def function(x: Any, y: Any) -> Any:
        return lax.associative_scan(lambda l, r: (l[0] + r[0], jnp.maximum(l[1], r[1])), (x, y))

    found = [node.operation for _, node in operations(tp.lift(function, some(8, 2), some(8, 3)))]
    assert [operation.monoid.name for operation in found if operation.monoid is not None] == ["Sum", "Max"]


def test_the_same_tree_is_computed_where_no_step_is_cut() -> None:
    x = some(37, 2) * 1e4

    def function(x: Any) -> Any:
        return lax.associative_scan(jnp.add, x)

    np.testing.assert_array_equal(tp.lift(function, x)(x), jax.jit(function)(x))


def written_out(damage: str = "", shows: bool = False) -> Any:
    """The prefixes of four numbers as a tree, a part of which may be changed so that it is none of them."""

    def function(x: Any) -> Any:
        pairs = every_other(x, 0, 3) + every_other(x, 1, 4)
        both = every_other(pairs, 0, 1) + every_other(pairs, 1, 2)
        odd = jnp.concatenate([lax.slice_in_dim(pairs, 0, 1), both])
        told = lax.slice_in_dim(odd, 1, 2) if damage == "other steps" else lax.slice_in_dim(odd, 0, 1)
        last = every_other(x, 2, 4)
        rest = told * last if damage == "another call" else told + last
        first = lax.slice_in_dim(x, 1, 2) if damage == "another first step" else lax.slice_in_dim(x, 0, 1)
        even = jnp.concatenate([first, rest])
        zero = 1.0 if damage == "no zeros between" else 0.0
        spread = lax.pad(odd, 0.0, [(1, 0, 1)]), lax.pad(even, zero, [(0, 1, 1)])
        result = spread[0] * spread[1] if damage == "no sum" else spread[0] + spread[1]
        return (result, both) if shows else result

    return function


def every_other(x: Any, start: int, stop: int) -> Any:
    return lax.slice_in_dim(x, start, stop, 2)


@pytest.mark.parametrize("name", ["another call", "other steps", "another first step", "no zeros between", "no sum"])
def test_what_only_looks_like_prefixes_is_none(name: str) -> None:
    function, x = written_out(name), some(4)
    graph = tp.lift(function, x)
    assert prefixes.NAME not in [node.operation.name for _, node in operations(graph)]
    np.testing.assert_allclose(graph(x), function(x), rtol=1e-6)


def one_after_the_other(x: Any) -> Any:
    """Prefixes of a function that is not associative, in order, behind a beginning as JAX's trees have it."""

    def merged(left: Any, right: Any) -> Any:
        return 0.5 * left + right

    pairs = merged(every_other(x, 0, 3), every_other(x, 1, 4))
    three = merged(lax.slice_in_dim(pairs, 0, 1), lax.slice_in_dim(x, 2, 3))
    four = merged(three, lax.slice_in_dim(x, 3, 4))
    return jnp.concatenate([lax.slice_in_dim(x, 0, 1), lax.slice_in_dim(pairs, 0, 1), three, four])


def counts_its_steps(x: Any) -> Any:
    return lax.associative_scan(lambda l, r: l + r ** l.shape[0], x)


@pytest.mark.parametrize(("function", "steps"), [(one_after_the_other, 4), (counts_its_steps, 8)])
def test_what_another_tree_of_the_function_would_not_give_is_none(function: Any, steps: int) -> None:
    x = some(steps, 3)
    graph = tp.lift(function, x)
    assert prefixes.NAME not in [node.operation.name for _, node in operations(graph)]
    np.testing.assert_allclose(graph(x), function(x), rtol=1e-6)


@pytest.mark.parametrize("steps", range(4, 20))
def test_all_numbers_of_steps_are_found(steps: int) -> None:
    told = jax.make_jaxpr(lambda x: lax.associative_scan(lambda l, r: jnp.sin(l) + r, x))(some(steps)).jaxpr
    assert [equation.primitive.name for equation in prefixes.with_prefixes(told)] == [prefixes.NAME]


def test_the_tree_that_is_not_changed_is_found() -> None:
    x = some(4)
    graph = tp.lift(written_out(), x)
    assert [node.operation.name for _, node in operations(graph)] == [prefixes.NAME]
    np.testing.assert_allclose(graph(x), np.cumsum(x), rtol=1e-6)


def test_a_function_that_mixes_steps_or_holds_an_array_stays_written_out() -> None:
    weights, x = jnp.asarray(some(3)), some(8, 3)

    def holds(x: Any) -> Any:
        return lax.associative_scan(lambda l, r: l * weights + r, x)

    def mixes(x: Any) -> Any:
        return lax.associative_scan(lambda l, r: l + r - l.sum(0), x)

    for function in (holds, mixes):
        graph = tp.lift(function, x)
        assert prefixes.NAME not in [node.operation.name for _, node in operations(graph)]
        np.testing.assert_allclose(graph(x), function(x), rtol=1e-4)


def test_prefixes_that_something_else_reads_halfway_stay_written_out() -> None:
    graph = tp.lift(written_out(shows=True), some(4))
    assert prefixes.NAME not in [node.operation.name for _, node in operations(graph)]


_OTHERWISE: dict[str, Any] = {
    "differences": lambda a, b: a - b,
    "means": lambda a, b: (a + b) / 2,
    "nearly sums": lambda a, b: a + 0.999 * b,
    "largest by one less": lambda a, b: jnp.maximum(a - 1, b),
    "pairs": lambda a, b: (a[0] + b[0], a[1] * b[0] - b[1]),
}


@pytest.mark.parametrize("name", _OTHERWISE)
def test_a_function_that_is_not_associative_is_refused_where_its_steps_are_cut(name: str) -> None:
    function = _OTHERWISE[name]
    given = (some(16, 2), some(16, 2)) if name == "pairs" else some(16, 2)

    def scanned(given: Any) -> Any:
        return lax.associative_scan(function, given, reverse=name == "means")

    graph = tp.lift(scanned, given, names="step cell" if name != "pairs" else None)
    step, cell = graph.nodes[0].results[0].names
    mesh = tp.mesh(data=2)
    for entry in ("data", tp.chunks(4)):
        with pytest.raises(tp.KernelError, match="is not associative"):
            tp.plan(graph, mesh, {step: entry}).compile()(given)
    # Nothing is merged in another order where cells are.
    found = tp.plan(graph, mesh, {cell: "data"}).compile()(given)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5), found, scanned(given))


def test_a_function_that_is_not_associative_is_refused_in_streams() -> None:
    x = some(64)
    graph = tp.lift(lambda x: lax.associative_scan(lambda a, b: a - b, x), x, names="step")
    with pytest.raises(tp.KernelError, match="is not associative"):
        tp.stream(graph, {"step": tp.chunks(size=16)}, x).run()
