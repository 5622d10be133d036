"""Parameters of several layers as one, and back."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.lifting.callables.layers import layers_of, stacked_label


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        (["p/h_0/w", "p/h_1/w", "p/h_2/w"], "p/h_0:3/w"),
        (["p/3/w2", "p/5/w2", "p/7/w2"], "p/3:8:2/w2"),
        (["p/9/w", "p/10/w"], "p/9:11/w"),
        (["p/1/w", "p/0/w"], None),
        (["p/0/w", "p/1/w", "p/3/w"], None),
        (["p/0/w0", "p/1/w1"], None),
        (["p/00/w", "p/01/w"], None),
        (["p/first/w", "p/second/w"], None),
        (["w0", "w1"], None),
        (["p0/w", "p1/w"], None),
        (["p/h0:2/0/w", "p/h0:2/1/w"], None),
    ],
)
def test_layers_are_called_by_the_numbers_that_they_have(labels: list[str], want: str | None) -> None:
    assert stacked_label(labels) == want
    if want is not None:
        assert layers_of(want) == labels


def test_what_does_not_fit_is_named() -> None:
    def function(p: Any, q: Any, x: Any) -> Any:
        for w, b in zip(p["w"], q["b"], strict=True):
            x = jnp.tanh(x @ w + b)
        return x

    p, q, x = {"w": [np.eye(3)] * 3}, {"b": [np.ones(3)] * 3}, np.ones((2, 3))
    graph = tp.lift(function, p, q, x, stack="layer")
    assert [node.name for node in graph.inputs] == ["p/w/0:3", "q/b/0:3", "x"]
    with pytest.raises(tp.GraphError, match=r"(?s)cannot tell which argument.*'p', 'q'.*argument=\"p\""):
        tp.stack_layers(graph, p)
    with pytest.raises(tp.GraphError, match=r"(?s)tp.stack_layers finds no 'q/b/0', 'q/b/1', 'q/b/2'.*there are q/w/0"):
        tp.stack_layers(graph, p, "q")
    stacked = tp.stack_layers(graph, q, argument="q")
    with pytest.raises(tp.GraphError, match=r"(?s)tp.unstack_layers finds no 'w/0', 'w/1', 'w/2'.*there are b/0"):
        tp.unstack_layers(stacked, p)
    with pytest.raises(tp.GraphError, match=r'(?s)has no stacked layers.*Lift with tp.lift\(..., stack="layer"\)'):
        tp.stack_layers(tp.lift(function, p, q, x), p)


def test_parameters_whose_paths_look_like_layers_are_themselves() -> None:
    def function(p: Any, x: Any) -> Any:
        for w in p["w"]:
            x = jnp.tanh(x @ w)
        return x @ p["head_0:3"]

    p, x = {"w": [at * np.eye(3) for at in range(3)], "head_0:3": np.ones((3, 2))}, np.ones((2, 3))
    graph = tp.lift(function, p, x, stack="layer")
    stacked = tp.stack_layers(graph, p)
    assert {path: array.shape for path, array in stacked.items()} == {"head_0:3": (3, 2), "w/0:3": (3, 3, 3)}
    np.testing.assert_allclose(graph(stacked, x), function(p, x), rtol=1e-6)
    back = tp.unstack_layers(stacked, p)
    assert all(
        np.array_equal(a, b) for a, b in zip([*back["w"], back["head_0:3"]], [*p["w"], p["head_0:3"]], strict=True)
    )


def test_unstacked_parameters_are_refused_with_the_way_to_stack_them() -> None:
    def function(p: Any, x: Any) -> Any:
        for w in p:
            x = jnp.tanh(x @ w)
        return x

    p, x = [np.eye(3, dtype="float32")] * 3, np.ones((2, 3), "float32")
    graph = tp.lift(function, p, x, stack="layer")
    for call in (graph, tp.plan(graph, tp.mesh(data=2), {}).compile()):
        with pytest.raises(tp.GraphError) as caught:
            call(p, x)
        assert str(caught.value) == (
            "`function` takes 2 arrays, got 4"
            "\n  inputs: p/0:3 float32(layer=3, x_1=3, p_1=3), x float32(x_0=2, x_1=3)"
            "\n  Its layers are stacked: pass tp.stack_layers(graph, params) in the place of params."
        )
    with pytest.raises(tp.GraphError, match="Pass the arguments that it was traced with"):
        graph(x)
    np.testing.assert_allclose(graph(tp.stack_layers(graph, p), x), function(p, x), rtol=1e-6)
