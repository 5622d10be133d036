"""What a page shows is what the plan says: every collective once, every second, every block."""

from __future__ import annotations

import json
import math
from collections import Counter
from functools import cache

import pytest

import tapestry_jax as tp
from combinators import PlanError
from tapestry_jax.plan import asked_of
from tapestry_jax.planning.prediction.collective import Collective
from tapestry_jax.report.diff import Side
from tapestry_jax.report.page import alternatives as alternatives_file
from tapestry_jax.report.page import document as document_file
from tapestry_jax.report.page.alternatives import LISTED
from tapestry_jax.report.page.document import Told, document
from tapestry_jax.report.page.shown import told_of
from tapestry_jax.report.weighed import Candidate, Weighed
from tests.tapestry_jax.report.page import plans


def of(plan, machine=None, grad=False, memory=False, others=()):
    """What `plan.show` shows."""
    own, *beside = (Side(each.graph, asked_of(each), each.schedule, int) for each in (plan, *others))
    told = told_of(own, plan.mesh, machine, grad, memory, beside, plan.gap, plan.weighed)
    return document(plan.graph, plan.schedule, told)


WITH_GRADIENTS = [plans.mlp, plans.gathered, plans.pipeline, plans.ring, plans.layers, plans.twice]


@pytest.mark.parametrize(
    ("make", "grad"), [*((make, False) for make in plans.EVERY), *((make, True) for make in WITH_GRADIENTS)]
)
def test_every_collective_stands_at_what_causes_it_once(make, grad):
    plan = make()
    found = plans.told(make, grad)
    predicted = plan.collectives(grad=grad)
    assert [each["kind"] for each in found["sends"]] == [each.kind for each in predicted]
    placed = [number for each in (*found["nodes"], *found["scopes"]) for number in each.get("sent", ())]
    assert sorted([*placed, *found["unplaced"]]) == [*range(len(predicted))]
    for each in (*found["nodes"], *found["scopes"]):
        assert {found["sends"][number]["path"] for number in each.get("sent", ())} <= {each["path"]}


def test_gathers_stand_at_the_node_that_gathers_and_their_gradients_at_the_operation():
    found = plans.told(plans.gathered, True)
    sent = {(node["kind"], found["sends"][n]["kind"]) for node in found["nodes"] for n in node.get("sent", ())}
    assert ("sent", "all-gather") in sent
    assert ("operation", "reduce-scatter") in sent


def test_each_gather_stands_at_its_own_node():
    nodes = plans.told(plans.twice)["nodes"]
    assert [len(node["sent"]) for node in nodes if node["kind"] == "sent"] == [1, 1]


def test_what_nothing_in_the_picture_sends_is_not_left_out(monkeypatch):
    found = Collective("all-reduce", ("data",), 8, "nowhere")
    monkeypatch.setattr(document_file, "collectives", lambda *_: (*plans.mlp().collectives(), found))
    told = document(plans.mlp().graph, plans.mlp().schedule, Told())
    assert [told["sends"][number]["path"] for number in told["unplaced"]] == ["nowhere"]


@pytest.mark.parametrize("make", [plans.mlp, plans.pipeline, plans.ring, plans.halo, plans.layers])
def test_prices_and_the_run_are_those_of_the_plan(make):
    plan = make()
    found = of(plan, machine="h100", grad=True)
    cost, line = plan.cost("h100", grad=True), plan.timeline("h100", grad=True)
    shown = sum(each["cost"]["seconds"] for each in (*found["nodes"], *found["scopes"]) if "cost" in each)
    assert math.isclose(shown, cost.compute)
    assert math.isclose(sum(each["seconds"] for each in found["sends"]), cost.communication)
    assert found["cost"]["seconds"] == cost.seconds
    run = found["timeline"]
    assert (run["makespan"], run["peak"]) == (line.makespan, line.peak)
    for lane, own in zip(run["lanes"], line.lanes, strict=True):
        times = (
            (math.prod([turn[0] for turn in rest[0]] if rest else [1]), seconds)
            for _, seconds, _, _, *rest in lane["events"]
        )
        assert math.isclose(sum(count * seconds for count, seconds in times), own.busy, abs_tol=1e-15)


@pytest.mark.parametrize(
    "make", [plans.mlp, plans.gathered, plans.pipeline, plans.ring, plans.halo, plans.layers, plans.transformer]
)
def test_every_operation_has_its_boxes(make):
    plan = make()
    found, shards = plans.told(make), plan.shards()
    for path, nodes in Counter(node["path"] for node in found["nodes"] if node["kind"] == "operation").items():
        own = next(node["blocks"] for node in found["nodes"] if node["path"] == path and node["kind"] == "operation")
        assert len(own) == nodes
        listed = [row for place in own for row in found["blocks"][place]["rows"]]
        expected = [*shards.blocks(path)]
        assert [row[1] for row in listed[:8]] == [[f"{a}:{b}" for a, b in each.box.values()] for each in expected[:8]]
        assert sum(found["blocks"][place]["count"] for place in own) * _turns(plan, path) == shards.count(path)


def _turns(plan, path):
    """How many iterations of a loop of the program a block stands for."""
    return {plans.pipeline: 4, plans.halo: 2, plans.layers: 4}.get(
        next(make for make in plans.EVERY if make() is plan), 1
    )


