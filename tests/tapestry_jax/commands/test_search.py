"""`tapestry search`: the plan file that it writes, what it prints, its exit status, and what it says of wrong words."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import pytest
from jax.sharding import AbstractMesh

import tapestry_jax as tp
from tapestry_jax.command import main
from tapestry_jax.commands.search import read_mesh

MESH = AbstractMesh((2, 4), ("data", "model"))
FIXED = "--fix k=none --fix n=none"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a graph and a plan of it."""
    types = tp.TensorType({"i": 65536, "k": 1024}), tp.TensorType({"k": 1024, "n": 1024})
    graph = tp.trace(tp.einsum("i k, k n -> i n"), *types)
    (tmp_path / "graph.json").write_text(graph.to_json())
    (tmp_path / "hand.json").write_text(tp.plan(graph, MESH, {"i": "data", "k": None, "n": None}).to_json())
    (tmp_path / "kept.d").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def ask(folder: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(words: str) -> tuple[int, str, str]:
        status = main(words.split())
        told = capsys.readouterr()
        return status, told.out, told.err

    return run


def read(folder: Path, name: str) -> tp.Plan:
    return tp.Plan.from_json((folder / name).read_text(), tp.Graph.from_json((folder / "graph.json").read_text()))


def test_the_plan_found_is_written_and_told(ask: Any, folder: Path):
    status, told, error = ask(f"search graph.json --mesh data=2,model=4 --machine h100 {FIXED} --method exhaustive")
    plan = read(folder, "graph.plan.json")
    assert (status, error) == (0, "")
    assert dict(plan.entries)["i"] == ("data", "model")
    lines = told.splitlines()
    assert lines[0].startswith("einsum on data=2 x model=4, H100: ") and lines[0].endswith(" B a device")
    assert "  i -> data,model" in lines and "  k -> none" in lines
    assert lines[-2:] == ["from the best: 0.00% at most, by what its method looks at", "graph.plan.json"]
    # What it writes is what the other commands read.
    assert ask("verify graph.plan.json --graph graph.json")[0] == 0


def test_answers_in_json(ask: Any, folder: Path):
    words = f"search graph.json --mesh 8 --machine v5p --grad {FIXED} --seed 3 --time-limit 60 -o found.json --json"
    status, told, _ = ask(words)
    found, plan = json.loads(told), read(folder, "found.json")
    assert (status, found["plan"], found["gradients"], found["mesh"]) == (0, "found.json", True, dict(plan.mesh.shape))
    assert found["seconds"] == plan.cost("v5p", True).seconds
    assert found["memory"] == plan.memory(True).total


def test_the_graph_of_a_module_is_searched_and_named_again(ask: Any, folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(folder)
    lines = (
        "import tapestry_jax as tp",
        'product = tp.einsum("i k, k n -> i n")',
        "def linear():",
        "    return traced",
    )
    types = 'tp.TensorType({"i": 65536, "k": 1024}), tp.TensorType({"k": 1024, "n": 1024})'
    (folder / "searched_programs.py").write_text("\n".join([*lines, f"traced = tp.trace(product, {types})"]))
    status, told, error = ask(f"search searched_programs:linear --mesh 8 --machine h100 {FIXED} --method exhaustive")
    assert (status, error, told.splitlines()[-1]) == (0, "", "linear.plan.json")
    assert dict(read(folder, "linear.plan.json").entries)["i"] == ("data",)
    assert ask("verify linear.plan.json --graph searched_programs:traced")[0] == 0
    assert ask("explain searched_programs:linear")[1] == ask("explain graph.json")[1]
    status, _, error = ask(f"search searched_programs:product --mesh 8 --machine h100 {FIXED}")
    assert (status, error.splitlines()[0]) == (2, "tapestry search: searched_programs:product is no graph.")


def test_what_is_fixed_stays_and_a_start_is_a_bound(ask: Any, folder: Path):
    words = f"search graph.json --mesh data=2,model=4 --machine h100 {FIXED} --fix i=data,chunks(4) -o fixed.json"
    assert ask(words)[0] == 0
    assert dict(read(folder, "fixed.json").entries)["i"] == ("data", tp.chunks(4))
    words = (
        f"search graph.json --mesh data=2,model=4 --machine h100 {FIXED} --start hand.json -o more.json --cache kept"
    )
    assert ask(words)[0] == 0
    plan, hand = read(folder, "more.json"), read(folder, "hand.json")
    assert plan.cost("h100").seconds <= hand.cost("h100").seconds
    assert len(list((folder / "kept").iterdir())) == 1


def test_memory_that_is_not_enough_is_told(ask: Any, folder: Path):
    words = f"search graph.json --mesh data=2 --machine h100 --memory 1MB {FIXED} --method exhaustive"
    status, told, error = ask(words)
    assert (status, told) == (2, "")
    assert "was found that fits into 1,000,000 B a device" in error and "Give memory=" in error
    assert not (folder / "graph.plan.json").exists()


def test_meshes_are_read():
    assert read_mesh("8") == 8
    assert dict(read_mesh("data=2, model=4").shape) == {"data": 2, "model": 4}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("graph.json --mesh data=2", "tapestry search: no machine is named, and without one there are no prices."),
        ("graph.json --mesh data=2 --machine h101", "no such machine is known"),
        ("graph.json --mesh data --machine h100", "cannot read the mesh 'data'.\n  'data' is no axis with a size"),
        ("graph.json --mesh data=0 --machine h100", "'data=0' is no axis with a size"),
        (f"graph.json --mesh {'9' * 5000} --machine h100", "tapestry search: cannot read the mesh '9"),
        ("graph.json --mesh data=2,data=4 --machine h100", "`data` stands twice"),
        ("graph.json --mesh data=1048576,model=2 --machine h100", "it has more than 1,048,576 devices"),
        ("graph.json --mesh 0 --machine h100", "a search needs a mesh, or a number of devices"),
        ("graph.json --mesh data=2 --machine h100 --memory much", "memory= of tp.search is no amount of memory"),
        (
            f"graph.json --mesh data=2 --machine h100 --memory {'9' * 5000}",
            "memory= of tp.search is no amount of memory",
        ),
        ("graph.json --mesh data=2 --machine h100 --memory 0", "memory= of tp.search is no amount of memory"),
        ("graph.json --mesh data=2 --machine h100 --time-limit 0", "time_limit= of tp.search is no time"),
        ("graph.json --mesh data=2 --machine h100 --fix i", "tapestry search: cannot read 'i'.\n  no DIM=PLACE"),
        ("graph.json --mesh data=2 --machine h100 --fix i=circle(x)", "tapestry search: cannot read 'i=circle(x)'"),
        ("graph.json --mesh data=2 --machine h100 --fix z=data", "`z`"),
        ("graph.json --mesh data=2 --machine h100 --start hand.json", "start= of tp.search is a plan for another mesh"),
        (
            "hand.json --mesh data=2 --machine h100",
            "is the file of a plan, expected one of a graph.\n  Name the file that",
        ),
        (
            "nowhere.json --mesh data=2 --machine h100",
            "tapestry search: 'nowhere.json' cannot be read.\n"
            "  FileNotFoundError: [Errno 2] No such file or directory: 'nowhere.json'\n"
            "  Name the file that graph.to_json() wrote, or package.module:graph.",
        ),
        (f"graph.json --mesh data=2 --machine h100 {FIXED} -o no/plan.json", "cannot be written to 'no/plan.json'"),
        (
            f"graph.json --mesh data=2 --machine h100 {FIXED} -o kept.d",
            "cannot be written to 'kept.d'.\n  it is a folder",
        ),
        (
            f"graph.json --mesh data=2 --machine h100 {FIXED} -o /dev/full",
            "cannot be written to '/dev/full'.\n  [Errno",
        ),
    ],
)
def test_wrong_words_are_told_in_our_words(words: str, said: str, ask: Any):
    status, told, error = ask(f"search {words}")
    assert (status, told) == (2, "")
    assert said in error
    assert "Traceback" not in error


