"""Files and folders that are written under another name, and put in their place in one step.

Until then the place is as it was before, so that nobody takes half of a tensor for one. Who writes holds a shared lock,
which the system takes back when a process ends however it ends: what a dead one has left may be replaced, what a living
one writes may not. What is begun, gone on with and put in its place is so alone in its folder, for a moment: between
looking at a name and locking what lies there it may have become another's.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from combinators.errors import message
from tapestry_jax.storage.errors import StorageError, of_system
from tapestry_jax.storage.unfinished.regular import no_file

_OF_TENSORS = ("zarr.json", ".zarray", ".zgroup", ".zmetadata")
"""What lies in a folder of Zarr."""
_OURS = (".partial", ".partial.filled", ".partial.filled.new", ".replaced")
"""How names end of what lies beside a tensor while it is written, and is removed without a question."""


def partial(path: Path) -> Path:
    """Where a tensor lies while it is written: beside its place."""
    return path.with_name(path.name + ".partial")


def filled_place(path: Path) -> Path:
    """Where it is kept which cells of a tensor were written while it is."""
    return path.with_name(path.name + ".partial.filled")


class Draft:
    """A tensor that this process writes, until it lets go or ends; others may go on with the same one as well.

    Args:
      path: the place of the tensor.
      place: where it lies: beside its place, or in it where an earlier attempt has finished.
      lock: a handle of `place`, locked.
      overwrite: whether it takes the place of what is there.

    Attributes:
      path: the place of the tensor.
      place: where it lies.
      leaves_filled: whether what is known of its cells stays when it is in its place, for a job that may be killed
        before it notes that.
    """

    def __init__(self, path: Path, place: Path, lock: int, *, overwrite: bool) -> None:
        self.path, self.place, self.leaves_filled, self._overwrite = path, place, False, overwrite
        self._lies = _which(os.fstat(lock))
        # Also when it is forgotten: what nobody writes any more may be replaced.
        self.let_go = weakref.finalize(self, os.close, lock)

    def put_in_place(self, content: Path | None = None) -> None:
        """Move what was written to its place, durably; nothing to do where it is there already.

        A file takes the place of another in one step. Of folders the old one is moved aside first, and goes afterwards.

        Args:
          content: the part of it that is the tensor, where it is not all.

        Raises:
          StorageError: where the system refuses, somebody else has begun another in its place, or something has come
            into a place that nobody has said to overwrite.
        """
        try:
            with _alone(self.path.parent):
                if self.place != self.path and not self._is_at(self.path):
                    self._move(self.place if content is None else content)
                if not self.leaves_filled:
                    remove(filled_place(self.path))
        except OSError as error:
            raise of_system(error, "put a tensor in its place", str(self.path)) from error

    def _move(self, content: Path) -> None:
        path, aside = self.path, self.path.with_name(self.path.name + ".replaced")
        if not self._is_at(self.place):
            remedy = "Write it again, to another place or when the other process has ended."
            raise StorageError(message(f"somebody else has begun `{path}` anew meanwhile", remedy=remedy))
        if os.path.lexists(path) and not self._overwrite:
            details = ("it came while this one was written", f"what was written lies in `{self.place}`")
            remedy = "Move one of them, or write again with overwrite=True."
            raise StorageError(message(f"`{path}` is there already", *details, remedy=remedy))
        _check_folder(path)
        if os.path.lexists(path) and (path.is_dir() or content.is_dir()):
            remove(aside)
            path.rename(aside)
        content.replace(path)
        sync_folder(path.parent)
        remove(aside)
        remove(self.place)

    def _is_at(self, path: Path) -> bool:
        try:
            return _which(path.lstat()) == self._lies
        except FileNotFoundError:
            return False


def begin(path: Path, make: Callable[[Path], None], *, overwrite: bool) -> Draft:
    """Begin a tensor beside its place; what a dead process has left there goes.

    Args:
      path: the place of the tensor.
      make: makes an empty file or folder at a path where nothing is.
      overwrite: whether it takes the place of what is there.

    Raises:
      StorageError: where the tensor is there already and `overwrite` is not said, a living process writes one, a
        folder is there that holds no tensor, or the name is one of what lies beside another tensor.
    """
    place = partial(path)
    _check_name(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _alone(path.parent):
            _check_free(path, overwrite=overwrite)
            if place.exists() and not place.is_symlink():
                os.close(_locked(place, fcntl.LOCK_EX))
            remove(filled_place(path))
            remove(place)
            make(place)
            return Draft(path, place, _locked(place, fcntl.LOCK_SH), overwrite=overwrite)
    except OSError as error:
        raise of_system(error, "make room for a tensor", str(path)) from error


def go_on(path: Path, *, overwrite: bool) -> Draft:
    """What an interrupted job has written: beside the place, or in it if the job had finished.

    Raises:
      StorageError: where neither is there, or it is a pipe, a socket or a device.
    """
    try:
        if path.parent.is_dir():
            with _alone(path.parent):
                for place in (partial(path), path):
                    if place.exists():
                        if not (place.is_file() or place.is_dir()):
                            raise no_file(place)
                        return Draft(path, place, _locked(place, fcntl.LOCK_SH), overwrite=overwrite)
    except OSError as error:
        raise of_system(error, "write a tensor", str(path)) from error
    remedy = "Begin anew: Creation.make makes it."
    raise StorageError(message(f"`{path}` was not begun", remedy=remedy))


def _check_free(path: Path, *, overwrite: bool) -> None:
    if path.exists() and not (path.is_file() or path.is_dir()):
        remedy = "Choose another name: a tensor would take the place of it."
        raise StorageError(message(f"`{path}` is a device or a pipe", remedy=remedy))
    if not overwrite and os.path.lexists(path):
        remedy = "Say overwrite=True, or choose another name."
        raise StorageError(message(f"`{path}` is there already", remedy=remedy))
    _check_folder(path)


def _check_name(path: Path) -> None:
    """Refuse a place that goes, with all that lies in it, when the tensor beside it is written, before a folder."""
    # A link leads to a folder under another name.
    ours = [each for each in (path.name, *Path(os.path.realpath(path.parent)).parts) if each.endswith(_OURS)]
    if ours:
        details = (
            f"expected no name that ends in {', '.join(_OURS)}",
            f"got {ours[0]!r}: what lies there goes when its tensor is written",
        )
        remedy = "Choose another name."
        raise StorageError(message(f"`{path}` is no name of a tensor", *details, remedy=remedy))


def _check_folder(path: Path) -> None:
    # Nobody means all that lies in it by the name of a tensor.
    if path.is_dir() and not path.is_symlink():
        names = {each.name for each in path.iterdir()}
        if names and not names & {*_OF_TENSORS}:
            remedy = "Choose another name, or remove the folder."
            raise StorageError(message(f"`{path}` is a folder that holds no tensor", remedy=remedy))


@contextmanager
def _alone(folder: Path) -> Generator[None]:
    """Hold a folder against what other processes and threads begin and finish in it; they wait."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _which(about: os.stat_result) -> tuple[int, int]:
    return about.st_dev, about.st_ino


def _locked(place: Path, how: int) -> int:
    file = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(file)
        headline = f"another process writes `{place}`"
        raise StorageError(message(headline, remedy="Wait until it ends, or choose another name.")) from error
    return file


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
