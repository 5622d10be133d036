"""`tapestry train`: what a file may say, what is printed, how a run goes on, and what is said of wrong files."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import pytest

from tapestry_jax.command import main
from tapestry_jax.commands.config import read_config
from tapestry_jax.nnx.training.trainer import Trainer
from tests.example_modules import EXAMPLES, modules_of

RUNS = """
import jax, numpy as np, optax, tapestry_jax as tp
from flax import nnx

def loss(model, x, y):
    return tp.nnx.mean_squared_error(model(x), y)

def batch(step):
    x = np.random.default_rng(step).normal(size=(4, 4)).astype("float32")
    return x, x

def make(rate: float, folder="run", nan="stop", wide=False, **more):
    model = tp.nnx.Linear(4, 4, rngs=nnx.Rngs(0))
    plan = tp.plan(tp.trace(loss, model, *batch(0)), tp.mesh(jax.devices()[:1], data=1), {})
    return tp.nnx.Trainer(loss, model, optax.sgd(rate), plan, checkpoint=folder, nan=nan), batch

def strict(rate, /, layers=2, scale=0.5, wide=False, mesh=None): raise AssertionError("called")
def needs(layers, wide=False): raise AssertionError("called")
def batches(): return [batch(0)]
def raises(): raise ValueError("my own fault")
number = 3
"""


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Writes a file into a folder beside a module of runs, and gives its name; the working directory is another one."""
    (tmp_path / "runs_of_test").mkdir()
    (tmp_path / "runs_of_test" / "runs_to_train.py").write_text(RUNS)
    monkeypatch.syspath_prepend(str(tmp_path))  # and takes back what the command puts there
    monkeypatch.chdir(tmp_path)

    def write(text: str) -> str:
        (tmp_path / "runs_of_test" / "run.toml").write_text(text)
        return "runs_of_test/run.toml"

    yield write
    sys.modules.pop("runs_to_train", None)


def of(steps: int, folder: str, more: str = "") -> str:
    settings = f'[settings]\nrate = 1\nfolder = "{folder}"\n{more}\n'
    return f'make = "runs_to_train:make"\nplot = "loss.png"\n{settings}[fit]\nsteps = {steps}\nevery = 2\n'