def test_an_unknown_method_is_refused_by_name(ask: Any, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        ask("search graph.json --mesh 2 --machine h100 --method guess")
    assert ended.value.code == 2
    assert "invalid choice: 'guess'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["graph.json", "kept.d/../graph.json"])
def test_the_graph_that_is_searched_is_not_written_over(ask: Any, folder: Path, name: str):
    before = (folder / "graph.json").read_text()
    status, told, error = ask(f"search graph.json --mesh 8 --machine h100 {FIXED} -o {name}")
    assert (status, told) == (2, "")
    assert "is the file that is read, and would be lost" in error
    assert (folder / "graph.json").read_text() == before


def test_a_plan_that_cannot_be_written_whole_leaves_the_one_before(ask: Any, folder: Path):
    """A limit of this process's own stands for a disk that is full."""
    place, before = folder / "kept_before.json", (folder / "hand.json").read_text()
    place.write_text(before)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        status, told, error = ask(f"search graph.json --mesh 8 --machine h100 {FIXED} -o kept_before.json")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (status, told, place.read_text()) == (2, "", before)
    assert error.startswith(
        "tapestry search: the plan cannot be written to 'kept_before.json'.\n  [Errno 27] File too large\n"
    )


@pytest.mark.parametrize("command", ["search graph.json --mesh 8", "show hand.json --graph graph.json"])
def test_no_name_is_not_the_name_by_default(command: str, ask: Any):
    """As `-o "$OUTPUT"` says where nothing is set."""
    status, told, _ = ask(f"{command} --machine h100 --output=")
    assert (status, told) == (2, "")


@pytest.mark.parametrize("name", ["hand.json", "graph.json"])
def test_a_plan_that_is_shown_is_not_written_over(ask: Any, folder: Path, name: str):
    before = (folder / name).read_text()
    status, _, error = ask(f"show hand.json --graph graph.json --machine h100 -o {name}")
    assert status == 2
    assert "is the file that is read, and would be lost" in error
    assert (folder / name).read_text() == before
