"""`tapestry laws`: what it prints, and its exit status."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from laws.cli import main
from laws.quickly import compile_quickly
from tests.quickly import PROCESS

ROOT = Path(__file__).resolve().parents[2]

MODULE = """
import jax.numpy as jnp
import tapestry_jax as tp

Plus = tp.Monoid(0.0, jnp.add, commutative=True, name="Plus")
Halving = tp.Monoid(0.0, lambda a, b: (a + b) / 2, name="Halving")
many = {"plus": Plus, "halving": Halving, "text": "no piece"}
nothing = {}
mixed = {"plus": Plus, "least": tp.aggregators.Min()}
least = tp.aggregators.Min()


def made():
    return {"plus": Plus, "largest": tp.monoids.Max}


def plus():
    return Plus


def scaled(by):
    return tp.Monoid(by, jnp.multiply)


pairs = tp.laws.given(tp.Monoid(0, lambda a, b: (a[0] + b[0], a[1] * b[1]), name="Pairs"), lift=lambda x: (x, x),
                      laws=["associativity", "idempotence"])
"""


@pytest.fixture
def users(tmp_path, monkeypatch):
    (tmp_path / "users_pieces.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "users_pieces", raising=False)


def run(capsys, *words):
    status = main(["laws", *words])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_report_keeps_outcomes_apart(users, capsys):
    asked = [word for law in ("associativity", "mapping", "commutativity") for word in ("--law", law)]
    status, out, _ = run(capsys, "users_pieces:Halving", "--examples", "10", *asked)
    assert status == 1
    lines = out.splitlines()
    assert lines[0] == "Halving (users_pieces:Halving)"
    titles = [line.split(":")[0] for line in lines if line and not line.startswith(" ")]
    assert titles[1:4] == ["passed", "FAILED", "not checked"]
    failed = lines.index(next(line for line in lines if line.startswith("FAILED")))
    assert "  monoid.associativity" in lines[failed:]
    assert "  monoid.commutativity (`Halving` does not declare commutative)" in lines
    assert any(line.startswith("LAW monoid.associativity FAILED  Halving") for line in lines)


def test_function_that_makes_a_piece(users, capsys):
    status, out, _ = run(capsys, "users_pieces:plus", "--law", "associativity", "--examples", "3")
    assert (status, out.splitlines()[0]) == (0, "Plus (users_pieces:plus)")
    status, _, err = run(capsys, "users_pieces:scaled")
    assert status == 2
    assert "`scaled` is a function" in err
    assert "on a command line: name a tp.laws.given(piece, types=[...])" in err


@pytest.mark.parametrize("name", ["Plus", "made"])
def test_no_examples_are_refused(users, capsys, name):
    status, _, err = run(capsys, f"users_pieces:{name}", "--examples", "0")
    assert status == 2
    assert err.startswith("laws: examples is no number to count with.")


def test_lawful_piece_exits_with_0(users, capsys):
    status, out, _ = run(capsys, "users_pieces:Plus", "--law", "associativity", "--law", "commutativity")
    assert (status, "FAILED" in out) == (0, False)


def test_piece_with_its_options(users, capsys):
    status, out, _ = run(capsys, "users_pieces:pairs", "--examples", "5")
    assert status == 0
    assert out.splitlines()[1:] == [
        "passed: 1",
        "  monoid.associativity (5 examples)",
        "not checked: 1",
        "  monoid.idempotence (`Pairs` does not declare idempotent)",
    ]


def test_many_pieces_have_a_line_each(users, capsys):
    status, out, _ = run(capsys, "users_pieces:many", "--law", "associativity", "--examples", "5")
    lines = out.splitlines()
    assert status == 1
    assert lines[0].startswith("plus ")
    assert "1 passed, 0 not checked, 5 examples" in lines[0]
    assert lines[1].endswith("FAILED: monoid.associativity")
    assert lines[2].endswith("FAILED: cannot be checked")
    assert "LAW monoid.associativity FAILED  Halving" in out
    assert "nothing is known of the laws of this" in out
    assert lines[-1].startswith("3 pieces: 1 laws passed, 2 FAILED, 0 not checked, 5 examples")


def test_a_law_that_a_piece_does_not_have_is_not_checked(users, capsys):
    status, out, _ = run(capsys, "users_pieces:mixed", "--law", "aggregator.presenting", "--examples", "2")
    plus, least, total = out.splitlines()
    assert (status, "FAILED" in plus + least) == (0, False)
    assert "0 passed, 1 not checked" in plus
    assert "1 passed, 0 not checked" in least
    assert total.startswith("2 pieces: 1 laws passed, 0 FAILED, 1 not checked")


NAMED = ["--law", "monoid.idempotence", "--law", "aggregator.presenting", "--examples", "2"]


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["users_pieces:Plus", *NAMED], 1),  # none could be checked
        (["users_pieces:Plus", "users_pieces:least", *NAMED], 0),
        (["users_pieces:least", "users_pieces:Halving", "--law", "associativity", *NAMED], 1),
    ],
)
def test_exit_status_is_of_what_was_checked_and_failed(users, capsys, words, status):
    found, out, _ = run(capsys, *words)
    assert found == status
    assert ("aggregator.presenting (no law of `Plus`)" in out) == ("users_pieces:Plus" in words)


def test_mistakes_are_not_planted_for_laws_that_a_piece_does_not_have(users, capsys):
    status, out, _ = run(capsys, "users_pieces:Plus", "--mutants", "--law", "aggregator.presenting")
    assert (status, out.splitlines()[1:]) == (1, ["not checked: it has no law aggregator.presenting"])


@pytest.mark.thorough
def test_many_pieces_are_shared_out_to_processes(tmp_path):
    """In a process of its own: workers of this one would read the tests' module anew."""
    (tmp_path / "users_pieces.py").write_text(MODULE)
    words = [sys.executable, "-m", "laws", "laws", "users_pieces:made", "--law", "left_identity", "--jobs", "2"]
    done = subprocess.run(
        words, cwd=tmp_path, env={"PYTHONPATH": f"{ROOT}:{tmp_path}", "PATH": ""}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["plus", "largest", "2"]


def test_token_is_run_again_in_another_process(users, capsys):
    _, out, _ = run(capsys, "users_pieces:Halving", "--examples", "10", "--law", "associativity")
    token = re.search(r'replay\("([^"]+)"', out)[1]
    words = [sys.executable, "-m", "laws", "laws", "users_pieces:Halving", "--replay", token]
    environment = {**PROCESS, "XLA_FLAGS": os.environ["XLA_FLAGS"], "PYTHONPATH": str(ROOT), "PATH": ""}
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[:3] == _failure(out)[:3]
    assert run(capsys, "users_pieces:Plus", "--replay", token)[:2] == (0, "Plus: the counterexample holds now\n")
    assert run(capsys, "users_pieces:Plus", "--replay", "nonsense")[0] == 2


def _failure(out):
    lines = out.splitlines()
    return lines[lines.index(next(line for line in lines if line.startswith("LAW "))) :]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "no piece is named"),
        (["users_pieces"], "Write it as package.module:piece"),
        (["users_pieces:Missing"], "it has Halving, Plus"),
        (["no_such_module:x"], "No module named 'no_such_module'"),
        (["users_pieces:nothing"], "holds no piece"),
        (["users_pieces:jnp"], "nothing is known of the laws of this"),
        (["users_pieces:Plus", "--law", "asociativity"], "no law is called 'asociativity'"),
        (["users_pieces:mixed", "--law", "asociativity"], "no law is called 'asociativity'"),
    ],
)
def test_questions_without_an_answer_exit_with_2(users, capsys, words, text):
    status, out, err = run(capsys, *words)
    assert (status, out) == (2, "")
    assert text in err


