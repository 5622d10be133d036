"""`tapestry fabric`: what it does to a folder, what it prints, its exit status, and what it says of wrong words."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax import command
from tapestry_jax.command import main
from tapestry_jax.commands.fabric import read_box

ROOT = Path(__file__).resolve().parents[3]
X = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    np.savez("two.npz", a=X, b=X)

    def run(words: str) -> tuple[int, str, str]:
        status = main(["fabric", *words.split()])
        told = capsys.readouterr()
        return status, told.out, told.err

    return run


def test_tensors_are_loaded_listed_copied_shown_and_exported(ask: Any, tmp_path: Path):
    assert ask("load f x x.npy --names row,col")[::2] == (0, "")
    assert ask("load f y x.npy --names row,col")[0] == 0
    assert ask("ls f") == (0, "x  float32(row=4, col=3)  48 B\ny  float32(row=4, col=3)  48 B\n", "")
    assert ask("copy f x y --from row=0:2 --to row=2:4")[0] == 0
    status, told, _ = ask("show f y --box row=2:,col=:2 --check")
    assert status == 0 and told.endswith("[[0. 1.]\n [3. 4.]]\n") and "copy of versions 1" in told
    assert ask("export f y y.npy")[0] == 0
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), np.concatenate([X[:2], X[:2]]))
    status, told, error = ask("export f y y.npy")
    assert (status, told) == (2, "") and "y.npy` is there already" in error


def test_programs_are_applied_from_graphs_and_modules(ask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    graph = tp.trace(lambda x: (x + 1, x - 1), tp.TensorType({"row": 4, "col": 3}))
    (tmp_path / "graph.json").write_text(graph.to_json())
    (tmp_path / "fabric_programs.py").write_text("def twice(x):\n    return x + x\n")
    monkeypatch.syspath_prepend(tmp_path)
    ask("load f x x.npy --names row,col")
    assert ask("apply f graph.json x --out more,less")[0] == 0
    assert ask("apply f fabric_programs:twice x --out twice --mesh data=2 --plan row=data")[0] == 0
    status, told, _ = ask("show f twice --json --box row=1:2")
    found = json.loads(told)
    assert status == 0 and found["cells"] == [[6, 8, 10]] and found["layout"] == {"row": ["data"]}
    assert [each["name"] for each in json.loads(ask("ls f --json")[1])["tensors"]] == ["less", "more", "twice", "x"]


def test_programs_are_streamed_within_a_memory(ask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "streamed_programs.py").write_text(
        "import tapestry_jax as tp\nfrom flax import nnx\n"
        "def centred(x):\n    return x - tp.fold(tp.aggregators.Mean(), 'row col -> col')(x)\n"
        "model = tp.nnx.Linear(3, 2, dims=('col', 'out'), rngs=nnx.Rngs(0))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    ask("load f x x.npy --names row,col")
    words = "apply f streamed_programs:centred x --out"
    assert ask(f"{words} y --over row=2 --memory 64MiB --checkpoint run")[::2] == (0, "")
    assert json.loads(ask("show f y --json --box row=0:1")[1])["cells"] == [[-4.5, -4.5, -4.5]]
    assert ask(f"{words} z --over row --memory 64MiB")[0] == 0
    assert ask("apply f streamed_programs:model x --out w --parameters model")[0] == 0
    listed = ask("ls f")[1]
    assert "model/" in listed and "w " in listed
    for wrong, told in (
        ("--over row=many", "cannot read --over"),
        ("--over row=0", "cannot read --over"),
        ("--over row=2 --over col", "some of --over have a size"),
        ("--memory 1B --over row", "memory"),
        ("--memory 1B", "memory"),
    ):
        status, _, error = ask(f"{words} v {wrong}")
        assert status == 2 and told in error


def test_tensors_are_deleted_kept_restored_and_recovered(ask: Any, tmp_path: Path):
    ask("load f x x.npy --names row,col")
    assert ask("snapshot f")[:2] == (0, "")
    assert ask("snapshot f first") == (0, "first\n", "")
    ask("load f y x.npy")
    assert ask("delete f x") == (0, "y  float32(4, 3)  48 B\n", "")
    status, _, error = ask("delete f y x")
    assert status == 2 and "there is no tensor 'x'" in error and "y" in ask("ls f")[1]
    assert json.loads(ask("snapshot f --json")[1]) == {"fabric": 1, "snapshots": ["first"]}
    assert ask("restore f first x")[0] == 0 and len(ask("ls f")[1].splitlines()) == 2
    assert ask("restore f first") == (0, "x  float32(row=4, col=3)  48 B\n", "")
    assert ask("recover f x") == (0, "nothing was lost\n", "")
    for file in (tmp_path / "f" / "blocks").glob("*/[0-9]*"):
        file.write_bytes(b"")
    assert ask("recover f x") == (0, "recovered: ((0, 4), (0, 3))\n", "")
    assert ask("show f x --check")[0] == 0
    assert ask("snapshot f --forget first") == (0, "", "")
    for words, told in (
        ("snapshot f --forget first", "there is no snapshot 'first'"),
        ("restore f first", "there is no snapshot 'first'"),
        ("recover f z", "there is no tensor 'z'"),
        ("recover f x nothing_at_all:program", "nothing_at_all"),
    ):
        status, _, error = ask(words)
        assert status == 2 and told in error


def test_lost_blocks_are_named_with_exit_status_one(ask: Any, tmp_path: Path):
    ask("load f x x.npy")
    [block] = (tmp_path / "f" / "blocks").glob("*/[0-9]*")
    block.write_bytes(b"")
    status, told, _ = ask("show f x --check")
    assert status == 1 and "  lost: ((0, 4), (0, 3))" in told
    assert json.loads(ask("show f x --check --json")[1])["lost"] == [[[0, 4], [0, 3]]]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("ls nowhere", "tapestry fabric ls: 'nowhere' is no fabric\n  Name a folder that"),
        ("show f w", "there is no tensor 'w'"),
        ("show f x --box row", "tapestry fabric: cannot read the box 'row'\n  at 'row'\n  Write it as row=0:8,col=:4."),
        ("show f x --box z=0:1", "it has no axis 'z'"),
        ("load f ../x x.npy", "a tensor cannot have this name"),
        ("load f x x.npy", "Choose another name, or pass --overwrite."),
        ("load f y two.npz", "Name one of them: --tensor NAME."),
        ("load f y none.npy", "none.npy"),
        ("copy f x x --from 0=0:1", "the boxes differ in size"),
        ("apply f graph.json x --out y", "graph.json"),
        ("apply f no_module:f x --out y", "No module named 'no_module'"),
        ("apply f math:sqrt x --out y --plan row", "cannot read the entry 'row'"),
        (
            "apply f math:sqrt x --out y --mesh data=999",
            "Simulate them on the CPU, in the environment: JAX_NUM_CPU_DEVICES=999.",
        ),
    ],
)
def test_what_cannot_be_done_is_told_with_exit_status_two(ask: Any, tmp_path: Path, words: str, text: str):
    ask("load f x x.npy")
    status, told, error = ask(words)
    assert (status, told) == (2, "") and text in error
    assert not (tmp_path / "nowhere").exists()
    with tp.Fabric(tmp_path / "f") as fabric:
        assert fabric.list() == ("x",)


def test_what_is_said_otherwise_at_the_command_line_is_what_errors_say():
    files = [path for path in (ROOT / "tapestry_jax").rglob("*.py") if path.name != "command.py"]
    sources = "\n".join(path.read_text(encoding="utf-8") for path in files)
    # The last one stands in a text with a number, and is asked for above.
    *written, _ = (written for written, _ in command._REMEDIES)
    assert len(written) > 3 and [each for each in written if not re.search(each, sources)] == []


def test_boxes_of_the_command_line():
    assert read_box("row=0:8, col=:-1,2=3:") == {"row": slice(0, 8), "col": slice(None, -1), 2: slice(3, None)}
    assert read_box("") is None
    for text in ("row=1", "=0:1", "row=0:1,row=1:2", "row=a:b", "row=0:1:2", "row=" + "9" * 30 + ":"):
        with pytest.raises(tp.TapestryError, match="cannot read the box"):
            read_box(text)
