"""The method: plans that people designed, found as optima, and traps that other planners fell into."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from tapestry_jax.machines.laid import lay
from tapestry_jax.machines.transfer import seconds
from tapestry_jax.planning.geometry.layout import Layout, even_cut
from tapestry_jax.searching.exact import milp as milp_method
from tapestry_jax.searching.exact import values
from tapestry_jax.searching.exact.milp import milp
from tapestry_jax.searching.exact.model import Model
from tapestry_jax.searching.exact.prices import Prices, Want
from tapestry_jax.searching.exact.solve import Solution, solve
from tapestry_jax.searching.finding import auto
from tapestry_jax.searching.method import Bound, Stop
from tapestry_jax.searching.space import Space
from tests.tapestry_jax.searching.exact.modelled import abstract, problem_of
from tests.tapestry_jax.searching.exact.test_build import block
from tests.tapestry_jax.searching.programs import apart, layers, mlp


def found(graph: tp.Graph, machine: str, memory: Any = None, grad: Any = True, **axes: int) -> tp.Plan:
    return tp.search(graph, abstract(**axes), machine, memory, method="milp", grad=grad)


def places(plan: tp.Plan) -> dict[str, dict[str, tuple[str, ...]]]:
    """Operation and dimension to mesh axes, of all that is cut."""
    rows: dict[str, dict[str, tuple[str, ...]]] = {}
    for step in plan.schedule.steps:
        if hasattr(step, "cuts"):
            names = plan.graph.nodes[step.node].bound  # type: ignore[attr-defined,union-attr]
            rows[step.path] = {names[dim]: cut.axes for dim, cut in step.cuts}  # type: ignore[union-attr]
    return rows


def test_a_wide_layer_is_cut_as_megatron_does_inside_of_a_host():
    plan = found(mlp(512, 8192, 32768, "bfloat16"), "h100", "40GB", False, data=8, model=8)
    assert plan.gap is not None and plan.gap < 1e-3
    rows = places(plan)
    up, gelu, down = (rows[path]["mlp"] for path in ("einsum", "gelu", "einsum_1"))
    assert up == gelu == down
    # What is summed after the second product goes over the links of a host.
    assert "model" in up


def test_large_batches_of_small_layers_lie_over_both_axes():
    rows = places(found(mlp(2**20, 256, 1024, "bfloat16"), "h100", data=8, model=8))
    assert all(set(cuts["batch"]) == {"data", "model"} for cuts in rows.values())


def test_both_axes_are_not_taken_for_the_batch_when_one_should_not_be():
    # Gradients of so large weights, summed over all devices, would take longer than the work.
    rows = places(found(mlp(2048, 16384, 65536, "bfloat16"), "h100", data=8, model=8))
    assert all(set(cuts.get("batch", ())) != {"data", "model"} for cuts in rows.values())


@pytest.mark.thorough
def test_parameters_are_stored_in_pieces_where_a_device_cannot_hold_them():
    graph = block(32, batch=64, embed=4096)
    free = found(graph, "h100", "10000GB", data=4, model=4)
    needed = free.memory(True).total
    tight = found(graph, "h100", needed // 2, data=4, model=4)
    assert tight.memory(True).total <= needed // 2
    assert tight.cost("h100", True).seconds >= free.cost("h100", True).seconds


@pytest.mark.thorough
def test_layers_are_computed_again_where_nothing_else_fits():
    graph = block(32, batch=1024, embed=4096)
    free = found(graph, "h100", "10000GB", data=4, model=4)
    tight = found(graph, "h100", int(0.4 * free.memory(True).total), data=4, model=4)
    assert not free.remat and tight.remat == (("stack", True),)


def test_layers_one_by_one_are_computed_again_where_the_best_of_all_candidates_are():
    # Sizes that no number of chunks divides: mesh axes, storage and what is computed again are all there is to choose.
    graph, mesh, whole = apart(3, 4098, 1030, 2062), abstract(data=2), {"embed": None, "mlp": None}
    by_hand = [
        (plan.cost("h100", True).seconds, plan.memory(True).total, remat)
        for remat in (None, "dots", "dots_with_no_batch_dims", True)
        for plan in [tp.plan(graph, mesh, {"batch": "data"} | whole, remat=remat)]
    ]
    free = max(size for _, size, _ in by_hand)
    for share in (1.0, 0.9, 0.75, 0.6):
        memory = int(share * free)
        fitting = [(seconds, remat) for seconds, size, remat in by_hand if size <= memory]
        if not fitting:
            continue
        seconds, how = min(fitting, key=lambda pair: pair[0])
        best = tp.search(graph, mesh, "h100", memory, method="exhaustive", entries=whole, grad=True)
        assert best.remat == (() if how is None else (("", how),))
        assert best.cost("h100", True).seconds == pytest.approx(seconds)
        solved = tp.search(graph, mesh, "h100", memory, method="milp", entries=whole, grad=True)
        assert solved.memory(True).total <= memory
        # The program computes all again or nothing; a descent behind it keeps products.
        worse = by_hand[-1][0] / seconds if isinstance(how, str) else 1.0
        assert solved.cost("h100", True).seconds == pytest.approx(worse * best.cost("h100", True).seconds)


@pytest.mark.parametrize("memory", [400_000, 140_000])
def test_what_is_slower_and_smaller_is_found_where_a_copy_does_not_fit(memory: int):
    # Stored in pieces and gathered whole it would hold as little, but for a while the whole is there.
    graph = tp.trace(tp.fold(tp.aggregators.Mean(), "a b -> a"), tp.TensorType({"a": 256, "b": 1024}))
    plan = tp.search(graph, abstract(p=8), "a100", memory, method="milp", entries={"a": None})
    assert dict(plan.entries)["b"] == ("p",) and plan.memory().total <= memory


@pytest.mark.parametrize("devices", [4, 64])
def test_what_is_kept_may_lie_where_a_gradient_is_written_in_the_end(devices: int):
    squashed, mean = tp.Map(jnp.tanh), tp.fold(tp.aggregators.Mean(), "a b c -> c")

    def read_twice(x: Any, w: Any) -> Any:
        made = squashed(x)
        return tp.einsum("a b c, c d -> a d")(made, w), mean(squashed(x))

    types = ({"a": 128, "b": 2048, "c": 2048}, {"c": 2048, "d": 640})
    graph = tp.trace(read_twice, *(tp.TensorType(each, jnp.bfloat16) for each in types))
    by_hand = tp.plan(graph, mesh := abstract(data=devices), {"c": "data"})
    # It was refused, for twice of that.
    memory = int(1.05 * by_hand.memory(True).total)
    found = tp.search(graph, mesh, "h100", memory, "milp", grad=True)
    assert found.memory(True).total <= memory
    assert found.cost("h100", True).seconds <= by_hand.cost("h100", True).seconds * (1 + 1e-9)


def test_another_choice_is_asked_for_where_less_memory_leaves_none(monkeypatch: pytest.MonkeyPatch):
    # As it was when copies were not looked at: what holds the least is taken again and again.
    monkeypatch.setattr(values, "_changing", lambda *args: 0.0)
    plan = tp.search(tp.trace(tp.einsum("b -> "), tp.TensorType({"b": 4096})), abstract(p=8), "a100", "10kB", "milp")
    assert dict(plan.entries) == {"b": ("p",)}


def test_an_all_to_all_is_not_priced_as_an_all_gather():
    problem = problem_of(mlp(64, 64, 64), abstract(data=8))
    laid = lay(problem.machine, problem.shape.axes)
    prices = Prices(laid, problem.shape, problem.graph)
    kind = tp.TensorType({"a": 4096, "b": 4096}, jnp.float32)
    cut = even_cut(4096, ("data",), problem.shape)
    rows, columns, whole = Layout((cut, None)), Layout((None, cut)), Layout((None, None))
    moved, gathered = 4096 * 4096 * 4 // 8, 4096 * 4096 * 4
    copied = 2 / problem.machine.bandwidth.value
    turned = prices.change(kind, rows, Want(columns, frozenset({"data"})))
    put_together = prices.change(kind, rows, Want(whole, frozenset({"data"})))
    assert turned == pytest.approx(seconds(laid, "all-to-all", ("data",), moved) + copied * moved)
    assert put_together == pytest.approx(seconds(laid, "all-gather", ("data",), gathered) + copied * gathered)


def test_ranks_of_a_host_count():
    """Four devices of a host share what goes to others: an axis between hosts is not as slow as one device's link."""
    problem = problem_of(mlp(64, 64, 64), abstract(data=16, model=4))
    laid = lay(problem.machine, problem.shape.axes)
    prices = Prices(laid, problem.shape, problem.graph)
    kind = tp.TensorType({"a": 4096, "b": 4096}, jnp.float32)
    cut = even_cut(4096, ("data",), problem.shape)
    gathered = prices.change(kind, Layout((cut, None)), Want(Layout((None, None)), frozenset({"data"})))
    size, machine = 4096 * 4096 * 4, problem.machine
    # Of 16 devices along `data` two are in a host: the links between hosts carry half of it.
    between = size / 2 * 7 / 8 / machine.between.bandwidth.value
    assert between < gathered < 2 * between


