"""Batches without rows, and with fewer than a plan has chunks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from tests.tapestry_jax.nnx.training.small import batch, leaves, trainer_of


@pytest.mark.parametrize(
    "options", [{"nan": "stop"}, {"nan": "skip"}, {"nan": None}, {"nan": None, "loss_scale": 4.0}, {"microbatches": 2}]
)
def test_a_batch_of_no_row_changes_nothing_but_the_number_of_the_step(options: Any) -> None:
    whole, trainer = trainer_of(ema=0.9, **options), trainer_of(ema=0.9, **options)
    some, none = [batch(0), batch(1)], batch(9, rows=0)
    expected = whole.fit(some)
    found = trainer.fit([none, some[0], none, none, some[1], none])
    assert found == expected and trainer.skipped == []
    for a, b in zip(leaves(trainer), leaves(whole), strict=True):
        np.testing.assert_array_equal(a, b)
    assert trainer.steps == int(trainer.state.step) == 6
    assert trainer.history == [{**whole.history[0], "step": 6}]
    told = trainer.step(*none)
    assert np.isnan(float(told["loss"])) and told.keys() == trainer.step(*some[0]).keys()


def test_a_row_of_nothing_but_batches_of_no_row(recwarn: pytest.WarningsRecorder) -> None:
    trainer, none = trainer_of(), batch(0, rows=0)
    found = trainer.fit([none, none])
    assert all(np.isnan(value) for value in found.values()) and {*found} > {"loss", "double", "pair", "grad_norm"}
    told = trainer.evaluate([none, batch(1), none])
    assert told == trainer.evaluate([batch(1)]) and {*trainer.evaluate([none])} == {*told} and not recwarn.list


def test_a_function_of_the_step_may_give_no_row() -> None:
    def given(step: int) -> Any:
        asked.append(step)
        return batch(step, rows=0 if step == 1 else 4)

    asked: list[int] = []
    trainer = trainer_of()
    trainer.fit(given, steps=2)
    trainer.fit(given, steps=4)
    assert asked == [0, 1, 2, 3] and trainer.steps == 4


def test_a_fault_before_a_batch_of_no_row_is_told() -> None:
    trainer = trainer_of()
    trainer.step(*(np.full_like(each, np.inf) for each in batch(0)))
    with pytest.raises(tp.nnx.TrainingError, match="step 1: the loss is not finite"):
        trainer.step(*batch(0, rows=0))
    assert trainer.steps == int(trainer.state.step) == 0


@pytest.mark.parametrize("wrong", [(0, 4, 2), (0, 0, None), (0, 3, 2)])
def test_a_batch_that_is_wrong_beside_its_rows_is_told(wrong: Any) -> None:
    x, y, size = wrong
    arrays = np.ones((x, 4), np.float32), np.ones((y,) if size is None else (y, size), np.float32)
    with pytest.raises(tp.TapestryError):
        trainer_of().step(*arrays)


@pytest.mark.parametrize("devices", [1, 2])
def test_a_smaller_batch_is_taken_in_as_many_chunks_as_it_has_rows(devices: int) -> None:
    whole = trainer_of(rows=4 * devices, devices=devices)
    chunked = trainer_of(("data", tp.chunks(4)), rows=4 * devices, devices=devices)
    for rows in (4 * devices, 3, 4 * devices, 1, 6):
        given = batch(rows, rows)
        expected, found = whole.step(*given), chunked.step(*given)
        for name in ("loss", "double", "grad_norm"):
            np.testing.assert_allclose(float(found[name]), float(expected[name]), rtol=1e-5)
        if rows <= 4:
            count = dict(chunked.plan_of(*given).entries)["batch"][-1]
            assert str(count) == f"chunks({min(4, -(-rows // devices))})"
    for a, b in zip(leaves(chunked), leaves(whole), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    given = [batch(0, 3), batch(1, 4 * devices)]
    np.testing.assert_allclose(chunked.evaluate(given)["loss"], whole.evaluate(given)["loss"], rtol=1e-5)
    chunked.step(*batch(0, rows=0))
