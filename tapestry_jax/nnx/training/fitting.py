"""The loop around the steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from combinators.arguments import read_count
from combinators.errors import message
from tapestry_jax.nnx.training.errors import TrainingError
from tapestry_jax.nnx.training.metrics import NOTHING, Metrics

if TYPE_CHECKING:
    from tapestry_jax.nnx.training.trainer import Trainer

Report = Callable[[int, Mapping[str, float]], Any]


def fit(trainer: Trainer, batches: Any, steps: Any, *, every: Any, report: Report | None) -> dict[str, float]:
    """See `Trainer.fit`."""
    last = None if steps is None else read_count(steps, "steps= of trainer.fit", least=0, error=TrainingError)
    every = read_count(every, "every= of trainer.fit", error=TrainingError)
    recent = total = NOTHING
    pending: list[tuple[Any, int]] = []
    for batch in _from(batches, trainer.steps, last):
        pending.append((trainer.step_on(batch), trainer.rows(batch)))
        if len(pending) < every and trainer.steps != last:
            continue
        recent, pending = _added(pending), []
        total += recent
        if report is not None:
            report(trainer.steps, recent.read())
    if pending:
        recent = _added(pending)
        total += recent
        if report is not None:
            report(trainer.steps, recent.read())
    _ = trainer.state  # whether the last step gave numbers
    return total.read()


def _added(found: list[tuple[Any, int]]) -> Metrics:
    return sum((Metrics.of(told, rows) for told, rows in found), NOTHING)


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
    if not isinstance(batches, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        details = f"got {type(batches).__name__}: {batches!r:.80}"
        remedy = "Pass tuples of arrays one after the other, or a function of the number of the step."
        raise TrainingError(message("trainer.fit was given no batches", details, remedy=remedy))
    yield from islice(batches, None if last is None else max(0, last - start))
