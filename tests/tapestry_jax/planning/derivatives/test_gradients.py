"""Which operations a policy of rematerialization keeps."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax.extend.core import Primitive

import tapestry_jax as tp
from combinators.graphs.nodes import Apply
from tapestry_jax.planning.derivatives.gradients import known_by
from tapestry_jax.planning.entries.remat import KEPT

X = jax.ShapeDtypeStruct((4, 4), jnp.float32)
STEP = Primitive("step_of_others")
STEP.def_abstract_eval(lambda x, **_: x)


@pytest.mark.parametrize("keeps", KEPT)
@pytest.mark.parametrize("name", ["prim", "_", "params", "args"])
def test_primitives_of_others_have_parameters_of_any_name(keeps: str, name: str) -> None:
    graph = tp.lift(lambda x: jnp.tanh(STEP.bind(x, **{name: 1}) @ x), X)
    found = {
        node.operation.name: known_by(graph, index, KEPT[keeps])
        for index, node in enumerate(graph.nodes)
        if isinstance(node, Apply)
    }
    assert found == {"step_of_others": False, "dot_general": True, "tanh": False}