def test_gives_nothing_for_what_it_does_not_model():
    problem = problem_of(mlp(64, 64, 64), abstract(data=2))
    chunked = tp.plan(problem.graph, problem.mesh, {"batch": ("data", tp.chunks(2))})
    fixed = replace(problem, fixed=replace(problem.fixed, entries=chunked.entries))
    assert list(milp(fixed, Space(()), 0, Stop())) == []


def test_where_nothing_fits_the_error_says_what_the_program_does_not_see_and_walks_do():
    graph, mesh = mlp(65536, 256, 1024), abstract(data=2, model=2)
    free = tp.search(graph, mesh, "h100", method="milp")
    memory = free.memory().total * 8 // 10
    text = r"the word of method='milp' alone: it tries no chunks.*\n *Take method='anneal', .* or give memory=\d+, more"
    with pytest.raises(tp.PlanError, match=text):
        tp.search(graph, mesh, "h100", memory, method="milp")
    with pytest.raises(tp.PlanError, match=r"(?m)^ *Give memory=\d+, more"):
        tp.search(graph, mesh, "h100", 1000, entries=dict.fromkeys(["embed", "mlp", "out"]), method="exhaustive")
    chunked = tp.plan(graph, mesh, {"batch": ("data", "model", tp.chunks(2))})
    assert chunked.memory().total <= memory


