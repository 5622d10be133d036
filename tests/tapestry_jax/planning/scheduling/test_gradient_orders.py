"""Gradients are added up over the mesh as products make them, and turned afterwards."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.planning.scheduling.gradient_orders import gradient_orders


@pytest.mark.parametrize(
    ("signature", "shapes", "orders"),
    [
        ("b i, i o -> b o", [(2, 3), (3, 4)], ((), (1, 0))),
        ("b i, o i -> b o", [(2, 3), (4, 3)], ((), ())),
        ("i b, i o -> b o", [(3, 2), (3, 4)], ((1, 0), (1, 0))),
        ("b s i, i h d -> b s h d", [(2, 2, 3), (3, 4, 2)], ((), (1, 2, 0))),
        ("e i o, e b i -> e b o", [(2, 3, 4), (2, 5, 3)], ((0, 2, 1), ())),
        ("i o, i o -> o", [(3, 4), (3, 4)], ((1, 0), (1, 0))),
        ("i o -> o", [(3, 4)], ((),)),
        ("i o, j k, i -> o j k", [(3, 4), (2, 2), (3,)], ((), (), ())),
    ],
)
def test_what_a_product_shares_with_its_result_comes_first(signature, shapes, orders):
    leaf = tp.einsum(signature)
    graph = tp.trace(leaf, *(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes))
    [index] = [index for index, node in enumerate(graph.nodes) if node.__class__.__name__ == "Apply"]
    assert gradient_orders(graph.shaped(index)) == orders


def equations(jaxpr):
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def test_a_product_is_added_up_over_the_mesh_before_it_is_turned(mesh2x4):
    x, w = np.ones((4, 3, 8), np.float32), np.arange(32, dtype=np.float32).reshape(8, 4)
    plan = tp.plan(tp.trace(tp.einsum("b s i, i o -> b s o"), x, w), mesh2x4, {"b": "data", "o": "model"})
    slopes = jax.grad(lambda x, w: jnp.sum(plan.compile()(x, w) ** 2), 1)
    found = list(equations(jax.make_jaxpr(slopes)(x, w).jaxpr))
    products = {variable for each in found if each.primitive.name == "dot_general" for variable in each.outvars}
    turned = {each.invars[0]: each.outvars[0] for each in found if each.primitive.name == "transpose"}
    back = {turned[turned[product]] for product in products if turned.get(product) in turned}
    [summed] = [each.invars[0] for each in found if each.primitive.name == "psum_invariant" and each.invars[0] in back]
    assert summed.aval.shape == (1, 8)  # a device's part of `o`, then all of `i`
    np.testing.assert_allclose(slopes(x, w), jax.grad(lambda w: jnp.sum((x @ w) ** 2))(w))
