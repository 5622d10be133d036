"""The quickstart as its reader runs it, with a model small enough to compile in seconds.

It runs as a script in the process of the tests, which has imported already what takes the quickstart seconds. Resumed
it is asked for the batches that come next. Thorough: the losses of a run that nothing interrupts, on eight devices and
on one; and where it trains first and what ends with an error, in processes of their own.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest

from tests.example_modules import EXAMPLES, modules_of
from tests.quickly import PROCESS
from tests.thoroughly import thoroughly

ROOT = Path(__file__).parents[2]
# Three heads do not divide over `model`: arrays have their true shapes on every mesh.
TINY = ["--layers", "1", "--embed", "18", "--heads", "3", "--length", "16", "--batch", "4", "--machine", "none"]


def quickstart(*arguments: Any) -> SimpleNamespace:
    script = ["-m", "tests.quickly", str(ROOT / "examples" / "quickstart.py")]
    command = [sys.executable, *script, *TINY, *map(str, arguments)]
    environment = {**os.environ, **PROCESS, "PYTHONPATH": str(ROOT), "COLUMNS": "300"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    return SimpleNamespace(code=done.returncode, out=done.stdout, err=done.stderr)


@pytest.fixture(scope="module")
def asked() -> list[int]:
    """The steps of which the quickstart has trained on a batch."""
    return []


@pytest.fixture(scope="module")
def main(asked: list[int]) -> Iterator[Any]:
    """The quickstart as a function of its arguments that gives what it prints; the mesh is one of the eight devices."""
    device = jax.config.jax_default_device

    def printed(*arguments: Any) -> str:
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as out:
            patch.setattr(sys, "argv", ["quickstart.py", *TINY, *map(str, arguments)])
            runpy.run_path(str(EXAMPLES / "quickstart.py"), run_name="__main__")
        return out.getvalue()

    with modules_of(EXAMPLES) as load, pytest.MonkeyPatch.context() as patch:
        # Ten megabytes in 700 files: read once, and of them so many as count soon.
        whole = functools.cache(load("text").standard_library)

        def read() -> Any:
            text = whole()
            if thoroughly():  # a process of its own trains on all of it, and its checkpoint belongs to that text
                return text
            return replace(text, train=text.train[:400_000], held_out=text.held_out[:40_000])

        batch = load("text").training_batch

        def training_batch(*given: Any) -> Any:
            asked.append(given[-1])
            return batch(*given)

        for name in ("text", "training"):
            patch.setattr(load(name), "standard_library", read)
        patch.setattr(load("text"), "training_batch", training_batch)
        yield printed
    jax.config.update("jax_default_device", device)


def losses(out: Path, step: int) -> list[tuple[int, float]]:
    """Steps, and the mean loss since the one before."""
    told = json.loads((out / "checkpoint" / str(step) / "record" / "metadata").read_text())
    return [(row["step"], row["loss"]) for row in told["history"]]


@pytest.fixture(scope="module")
def three_steps(main: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("three")
    if not thoroughly():
        return out, main("--steps", 3, "--out", out)
    done = quickstart("--steps", 3, "--out", out)
    assert done.code == 0, done.err
    return out, done.out


@pytest.fixture(scope="module")
def resumed_on_a_row(
    main: Any, asked: list[int], three_steps: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str, list[int]]:
    """Two steps behind three on another mesh, and the steps of which it has trained on a batch."""
    out = tmp_path_factory.mktemp("row")
    shutil.copytree(three_steps[0] / "checkpoint", out / "checkpoint")
    asked.clear()
    return out, main("--steps", 5, "--resume", "--out", out, "--mesh", "data=8"), [*asked]


@pytest.fixture(scope="module")
def five_steps_on_a_row(main: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("five")
    return out, main("--steps", 5, "--mesh", "data=8", "--out", out)


@pytest.mark.parametrize(
    "line",
    [
        "loss on the mesh data=2 x model=4",
        "communication with gradients:",
        "parameters; mesh: data=2 x model=4 cpu devices",
        "step 0: planned loss",
        "tokens/s",
        "held-out loss after 3 steps",
        "not below the bigram table",
        "not below the trigram table",
        "sample:",
        "--resume goes on from step 3",
    ],
)
def test_quickstart_prints(three_steps: tuple[Path, str], line: str) -> None:
    assert line in three_steps[1]


def test_quickstart_planned_loss_is_the_unplanned_one_after_training(three_steps: tuple[Path, str]) -> None:
    report = next(line for line in three_steps[1].splitlines() if "step 3:" in line)
    planned, plain = (report.split(f"{word} ")[1].split(";")[0].split(",")[0] for word in ("planned loss", "unplanned"))
    assert float(planned) == pytest.approx(float(plain), abs=1e-4)
    # Twice the same wrong number, such as zero, would agree as well; a model of 256 symbols starts near log 256 = 5.5.
    assert 5 < float(plain) < 7.5


def test_quickstart_writes_curve_plan_and_checkpoint(three_steps: tuple[Path, str]) -> None:
    out, _ = three_steps
    assert (out / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((out / "plan.json").read_text())
    assert [step for step, _ in losses(out, 3)] == [3]


def test_quickstart_mesh_option_makes_that_mesh(resumed_on_a_row: tuple[Path, str, list[int]]) -> None:
    _, printed, _ = resumed_on_a_row
    assert "mesh: data=8 cpu devices" in printed
    assert "model:" not in printed.split("operation ")[0].split("inputs:")[1]


def test_quickstart_resumed_on_another_mesh_trains_on_the_batches_that_come_next(
    three_steps: tuple[Path, str], resumed_on_a_row: tuple[Path, str, list[int]]
) -> None:
    out, printed, trained = resumed_on_a_row
    assert "resumed from step 3" in printed and trained == [3, 4]
    first, then = losses(out, 5)
    assert [first] == losses(three_steps[0], 3) and (first[0], then[0]) == (3, 5)
    assert 5 < then[1] < 7.5


# That what is restored goes on bit by bit, and on another mesh, is asked in nnx/training/saving/test_saved.py.
@pytest.mark.thorough
@pytest.mark.parametrize("devices", [8, 1])
def test_quickstart_resumed_on_other_devices_gives_the_losses_of_an_uninterrupted_run(
    devices: int,
    three_steps: tuple[Path, str],
    resumed_on_a_row: tuple[Path, str, list[int]],
    five_steps_on_a_row: tuple[Path, str],
    tmp_path: Path,
) -> None:
    out, printed, _ = resumed_on_a_row
    if devices == 1:
        out = tmp_path
        shutil.copytree(three_steps[0] / "checkpoint", out / "checkpoint")
        done = quickstart("--steps", 5, "--resume", "--out", out, "--devices", 1)
        assert done.code == 0, done.err
        printed = done.out
        assert "communication with gradients: 0 collectives" in printed
    assert "resumed from step 3" in printed
    first, then = losses(out, 5)
    ((until, whole),) = losses(five_steps_on_a_row[0], 5)
    assert [first] == losses(three_steps[0], 3) and (first[0], then[0], until) == (3, 5, 5)
    assert (3 * first[1] + 2 * then[1]) / 5 == pytest.approx(whole, abs=1e-3)


@pytest.fixture(params=["inside", pytest.param("process", marks=pytest.mark.thorough)])
def refused(request: pytest.FixtureRequest, main: Any) -> Any:
    """What the quickstart says when it ends with code 1."""

    def inside(*arguments: Any) -> str:
        # An exit with a text: Python prints it alone, and ends with code 1.
        with pytest.raises(SystemExit) as stopped:
            main(*arguments)
        return f"{stopped.value.code}\n"

    def process(*arguments: Any) -> str:
        done = quickstart(*arguments)
        assert done.code == 1
        assert "Traceback" not in done.err
        return done.err

    return {"inside": inside, "process": process}[request.param]


def test_quickstart_truncated_checkpoint_is_named(refused: Any, three_steps: tuple[Path, str], tmp_path: Path) -> None:
    shutil.copytree(three_steps[0] / "checkpoint", tmp_path / "checkpoint")
    data = max((tmp_path / "checkpoint" / "3" / "arrays").rglob("d/*"), key=lambda file: file.stat().st_size)
    os.truncate(data, 10)
    said = refused("--resume", "--out", tmp_path)
    assert f"error: the checkpoint {tmp_path / 'checkpoint' / '3'} cannot be read" in said
    assert f"{data.name} is truncated or changed: 10 bytes" in said


def test_quickstart_resume_without_a_checkpoint_is_refused(refused: Any, tmp_path: Path) -> None:
    said = refused("--resume", "--out", tmp_path)
    assert said == f"error: no checkpoint in {tmp_path / 'checkpoint'}\n  Run once without --resume.\n"
