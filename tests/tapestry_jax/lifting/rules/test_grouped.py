"""`lax.ragged_dot`: rows in groups, each with a matrix of its own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tapestry_jax as tp
from combinators.graphs.walk import operations
from tests.tapestry_jax.lifting.agree import agrees

SOURCE = np.random.default_rng(0)
ROWS, WEIGHTS = SOURCE.standard_normal((13, 6)).astype("f4"), SOURCE.standard_normal((5, 6, 4)).astype("f4")
SIZES = np.array([3, 0, 6, 1, 2], np.int32)  # the last row is of no group
NAMES = {"x": "row in", "w": "expert in out"}


def product(x: Any, w: Any, sizes: Any) -> Any:
    return lax.ragged_dot(x, w, sizes)


def slopes(x: Any, w: Any, sizes: Any) -> Any:
    """Its gradient inside of what is lifted, in which rows are contracted."""
    return jax.grad(lambda x, w: (lax.ragged_dot(x, w, sizes) ** 2).sum(), (0, 1))(x, w)


def routed(x: Any, w: Any, route: Any) -> Any:
    """Experts of a mixture, as MaxText has them: rows are sorted by expert, and put back."""
    order = jnp.argsort(route)
    sizes = jnp.bincount(route, length=w.shape[0])
    out = lax.ragged_dot(x[order], w, sizes.astype(jnp.int32))
    return jnp.zeros_like(out).at[order].set(jax.nn.relu(out))


PLANS = [
    pytest.param({"row": "b", "expert": "a"}, marks=pytest.mark.thorough),  # As every run takes it below.
    # One by one as both at once.
    pytest.param({"expert": "b", "in": "a"}, marks=pytest.mark.thorough),
    pytest.param({"row": ("a", tp.chunks(2)), "out": "b"}, marks=pytest.mark.thorough),
    {"expert": tp.chunks(2), "row": "a"},
    {"row": tp.striped("b"), "expert": tp.striped("a")},
]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_a_grouped_product_is_cut_along_rows_groups_and_both_sides(plan: dict[str, Any]) -> None:
    graph = agrees(product, ROWS, WEIGHTS, SIZES, plans=[plan], names=NAMES)
    assert graph.opaque() == ()
    (operation,) = [node.operation for _, node in operations(graph)]
    assert "ragged_dot: m0 k0, g k0 n2, [s], @m0, @g -> m0 n2" in str(operation)


def test_the_gradient_of_one_that_is_lifted_folds_rows() -> None:
    plans = [{"row": "b", "expert": "a"}, {"ragged_dot": "b", "row": tp.chunks(2)}, {"row": ("a", "b")}]
    # Its own gradient, the second one, JAX does not have.
    graph = agrees(slopes, ROWS, WEIGHTS, SIZES, plans=plans, names=NAMES, rtol=1e-4, grads=False)
    assert graph.opaque() == ()
    told = "ragged_dot: k0 m1, k0 n1, [s], @k0, @ragged_dot -> ragged_dot m1 n1"
    assert told in [str(node.operation) for _, node in operations(graph)]


def test_a_batch_of_grouped_products_has_sizes_of_its_own() -> None:
    x, w = SOURCE.standard_normal((3, 8, 4)).astype("f4"), SOURCE.standard_normal((3, 4, 4, 2)).astype("f4")
    sizes = np.array([[2, 2, 2, 2], [8, 0, 0, 0], [0, 3, 0, 4]], np.int32)
    names = {"x": "batch row in", "w": "batch expert in out"}
    plans = [{"batch": "a", "expert": "b"}, {"row": "b"}]
    graph = agrees(jax.vmap(product), x, w, sizes, plans=plans, names=names)
    assert graph.opaque() == ()


def test_rows_that_are_routed_to_experts_are_equal_under_an_expert_axis() -> None:
    route = SOURCE.integers(0, 5, 13).astype(np.int32)
    graph = agrees(routed, ROWS, WEIGHTS, route, plans=[{"expert": "b"}], names=NAMES)
    assert graph.opaque() == ()


def test_rows_of_other_groups_do_not_reach_a_gradient() -> None:
    """Infinite rows of one group leave the slopes of the others finite, wherever they are computed."""
    rows = ROWS.copy()
    rows[0] = np.inf
    plan = tp.plan(tp.lift(product, rows, WEIGHTS, SIZES, names=NAMES), tp.mesh(a=2, b=4), {"expert": "a"})
    found = jax.jit(jax.grad(lambda w: plan.compile()(rows, w, SIZES).sum()))(WEIGHTS)
    assert np.isfinite(found[1:]).all() and not np.isfinite(found[0]).any()


@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float16", marks=pytest.mark.thorough)])
def test_halves_are_summed_as_products_of_halves_are(dtype: str) -> None:
    x, w = jnp.asarray(ROWS, dtype), jnp.asarray(WEIGHTS, dtype)
    agrees(product, x, w, SIZES, plans=[{"expert": "b", "row": "a"}], names=NAMES, rtol=3e-2)


def test_sizes_whose_sums_may_not_fit_their_dtype_are_those_of_jax() -> None:
    x = SOURCE.standard_normal((300, 2)).astype("f4")
    sizes = np.array([150, 150], np.uint8)  # JAX takes the end of the second group as 44
    graph = agrees(product, x, WEIGHTS[:2, :2], sizes, plans=[])
    assert [operation.primitive for operation in graph.opaque()] == ["ragged_dot_general"]


@pytest.mark.parametrize("sizes", [[3, 9, 6, 1, 2], [20, 1, 0, 0, 4], [0] * 5], ids=str)
def test_groups_of_more_rows_than_there_are_and_of_none(sizes: list[int]) -> None:
    agrees(product, ROWS, WEIGHTS, np.array(sizes, np.int32), plans=[{"row": "b", "expert": "a"}], names=NAMES)
