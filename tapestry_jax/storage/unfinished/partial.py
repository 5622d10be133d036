"""Files and folders that are written under another name, and put in their place in one step.

Until then the place is as it was before, so that nobody takes half of a tensor for one. Who writes holds a shared lock,
which the system takes back when a process ends however it ends: what a dead one has left may be replaced, what a living
one writes may not.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

from combinators.errors import message
from tapestry_jax.storage.errors import StorageError, of_system


def partial(path: Path) -> Path:
    """Where a tensor lies while it is written: beside its place."""
    return path.with_name(path.name + ".partial")


def filled_place(path: Path) -> Path:
    """Where it is kept which cells of a tensor were written while it is."""
    return path.with_name(path.name + ".partial.filled")


def begin(path: Path, *, overwrite: bool) -> Path:
    """A free place beside `path` to write to; what an earlier attempt has left there goes.

    Raises:
      StorageError: where the tensor is there already and `overwrite` is not said, or a living process writes one.
    """
    if not overwrite and os.path.lexists(path):
        remedy = "Say overwrite=True, or choose another name."
        raise StorageError(message(f"`{path}` is there already", remedy=remedy))
    place = partial(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if place.exists() and not place.is_symlink():
            let_go(_locked(place, fcntl.LOCK_EX))
        remove(filled_place(path))
        remove(place)
    except OSError as error:
        raise of_system(error, "make room for a tensor", str(path)) from error
    return place


def found(path: Path) -> Path:
    """Where an interrupted job has written: beside the place, or in it if the job had finished.

    Raises:
      StorageError: where neither is there.
    """
    for place in (partial(path), path):
        if place.exists():
            return place
    remedy = "Begin anew: Creation.make makes it."
    raise StorageError(message(f"`{path}` was not begun", remedy=remedy))


def hold(place: Path) -> int:
    """A lock that says that this process writes here, until `let_go` or its end; others may write as well.

    Raises:
      StorageError: where another process is just about to replace it.
    """
    try:
        return _locked(place, fcntl.LOCK_SH)
    except OSError as error:
        raise of_system(error, "write a tensor", str(place)) from error


def let_go(lock: int) -> None:
    """End what `hold` began."""
    os.close(lock)


def _locked(place: Path, how: int) -> int:
    file = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(file)
        headline = f"another process writes `{place}`"
        raise StorageError(message(headline, remedy="Wait until it ends, or choose another name.")) from error
    return file


def put_in_place(path: Path) -> None:
    """Move what was written to its place, durably; nothing to do where it is there already.

    A file takes the place of another in one step. Of folders the old one is moved aside first, and goes afterwards.

    Raises:
      StorageError: where the system refuses.
    """
    written = partial(path)
    try:
        if not written.exists():
            remove(filled_place(path))
            return
        aside = path.with_name(path.name + ".replaced")
        if path.is_dir():
            remove(aside)
            path.rename(aside)
        written.replace(path)
        sync_folder(path.parent)
        remove(filled_place(path))
        remove(aside)
    except OSError as error:
        raise of_system(error, "put a tensor in its place", str(path)) from error


def remove(path: Path) -> None:
    """Remove a file, a link or a folder, if it is there; a link's target stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sync_folder(path: Path) -> None:
    """Have the names in a folder survive a power cut."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def sync_tree(path: Path) -> None:
    """Have the names in a folder and in all folders below survive a power cut."""
    for folder, _, _ in os.walk(path):
        sync_folder(Path(folder))
