"""Two plans of one program side by side: all that differs, nothing that does not."""

from __future__ import annotations

import json

import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh

import tapestry_jax as tp
from tests.tapestry_jax.report.test_why import MEGATRON, MESH, MLP

BY_BATCH = tp.plan(MLP, MESH, {"batch": ("data", "model")})


def test_a_plan_does_not_differ_from_itself_or_from_its_file():
    assert not MEGATRON.diff(MEGATRON)
    again = tp.Plan.from_json(MEGATRON.to_json(), MLP, MESH)
    assert str(MEGATRON.diff(again, "v5p", grad=True)) == "mlp: the plans are the same"


def test_what_was_asked_and_where_it_goes_is_told():
    found = MEGATRON.diff(BY_BATCH)
    assert [str(each) for each in found.asked] == [
        "the plan, batch: data -> data, model",
        "the plan, mlp: model -> -",
    ]
    assert [str(each) for each in found.operations] == [
        "einsum, batch: data -> data+model",
        "einsum, mlp: model -> whole",
        "einsum_1, batch: data -> data+model",
        "einsum_1, mlp: model -> whole",
    ]
    assert ("argument", "x") in {(each.where, each.name) for each in found.layouts}
    assert found.priced is None


def test_every_option_of_a_plan_is_told():
    entries = {"batch": "data"}
    plain = tp.plan(MLP, MESH, entries)
    for told, other in (
        ("ops['einsum'], mlp: - -> model", tp.plan(MLP, MESH, entries, ops={"einsum": {"mlp": "model"}})),
        ("inputs['x'], batch: - -> whole", tp.plan(MLP, MESH, entries, inputs={"x": {"batch": None}})),
        ("outputs['y'], embed: - -> model", tp.plan(MLP, MESH, entries, outputs={"y": {"embed": "model"}})),
        ("accumulate['']: - -> float32", tp.plan(MLP, MESH, entries, accumulate=jnp.float32)),
        ("platforms: - -> cuda", tp.plan(MLP, MESH, entries, platforms="cuda")),
        ("the mesh: data=2 x model=4 -> data=8", tp.plan(MLP, AbstractMesh((8,), ("data",)), entries)),
    ):
        assert [str(each) for each in plain.diff(other).asked] == [told]
        assert plain.diff(other)


def test_collectives_are_told_that_one_plan_alone_sends():
    forward, both = (MEGATRON.diff(BY_BATCH, grad=grad).sent for grad in (False, True))
    assert [str(each) for each in forward] == ["x1 -> x0  all-reduce over model, 8,388,608 B, einsum_1"]
    count = {True: 0, False: 0}
    for each in both:
        count[each.backward] += each.after - each.before
    expected = [sum(e.backward for e in plan.collectives(True)) for plan in (BY_BATCH, MEGATRON)]
    assert count == {False: -1, True: expected[0] - expected[1]}


def test_with_a_machine_both_are_priced():
    found = MEGATRON.diff(BY_BATCH, "v5p").priced
    assert found is not None
    assert (found.before, found.after) == (MEGATRON.cost("v5p").seconds, BY_BATCH.cost("v5p").seconds)
    assert (found.before_bytes, found.after_bytes) == (MEGATRON.memory().total, BY_BATCH.memory().total)


def test_plans_of_different_programs_name_the_first_operation_that_differs():
    x = tp.TensorType({"b": 8, "k": 4})
    sine, root = (tp.trace(tp.Map(jnp.cos) >> tp.Map(last), x) for last in (jnp.sin, jnp.sqrt))
    for one, other in ((sine, root), (root, sine)):
        with pytest.raises(tp.PlanError) as refused:
            tp.plan(one, MESH, {}).diff(tp.plan(other, MESH, {}))
        lines = str(refused.value).splitlines()
        assert lines[0] == f"these are plans of different programs: `{other.nodes[-1].path}` is another operation"
        assert [line.split("/")[0].split()[:3] for line in lines[1:3]] == [["in", "the", "one"], ["in", "the", "other"]]
        assert lines[-1] == "  Compare plans of one graph."


def test_what_is_no_plan_is_refused():
    with pytest.raises(tp.PlanError, match="a plan differs from plans"):
        MEGATRON.diff(MLP)  # pyright: ignore[reportArgumentType]


def test_it_prints_and_is_stored():
    found = MEGATRON.diff(BY_BATCH, "v5p")
    assert str(found).splitlines()[0] == "mlp: what the one plan says -> what the other says"
    read = json.loads(found.to_json())
    assert read["differs"] is True
    assert len(read["operations"]) == 4