def rows(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_run_that_goes_on_prints_what_one_without_a_stop_does(
    said: Callable[[str], str], capsys: pytest.CaptureFixture[str]
):
    assert main(["train", said(of(4, "whole")), "--json"]) == 0
    whole = rows(capsys)
    assert [row["step"] for row in whole] == [2, 4] and whole[1]["loss"] < whole[0]["loss"]
    assert Path("loss.png").read_bytes().startswith(b"\x89PNG")
    assert main(["train", said(of(2, "parts"))]) == 0
    assert capsys.readouterr().out.startswith("step 2, grad_norm ")
    assert main(["train", said(of(4, "parts")), "--resume", "--json"]) == 0
    assert rows(capsys) == whole[1:]
    assert main(["train", said(of(4, "parts"))]) == 2
    assert "restore() or `tapestry train --resume`, name" in capsys.readouterr().err


def test_nan_is_null_and_training_that_stops_is_status_2(
    said: Callable[[str], str], capsys: pytest.CaptureFixture[str]
):
    wild = "rate = 1e38"
    text = of(2, "skips", 'nan = "skip"').replace("rate = 1", wild)
    assert main(["train", said(text.replace("every = 2", "every = 1")), "--json"]) == 0
    assert [row["loss"] is None for row in rows(capsys)] == [False, True]
    assert main(["train", said(of(3, "stops").replace("rate = 1", wild))]) == 2
    assert capsys.readouterr().err.startswith("step 2: ")


def test_all_that_is_wrong_is_told_at_once(said: Callable[[str], str], capsys: pytest.CaptureFixture[str]):
    text = """
    make = "runs_to_train:strict"
    plt = "loss.png"
    plot = 3
    [settings]
    layer = 2
    layers = true
    scale = "1"
    wide = 0
    mesh = { data = 2 }
    rate = 1
    [fit]
    step = 3
    every = 1.5
    batches = []
    """
    assert main(["train", said(text)]) == 2
    assert capsys.readouterr().err == (
        "tapestry train: 'runs_of_test/run.toml' does not say a run.\n"
        "  `plt` is not known; did you mean `plot`?\n"
        "  `plot` is 3, expected a text\n"
        "  `settings.layer` is not known; did you mean `layers`?\n"
        "  `settings.rate` is not known; there is layers, scale, wide, mesh\n"
        "  `settings.layers` is True, expected one like its default 2\n"
        "  `settings.scale` is '1', expected one like its default 0.5\n"
        "  `settings.wide` is 0, expected one like its default False\n"
        "  `fit.step` is not known; did you mean `steps`?\n"
        "  `fit.batches` is not known; there is steps, every, progress, save_every\n"
        "  `fit.every` is 1.5, expected one like its default 100\n"
        "  Mend the file, or see `tapestry train --help`.\n"
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a = = 3", "'runs_of_test/run.toml' is no TOML.\n  Invalid value (at line 1, column 5)"),
        (f"a = {'[' * 5000}", "'runs_of_test/run.toml' is no TOML.\n  maximum recursion depth exceeded"),
        (f"a = {'9' * 5000}", "'runs_of_test/run.toml' is no TOML.\n  Exceeds the limit (4300 digits)"),
        ('make = "builtins:dict"\n[settings]\na = 1', "`make`: nothing tells what arguments <class 'dict'> takes\n"),
        ("settings = 3", "`settings` is 3, expected a table\n  `make` is missing: package.module:function\n"),
        ('make = "runs_to_train:needs"', "does not say a run.\n  `settings.layers` is missing\n"),
        ('make = "runs_to_train:number"', "runs_to_train:number is no function.\n  got int: 3"),
        ('make = "runs_to_train:batches"', "runs_to_train:batches makes no trainer.\n"),
        ('make = "runs_to_train:raises"', "ValueError: my own fault"),
        ('make = "runs_to_train"', "cannot read 'runs_to_train'.\n  Write it as package.module:piece."),
        ('make = "no_such_module:make"', "No module named 'no_such_module'"),
    ],
)
def test_wrong_files_are_told(said: Callable[[str], str], capsys: pytest.CaptureFixture[str], text: str, told: str):
    assert main(["train", said(text)]) == 2
    assert told in capsys.readouterr().err


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]):
    assert main(["train", "no-such.toml"]) == 2
    assert "tapestry train: 'no-such.toml' cannot be read.\n  FileNotFoundError" in capsys.readouterr().err


def test_a_function_that_takes_any_setting(said: Callable[[str], str]):
    config = read_config(said(of(1, "run", 'theirs = "any"')), Trainer.fit, "test")
    assert config.settings == {"rate": 1, "folder": "run", "theirs": "any"} and config.fit == {"steps": 1, "every": 2}


@pytest.mark.thorough  # which trains a model that tests of the examples train too
def test_the_example_trains(said: Callable[[str], str], capsys: pytest.CaptureFixture[str], tmp_path: Path):
    device = jax.config.jax_default_device
    sizes = "layers = 1\nembed = 8\nheads = 1\nlength = 8\nbatch = 8\n"
    settings = f'checkpoint = "{tmp_path}/run"\nmesh = {{ data = 8 }}\n{sizes}'
    with modules_of(EXAMPLES):
        text = f'make = "training:make"\n[settings]\n{settings}[fit]\nsteps = 1\n'
        try:
            assert main(["train", said(text), "--json"]) == 0
        finally:
            jax.config.update("jax_default_device", device)
    assert 5 < rows(capsys)[0]["loss"] < 7  # the logarithm of 256 symbols is 5.5


def test_the_example_is_read():
    with modules_of(EXAMPLES):
        assert read_config(str(EXAMPLES / "train.toml"), Trainer.fit, "test").fit["steps"] == 300
