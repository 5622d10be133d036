"""`tp.search` gives plans that are proved and fit, keeps what was fixed, and is interrupted without loss."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jax.sharding import AbstractMesh

import tapestry_jax as tp
from combinators.errors import MeshError
from tapestry_jax.machines import Table
from tapestry_jax.searching import answered, evaluated
from tapestry_jax.searching.answering import best
from tapestry_jax.searching.finding import anneal as annealing
from tests.tapestry_jax.searching.programs import mlp

MESH = AbstractMesh((2,), ("data",))
WIDE = mlp(8192, 1024, 4096)
SMALL = mlp(64, 32, 128)
NARROW: dict[str, Any] = {"embed": None, "out": None, "mlp": None}


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(annealing, "TRIED", 40)


def seconds(plan: tp.Plan, grad: bool = False) -> float:
    return plan.cost("H100", grad).seconds


def test_a_plan_found_is_cheaper_than_none_and_proved(monkeypatch: pytest.MonkeyPatch):
    proved: list[Any] = []
    prove = best.prove
    monkeypatch.setattr(best, "prove", lambda schedule: (proved.append(schedule), prove(schedule)))
    plan = tp.search(WIDE, MESH, "H100", entries=NARROW, method="exhaustive")
    assert seconds(plan) < seconds(tp.plan(WIDE, MESH))
    assert dict(plan.entries)["batch"] == ("data",)
    assert plan.gap == 0.0
    assert proved == [plan.schedule]


def test_what_is_not_proved_is_not_given(monkeypatch: pytest.MonkeyPatch):
    fixed = {"embed": None, "out": None, "mlp": None}
    first = tp.search(WIDE, MESH, "H100", entries=fixed, method="exhaustive")
    proved: list[Any] = []

    def prove(schedule: Any) -> None:
        proved.append(schedule)
        if len(proved) == 1:
            raise tp.PlanError("planted")

    monkeypatch.setattr(best, "prove", prove)
    with pytest.warns(RuntimeWarning, match="cannot be proved"):
        other = tp.search(WIDE, MESH, "H100", entries=fixed, method="exhaustive")
    assert other.entries != first.entries
    assert seconds(other) >= seconds(first)


@pytest.mark.parametrize("method", ["exhaustive", "anneal"])
def test_what_is_fixed_stays(method: str):
    fixed: dict[str, Any] = {"mlp": ("data", tp.chunks(2)), "embed": None, "out": None}
    plan = tp.search(WIDE, MESH, "H100", method=method, entries=fixed, ops={"gelu": {"batch": None}})
    by_hand = tp.plan(WIDE, MESH, fixed, ops={"gelu": {"batch": None}})
    assert plan.entries[:3] == by_hand.entries
    assert dict(plan.ops)["gelu"][:1] == by_hand.ops[0][1]
    assert seconds(plan) <= seconds(by_hand)


def test_annealing_gives_the_same_plan_for_the_same_seed():
    found = [tp.search(WIDE, MESH, "H100", method="anneal", seed=3, grad=True) for _ in range(2)]
    assert found[0].to_json() == found[1].to_json()
    assert found[0].gap is None


def test_the_plan_to_begin_from_is_a_bound():
    start = tp.plan(WIDE, MESH, {"batch": ("data", tp.chunks(5))})
    limited = tp.search(WIDE, MESH, "H100", method="anneal", start=start, time_limit=1e-9)
    assert limited.entries == start.entries
    assert seconds(tp.search(WIDE, MESH, "H100", method="anneal", start=start)) <= seconds(start)


def test_an_interrupt_gives_the_best_so_far(monkeypatch: pytest.MonkeyPatch):
    calls = 0
    near = annealing.near

    def interrupted(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise KeyboardInterrupt
        return near(*args, **options)

    monkeypatch.setattr(annealing, "near", interrupted)
    plan = tp.search(WIDE, MESH, "H100", method="anneal")
    assert seconds(plan) < seconds(tp.plan(WIDE, MESH))
    assert calls == 5


def interrupt_weighing(monkeypatch: pytest.MonkeyPatch, *times: int) -> None:
    """Interrupts when the program is traced the first, second, ... time for its memory."""
    count = 0
    needed = evaluated.memory_needed

    def interrupted(*args: Any) -> Any:
        nonlocal count
        count += 1
        if count in times:
            raise KeyboardInterrupt
        return needed(*args)

    monkeypatch.setattr(evaluated, "memory_needed", interrupted)


@pytest.mark.parametrize("times", [(1,), (2,)])
def test_an_interrupt_of_the_weighing_gives_what_fits(monkeypatch: pytest.MonkeyPatch, times: tuple[int, ...]):
    free = tp.search(WIDE, MESH, "H100", entries=NARROW, method="exhaustive", grad=True)
    memory = free.memory(True).total - 1
    interrupt_weighing(monkeypatch, *times)
    plan = tp.search(WIDE, MESH, "H100", memory, entries=NARROW, method="exhaustive", grad=True)
    assert plan.memory(True).total <= memory
    assert plan.gap is None or plan.gap > 0


def test_two_interrupts_end_a_search_that_knows_nothing(monkeypatch: pytest.MonkeyPatch):
    interrupt_weighing(monkeypatch, 1, 2)
    with pytest.raises(KeyboardInterrupt):
        tp.search(WIDE, MESH, "H100", entries=NARROW, method="exhaustive")


def test_an_interrupt_ends_the_search_of_other_meshes_and_is_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    interrupt_weighing(monkeypatch, 1)
    searched: list[Any] = []
    space = answered.space_of
    monkeypatch.setattr(answered, "space_of", lambda problem: (searched.append(problem), space(problem))[1])
    meshes = [MESH, AbstractMesh((4,), ("data",))]
    plan = tp.search(WIDE, meshes, "H100", entries=NARROW, method="exhaustive", cache=tmp_path)
    assert dict(plan.mesh.shape) == {"data": 2} and len(searched) == 1
    assert list(tmp_path.iterdir()) == []


def test_memory_is_never_exceeded():
    free = tp.search(WIDE, MESH, "H100", grad=True, method="anneal")
    needed = free.memory(grad=True).total
    less = tp.search(WIDE, MESH, "H100", needed - 1, grad=True, method="anneal")
    assert less.memory(grad=True).total < needed
    assert seconds(less, grad=True) >= seconds(free, grad=True)


def test_no_plan_that_fits_says_what_is_alive_and_what_would():
    with pytest.raises(tp.PlanError) as caught:
        tp.search(WIDE, MESH, "H100", "1MB", entries=NARROW, method="exhaustive")
    text = str(caught.value)
    assert "no plan of `layer` was found that fits into 1,000,000 B a device" in text
    assert "the least that was found needs " in text and " B more: " in text
    assert "arguments " in text and "at the peak " in text
    least = int(text.split("memory=")[1].split(",")[0])
    plan = tp.search(WIDE, MESH, "H100", least, entries=NARROW, method="exhaustive")
    assert plan.memory().total <= least


def test_the_layout_of_a_number_of_devices_is_chosen_too():
    plan = tp.search(SMALL, 4, "H100", entries={"embed": None, "out": None}, method="anneal")
    assert dict(plan.mesh.shape) in ({"data": 4}, {"data": 2, "model": 2})
    two = [AbstractMesh((2,), ("data",)), AbstractMesh((8,), ("data",))]
    assert dict(tp.search(WIDE, two, "H100", entries={"embed": None, "out": None, "mlp": None}).mesh.shape) == {
        "data": 8
    }


def test_pareto_gives_plans_that_are_slower_and_smaller():
    plans = tp.pareto(WIDE, MESH, "H100", entries=NARROW, method="exhaustive", grad=True)
    times = [seconds(plan, grad=True) for plan in plans]
    sizes = [plan.memory(True).total for plan in plans]
    assert len(plans) > 1
    assert times == sorted(set(times)) and sizes == sorted(set(sizes), reverse=True)


def test_of_plans_that_take_as_long_pareto_gives_the_smallest():
    (plan,) = tp.pareto(WIDE, MESH, "H100", entries=NARROW, method="exhaustive")
    other = tp.search(WIDE, MESH, "H100", entries=NARROW, method="exhaustive")
    assert seconds(plan) == seconds(other)
    assert plan.memory().total < other.memory().total


def test_an_interrupt_gives_the_plans_of_a_front_so_far(monkeypatch: pytest.MonkeyPatch):
    interrupt_weighing(monkeypatch, 2, 3)
    assert len(tp.pareto(WIDE, MESH, "H100", entries=NARROW, method="exhaustive", grad=True)) == 1


def test_arguments_of_pareto_that_are_none_are_refused():
    for points in (0, -1):
        with pytest.raises(tp.PlanError, match=r"points= of tp\.pareto asks for no plan"):
            tp.pareto(SMALL, MESH, "H100", points=points)
    with pytest.raises(tp.PlanError, match=r"points= of tp\.pareto is not what it should be"):
        tp.pareto(SMALL, MESH, "H100", points="2")  # pyright: ignore[reportArgumentType]
    with pytest.raises(tp.PlanError, match=r"what tp\.search does not take\n  got memry="):
        tp.pareto(SMALL, MESH, "H100", memry="1GB")
    for several in ([MESH, MESH], (MESH,), 8):
        with pytest.raises(MeshError, match=r"tp\.pareto takes one mesh\n  got (list|tuple|int): "):
            tp.pareto(SMALL, several, "H100")


@pytest.mark.parametrize("method", ["auto", "exhaustive", "anneal", "milp"])
@pytest.mark.parametrize("sizes", [{}, {"a": 0}, {"a": 1}, {"a": 7}], ids=str)
def test_programs_without_anything_to_cut_have_plans(method: str, sizes: dict[str, int]):
    graph = tp.trace(lambda x: x + x, tp.TensorType(sizes))
    for mesh in (MESH, AbstractMesh((1,), ("data",)), AbstractMesh((3, 5), ("x", "y"))):
        tp.search(graph, mesh, "H100", method=method, grad=True).verify()


class Terminal:
    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def isatty(self) -> bool:
        return True

    def flush(self) -> None:
        pass


def test_progress_is_shown_on_terminals_alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    tp.search(SMALL, MESH, "H100", entries=NARROW, progress=True)
    assert capsys.readouterr().err == ""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("tapestry_jax.searching.answering.progress._EVERY", 0.0)
    tp.search(SMALL, MESH, "H100", entries=NARROW, progress=True)
    assert "search of layer: " in terminal.text and "candidates, cheapest " in terminal.text
    assert terminal.text.endswith("\r\x1b[K")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "memory": ({"memory": -1}, "memory= of tp.search is no amount of memory"),
    "memory as text": ({"memory": "abc"}, "got 'abc'"),
    "memory of nothing": ({"memory": "0GB"}, "positive whole number"),
    "memory beyond numbers": ({"memory": 10**400}, "no amount of memory"),
    "memory beyond numbers, as text": ({"memory": "9" * 400 + "GB"}, "no amount of memory"),
    "memory as a flag": ({"memory": True}, "no amount of memory"),
    "method": ({"method": "best"}, "known are auto, exhaustive, anneal"),
    "method as a number": ({"method": 3}, "names no method"),
    "seed": ({"seed": 0.5}, "seed= of tp.search"),
    "progress": ({"progress": "yes"}, "progress= of tp.search"),
    "time": ({"time_limit": 0}, "time_limit= of tp.search is no time"),
    "time that is no number": ({"time_limit": float("nan")}, "time_limit= of tp.search is no time"),
    "start": ({"start": "plan"}, "start= of tp.search is no plan"),
    "another start": ({"start": tp.plan(SMALL, MESH)}, "a plan of another graph: "),
    "start against what is fixed": ({"start": tp.plan(WIDE, MESH), "entries": {"mlp": "data"}}, "contradicts what is"),
    "fixed": ({"entries": {"mlp": "data", "batch": "data"}}, "has both `batch` and `mlp` on the mesh axis `data`"),
    "fixed that is unknown": ({"entries": {"mpl": "data"}}, "which is no dimension of the graph"),
    "cache": ({"cache": 3}, "cache= of tp.search is no directory"),
    "cache of no name": ({"cache": ""}, "cache= of tp.search is no directory"),
    "cache of a name that cannot be": ({"cache": "\0"}, "cache= of tp.search is no directory"),
    "time without end": ({"time_limit": 10**400}, "time_limit= of tp.search is no time"),
    "grad": ({"grad": 7}, "grad names the argument 7"),
}


@pytest.mark.parametrize(("given", "text"), list(REFUSED.values()), ids=list(REFUSED))
def test_arguments_that_are_none_are_refused(given: dict[str, Any], text: str):
    with pytest.raises(tp.PlanError, match=text):
        tp.search(WIDE, MESH, "H100", **given)


@pytest.mark.parametrize(
    "fixed",
    [
        {"entries": {"mpl": "data"}},
        {"ops": {"nowhere": {"mlp": "data"}}},
        {"inputs": {"nowhere": {"mlp": "data"}}},
        {"outputs": {"nowhere": {"mlp": "data"}}},
        {"remat": {"nowhere": True}},
    ],
    ids=str,
)
def test_names_that_are_not_there_are_told_as_plans_tell_them(fixed: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(tp.PlanError) as of_plan:
        tp.plan(WIDE, MESH, **fixed)
    monkeypatch.setattr("tapestry_jax.searching.search.answer", None)  # nothing is tried
    with pytest.raises(tp.PlanError) as of_search:
        tp.search(WIDE, MESH, "H100", **fixed)
    assert str(of_search.value) == str(of_plan.value)


def test_machines_and_meshes_are_refused():
    with pytest.raises(MeshError, match="no such machine is known"):
        tp.search(SMALL, MESH, "H99")
    with pytest.raises(MeshError, match="the mesh does not say on which machine this is"):
        tp.search(SMALL, MESH)
    for wrong in (0, [], -2, 2**70, 7.5, None, "data", [3], {"data": 2}, "", AbstractMesh((), ())):
        with pytest.raises(MeshError, match="a search needs a mesh, or a number of devices"):
            tp.search(SMALL, wrong, "H100")
    with pytest.raises(tp.PlanError, match="only graphs can be searched"):
        tp.search("graph", MESH, "H100")  # pyright: ignore[reportArgumentType]


def test_prices_that_are_no_numbers_are_refused():
    # Measured times that leave the range of floats where they are continued.
    kinds = "all-reduce", "all-gather", "reduce-scatter", "all-to-all"
    tables = tuple(Table(kind, (axis,), ((1, 1e300), (2, 1.7e308))) for kind in kinds for axis in ("data", "model"))
    with pytest.raises(tp.PlanError, match="is no number"):
        tp.search(WIDE, MESH, replace(tp.machines.H100, tables=tables))


def test_more_candidates_than_can_be_tried_are_refused():
    with pytest.raises(tp.PlanError, match="too many to try all of them"):
        tp.search(WIDE, AbstractMesh((2, 2, 2), ("a", "b", "c")), "H100", method="exhaustive")