def test_what_is_fixed_stays():
    graph = mlp(512, 256, 1024)
    plan = tp.search(graph, abstract(data=2, model=2), "h100", method="milp", entries={"mlp": None}, grad=True)
    assert all("mlp" not in cuts for cuts in places(plan).values())


def test_a_bound_comes_with_the_plans():
    proposals = list(milp(problem_of(mlp(512, 256, 1024), abstract(data=2, model=2)), Space(()), 0, Stop()))
    assert isinstance(proposals[-1], Bound)


def test_the_gap_is_to_the_least_bound_of_the_solver_and_not_to_the_price_of_the_model(monkeypatch: pytest.MonkeyPatch):
    bounds: list[float] = []

    def loosely(model: Model, memory: float, **_: Any) -> Solution:
        exact = solve(model, memory)
        loose = replace(exact, bound=exact.bound * (0.9 if not bounds else 0.95))
        bounds.append(loose.bound)
        return loose

    monkeypatch.setattr(milp_method, "solve", loosely)
    plan = tp.search(block(2), abstract(data=2), "h100", method="milp", grad=True)
    assert len(bounds) == 2 and min(bounds) != max(bounds)
    assert plan.gap is not None and plan.gap > 0.05
    assert plan.gap == pytest.approx(1 - min(bounds) / plan.cost("h100", True).seconds)


def test_an_interrupt_of_the_solver_gives_what_it_has(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        milp_method, "solve", lambda *given, **rest: replace(solve(*given, **rest), is_interrupted=True)
    )
    graph = mlp(65536, 256, 1024)
    plan = found(graph, "h100", data=2, model=2)
    assert plan.entries and plan.gap is None
    nothing = Solution((), math.inf, 0.0, is_interrupted=True)
    monkeypatch.setattr(milp_method, "solve", lambda *_, **__: nothing)
    assert found(graph, "h100", data=2, model=2).entries == ()


def test_a_time_limit_ends_the_solver_and_no_gap_is_claimed_for_what_it_did_not_see(monkeypatch: pytest.MonkeyPatch):
    given: list[float] = []

    def timed(model: Model, memory: float, **rest: Any) -> Solution:
        given.append(rest["limit"])
        return solve(model, memory, limit=0.0 if len(given) > 1 else math.inf)

    monkeypatch.setattr(milp_method, "solve", timed)
    plan = tp.search(block(2), abstract(data=2), "h100", method="milp", grad=True, time_limit=1000)
    assert len(given) == 2 and 0 < given[1] < given[0] < 1000
    assert plan.gap is None
    given.clear()
    plan = tp.search(mlp(65536, 256, 1024), abstract(data=2), "h100", method="milp", time_limit=1000)
    assert len(given) == 1 and plan.gap is not None and plan.gap < 0.01


def test_programs_of_many_operations_are_solved(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(auto, "FEW", 1)
    graph = mlp(512, 256, 1024)
    monkeypatch.setattr(auto, "MANY", 1)
    monkeypatch.setattr(auto, "anneal", lambda *_: pytest.fail("walked"))
    plan = tp.search(graph, abstract(data=2, model=2), "h100", grad=True)
    assert plan.gap is not None and plan.gap < 1e-3


@pytest.mark.parametrize("share", [1.02, 1.068, 1.17, 1.32])
def test_more_memory_than_some_plan_needs_is_enough(share: float):
    """What is alive for a while counts here and is not in the model: none of these bounds was met."""
    graph, mesh = layers(4, 512, 128), abstract(data=2, model=4)
    light = tp.fsdp(tp.plan(graph, mesh, {"batch": ("data", "model")}, remat=True), ("data", "model"), smallest=1)
    memory = int(share * light.memory(True).total)
    found = tp.search(graph, mesh, "h100", memory, method="milp", grad=True)
    assert found.memory(True).total <= memory
