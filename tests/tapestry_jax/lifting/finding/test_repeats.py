"""Equal layers that follow each other become one loop; what is not equal, or read in another way, does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from combinators.graphs.nodes import Loop
from tapestry_jax.lifting import lift
from tapestry_jax.lifting.finding.repeats import NAME

SOURCE = np.random.default_rng(0)
X = SOURCE.standard_normal((4, 6)).astype(np.float32)


def layers(count: int, *shape: int) -> list[dict[str, Any]]:
    drawn = [SOURCE.standard_normal((2, *(shape or (6, 6)))).astype(np.float32) / 4 for _ in range(count)]
    return [{"up": up, "down": down} for up, down in drawn]


def turn(x: Any, layer: Any, scale: float = 1.0) -> Any:
    return x + jax.nn.gelu(x @ layer["up"]) @ layer["down"] * scale


def in_order(params: Any, x: Any) -> Any:
    for layer in params["layers"]:
        x = turn(x, layer)
    return jnp.tanh(x) @ params["head"]


def with_what_came_first(params: Any, x: Any) -> Any:
    first, total = x, x[0, 0]
    for layer in params["layers"]:
        x = turn(x, layer) + first
        total = total + (x**2).sum()
    return x @ params["head"], total


def in_pairs(params: Any, x: Any) -> Any:
    for at, layer in enumerate(params["layers"]):
        x = turn(x, layer) if at % 2 else jnp.sin(x @ layer["up"]) - x @ layer["down"]
    return x @ params["head"]


def twice(params: Any, x: Any) -> Any:
    for layer in params["layers"][:3]:
        x = turn(x, layer)
    x = jax.nn.softmax(x @ params["head"])
    for layer in params["layers"][3:]:
        x = jnp.maximum(turn(x, layer), layer["up"][0, 0])
    return x


def with_shared_parts(params: Any, x: Any) -> Any:
    scale = jnp.exp(params["head"][0])
    for layer in params["layers"]:
        x = turn(x * scale, layer) @ params["head"]
    return x


def swapped(params: Any, x: Any) -> Any:
    y = x
    for layer in params["layers"]:
        x, y = y + x @ layer["up"], x * 2 - jnp.cos(y @ layer["down"])
    return x + y @ params["head"]


def with_the_one_before(params: Any, x: Any) -> Any:
    before = x
    for layer in params["layers"]:
        before, x = x, turn(x + before, layer)
    return x @ params["head"]


def another_last(params: Any, x: Any) -> Any:
    for at, layer in enumerate(params["layers"]):
        y, z = jnp.sin(x @ layer["up"]), jnp.cos(x @ layer["down"])
        x = z - y if at == 5 else y - z
    return x @ params["head"]


def another_first(params: Any, x: Any) -> Any:
    y = x * 2
    for layer in params["layers"]:
        x = jnp.sin(x @ layer["up"]) - y @ layer["down"]
        y = x
    return x @ params["head"]


def turned_first(params: Any, x: Any) -> Any:
    for at, layer in enumerate(params["layers"]):
        y, z = jnp.sin(x @ layer["up"]), jnp.cos(x @ layer["down"])
        x = z - y if at == 0 else y - z
    return x @ params["head"]


def first_has_one(params: Any, x: Any) -> Any:
    for at, layer in enumerate(params["layers"]):
        x = jnp.sin(x @ layer["up"]) @ layer["down" if at else "up"]
    return x @ params["head"]


def converted_before(params: Any, x: Any) -> Any:
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.float16).astype(jnp.float32), params)
    return in_order(params, x)


def one_is_read_again(params: Any, x: Any) -> Any:
    return in_order({**params, "head": params["layers"][2]["up"]}, x)


def one_is_returned(params: Any, x: Any) -> Any:
    return in_order({**params, "head": x.T}, x), params["layers"][2]["up"]


FUNCTIONS: dict[str, tuple[Callable[[Any, Any], Any], list[str], int]] = {
    "one after the other": (in_order, ["0:6"], 1),
    "what came first": (with_what_came_first, ["0:6"], 2),
    "in pairs": (in_pairs, ["0:5:2", "1:6:2"], 1),
    "twice": (twice, ["0:3", "3:6"], 1),
    "shared parts": (with_shared_parts, ["0:6"], 1),
    "the one before": (with_the_one_before, ["0:5", "5"], 2),
    "another last": (another_last, ["0:5", "5"], 1),
    "another first": (another_first, ["0", "1:6"], 1),
    "the first turned": (turned_first, ["0", "1:6"], 1),
    "the first has one": (first_has_one, ["0", "1:6"], 1),
    "converted before": (converted_before, ["0:6"], 1),
    "one is read again": (one_is_read_again, ["0:2", "2", "3:6"], 1),
    "one is returned": (one_is_returned, ["0:2", "2", "3:6"], 1),
    "two carries of one origin": (swapped, ["0:6"], 2),
}


def loops(graph: tp.Graph) -> list[Loop]:
    return [node for node in graph.nodes if isinstance(node, Loop)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_equal_layers_are_one_loop_and_compute_what_they_did(name: str) -> None:
    function, ranges, carries = FUNCTIONS[name]
    params = {"layers": layers(6), "head": SOURCE.standard_normal((6, 6)).astype(np.float32)}
    graph = lift(function, params, X, stack="layer")
    found = [node.name.split("/")[2] for node in graph.inputs if node.name.endswith("up")]
    assert found == ranges and all(loop.carries <= carries for loop in loops(graph))
    assert len(loops(graph)) == sum(":" in told for told in ranges) - (name == "in pairs") and loops(graph)[
        0
    ].path.startswith(NAME)
    stacked = tp.stack_layers(graph, params)
    want = function(params, X)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5), graph(stacked, X), want)
    jax.tree.map(np.testing.assert_array_equal, tp.unstack_layers(stacked, params), params)


def other_numbers(params: Any, x: Any) -> Any:
    for at, layer in enumerate(params["layers"]):
        x = turn(x, layer, 1.0 + at)
    return x


def other_zeros(params: Any, x: Any) -> Any:
    for layer, zero in zip(params["layers"], (0.0, -0.0), strict=False):
        x = jnp.arctan2(jnp.float32(zero), turn(x, layer))
    return x


def other_axes(params: Any, x: Any) -> Any:
    for layer, axes in zip(params["layers"], ("bi,io->bo", "bi,oi->bo"), strict=False):
        x = jnp.einsum(axes, x, layer["up"])
    return x


def one_stands_twice(params: Any, x: Any) -> Any:
    for first, second in ((0, 0), (1, 2)):
        x = jnp.sin(x @ params["layers"][first]["up"]) @ params["layers"][second]["up"]
    return x


def computed_before(params: Any, x: Any) -> Any:
    read = [(jnp.sin(layer["up"]), layer["down"]) for layer in params["layers"]]
    for up, down in read:
        x = x + jnp.cos(x @ up) @ down @ up
    return x


def all_are_returned(params: Any, x: Any) -> Any:
    found = [x]
    for layer in params["layers"]:
        found.append(turn(found[-1], layer))
    return found


def backwards(params: Any, x: Any) -> Any:
    for layer in params["layers"][::-1]:
        x = turn(x, layer)
    return x


def tied(params: Any, x: Any) -> Any:
    for layer in params["layers"]:
        x = turn(x, params["layers"][0] | {"down": layer["down"]})
    return x


def without_parameters(params: Any, x: Any) -> Any:
    for _ in range(6):
        x = jnp.sin(x) + x @ params["layers"][0]["up"]
    return x


REFUSED = [
    other_numbers,
    other_zeros,
    other_axes,
    computed_before,
    one_stands_twice,
    all_are_returned,
    backwards,
    without_parameters,
]


@pytest.mark.parametrize("function", REFUSED, ids=lambda function: function.__name__)
def test_layers_that_are_not_equal_are_not_stacked(function: Any) -> None:
    params = {"layers": layers(2 if function in (other_zeros, other_axes) else 4)}
    with pytest.raises(
        tp.GraphError, match=r"(?s)stack='layer' of tp.lift finds no equal layers in.*Lift without stack="
    ):
        lift(function, params, X, stack="layer")


def test_what_all_layers_share_is_one_input_and_what_each_has_is_stacked() -> None:
    graph = lift(tied, {"layers": layers(4)}, X, stack="layer")
    assert "params/layers/0:4/down" in (told := [node.name for node in graph.inputs]) and "params/layers/0/up" in told
    sizes: Any = {"layers": [*layers(1, 6, 6), *layers(4)], "head": np.eye(6, dtype=np.float32)}
    sizes["layers"][0] = {"up": np.ones((6, 3), np.float32), "down": np.ones((3, 6), np.float32)}
    graph = lift(in_order, sizes, X, stack="layer")
    assert [node.name for node in graph.inputs if "1:5" in node.name] == [
        "params/layers/1:5/down",
        "params/layers/1:5/up",
    ]
    assert {node.name for node in graph.inputs} >= {"params/layers/0/up", "params/head", "x"}


def test_names_are_asked_for_by_the_paths_of_the_function() -> None:
    params = {"layers": layers(3), "head": np.eye(6, dtype=np.float32)}
    names = {"x": "batch embed", "params/layers/*/up": "embed mlp"}
    graph = lift(in_order, params, X, stack="depth", names=names)
    (up,) = (node for node in graph.inputs if node.name.endswith("up"))
    assert up.results[0].names == ("depth", "embed", "mlp")
    with pytest.raises(
        tp.GraphError, match=r"stack= of tp.lift calls layers `embed`, and so an axis of `params/layers/0/up`"
    ):
        lift(in_order, params, X, stack="embed", names=names)
    with pytest.raises(tp.GraphError, match=r"(?s)stack= of tp.lift .*the name of a dimension"):
        lift(in_order, params, X, stack=True)  # pyright: ignore[reportArgumentType]


def test_a_lifted_decoder_is_a_pipeline_whose_stages_are_computed_again() -> None:
    params = {"layers": layers(4), "head": SOURCE.standard_normal((6, 6)).astype(np.float32)}
    graph = lift(in_order, params, X, stack="layer", names={"x": "batch embed"})
    plan = tp.plan(graph, tp.mesh(stage=2), {"layer": "stage", "batch": tp.chunks(2)}, remat={NAME: True})
    plan.verify()
    run, stacked = plan.compile(), tp.stack_layers(graph, params)

    def loss(run: Any) -> Any:
        return jax.value_and_grad(lambda params: (run(params, X) ** 2).sum())

    got, want = jax.jit(loss(run))(stacked), jax.jit(loss(in_order))(params)
    np.testing.assert_allclose(got[0], want[0], rtol=2e-5)
    gradients = tp.unstack_layers(got[1], params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-4), gradients, want[1])
