"""Where keys and values go round a ring and memory is short, they go round once more backwards."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType

import tapestry_jax as tp
from tapestry_jax.plan import asked_of
from tapestry_jax.searching.answering.rings import rings_again
from tapestry_jax.searching.evaluated import Evaluated, evaluate
from tapestry_jax.searching.question.read import read_question

LAYERS = 2
MESH = AbstractMesh((8,), ("data",), axis_types=(AxisType.Auto,))
RING: dict[str, Any] = {"t": "data", "keys": tp.ring("data")}
FIXED: dict[str, Any] = {**RING, "h": None, "c": None, "d": None, "e": None}


@tp.program("h t c, c d, c -> h t c")
def layer(x: Any, w: Any, bias: Any) -> Any:
    y = tp.Map(jnp.tanh)(tp.einsum("h t c, c d -> h t d")(x, w)).rename(d="c")
    keys, values = y.rename(t="keys"), (y * bias).rename(t="keys", c="e")
    return y + tp.attention(y + bias, keys, values, over="keys").rename(e="c")


TYPES = (
    tp.TensorType({"h": 2, "t": 2**12, "c": 128}, "bfloat16"),
    tp.TensorType({"layer": LAYERS, "c": 128, "d": 128}, "bfloat16"),
    tp.TensorType({"layer": LAYERS, "c": 128}, "bfloat16"),
)


@pytest.fixture(scope="module")
def graph() -> tp.Graph:
    return tp.trace(lambda x, ws, biases: tp.stack(layer, LAYERS, name="decoder")(x, ws, biases), *TYPES)


def test_a_ring_turns_again_where_what_it_brought_does_not_fit(graph: tp.Graph):
    kept, again = (tp.plan(graph, MESH, RING, remat=how).memory(True).total for how in (True, "rings_again"))
    for memory, remat in ((kept, True), ((kept + again) // 2, "rings_again")):
        plan = tp.search(graph, MESH, "H100", memory, "exhaustive", grad=True, entries=FIXED)
        assert plan.remat == (("decoder", remat),)
        assert plan.memory(True).total <= memory


@pytest.mark.parametrize(
    ("memory", "entries", "remat", "fixed"),
    [
        (None, RING, True, None),  # nothing lacks
        ("1GB", RING, "dots", None),  # products are kept, and are to be
        ("1GB", RING, True, True),  # the user said so
        ("1GB", {"t": "data"}, True, None),  # no ring
    ],
    ids=["no bound", "products kept", "fixed", "no ring"],
)
def test_nothing_else_is_asked_for(graph: tp.Graph, memory: str | None, entries: Any, remat: Any, fixed: Any):
    problem = read_question(graph, MESH, "H100", memory, {"grad": True, "remat": fixed}).problems[0]
    if memory is None:
        object.__setattr__(problem, "memory", None)
    candidate = evaluate(problem, asked_of(tp.plan(graph, MESH, entries, remat=remat)))
    assert isinstance(candidate, Evaluated)
    assert rings_again(problem, candidate) is None
    # And nothing was planned for it.
    assert len(problem.evaluated) == 1