def test_equal_layers_share_their_boxes():
    found = plans.told(plans.transformer)
    operations = [node for node in found["nodes"] if node["kind"] == "operation"]
    assert len(operations) > 200
    assert len(found["blocks"]) < 30


def test_memory_is_traced_where_somebody_asks_for_it():
    plan = plans.mlp()
    assert [*plans.told(plans.mlp)["memory"]] == ["alive"]
    found = of(plan, memory=True)["memory"]
    assert found["total"] == plan.memory().total
    assert sum(each["bytes"] * each["times"] for each in found["live"]) + found["rest"] == plan.memory().temporaries


def test_a_mesh_that_does_not_say_its_machine_has_no_prices():
    plan = plans.mlp()
    side = Side(plan.graph, asked_of(plan), plan.schedule, int)
    assert told_of(side, plan.mesh, None, False, False, (), None) == Told()
    found = plans.told(plans.mlp)
    assert (found["cost"], found["timeline"]) == (None, None)


@pytest.mark.parametrize("make", plans.EVERY)
def test_a_document_is_json_whose_parts_refer_to_each_other(make):
    found = json.loads(json.dumps(plans.told(make), allow_nan=False))
    nodes, scopes = found["nodes"], found["scopes"]
    assert all(-1 <= node["scope"] < len(scopes) for node in nodes)
    # A scope stands behind the one around it.
    assert all(-1 <= scope["parent"] < number for number, scope in enumerate(scopes))
    assert all(0 <= each[end] < len(nodes) for each in found["edges"] for end in ("from", "to"))
    assert all(0 <= place < len(found["blocks"]) for node in nodes for place in node.get("blocks", ()))


def test_other_plans_stand_beside_the_one_that_is_shown():
    plan = plans.mlp()
    found = of(plan, machine="h100", others=[plans.gathered(), plan])["alternatives"]
    assert [each["name"] for each in found] == ["this plan", "plan 1", "plan 2"]
    for each, own in zip(found, (plan, plans.gathered(), plan), strict=True):
        assert each["seconds"] == own.cost("h100").seconds
        assert each["collectives"] == len(own.collectives())
    assert found[1]["otherwise"] == tuple(map(str, plan.diff(plans.gathered()).asked))
    assert (found[2]["otherwise"], found[2]["more"]) == ((), 0)
    assert of(plan, others=[plan])["alternatives"][1]["seconds"] is None


@cache
def found():
    """A plan that was searched for, with gradients."""
    fixed = {"embed": None, "out": None, "mlp": None}
    return tp.search(plans.mlp().graph, plans.MESH, "h100", method="exhaustive", grad=True, entries=fixed)


def test_candidates_of_the_search_stand_behind_other_plans_as_they_were_weighed(monkeypatch):
    plan, other = found(), plans.gathered()
    seen = []
    priced = alternatives_file.price
    monkeypatch.setattr(alternatives_file, "price", lambda *args: (seen.append(args[0]), priced(*args))[1])
    listed = of(plan, machine="h100", grad=True, others=[other])["alternatives"]
    assert seen == [plan.schedule, other.schedule]  # nothing of a candidate is priced again
    count = len(plan.weighed.candidates)
    assert count > 1
    assert [each["name"] for each in listed[1:]] == ["plan 1", *(f"candidate {n + 1}" for n in range(count))]
    assert [each["why"] for each in listed[:2]] == ["", ""]
    for each, own in zip(listed[2:], plan.weighed.candidates, strict=True):
        assert (each["seconds"], each["memory"], each["why"]) == (own.seconds, own.bytes, own.why)
        assert each["otherwise"] == own.otherwise
        assert (each["alive"], each["collectives"], each["sent"]) == (None, None, None)


@pytest.mark.parametrize(("machine", "grad"), [("h100", False), ("a100", True), ("h100", 1), (None, True)])
def test_seconds_of_candidates_never_stand_beside_those_of_another_machine_or_run(machine, grad):
    plan = found()
    listed = of(plan, machine=machine, grad=grad)["alternatives"][1:]
    assert {each["seconds"] for each in listed} == {None}
    assert [each["why"] for each in listed] == [f"{c.why}, on H100 with gradients" for c in plan.weighed.candidates]


def test_of_many_things_that_a_candidate_says_otherwise_the_first_are_listed():
    many = tuple(f"ops['{number}'], i: - -> data" for number in range(LISTED + 3))
    weighed = Weighed(tp.machines.H100, False, (Candidate(many, 1.0, None, "dearer"),))
    side = Side(plans.mlp().graph, asked_of(plans.mlp()), plans.mlp().schedule, int)
    (_, each) = alternatives_file.alternatives(side, (), None, False, weighed)
    assert each.otherwise == (*many[:LISTED], "and 3 more")


def test_what_is_no_plan_of_the_program_cannot_stand_beside_it(tmp_path):
    for other, told in (
        (plans.ring(), "plans of different programs"),
        (plans.mlp().graph, r"plan.show lists other plans, and others\[0\] is none\n  got Graph"),
    ):
        with pytest.raises(PlanError, match=told):
            plans.mlp().show(tmp_path / "plan.html", others=[other])
    with pytest.raises(PlanError, match="others=\\[other\\]"):
        plans.mlp().show(tmp_path / "plan.html", others=plans.gathered())
    assert not [*tmp_path.iterdir()]
