"""Why a plan places as it does: verdicts that can be told by hand, and the prices that make them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh

import tapestry_jax as tp
from tapestry_jax.report.why import CHOSEN, SAME, TARGET, TIE, UNAVAILABLE

MESH = AbstractMesh((2, 4), ("data", "model"))
linear = tp.einsum("b k, k n -> b n")
negative, doubled = (
    tp.Map(jnp.negative, "t c -> t c", name="negative"),
    tp.Map(lambda x: 2 * x, "t c -> t c", name="doubled"),
)


@tp.program("batch embed, embed mlp, mlp embed -> batch embed")
def mlp(x, up, down):
    return linear(linear(x, up), down)


MLP = tp.trace(
    mlp,
    tp.TensorType({"batch": 4096, "embed": 1024}),
    tp.TensorType({"embed": 1024, "mlp": 4096}),
    tp.TensorType({"mlp": 4096, "embed": 1024}),
)
MEGATRON = tp.plan(MLP, MESH, {"batch": "data", "mlp": "model"})


def test_a_plan_that_is_cheaper_says_so_and_what_makes_it():
    found = MEGATRON.why("einsum", {"mlp": None}, "v5p")
    assert found.verdict == CHOSEN
    target = tp.plan(MLP, MESH, {"batch": "data", "mlp": "model"}, ops={"einsum": {"mlp": None}})
    assert (found.chosen, found.target) == (MEGATRON.cost("v5p").seconds, target.cost("v5p").seconds)
    # The first product is four times as large; all of the difference is listed.
    computed = {each.path: each for each in found.changed if each.what == "compute"}
    assert computed["einsum"].after == pytest.approx(4 * computed["einsum"].before, rel=0.2)
    assert sum(each.after - each.before for each in found.changed) == pytest.approx(found.target - found.chosen)


def test_an_exception_that_is_cheaper_says_so():
    worse = tp.plan(MLP, MESH, {"batch": "data", "mlp": "model"}, ops={"einsum": {"mlp": None}})
    found = worse.why("einsum", {"mlp": "model"}, "v5p")
    assert found.verdict == TARGET
    assert found.target == MEGATRON.cost("v5p").seconds


@pytest.mark.parametrize(
    ("path", "wanted"), [("einsum", {"mlp": "model"}), ("einsum_1", {"embed": None, "batch": ("data",)})]
)
def test_a_plan_that_is_as_asked_says_so(path: str, wanted: dict[str, Any]):
    found = MEGATRON.why(path, wanted, "v5p")
    assert (found.verdict, found.chosen, found.changed) == (SAME, found.target, ())


def test_what_nothing_was_said_of_follows_its_argument_and_whole_is_another_plan():
    graph = tp.trace(lambda x: doubled(negative(x)), tp.TensorType({"t": 4096, "c": 4096}))
    ops, inputs = {"doubled": {"c": "model"}}, {"x": {"c": "model"}}
    plan = tp.plan(graph, MESH, {}, ops=ops, inputs=inputs)
    found = plan.why("negative", {"c": None}, "h100")
    by_hand = tp.plan(graph, MESH, {}, ops={**ops, "negative": {"c": None}}, inputs=inputs)
    assert found.verdict == CHOSEN and found.target == by_hand.cost("h100").seconds > 2 * found.chosen
    # Of what lies whole anyway it is as asked.
    assert plan.why("negative", {"t": None}, "h100").verdict == SAME


def test_equal_prices_are_a_tie():
    both = tp.plan(MLP, AbstractMesh((2,), ("data",)), {})
    assert both.why("einsum", {"batch": tp.chunks(1)}, "h100").verdict == SAME
    graph = tp.trace(lambda x: tp.Map(distance, "a b -> a b")(x), tp.TensorType({"a": 64, "b": 64}))
    alone = tp.plan(graph, AbstractMesh((4,), ("data",)), {"a": "data"})
    assert alone.why("distance", {"a": None, "b": "data"}, "h100").verdict == TIE


def distance(x):
    return abs(x)


def test_what_the_planner_refuses_is_unavailable_in_its_words():
    found = MEGATRON.why("einsum", {"embed": "model"}, "v5p")
    assert (found.verdict, found.target, found.chosen) == (UNAVAILABLE, None, MEGATRON.cost("v5p").seconds)
    with pytest.raises(tp.PlanError) as refused:
        tp.plan(MLP, MESH, {"batch": "data", "mlp": "model"}, ops={"einsum": {"embed": "model"}})
    assert found.reason == tuple(line.strip() for line in str(refused.value).splitlines())


NO_PATH = """plan.why names the path {}, where the graph has no operation
  paths: einsum, einsum_1
  Give the path of an operation or scope, as graph.show() prints them."""


def test_other_exceptions_of_the_plan_stay():
    plan = tp.plan(MLP, MESH, {"batch": "data"}, ops={"einsum": {"mlp": "model"}, "einsum_1": {"mlp": "model"}})
    found = plan.why("einsum", {"batch": None}, "v5p", grad=True)
    target = tp.plan(
        MLP, MESH, {"batch": "data"}, ops={"einsum": {"mlp": "model", "batch": None}, "einsum_1": {"mlp": "model"}}
    )
    assert found.target == target.cost("v5p", True).seconds


@pytest.mark.parametrize(
    ("path", "wanted", "kind", "text"),
    [
        ("nowhere", {"mlp": "model"}, tp.PlanError, NO_PATH.format("'nowhere'")),
        ("", {"mlp": "model"}, tp.PlanError, NO_PATH.format("''")),
        (None, {"mlp": "model"}, tp.PlanError, NO_PATH.format("None")),
        ("einsum", {"heads": "model"}, tp.PlanError, "`heads` is no dimension of 'einsum'\n"),
        ("einsum", {"mlp": "modal"}, tp.MeshError, "on the mesh axis `modal`, which the mesh does not have"),
        ("einsum", {"mlp": 3}, tp.PlanError, "on something that is not a mesh axis"),
        ("einsum", {}, tp.PlanError, "plan.why asks nothing of 'einsum'"),
        ("einsum", "model", tp.PlanError, "is a mapping from dimension names to mesh axes"),
        (3, {"mlp": "model"}, tp.PlanError, NO_PATH.format(3)),
    ],
)  # fmt: skip
def test_what_is_not_there_is_refused(path: Any, wanted: Any, kind: type[Exception], text: str):
    with pytest.raises(kind) as refused:
        MEGATRON.why(path, wanted, "v5p")
    assert text in str(refused.value)


def test_an_unknown_machine_is_refused():
    with pytest.raises(tp.MeshError, match="no such machine is known"):
        MEGATRON.why("einsum", {"mlp": None}, "v99")


def test_it_prints_and_is_stored():
    found = MEGATRON.why("einsum", {"mlp": None}, "v5p")
    lines = str(found).splitlines()
    assert lines[0] == "mlp on v5p, data=2 x model=4: `einsum` with {'mlp': None}"
    assert lines[1].startswith("chosen cheaper: the plan takes ")
    assert json.loads(found.to_json())["verdict"] == CHOSEN
    assert "unavailable" in str(replace(found, verdict=UNAVAILABLE, target=None))


def test_of_a_scope_what_was_said_of_what_lies_in_it_gives_way():
    def layer(x: Any, up: Any, down: Any) -> Any:
        hidden = tp.einsum("b k, k n -> b n")(x, up)
        return x + tp.einsum("b n, n k -> b k")(tp.Map(jnp.sin)(hidden), down)

    types = (
        tp.TensorType({"b": 512, "k": 1024}),
        tp.TensorType({"layer": 4, "k": 1024, "n": 4096}),
        tp.TensorType({"layer": 4, "n": 4096, "k": 1024}),
    )
    graph = tp.trace(lambda x, up, down: tp.stack(layer, 4)(x, up, down), *types)
    plan = tp.plan(graph, MESH, {"b": "data", "n": "model"}, ops={"stack/sin": {"n": None}})
    assert plan.why("stack/sin", {"n": "model"}, "H100").verdict == TARGET
    # It was called the same: the exception inside prevailed over what was asked.
    assert plan.why("stack", {"n": "model"}, "H100").verdict == TARGET
    assert plan.why("stack", {"b": "data"}, "H100").verdict == SAME
