"""The folder of a run's checkpoints: each is there as a whole or not at all, and none replaces that of another run."""

from __future__ import annotations

import ctypes
import re
import secrets
import shutil
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from combinators.errors import message
from tapestry_jax.nnx.training.errors import TrainingError
from tapestry_jax.nnx.training.saving.sums import mark_of, write_sums

# What was being written or removed when a run was killed, and what Orbax calls the former.
_LEFT = re.compile(r"\d+\.(partial|removed|aside|orbax-checkpoint-tmp).*", re.ASCII)
# What made way for the next one of its step where two names cannot be exchanged, and comes back if that is not there.
_ASIDE = re.compile(r"(\d+)\.aside-.*", re.ASCII)
_STEP = re.compile("0|[1-9][0-9]*", re.ASCII)


class Folder:
    """Where the checkpoints of a run lie, each in a folder with the number of its step.

    A checkpoint is written under another name, with its sums, and is then renamed: its own name is that of a whole one,
    whenever a process is killed. A run replaces and removes what it has written or found when it was restored, and
    nothing else: other runs may write here as well.

    Args:
      path: made by the first save.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._token, self._begun, self._is_cleared = path, secrets.token_hex(4), "", False
        # By step which checkpoint it is, since another run may have written one of the same step.
        self._known, self._given_up = dict[int, str](), dict[int, str]()

    def at(self, step: int) -> Path:
        """Where the checkpoint of a step lies."""
        return self.path / str(step)

    def marks(self) -> dict[int, str]:
        """Which checkpoints there are: by step a mark, which no other one of that step has; empty if it is not whole.

        Raises:
          TrainingError: when the folder cannot be read.
        """
        try:
            self._put_back()
            return {step: mark_of(self.at(step)) for step in self._steps()}
        except OSError as error:
            remedy = "Let this process read that folder, or name another one."
            headline = f"the folder of checkpoints {self.path} cannot be read"
            raise TrainingError(message(headline, in_words(error), remedy=remedy)) from error

    def restored(self, step: int, there: Mapping[int, str]) -> None:
        """A run goes on from a step: what was there before it was read is known, and of later steps gives way."""
        self._known = dict(there)
        self._given_up = {later: mark for later, mark in there.items() if later > step}

    def check_known(self, cause: Exception | None = None) -> None:
        """All checkpoints that are there are known.

        Args:
          cause: what failed, where something did; another run that writes here is why.

        Raises:
          TrainingError: where others are: another run writes here as well, or did.
        """
        others = [step for step, mark in self.marks().items() if self._known.get(step) != mark]
        if not others:
            return
        listed = f"step {others[0]}" if len(others) == 1 else f"steps {', '.join(map(str, others))}"
        details = f"it holds that of {listed}, which this trainer neither wrote nor restored"
        remedy = "Go on from it with trainer.restore() or `tapestry train --resume`, name another folder, or remove it."
        headline = f"{self.path} holds checkpoints of another run"
        raise TrainingError(message(headline, details, remedy=remedy)) from cause

    def begin(self, step: int, *, anew: bool = False) -> str | None:
        """Make the folder, and say under which name the checkpoint of a step is written; None where it is there.

        Args:
          step: of the checkpoint.
          anew: whether one that is there is written once more.

        Raises:
          TrainingError: where the folder cannot be made, or holds checkpoints of another run.
        """
        self.check_known()
        with written(self.at(step)):
            if not anew and self.at(step).is_dir() and not self._gives_way(step):
                return None
            self.path.mkdir(parents=True, exist_ok=True)
            # Of other runs once alone: one that writes at the same time is told, and need not be stopped each time.
            ours = self._token if self._is_cleared else ""
            _remove(each for each in self.path.iterdir() if _LEFT.fullmatch(each.name) and ours in each.name)
            self._is_cleared = True
        # Of a write that failed TensorStore remembers what it found under its name.
        self._begun = f"{step}.partial-{self._token}-{secrets.token_hex(4)}"
        return self._begun

    def finish(self, step: int, keep: int) -> None:
        """Give the checkpoint of a step, which was written as `begin` says, its own name.

        Args:
          step: of the checkpoint.
          keep: how many of the newest stay.

        Raises:
          TrainingError: where it cannot, or another run has written one meanwhile.
        """
        partial = self.path / self._begun
        with written(self.at(step)):
            write_sums(partial)
            self.check_known()
            for later in self._given_up:
                if self._gives_way(later):
                    self._give_up(later)
            # Known before it is there: Ctrl-C may come between the two.
            before, self._known[step] = self._known.get(step), mark_of(partial)
            try:
                if before is not None and self.at(step).is_dir():
                    self._replace(step, partial, before)
                else:
                    # Where another run has written one at this very moment the system refuses: it is not empty.
                    partial.rename(self.at(step))
            except BaseException:
                if before is not None and self.at(step).is_dir() and mark_of(self.at(step)) == before:
                    self._known[step] = before
                raise
            self._given_up = {}
            ours = [each for each in self._steps() if self._known.get(each) == mark_of(self.at(each))]
            for old in ours[:-keep]:
                self._give_up(old)

    def drop(self) -> None:
        """Remove what was written of a checkpoint that is not finished."""
        with suppress(OSError):
            _remove(each for each in self.path.iterdir() if self._begun and each.name.startswith(self._begun))

    def _steps(self) -> list[int]:
        names = [each.name for each in self.path.iterdir()] if self.path.is_dir() else []
        return sorted(int(name) for name in names if _STEP.fullmatch(name))

    def _gives_way(self, step: int) -> bool:
        """Whether it is the checkpoint that was given up, and not a later one of the same step."""
        return self.at(step).is_dir() and self._given_up.get(step) == mark_of(self.at(step))

    def _give_up(self, step: int) -> None:
        """Remove a checkpoint, under another name: one of which half is there has not its own."""
        removed = self._other_name(step, "removed")
        self.at(step).rename(removed)
        _remove([removed])

    def _replace(self, step: int, partial: Path, mark: str) -> None:
        """Put a checkpoint in the place of the one of its step that has this mark, at one moment if the system can.

        Raises:
          OSError: where the system refuses, or another run has written one of that step; what is there stays.
        """
        if exchanged(partial, self.at(step)):
            if mark_of(partial) != mark:
                exchanged(partial, self.at(step))
                raise OSError(f"another one has come to {self.at(step)}")
            _remove([partial])
            return
        aside = self._other_name(step, "aside")
        try:
            self.at(step).rename(aside)
            if mark_of(aside) != mark:
                raise OSError(f"another one has come to {self.at(step)}")
            partial.rename(self.at(step))
        except BaseException:
            if aside.is_dir() and not self.at(step).is_dir():
                aside.rename(self.at(step))
            raise
        _remove([aside])

    def _other_name(self, step: int, why: str) -> Path:
        return self.path / f"{step}.{why}-{self._token}-{secrets.token_hex(4)}"

    def _put_back(self) -> None:
        """Give checkpoints their names again that made way for others which never came: a run was killed between."""
        for each in self.path.iterdir() if self.path.is_dir() else ():
            told = _ASIDE.fullmatch(each.name)
            if told is not None and not self.at(int(told[1])).is_dir() and mark_of(each):
                each.rename(self.at(int(told[1])))


def exchanged(one: Path, other: Path) -> bool:
    """Let two folders exchange their names at one moment; False where the system does not know how, or refuses."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    at, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
    return rename is not None and rename(at, bytes(one), at, bytes(other), exchange) == 0


def _remove(found: Iterable[Path]) -> None:
    for each in list(found):
        shutil.rmtree(each, ignore_errors=True)


@contextmanager
def written(path: Path) -> Generator[None]:
    """Say of what fails in it that a checkpoint could not be written there.

    Raises:
      TrainingError: for whatever Orbax, TensorStore or the system raise, of which there are many kinds.
    """
    try:
        yield
    except TrainingError:
        raise
    except Exception as error:
        details = (in_words(error), "what was there before is as it was")
        remedy = "Make room, or let this process write there; then trainer.save() writes it, and trainer.fit goes on."
        raise TrainingError(message(f"the checkpoint {path} could not be written", *details, remedy=remedy)) from error


def in_words(error: Exception) -> str:
    """The first line of an error, and its kind."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:300]
