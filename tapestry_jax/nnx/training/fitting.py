"""The loop around the steps."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from combinators.arguments import read_count, read_function
from combinators.errors import message, spelt
from combinators.frozen import dataclass
from tapestry_jax.launching.heartbeat import beat
from tapestry_jax.nnx.training.errors import TrainingError
from tapestry_jax.nnx.training.metrics import NOTHING, Metrics
from tapestry_jax.nnx.training.progress import Bar, bar
from tapestry_jax.nnx.training.saving.recent import Recent
from tapestry_jax.nnx.training.saving.resuming import Places
from tapestry_jax.nnx.training.saving.saved import Saved
from tapestry_jax.nnx.training.stepping.state import TrainState

Report = Callable[[int, Mapping[str, float]], Mapping[str, float] | None]


class Steps(Protocol):
    """What takes steps: a trainer."""

    steps: int
    history: list[dict[str, float]]
    record: dict[str, Any]
    recent: Recent

    @property
    def state(self) -> TrainState:
        """All arrays, once the last step is known to have given numbers."""
        ...

    def step_on(self, batch: Any) -> dict[str, Any]:
        """Take one step, and add what it found to `recent`."""
        ...

    def told(self) -> dict[str, Any]:
        """What a checkpoint holds beside arrays."""
        ...


@dataclass(frozen=True)
class Telling:
    """How often, and to whom, a loop tells of itself.

    Attributes:
      every: after how many steps.
      report: who is told, and may answer with further metrics; or None.
      progress: whether a bar is shown.
    """

    every: int
    report: Report | None
    progress: bool

    def row(self, step: int, found: Metrics) -> dict[str, float]:
        """What is known after a step, and answered.

        Raises:
          TrainingError: where the answer is no dictionary of numbers, or would replace what is known, such as the
            training loss by another loss.
        """
        known = {"step": step, **found.read()}
        answer = {} if self.report is None else _numbers(self.report(step, found.read()))
        if taken := [name for name in answer if name in known]:
            details = (f"got {', '.join(f'`{name}`' for name in taken)}", f"the row of a step has {', '.join(known)}")
            remedy = 'Return other names, such as {"held_out_loss": trainer.evaluate(batches)["loss"]}.'
            raise TrainingError(message("report= of trainer.fit returns names that are taken", *details, remedy=remedy))
        return {**known, **answer}


def _numbers(answer: Any) -> dict[str, float]:
    try:
        return {name: float(value) for name, value in dict(answer or {}).items()}
    except (TypeError, ValueError) as error:
        details = ("expected numbers by name, or None", f"got {type(answer).__name__}: {spelt(answer, 200)}")
        remedy = 'Return a dictionary of numbers, {"held_out_loss": 0.5}, or None.'
        raise TrainingError(message("report= of trainer.fit returns no metrics", *details, remedy=remedy)) from error


def fit(
    trainer: Steps, batches: Any, steps: Any, told: Telling, saved: Saved | None, save_every: Any
) -> dict[str, float]:
    """See `Trainer.fit`."""
    last = None if steps is None else read_count(steps, "steps= of trainer.fit", least=0, error=TrainingError)
    every = read_count(told.every, "every= of trainer.fit", error=TrainingError)
    if told.report is not None:
        read_function(told.report, "report= of trainer.fit", TrainingError)
    save_every = read_count(save_every, "save_every= of trainer.fit", error=TrainingError)
    given = batches if callable(batches) else iterator(batches, "trainer.fit", _FUNCTION)
    places = Places() if saved is None else saved.begin(given, trainer.record)
    _begin_total(trainer)
    at = trainer.steps
    with bar(told.progress, trainer.steps, last) as shown:
        if trainer.recent.steps and trainer.steps % every == 0:
            _tell(trainer, told, shown)  # Ctrl-C came behind the step, and before its row
        for batch in _from(given, trainer, last, places):
            if saved is not None:
                saved.places = places  # `report=` may have restored, or called `fit` itself
            trainer.step_on(batch)
            beat()
            is_last = trainer.steps == last
            if trainer.steps % every == 0 or is_last:
                _tell(trainer, told, shown)
            if saved is not None and (trainer.steps % save_every == 0 or is_last):
                saved.save(trainer.state, trainer.steps, trainer.told(), places)
                at = trainer.steps
        if is_more := bool(trainer.recent.steps):
            _tell(trainer, told, shown)
    if saved is not None and (trainer.steps > at or is_more):
        saved.save(trainer.state, trainer.steps, trainer.told(), places)
    return trainer.recent.total.read()


_FUNCTION = ", or a function of the number of the step"


def _begin_total(trainer: Steps) -> None:
    """What is returned is of the steps taken from here on, while a row may be of some that were taken before."""
    _ = trainer.state
    trainer.recent.read()
    trainer.recent.total = NOTHING


def _tell(trainer: Steps, told: Telling, shown: Bar) -> None:
    """Add a row of what the steps found since the last one, and tell it."""
    _ = trainer.state  # whether the last step gave numbers
    row = told.row(trainer.steps, trainer.recent.read())
    # Only now: who is told may save, and what no row tells yet is in a checkpoint by itself.
    trainer.recent.clear()
    trainer.history.append(row)
    shown.reach(trainer.steps, trainer.history[-1])


def iterator(batches: Any, asked: str, other: str = "") -> Iterator[Any]:
    """Batches one after the other.

    Args:
      batches: as users give them.
      asked: who asks, as errors call it.
      other: what else may be given, as the remedy says it.

    Raises:
      TrainingError: for what cannot be gone through.
    """
    try:
        return iter(batches)
    except TypeError as error:
        details = f"got {type(batches).__name__}: {spelt(batches)}"
        remedy = f"Pass tuples of arrays one after the other{other}."
        raise TrainingError(message(f"{asked} was given no batches", details, remedy=remedy)) from error


def _check_takes_step(batches: Callable[[int], Any]) -> None:
    try:
        found = inspect.signature(batches)
    except (TypeError, ValueError):
        return  # as of some that are written in C
    try:
        found.bind(0)
    except TypeError as error:
        details = f"it is called with the number of the step: {error}"
        remedy = "Write def batches(step): ..., or pass an iterable of batches."
        raise TrainingError(
            message("trainer.fit cannot call its function of the step", details, remedy=remedy)
        ) from error


def _from(
    batches: Iterator[Any] | Callable[[int], Any], trainer: Steps, last: int | None, places: Places
) -> Iterator[Any]:
    """Batches from that of the next step on."""
    start = trainer.steps
    if callable(batches):
        if last is None:
            remedy = "Write trainer.fit(batches, steps=1000)."
            raise TrainingError(
                message("trainer.fit was given a function of the step, and no last step", remedy=remedy)
            )
        _check_takes_step(batches)
        yield from (batches(step) for step in range(start, last))
        return
    for _ in range(sys.maxsize if last is None else min(max(0, last - start), sys.maxsize)):
        places.taking(trainer.steps)  # nothing where no checkpoints are written
        try:
            batch = next(batches)
        except StopIteration:
            return
        yield batch
