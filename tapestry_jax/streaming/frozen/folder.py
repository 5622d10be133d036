"""The states of a job in its folder: the newest, and the one before it, which is read where the newest is damaged.

Every state is a file of its own, `state-00000007`, so that no moment is without a whole one.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path

from combinators.errors import FormatError, first_line, message
from tapestry_jax.storage.errors import is_allowed, mended
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.frozen.durable import read_whole, sync_folder, write_durably
from tapestry_jax.streaming.frozen.encoded import REMEDY, OtherVersionError, decode, encode
from tapestry_jax.streaming.frozen.lock import LOCK
from tapestry_jax.streaming.frozen.state import Frozen

_NAME = re.compile(r"state-([0-9]{8,15})", re.ASCII)
_KEPT = 2
LARGEST = 2**35
"""Bytes of a state that are read at most: it lies in memory while the job runs."""


def save(folder: str | Path, frozen: Frozen) -> int:
    """Write the state of a job. The one before it is kept, older ones are removed.

    Who calls holds the lock of the folder (`locked`).

    Args:
      folder: of the job; made where it is not there.
      frozen: the state.

    Returns:
      How many bytes were written.

    Raises:
      StreamError: when it cannot be written; the states that were there stay.
      FormatError: for a state that cannot be stored.
    """
    folder = Path(folder)
    parts = encode(frozen)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        states = _states(folder)
        number = 1 + max(states, default=0)
        write_durably(folder / f"state-{number:08d}", parts)
        for old in sorted(states)[: 1 - _KEPT]:
            states[old].unlink(missing_ok=True)
    except OSError as error:
        raise StreamError(
            message(
                f"the state of the job cannot be written to {folder}.",
                first_line(error),
                "what was written before is still there",
                remedy=f"{mended(error)}, and run the job again: it goes on where it was.",
            )
        ) from error
    return sum(map(len, parts))


def load(folder: str | Path) -> Frozen | None:
    """The newest state of a job that is whole; None where there is none yet.

    A damaged state is told by a warning, and the one before it is read: the job computes again what lies between.

    Raises:
      FormatError: when no state is whole, or the newest was written by another version.
      StreamError: when the folder, or a state that may be whole, cannot be read.
    """
    folder = Path(folder)
    try:
        states = _states(folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        told = first_line(error)
        headline = f"the states of the job in {folder} cannot be read."
        raise StreamError(message(headline, told, remedy="Name a folder of the job's own.")) from error
    damaged: list[tuple[Path, FormatError]] = []
    for number in sorted(states, reverse=True):
        try:
            found = decode(read_whole(states[number], LARGEST), str(states[number]))
        except OSError as error:
            damaged.append((states[number], _unreadable(states[number], error)))
        except OtherVersionError:
            raise
        except FormatError as error:
            damaged.append((states[number], error))
        else:
            _warn(damaged)
            return found
    if damaged:
        raise damaged[0][1]
    return None


def has_damage(folder: Path) -> bool:
    """Whether the newest state of a job cannot be read; `load` goes on from the one before it."""
    states = _states(folder)
    try:
        if states:
            decode(read_whole(states[max(states)], LARGEST), str(folder))
    except OSError as error:
        _unreadable(states[max(states)], error)
        return True
    except FormatError:
        return True
    return False


def is_of_job(name: str) -> bool:
    """Whether a file of this name says that its folder is, or was, a job's: its lock or a state."""
    return name == LOCK or _NAME.fullmatch(name) is not None


def clear(folder: str | Path) -> None:
    """Remove the states of a job, the oldest first. Who calls holds the lock of the folder."""
    folder = Path(folder)
    states = _states(folder)
    for number in sorted(states):
        states[number].unlink(missing_ok=True)
    sync_folder(folder)


def _states(folder: Path) -> dict[int, Path]:
    """Files of states by number."""
    named = ((_NAME.fullmatch(path.name), path) for path in folder.iterdir())
    return {int(match[1]): path for match, path in named if match}


def _unreadable(path: Path, error: OSError) -> FormatError:
    """The error of a state that is damaged, as far as one can see.

    Raises:
      StreamError: where it may be whole, and this process may not read it.
    """
    if not is_allowed(error):
        remedy = "Let this process read it, and run the job again: it goes on where it was."
        raise StreamError(message(f"{path} cannot be read.", first_line(error), remedy=remedy)) from error
    return FormatError(message(f"{path} cannot be read.", first_line(error), remedy=REMEDY))


def _warn(damaged: list[tuple[Path, FormatError]]) -> None:
    for path, error in damaged:
        told = "\n".join(str(error).splitlines()[:-1])
        warnings.warn(f"{path.name} is passed over, the state before it is read: {told}", stacklevel=3)