def test_command_is_installed_under_its_name():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"tapestry": "tapestry_jax.command:main"}


# A token is replayed by it above.
@pytest.mark.thorough
def test_module_is_the_command():
    done = subprocess.run([sys.executable, "-m", "laws", "laws", "--list"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    listed = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert listed["monoid.associativity"] == "(a + b) + c ~ a + (b + c)"


def test_command_compiles_quickly_unless_told_otherwise(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=here")
    compile_quickly()
    assert os.environ["XLA_FLAGS"] == "--xla_dump_to=here"
    monkeypatch.delenv("XLA_FLAGS")
    compile_quickly()
    assert "--xla_backend_optimization_level=0" in os.environ["XLA_FLAGS"].split()


def asked_of(tmp_path, capsys, monkeypatch, body, name="users_broken"):
    (tmp_path / f"{name}.py").write_text(body)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return run(capsys, f"{name}:piece")


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        ("import sys\nsys.exit(0)\n", ["cannot be imported", "line 2", "it called sys.exit(0)", "__main__"]),
        ("import sys\nsys.exit('done')\n", ["it called sys.exit('done')"]),
        ("def piece(\n", ["cannot be imported", "line 1: SyntaxError: '(' was never closed", "Mend that line"]),
        (
            "import json\nimport no_such_thing\n",
            ["users_broken.py, line 2", "No module named 'no_such_thing'", "Install what it imports"],
        ),
        ("from math import no_such_thing\n", ["line 1", "ImportError: cannot import name 'no_such_thing'"]),
        ("x = 1\ny = x / 0\n", ["line 2", "ZeroDivisionError: division by zero"]),
        ("import sys\ndef piece():\n    sys.exit(0)\n", ["tried to end the process", "sys.exit(0)"]),
    ],
)  # fmt: skip
def test_a_mistake_in_the_users_module_exits_with_2_and_no_traceback(tmp_path, capsys, monkeypatch, body, texts):
    status, out, err = asked_of(tmp_path, capsys, monkeypatch, body)
    assert (status, out) == (2, "")
    assert [text for text in texts if text not in err] == []
    assert "Traceback" not in err


def test_an_interruption_exits_with_130(tmp_path, capsys, monkeypatch):
    status, out, err = asked_of(tmp_path, capsys, monkeypatch, "raise KeyboardInterrupt\n")
    assert (status, out, err) == (130, "", "tapestry: interrupted\n")


WITHOUT_HYPOTHESIS = """
import json, sys
sys.modules["hypothesis"] = None
from tapestry_jax.command import main
for words in ("--help", "--version", "laws --help", "laws --list"):
    try:
        status = main(words.split())
    except SystemExit as error:
        status = error.code
    print(f"status {status}")
"""


def test_version_and_help_need_no_hypothesis():
    done = subprocess.run([sys.executable, "-c", WITHOUT_HYPOTHESIS], cwd=ROOT, capture_output=True, text=True)
    assert re.findall(r"status (\d+)", done.stdout) == ["0", "0", "0", "2"], done.stderr
    assert "tapestry-jax[laws]" in done.stdout and "exit status: 0 all held" in done.stdout
    assert re.search(r"^tapestry-jax \S+$", done.stdout, re.MULTILINE)
    assert done.stderr == (
        "tapestry laws needs the package `hypothesis`, which is not installed.\n"
        "  Install it: pip install 'tapestry-jax[laws]'.\n"
    )
