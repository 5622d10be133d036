"""A `jax.lax.while_loop` as a loop of the graph."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import tapestry_jax as tp
from combinators.graphs.nodes import Loop
from tests.contract import assert_contract
from tests.tapestry_jax.draw import normal


def roots(x):
    """Of Newton, where the condition and the step read one value, and a counter is carried."""

    def goes_on(state):
        return (state[1] < 20) & jnp.any(jnp.abs(state[0] ** 2 - x) > 1e-6)

    return jax.lax.while_loop(goes_on, lambda state: (0.5 * (state[0] + x / state[0]), state[1] + 1), (x, 0))


X = jnp.abs(normal(7, 3)) + 0.1


def test_what_condition_and_step_read_is_brought_once():
    """Two inputs of the loop were brought one by one in the plan, and once in the program: two gathers for one."""
    graph = tp.lift(roots, X, names={"x": "b d"})
    (loop,) = (node for node in graph.nodes if isinstance(node, Loop))
    assert len(set(loop.operands[loop.carries :])) == len(loop.operands) - loop.carries
    plan = tp.plan(graph, tp.mesh(data=2, model=2), {"b": tp.striped("model", "data")})
    assert_contract(plan, grad=False, bounded=True)
    found, steps = plan.compile()(X)
    np.testing.assert_allclose(found, jnp.sqrt(X), rtol=1e-5)
    assert steps == roots(X)[1]


def test_cells_of_a_loop_with_a_counter_are_followed():
    """What a number may be that decides when a loop ends was no array."""
    plan = tp.plan(tp.lift(roots, X, names={"x": "b d"}), tp.mesh(data=2), {"b": ("data", tp.chunks(2))})
    plan.shards().verify_lowered(plan.compile().jaxpr(), cells=True)
