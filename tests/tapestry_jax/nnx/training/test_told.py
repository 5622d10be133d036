"""What a loop tells of itself: rows, a bar, a picture."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import optax
import pytest
from flax import nnx

import tapestry_jax as tp


def loss(model, x, y):
    return tp.nnx.mean_squared_error(model(x), y)


X = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")


@pytest.fixture
def trainer():
    model = tp.nnx.Linear(4, 4, rngs=nnx.Rngs(0))
    plan = tp.plan(tp.trace(loss, model, X, X), tp.mesh(jax.devices()[:1], data=1), {})
    return tp.nnx.Trainer(loss, model, optax.sgd(0.1), plan)


def test_rows_of_history_hold_what_the_report_answers(trainer):
    trainer.fit([(X, X)] * 5, every=2, report=lambda step, found: {"held_loss": 2 * found["loss"]})
    assert [row["step"] for row in trainer.history] == [2, 4, 5]
    assert all(row["held_loss"] == 2 * row["loss"] > 0 == row["skipped"] for row in trainer.history)
    trainer.fit([(X, X)], report=lambda step, found: None)
    assert trainer.history[-1]["step"] == 6 and "held_loss" not in trainer.history[-1]


def test_a_report_does_not_replace_what_a_step_found(trainer):
    with pytest.raises(tp.nnx.TrainingError) as error:
        trainer.fit([(X, X)], report=lambda step, found: {"held_loss": 1.0, "loss": 2.0, "step": 3})
    said = str(error.value)
    assert said.startswith("report= of trainer.fit returns names that are taken\n  got `loss`, `step`\n")
    assert '{"held_out_loss": trainer.evaluate(batches)["loss"]}' in said and trainer.history == []


NO_METRICS = "report= of trainer.fit returns no metrics\n  expected numbers by name, or None"


@pytest.mark.parametrize(
    ("report", "said"),
    [
        ("print", "report= of trainer.fit is not what"),
        (lambda step, found: 3, f"{NO_METRICS}\n  got int: 3\n"),
        (lambda step, found: {"a": "b"}, NO_METRICS + "\n  got dict: {'a': 'b'}\n"),
    ],
)
def test_a_report_that_is_none(trainer, report, said):
    with pytest.raises(tp.nnx.TrainingError) as error:
        trainer.fit([(X, X)], report=report)
    assert str(error.value).startswith(said) and trainer.history == []


@pytest.mark.parametrize("nan", ["stop", "skip", None])
def test_an_evaluation_says_which_batches_give_no_number(trainer, nan):
    trainer._stepper = replace(trainer._stepper, nan=nan)
    bad = np.where(np.arange(4) == 2, np.nan, X).astype("float32")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert np.isfinite(trainer.evaluate([(X, X), (X[:0], X[:0])])["loss"]) and not said
        assert np.isnan(trainer.evaluate([(X, X), (X, bad), (X, X), (bad, X)])["loss"])
    if nan is None:
        assert not said
        return
    (told,) = said
    assert told.category is RuntimeWarning and told.filename == __file__
    assert str(told.message).startswith(
        "trainer.evaluate: the loss of 2 batches (2, 4) is not finite, so that of all is not\n"
        "  of batch 2: `y` of the batch is nan at [0, 2]\n"
    )
    with pytest.warns(RuntimeWarning, match="the loss of batch 1 is not finite"):
        trainer.evaluate([(X, np.full_like(X, 1e30))])


def test_a_bar_and_a_picture(trainer, capsys, tmp_path: Path):
    trainer.fit([(X, X)] * 4, steps=4, every=2, progress=True)
    assert "4/4" in capsys.readouterr().err
    trainer.plot(tmp_path / "loss.png", {"zero": 0.0})
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert [file.name for file in tmp_path.iterdir()] == ["loss.png"]


def test_what_is_not_installed_or_not_there_yet(trainer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    with pytest.raises(tp.nnx.TrainingError, match="there is nothing to draw yet"):
        trainer.plot(tmp_path / "loss.png")
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(tp.nnx.TrainingError, match="bars of a trainer need tqdm, which is not installed"):
        trainer.fit([(X, X)], progress=True)
    trainer.fit([(X, X)])
    with pytest.raises(tp.nnx.TrainingError, match="pictures of a trainer need matplotlib, which is not installed"):
        trainer.plot(tmp_path / "loss.png")
