"""What is nested too deep for Python or JAX is refused with a reason; what compositions nest is not."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from combinators.graphs.nodes import DEEPEST_LOOPS

sin = tp.Map(jnp.sin)
ROW = tp.TensorType({"n": 4})


def iterated(depth: int) -> Any:
    arrow: Any = sin
    for _ in range(depth):
        arrow = tp.iterate(arrow, 1)
    return arrow


def called(depth: int) -> Any:
    program: Any = sin
    for _ in range(depth):
        program = tp.program(_calling(program))
    return program


def _calling(inner: Any) -> Any:
    def outer(x: Any) -> Any:
        return inner(x)

    return outer


def test_loops_nested_as_deep_as_allowed_run_and_have_gradients() -> None:
    nested = iterated(DEEPEST_LOOPS)
    assert jnp.allclose(jax.jit(jax.grad(lambda x: nested(x).sum()))(jnp.ones(4)), jnp.cos(1.0))
    graph = tp.trace(nested, ROW)
    assert tp.Graph.from_json(graph.to_json()).key == graph.key


@pytest.mark.parametrize("depth", [DEEPEST_LOOPS + 1, 150, 3000])
def test_loops_nested_deeper_are_refused(depth: int) -> None:
    with pytest.raises(tp.GraphError) as caught:
        tp.trace(iterated(depth), ROW)
    assert str(caught.value).splitlines() == [
        "loops are nested more than 24 deep, at `iterate`",
        "  JAX lowers some forty loops inside each other, and their gradients fewer",
        "  Multiply the lengths of loops that only repeat one another into one.",
    ]


def test_programs_that_call_one_another_too_deep_are_refused() -> None:
    assert len(tp.trace(called(60), ROW).nodes) == 2
    with pytest.raises(tp.GraphError, match="calls programs inside programs deeper than Python allows"):
        tp.trace(called(600), ROW)
