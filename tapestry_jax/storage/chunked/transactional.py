"""Arrays in repositories of Icechunk: a tensor is written in a transaction, which nobody sees before it is finished.

What is open reads one snapshot, whatever is committed meanwhile. Chunks are read and written by zarr-python, over which
Icechunk lies.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial as given
from pathlib import Path
from typing import Any

from combinators.errors import FormatError, first_line, message
from tapestry_jax.storage.boxes import check_cells, check_names, check_shape, count, slices, told
from tapestry_jax.storage.chunked.gate import of_chunks, pieces
from tapestry_jax.storage.chunked.metadata import default_chunks
from tapestry_jax.storage.dtypes import PLAIN, check_flags, read_dtype
from tapestry_jax.storage.errors import StorageError, missing_package, of_system
from tapestry_jax.storage.files.folders import files_below
from tapestry_jax.storage.files.threads import Threads
from tapestry_jax.storage.places import Place
from tapestry_jax.storage.protocols import Array, Beside, Box, Names, Shown
from tapestry_jax.storage.several import choose, named
from tapestry_jax.storage.unfinished.filled import Filled
from tapestry_jax.storage.unfinished.regular import no_file

_BRANCH = "main"
_READERS = 2  # of chunks at once: of each the bytes, what is decoded, and its part of the box are held


class _Array(Shown):
    """An array of zarr-python in a session of Icechunk."""

    def __init__(self, array: Any, where: str, names: Names | None, threads: int) -> None:
        self._array, self.where = array, where
        self.dtype = read_dtype(array.dtype, PLAIN, f"`{where}`")
        self.shape = check_shape(tuple(array.shape), self.dtype, f"`{where}`")
        known = getattr(array.metadata, "dimension_names", None)
        self.names = check_names(known if names is None else names, len(self.shape), f"`{where}`")
        self.chunks = tuple(max(1, min(size, own)) for size, own in zip(array.chunks, self.shape, strict=True))
        self._threads = Threads(where, threads)

    def beside(self, sizes: tuple[int, ...]) -> Beside:
        """As `Stored.beside`: chunks that are encoded and decoded, of whatever boxes."""
        del sizes
        return of_chunks(*(count(each) * self.dtype.itemsize for each in (self.chunks, self.shape)))

    def _moved(self, box: Box, what: str, move: Callable[[Box], None], done: Callable[[], None]) -> Future[None]:
        """Move a box, some chunks at a time; `done` is called when all is moved."""

        def all_of_it() -> None:
            for part, _ in pieces(box, self.chunks, self.dtype.itemsize) if count(_sizes(box)) else ():
                asked(f"{what} the box {told(part)}", self.where, move, part)
            done()

        return self._threads.submit(all_of_it)


class Snapshot(_Array):
    """A `Stored` of one snapshot."""

    def __init__(self, session: Any, array: Any, where: str, names: Names | None) -> None:
        super().__init__(array, where, names, _READERS)
        self._snapshot = f"icechunk:{session.snapshot_id}:{array.path}"

    def read(self, box: Box, into: Array) -> Future[None]:
        """As `Stored.read`."""
        box = check_cells(box, into, self, is_target=True)

        def move(part: Box) -> None:
            into[_within(part, box)] = self._array[slices(part)]

        return self._moved(box, "read", move, given(check_flags, into, self.where))

    def fingerprint(self) -> str:
        """The snapshot: what is committed in one never changes."""
        return self._snapshot

    def close(self) -> None:
        """As `Stored.close`."""
        self._threads.close()


class Transaction(_Array):
    """A `Sink` of one transaction. What was not finished is not there, and cannot be gone on with."""

    def __init__(self, session: Any, array: Any, path: Path, name: str, names: Names | None) -> None:
        # One thread: boxes may share a chunk, which is read and written as a whole.
        super().__init__(array, str(path), names, 1)
        self._session, self._path, self._name, self._filled = session, path, name, Filled(self.shape)

    def write(self, box: Box, array: Array) -> Future[None]:
        """As `Sink.write`."""
        box = check_cells(box, array, self, is_target=False)
        check_flags(array, self.where)

        def move(part: Box) -> None:
            self._array[slices(part)] = array[_within(part, box)]

        return self._moved(box, "write", move, given(self._filled.add, box))

    def flush(self) -> None:
        """What is under way is waited for. A transaction survives nothing before it is finished."""
        self._threads.check_open()
        self._threads.drain()

    def finish(self) -> Snapshot:
        """As `Sink.finish`: the commit. Others that have committed other arrays meanwhile are no conflict."""
        self.flush()
        self._filled.check(self.where)
        detector = _package().ConflictDetector()
        # Commits to a folder at the same moment could lose one of them, which Icechunk says itself.
        with _alone(self._path):
            asked("commit", self.where, given(self._session.commit, rebase_with=detector), f"write {self._name}")
        self._threads.close()
        return open_icechunk(Place(str(self._path), self._path, None), self._name, self.names)

    def close(self) -> None:
        """As `Sink.close`: the transaction is given up."""
        if self._threads.close():
            self._session.discard_changes()


def open_icechunk(place: Place, tensor: str | None = None, names: Names | None = None) -> Snapshot:
    """Open an array of the newest snapshot of a repository.

    Raises:
      StorageError: where there is no repository.
      FormatError: for an array that it does not have, or of another dtype.
    """
    path, package = place.local("a repository of Icechunk"), _package()
    if not path.is_dir():
        raise StorageError(message(f"no repository lies at `{place.text}`", remedy="Look at the path."))
    _check_files(path)
    repository = asked("open a repository", place.text, package.Repository.open, _storage(path))
    session = asked("open a repository", place.text, repository.readonly_session, _BRANCH)
    known = asked("list the arrays", place.text, _arrays, session)
    name = choose(sorted(known), tensor, place.text)
    return named(Snapshot(session, known[name], place.text, names), name)


def make_icechunk(
    path: Path,
    shape: tuple[int, ...],
    dtype: Any,
    names: Names | None,
    chunks: tuple[int, ...] | None,
    *,
    overwrite: bool,
) -> Transaction:
    """Begin a transaction for the array that is called as the repository is, which is made where there is none.

    Raises:
      StorageError: where the array is there already, or something that is no repository.
      FormatError: for a dtype that the format does not hold.
    """
    package, name, where = _package(), path.stem, str(path)
    dtype = read_dtype(dtype, PLAIN, "an array of Icechunk")
    chunks = default_chunks(shape, dtype) if chunks is None else chunks
    if path.exists() and not (path / "refs").is_dir():
        remedy = "Choose another place."
        raise StorageError(message(f"`{where}` is there already, and is no repository of Icechunk", remedy=remedy))
    if path.exists():
        _check_files(path)
    _check_writable(path)
    repository = asked("make a repository", where, package.Repository.open_or_create, _storage(path))
    session = asked("begin a transaction", where, repository.writable_session, _BRANCH)
    if name in asked("list the arrays", where, _arrays, session) and not overwrite:
        remedy = "Say overwrite=True, or choose another place."
        raise StorageError(message(f"`{where}` has an array `{name}` already", remedy=remedy))
    array = asked("make an array", where, _made, session, name, shape, dtype, names, chunks)
    return Transaction(session, array, path, name, names)


def asked(what: str, where: str, call: Callable[..., Any], *arguments: Any) -> Any:
    """Call Icechunk or zarr-python; their errors become ours.

    Raises:
      StorageError: where there is no room.
      FormatError: for all else that they say.
    """
    try:
        return call(*arguments)
    except FormatError:
        raise
    except BaseException as error:
        # What Icechunk does not expect ends in a panic of Rust, which is no Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        text = " ".join(str(error).split())[:300] or first_line(error)
        remedy = "See to the place, or take a copy that is intact."
        kind = StorageError if re.search("No space left|Permission denied", text) else FormatError
        raise kind(message(f"cannot {what}: `{where}`", f"{type(error).__name__}: {text}", remedy=remedy)) from error


def _check_writable(path: Path) -> None:
    """That a repository may be made or written to: Icechunk would panic."""
    folder = path if path.exists() else path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise of_system(error, "make a repository", str(path)) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        error = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        raise of_system(error, "make a repository", str(path))


def _check_files(path: Path) -> None:
    """That no pipe lies in a repository: Icechunk would wait for who writes it."""
    for name, entry in files_below(path):
        if not entry.is_file():
            raise no_file(path / name)


def _arrays(session: Any) -> dict[str, Any]:
    """The arrays of a session by their paths; none in a repository that nobody has written to."""
    # Comes with Icechunk.
    import zarr

    try:
        root = zarr.open_group(session.store, mode="r")
    except FileNotFoundError:
        return {}
    return {name: each for name, each in root.members(max_depth=None) if isinstance(each, zarr.Array)}


def _made(session: Any, name: str, shape: Any, dtype: Any, names: Names | None, chunks: Any) -> Any:
    # Comes with Icechunk.
    import zarr
    from zarr.codecs import Crc32cCodec

    return zarr.create_array(
        session.store,
        name=name,
        shape=shape,
        chunks=chunks,
        dtype=dtype,
        compressors=[Crc32cCodec()],
        dimension_names=names,
        fill_value=0,
        overwrite=True,
    )


@contextmanager
def _alone(path: Path) -> Generator[None]:
    """Hold a folder against other commits of this library, of any process."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _storage(path: Path) -> Any:
    return _package().local_filesystem_storage(str(path.absolute()))


def _package() -> Any:
    try:
        # An extra: few programs write in transactions.
        import icechunk as found
    except ModuleNotFoundError as error:
        raise missing_package("this format", "icechunk", "icechunk") from error
    return found


def _sizes(box: Box) -> tuple[int, ...]:
    return tuple(stop - start for start, stop in box)


def _within(part: Box, box: Box) -> Any:
    """A part of a box as it lies in an array of the box."""
    return (*(slice(a - low, b - low) for (a, b), (low, _) in zip(part, box, strict=True)), ...)
