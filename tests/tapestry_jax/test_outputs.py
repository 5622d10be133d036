"""What becomes of an answer whose output is closed, full, or has no letter for it: each is a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import tapestry_jax as tp

ROOT = Path(__file__).parents[2]
RUN = [sys.executable, "-c", "import sys; from tapestry_jax.command import main; sys.exit(main())"]
FULL = Path("/dev/full")
needs_a_full_device = pytest.mark.skipif(not FULL.exists(), reason="no device of this system is always full")


def asked(
    words: str, cwd: Path, env: Mapping[str, str] | None = None, closed: str = "", **outputs: Any
) -> subprocess.CompletedProcess[str]:
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | outputs
    env = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
    begin = ["sh", "-c", f'exec "$@" {closed}', "sh"] if closed else []
    return subprocess.run([*begin, *RUN, *words.split()], cwd=cwd, env=env, text=True, check=False, **pipes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("outputs")
    product = tp.trace(tp.einsum("größe k, k 名 -> größe 名"), tp.TensorType({"größe": 4, "k": 4}), _square())
    (made / "graph.json").write_text(product.to_json(), encoding="utf-8")
    (made / "run.toml").write_text('"a\\u001b[31m" = 1\n')
    return made


def _square() -> tp.TensorType:
    return tp.TensorType({"k": 4, "名": 4})


@needs_a_full_device
@pytest.mark.parametrize("words", ["explain graph.json", "--version"])
def test_a_full_disk_is_told_and_is_no_answer(words: str, folder: Path):
    """Status 1 would say that a proof has failed, or that plans differ."""
    with FULL.open("w") as full:
        done = asked(words, folder, stdout=full)
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "tapestry: the answer cannot be written.")
    assert "Traceback" not in done.stderr and "No space left" in done.stderr


@needs_a_full_device
def test_an_error_is_status_2_wherever_it_cannot_be_told(folder: Path):
    with FULL.open("w") as full:
        assert asked("explain missing.json", folder, stdout=full, stderr=full).returncode == 2


def test_a_closed_output_asks_for_the_status_alone(folder: Path):
    done = asked("explain graph.json", folder, closed=">&-")
    assert (done.returncode, done.stderr) == (0, "")
    assert asked("explain missing.json", folder, closed="2>&-").returncode == 2


def test_a_reader_that_has_gone_gets_no_word_and_status_2(folder: Path):
    reading, writing = os.pipe()
    os.close(reading)
    done = asked("explain graph.json", folder, stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (2, "")


@pytest.mark.parametrize(("encoding", "shown"), [("ascii", r"gr\xf6\xdfe k, k \u540d"), ("utf-8", "größe k, k 名")])
def test_letters_that_an_output_lacks_are_spelt_out(encoding: str, shown: str, folder: Path):
    done = asked("explain graph.json", folder, {"PYTHONIOENCODING": encoding}, encoding=encoding)
    assert (done.returncode, done.stderr) == (0, "")
    assert shown in done.stdout


def test_what_steers_a_terminal_is_spelt_out_in_errors(folder: Path):
    done = asked("train run.toml", folder)
    assert done.returncode == 2
    assert "`a\\x1b[31m` is not known" in done.stderr and "\x1b" not in done.stderr


def test_an_error_that_nobody_expected_is_not_an_answer(tmp_path: Path):
    (tmp_path / "broken.py").write_text("class P:\n    def __getattr__(self, _): raise MemoryError\nplan = P()\n")
    done = asked("explain broken:plan.more", tmp_path)
    assert (done.returncode, "MemoryError" in done.stderr) == (2, True)
