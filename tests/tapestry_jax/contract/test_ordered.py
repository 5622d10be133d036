"""The contract on folds of monoids that no collective knows: any number of devices, the order of the mesh."""

from __future__ import annotations

import functools

import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.planning.folding import ordered
from tests.contract import assert_holds
from tests.tapestry_jax.draw import named, normal


def test_contract_top_k(mesh2x4):
    # Thirteen rows on eight devices: devices with fewer rows than are asked for, and one with none.
    best, args = tp.aggregators.TopK(3), (normal(13, 5),)
    graph = tp.trace(lambda x: tp.fold(best, "row col, @row -> col")(x), *named("row col", *args))

    def reference(x):
        found = best.reference(np.asarray(x), np.arange(13))
        return found | {name: np.moveaxis(found[name], 0, -1) for name in ("value", "index")}

    assert_holds(tp.plan(graph, mesh2x4, {"row": ("model", "data")}), args, reference=reference)


def test_top_k_with_ties_is_the_same_for_every_plan(mesh8):
    x = jnp.round(normal(21)).at[jnp.asarray([3, 17])].set(jnp.nan)
    best = tp.aggregators.TopK(6)
    graph = tp.trace(lambda x: tp.fold(best, "row, @row -> ")(x), *named("row", x))
    found = tp.plan(graph, mesh8, {"row": "data"}).compile()(x)
    for name, expected in best.reference(np.asarray(x), np.arange(21)).items():
        np.testing.assert_array_equal(found[name], expected, err_msg=name)


# The routes. Small states are gathered; where a collective costs nothing but its bytes the others show at small sizes.


@pytest.fixture
def free_collectives(monkeypatch):
    monkeypatch.setattr(ordered, "LATENCY", 0)


def multiply(left, right):
    return left @ right


def eye(cell):
    return jnp.eye(cell.shape[-1], dtype=cell.dtype)


def product_along(blocks):
    """The product of the matrices along the first axis."""
    return functools.reduce(jnp.matmul, blocks, jnp.broadcast_to(jnp.eye(blocks.shape[-1]), blocks.shape[1:]))


CHAIN = tp.Monoid(eye, multiply, name="MatrixProduct")
CHAIN_OF_ONE = tp.Reduce(product_along, "t [i] [j] -> [i] [j]", CHAIN)
CHAIN_OF_MANY = tp.Reduce(product_along, "t c [i] [j] -> c [i] [j]", CHAIN)


def reference_chain(x):
    return functools.reduce(np.matmul, np.asarray(x))


@pytest.mark.usefixtures("free_collectives")
@pytest.mark.parametrize(
    ("mesh", "axes", "length"),
    [
        pytest.param({"data": 2, "model": 4}, ("model", "data"), 8, marks=pytest.mark.thorough),
        ({"data": 2, "model": 3}, ("model", "data"), 11),
        pytest.param({"data": 5}, ("data",), 10, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_contract_tree_of_any_number_of_devices(mesh, axes, length):
    args = (normal(length, 3, 3, scale=0.6),)
    plan = tp.plan(tp.trace(CHAIN_OF_ONE, *named("t i j", *args)), tp.mesh(**mesh), {"t": axes})
    assert_holds(plan, args, reference=reference_chain)
    rounds = len(ordered.tree_rounds(plan.mesh.size))
    assert [each.kind for each in plan.collectives()] == ["collective-permute"] * rounds + ["all-reduce"]


@pytest.mark.usefixtures("free_collectives")
@pytest.mark.parametrize(
    ("mesh", "axes", "cells"),
    [
        ({"data": 2, "model": 4}, ("model", "data"), 17),
        pytest.param({"data": 3}, ("data",), 6, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_contract_cells_shared_out(mesh, axes, cells):
    args = (normal(9, cells, 2, 2, scale=0.7),)
    plan = tp.plan(tp.trace(CHAIN_OF_MANY, *named("t c i j", *args)), tp.mesh(**mesh), {"t": axes})
    assert_holds(plan, args, reference=reference_chain)
    share = -(-cells // plan.mesh.size)
    assert [(each.kind, each.bytes) for each in plan.collectives()] == [
        (kind, share * plan.mesh.size * 16) for kind in ("all-to-all", "all-gather")
    ]


def counted(x):
    return jnp.full((*x.shape[1:-2], 1), x.shape[0], jnp.float32), product_along(x), jnp.all(x > 0, 0)


def merge_counted(left, right):
    return left[0] + right[0], left[1] @ right[1], left[2] & right[2]


def counted_identity(cell):
    return jnp.zeros(1), eye(cell[1]), True


def mean_entry(state):
    return state[1] / state[0], state[2]


@pytest.mark.usefixtures("free_collectives")
@pytest.mark.parametrize("cells", ["", pytest.param("c ", marks=pytest.mark.thorough)], ids=["tree", "cells"])
def test_contract_leaves_that_are_the_same_everywhere_are_not_sent(mesh8, cells):
    # Eight blocks of two rows: all devices know the count.
    fold = tp.Reduce(
        counted,
        f"t {cells}[i] [j] -> {cells}[i] [j], {cells}[i] [j]",
        tp.Monoid(counted_identity, merge_counted, name="Counted"),
        carrier=f"{cells}one, {cells}row column, {cells}row column",
        present=mean_entry,
    )
    args = (normal(16, *([8] if cells else []), 2, 2),)
    plan = tp.plan(tp.trace(fold, *named(f"t {cells}i j", *args)), mesh8, {"t": "data"})
    assert_holds(plan, args, reference=lambda x: (reference_chain(x) / 16, (np.asarray(x) > 0).all(0)))
    state = 5 * args[0][0].size  # four bytes of a product, one of its truth
    assert sum(each.bytes for each in plan.collectives()) == (2 if cells else 4) * state


def geometric(a):
    return tp.monoids.AffineRecurrence.fold_stacked((a, jnp.ones(a.shape)))


def second(state):
    return state[1]


@pytest.mark.usefixtures("free_collectives")
@pytest.mark.parametrize("cells", [pytest.param(1, marks=pytest.mark.thorough), 8], ids=["tree", "cells"])
def test_contract_leaf_that_differs_only_once_merged(mesh8, cells):
    # Every device begins with b = 1; only what h = a h + 1 is merged to has to be sent.
    fold = tp.Reduce(geometric, "t c -> c", tp.monoids.AffineRecurrence, carrier="c, c", present=second)
    args = (normal(8, cells),)
    plan = tp.plan(tp.trace(fold, *named("t c", *args)), mesh8, {"t": "data"})
    assert_holds(plan, args, reference=lambda a: functools.reduce(lambda h, step: step * h + 1, np.asarray(a), 0))


@pytest.mark.usefixtures("free_collectives")
def test_contract_tree_leaves_out_what_the_result_does_not_need(mesh8):
    # In the last round the earlier half's multiplier is not needed, nor is it handed out.
    fold = tp.Reduce(
        lambda a, b: tp.monoids.AffineRecurrence.fold_stacked((a, b)),
        "t [d], t [d] -> [d]",
        tp.monoids.AffineRecurrence,
        carrier="d, d",
        present=second,
    )
    args = (normal(8, 3), normal(8, 3, seed=1))
    plan = tp.plan(tp.trace(fold, *named("t d, t d", *args)), mesh8, {"t": "data"})

    def reference(a, b):
        return functools.reduce(lambda h, step: step[0] * h + step[1], zip(*map(np.asarray, (a, b)), strict=True), 0)

    assert_holds(plan, args, reference=reference)
    assert sum(each.bytes for each in plan.collectives()) == 12 * (2 + 2 + 1 + 1)
