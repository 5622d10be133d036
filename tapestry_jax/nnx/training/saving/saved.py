"""The checkpoints of one run: what is written into its folder, and how a run goes on."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from combinators.arguments import read_count
from combinators.errors import message, spelt
from tapestry_jax.nnx.training.errors import TrainingError
from tapestry_jax.nnx.training.saving.checkpoints import Checkpoints
from tapestry_jax.nnx.training.saving.resuming import check_record, go_on, is_resumable, place_in
from tapestry_jax.nnx.training.stepping.state import TrainState


class Saved:
    """A folder of checkpoints, and whether it belongs to this run.

    Args:
      checkpoints: of the folder.
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints, self._is_ours, self._place, self._newer = checkpoints, False, None, list[int]()

    @staticmethod
    def of(folder: Any, keep: Any) -> Saved:
        """Read what a trainer is told of checkpoints.

        Raises:
          TrainingError: for no number of checkpoints, for what is no path of a folder, or without Orbax.
        """
        if not isinstance(folder, str | PathLike):
            details = ("expected the path of a folder", f"got {type(folder).__name__}: {spelt(folder)}")
            remedy = 'Write such as checkpoint="run/".'
            raise TrainingError(message("checkpoint= of a trainer is no path", *details, remedy=remedy))
        if Path(folder).exists() and not Path(folder).is_dir():
            remedy = "Name a folder; where there is none it is made."
            raise TrainingError(message(f"checkpoint= of a trainer is a file: {Path(folder)}", remedy=remedy))
        return Saved(Checkpoints(Path(folder), read_count(keep, "keep= of a trainer", error=TrainingError)))

    def begin(self, batches: Any, told: Mapping[str, Any]) -> None:
        """What `fit` is given goes to where it was when the checkpoint was written that the run goes on from.

        Args:
          batches: what `fit` was given.
          told: what a checkpoint would hold beside arrays now.

        Raises:
          TrainingError: where it cannot, the folder belongs to another run, or the record cannot be stored.
        """
        self._check_ours()
        check_record(told["record"])
        if self._place is not None:
            go_on(batches, self._place)
        # Only now: batches that were refused are refused again.
        self._place = None

    def save(self, state: TrainState, step: int, told: Mapping[str, Any], batches: Any = None) -> None:
        """Write a checkpoint; those of later steps than the run went on from give way to it.

        Args:
          state: the arrays.
          step: of the checkpoint.
          told: what else is stored, as far as JSON can say it.
          batches: what `fit` was given, whose place is stored where it has one.

        Raises:
          TrainingError: where the folder belongs to another run, or the record cannot be stored.
        """
        self._check_ours()
        check_record(told["record"])
        self._is_ours = True
        for later in self._newer:
            self._checkpoints.remove(later)
        self._newer = []
        place = place_in(batches) if is_resumable(batches) else None
        self._checkpoints.save(step, state, {**told, "batches": place})

    def restore(
        self, step: int | None, types: TrainState, places: TrainState
    ) -> tuple[TrainState, int, dict[str, Any]]:
        """The arrays of a checkpoint, its step, and what else was stored.

        Raises:
          TrainingError: where there is none, it cannot be read, or is one of another model or optimizer.
        """
        there = self._checkpoints.steps()
        if not there or (step is not None and step not in there):
            told = f" of step {step}" if step is not None else ""
            details = [f"there are those of {', '.join(map(str, there))}"] if there else []
            remedy = "Train first: trainer.fit writes checkpoints, and so does trainer.save()."
            if there:
                remedy = f"Write trainer.restore({there[-1]}), or trainer.restore() for the newest one."
            raise TrainingError(message(f"no checkpoint{told} in {self._checkpoints.folder}", *details, remedy=remedy))
        chosen = there[-1] if step is None else step
        state = self._checkpoints.arrays(chosen, types, places)
        found = self._checkpoints.record(chosen)
        self._is_ours, self._place, self._newer = True, found["batches"], [later for later in there if later > chosen]
        return state, chosen, found

    def _check_ours(self) -> None:
        if self._is_ours or not (there := self._checkpoints.steps()):
            return
        details = f"it holds that of step {there[-1]}"
        remedy = "Go on from it with trainer.restore() or `tapestry train --resume`, name another folder, or remove it."
        raise TrainingError(
            message(f"{self._checkpoints.folder} holds checkpoints of another run", details, remedy=remedy)
        )
