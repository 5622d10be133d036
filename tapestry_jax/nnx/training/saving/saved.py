"""The checkpoints of one run: what is written into its folder, and how a run goes on."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import jax

from combinators.arguments import read_count
from combinators.errors import message, spelt
from tapestry_jax.nnx.training.errors import TrainingError
from tapestry_jax.nnx.training.saving.checkpoints import Checkpoints
from tapestry_jax.nnx.training.saving.folder import in_words
from tapestry_jax.nnx.training.saving.resuming import Places, check_record, go_on
from tapestry_jax.nnx.training.saving.sums import SUMS
from tapestry_jax.nnx.training.stepping.state import TrainState

_TRIES = 10
"""So often a checkpoint is read that another run removes or writes anew meanwhile."""


class Saved:
    """A folder of checkpoints, and whether it belongs to this run.

    Args:
      checkpoints: of the folder.
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints, self._place = checkpoints, None
        self.places = Places()
        """Of what `fit` goes through now, or went through last: for what is saved by hand."""

    @staticmethod
    def of(folder: Any, keep: Any) -> Saved:
        """Read what a trainer is told of checkpoints.

        Raises:
          TrainingError: for no number of checkpoints, for what is no path of a folder, or without Orbax.
        """
        if not isinstance(folder, str | PathLike) or not str(folder):
            details = ("expected the path of a folder", f"got {type(folder).__name__}: {spelt(folder)}")
            remedy = 'Write such as checkpoint="run/".'
            raise TrainingError(message("checkpoint= of a trainer is no path", *details, remedy=remedy))
        _check_folder(Path(folder))
        return Saved(Checkpoints(Path(folder), read_count(keep, "keep= of a trainer", error=TrainingError)))

    def begin(self, batches: Any, record: Any) -> Places:
        """What `fit` is given goes to where it was when the checkpoint was written that the run goes on from.

        Args:
          batches: what `fit` was given.
          record: what users add, as it is now.

        Returns:
          The places of these batches from now on.

        Raises:
          TrainingError: where it cannot, the folder belongs to another run, or the record cannot be stored.
        """
        self._checkpoints.check_known()
        check_record(record)
        if self._place is not None:
            go_on(batches, self._place)
        # Only now: batches that were refused are refused again.
        self._place, self.places = None, Places(batches)
        return self.places

    def save(self, state: TrainState, step: int, told: Mapping[str, Any], places: Places | None = None) -> None:
        """Write a checkpoint; those of later steps than the run went on from give way to it.

        Where what `fit` was given has a place, it is stored: the one at that step, if another batch was taken since.

        Args:
          state: the arrays.
          step: of the checkpoint.
          told: what else is stored, as far as JSON can say it.
          places: of the batches that the state is of; by default of those that `fit` was given last.

        Raises:
          TrainingError: where the folder belongs to another run, or the record cannot be stored.
        """
        self._checkpoints.check_known()
        check_record(told["record"])
        self._checkpoints.save(step, state, {**told, "batches": (places or self.places).at(step)})

    def restore(
        self, step: int | None, types: TrainState, places: TrainState
    ) -> tuple[TrainState, int, dict[str, Any]]:
        """The arrays of a checkpoint, its step, and what else was stored.

        Another run may write there meanwhile: what it removed or wrote anew while it was read is looked for again.

        Raises:
          TrainingError: where there is none, it cannot be read, or is one of another model or optimizer.
        """
        # Processes of one run read together: none of them may begin again by itself.
        is_alone, tries = jax.process_count() == 1, 0
        while True:
            there, chosen = self._chosen(step)
            read = self._read(chosen, types, places)
            if not is_alone or self._checkpoints.marks().get(chosen) == there[chosen]:
                break
            tries += 1
            if tries == _TRIES:
                headline = f"the checkpoint {self._checkpoints.folder / str(chosen)} is another when it has been read"
                remedy = "Let the run that writes there keep more: tp.nnx.Trainer(..., keep=3)."
                raise TrainingError(message(headline, f"tried {tries} times", remedy=remedy))
        if isinstance(read, TrainingError):
            raise read
        state, found = read
        self._checkpoints.restored(chosen, there)
        self._place, self.places = found["batches"], Places(known={chosen: found["batches"]})
        return state, chosen, found

    def _read(
        self, step: int, types: TrainState, places: TrainState
    ) -> tuple[TrainState, dict[str, Any]] | TrainingError:
        try:
            return self._checkpoints.arrays(step, types, places), self._checkpoints.record(step)
        except TrainingError as error:
            return error

    def _chosen(self, step: int | None) -> tuple[dict[int, str], int]:
        """What there is, and the step to read."""
        there = self._checkpoints.marks()
        chosen = self._newest(there) if step is None else step
        if chosen not in there:
            told = f" of step {step}" if step is not None else ""
            details = [f"there are those of {', '.join(map(str, there))}"] if there else []
            remedy = "Train first: trainer.fit writes checkpoints, and so does trainer.save()."
            if there:
                remedy = f"Write trainer.restore({max(there)}), or trainer.restore() for the newest one."
            raise TrainingError(message(f"no checkpoint{told} in {self._checkpoints.folder}", *details, remedy=remedy))
        return there, chosen

    def _newest(self, there: Mapping[int, str]) -> int:
        """The newest checkpoint that is whole, with a warning where a later one is not; of none the newest."""
        chosen = max((step for step, mark in there.items() if mark), default=max(there, default=-1))
        if unfinished := [str(self._checkpoints.folder / str(step)) for step in there if step > chosen]:
            headline = f"trainer.restore() goes on from step {chosen}, and leaves out what is not whole"
            details = (f"{SUMS} is missing in {', '.join(unfinished)}", "the next checkpoint takes the place of those")
            remedy = "Keep a copy elsewhere of what is still wanted."
            warnings.warn(message(headline, *details, remedy=remedy), RuntimeWarning, stacklevel=5)
        return chosen


def _check_folder(folder: Path) -> None:
    """It is one, or there is none yet.

    Raises:
      TrainingError: for a file, and for what the system does not look at, such as a name that is too long.
    """
    remedy = "Name a folder; where there is none it is made."
    try:
        is_other = folder.resolve().exists() and not folder.is_dir()
    except (OSError, RuntimeError, ValueError) as error:
        headline = f"checkpoint= of a trainer is no folder: {str(folder)!r:.200}"
        raise TrainingError(message(headline, in_words(error), remedy=remedy)) from error
    if is_other:
        raise TrainingError(message(f"checkpoint= of a trainer is a file: {folder}", remedy=remedy))
