"""The history of a run that was interrupted is that of one that was not, bit by bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.nnx.training.saving.checkpoints import Checkpoints
from tapestry_jax.nnx.training.saving.recent import is_told
from tapestry_jax.nnx.training.saving.sums import SUMS, write_sums
from tests.tapestry_jax.nnx.training.small import batch, trainer_of

STEPS, EVERY = 10, 4


def dying(at: int) -> Any:
    def given(step: int) -> Any:
        if step == at:
            raise KeyboardInterrupt
        return batch(step, 3 if step == 5 else 4)

    return given


@pytest.fixture(scope="module")
def whole() -> tp.nnx.Trainer:
    trainer = trainer_of()
    trainer.fit(dying(-1), steps=STEPS, every=EVERY)
    assert [row["step"] for row in trainer.history] == [4, 8, 10]
    return trainer


@pytest.mark.parametrize(("at", "save_every"), [(3, 1), (4, 1), (5, 3), (7, 2), (9, 4)])
def test_a_run_that_is_restored_tells_the_history_of_a_whole_one(
    whole: tp.nnx.Trainer, tmp_path: Path, at: int, save_every: int
) -> None:
    with pytest.raises(KeyboardInterrupt):
        trainer_of(checkpoint=tmp_path).fit(dying(at), steps=STEPS, every=EVERY, save_every=save_every)
    again = trainer_of(checkpoint=tmp_path)
    again.restore()
    assert again.steps == at // save_every * save_every
    told: list[int] = []
    found = again.fit(dying(-1), steps=STEPS, every=EVERY, report=lambda step, _: told.append(step))
    assert again.history == whole.history and told[-1] == STEPS
    rest = trainer_of()
    rest.fit(dying(-1), steps=at // save_every * save_every)
    assert found == rest.fit(dying(-1), steps=STEPS), "what is returned is of the steps that were taken here"


@pytest.mark.parametrize("at", [3, 4, 6])
def test_so_does_one_that_goes_on_behind_ctrl_c(whole: tp.nnx.Trainer, at: int) -> None:
    trainer = trainer_of()
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(dying(at), steps=STEPS, every=EVERY)
    trainer.fit(dying(-1), steps=STEPS, every=EVERY)
    assert trainer.history == whole.history


def test_a_row_that_was_due_when_ctrl_c_came_is_told(whole: tp.nnx.Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    def beat() -> None:
        if trainer.steps == 4:
            raise KeyboardInterrupt

    trainer = trainer_of()
    with monkeypatch.context() as patched:
        patched.setattr("tapestry_jax.nnx.training.fitting.beat", beat)
        with pytest.raises(KeyboardInterrupt):
            trainer.fit(dying(-1), steps=STEPS, every=EVERY)
    assert trainer.history == []
    trainer.fit(dying(-1), steps=STEPS, every=EVERY)
    assert trainer.history == whole.history


def test_the_last_row_of_batches_that_end_is_told_by_a_run_that_is_restored(tmp_path: Path) -> None:
    given = [batch(step) for step in range(3)]
    trainer, again = trainer_of(checkpoint=tmp_path), trainer_of(checkpoint=tmp_path)
    trainer.fit(given, save_every=3)
    again.restore()
    again.fit([])
    assert again.history == trainer.history and [row["step"] for row in again.history] == [3]


def test_a_step_that_was_taken_back_is_in_no_row() -> None:
    trainer, bad = trainer_of(), tuple(np.full_like(each, np.nan) for each in batch(0))
    with pytest.raises(tp.nnx.TrainingError, match="step 2"):
        trainer.fit([batch(0), bad, batch(1)], every=9)
    trainer.fit([batch(1)], every=9)
    expected = trainer_of()
    expected.fit([batch(0), batch(1)], every=9)
    assert trainer.history == expected.history


def test_checkpoints_that_tell_none_of_it_are_restored(tmp_path: Path) -> None:
    trainer = trainer_of(checkpoint=tmp_path)
    trainer.fit([batch(0)])
    trainer.step(*batch(1))
    file = tmp_path / "1" / "record" / "metadata"
    record = json.loads(file.read_text())
    assert is_told(record["recent"])
    for recent, said in ((None, ""), ({"steps": 1}, "its record does not say recent as this version does")):
        del record["recent"]
        record |= {} if recent is None else {"recent": recent}
        file.write_text(json.dumps(record))
        (tmp_path / "1" / SUMS).unlink()
        write_sums(tmp_path / "1")
        again = trainer_of(checkpoint=tmp_path)
        if recent is None:
            again.restore()
            assert again.steps == 1 and again.history == trainer.history
            record["recent"] = {}
        else:
            with pytest.raises(tp.nnx.TrainingError, match=said):
                Checkpoints(tmp_path, 1).record(1)


@pytest.mark.parametrize(
    "told",
    [
        None,
        {"steps": 1, "totals": {"a": 1.0}, "counts": {}},
        {"steps": "1", "totals": {}, "counts": {}},
        {"steps": 1, "totals": {"a": "x"}, "counts": {"a": 1}},
    ],
)
def test_what_is_not_told_so(told: Any) -> None:
    assert not is_told(told)
