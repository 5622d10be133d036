"""The loop around the steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Protocol

from combinators.arguments import read_count
from combinators.errors import message
from tapestry_jax.nnx.training.errors import TrainingError
from tapestry_jax.nnx.training.metrics import NOTHING, Metrics
from tapestry_jax.nnx.training.saving.saved import Saved
from tapestry_jax.nnx.training.stepping.state import TrainState

Report = Callable[[int, Mapping[str, float]], Any]


class Steps(Protocol):
    """What takes steps: a trainer."""

    steps: int

    @property
    def state(self) -> TrainState:
        """All arrays, once the last step is known to have given numbers."""
        ...

    def step_on(self, batch: Any) -> dict[str, Any]:
        """Take one step."""
        ...

    def rows(self, batch: Any) -> int:
        """The rows of a batch."""
        ...


def fit(
    trainer: Steps, batches: Any, steps: Any, *, every: Any, report: Report | None, saved: Saved | None
) -> dict[str, float]:
    """See `Trainer.fit`."""
    last = None if steps is None else read_count(steps, "steps= of trainer.fit", least=0, error=TrainingError)
    every = read_count(every, "every= of trainer.fit", error=TrainingError)
    given = batches if callable(batches) else _iterator(batches)
    if saved is not None:
        saved.begin(given)
    total, pending = NOTHING, list[tuple[Any, int]]()

    def tell() -> Metrics:
        recent = sum((Metrics.of(told, rows) for told, rows in pending), NOTHING)
        pending.clear()
        _ = trainer.state  # whether the last step gave numbers
        if report is not None:
            report(trainer.steps, recent.read())
        if saved is not None:
            saved.save(trainer.state, trainer.steps, None, given)
        return recent

    for batch in _from(given, trainer.steps, last):
        pending.append((trainer.step_on(batch), trainer.rows(batch)))
        if len(pending) == every:
            total += tell()
    return (total + tell() if pending else total).read()


def _iterator(batches: Any) -> Iterator[Any]:
    try:
        return iter(batches)
    except TypeError as error:
        details = f"got {type(batches).__name__}: {batches!r:.80}"
        remedy = "Pass tuples of arrays one after the other, or a function of the number of the step."
        raise TrainingError(message("trainer.fit was given no batches", details, remedy=remedy)) from error


def _from(batches: Iterable[Any] | Callable[[int], Any], start: int, last: int | None) -> Iterator[Any]:
    """Batches from the one of step `start` on."""
    if callable(batches):
        if last is None:
            remedy = "Write trainer.fit(batches, steps=1000)."
            raise TrainingError(
                message("trainer.fit was given a function of the step, and no last step", remedy=remedy)
            )
        yield from (batches(step) for step in range(start, last))
        return
    yield from islice(batches, None if last is None else max(0, last - start))
