"""Which operations a policy of rematerialization keeps, and which may read no cell of an operand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax.extend.core import Primitive

import tapestry_jax as tp
from combinators.graphs.nodes import Apply
from tapestry_jax.planning.derivatives.gradients import known_by, maybe_unread
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


@pytest.mark.parametrize(
    ("window", "taps", "cells", "unread"),
    [
        ("y+[dy]-1", 2, 1, True),
        ("y+[dy]-1", 2, 2, False),
        ("y+[dy]", 2, 1, True),
        ("y+[dy]", 2, 2, False),
        ("y+[dy]-2", 5, 2, True),
        ("y+[dy]-2", 5, 3, False),
        ("y+[dy]", 1, 1, False),
    ],
)
def test_a_window_may_pass_by_an_axis_that_it_leaves_in_every_place(
    window: str, taps: int, cells: int, unread: bool
) -> None:
    """Before the first cell or behind the last one."""
    reads = tp.Map(
        lambda x: jnp.tanh(x[:, : x.shape[1] - taps + 1]), f"b ({window}) -> b y", sizes={"dy": taps}, boundary="zero"
    )
    graph = tp.trace(reads, tp.TensorType({"b": 2, "y": cells}))
    (node,) = (number for number, each in enumerate(graph.nodes) if isinstance(each, Apply))
    assert maybe_unread(graph, node) == ({0} if unread else set())
