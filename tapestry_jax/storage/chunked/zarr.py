"""Zarr, versions 2 and 3, through TensorStore: read and written chunk by chunk, checksummed in what is made here."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial as given
from pathlib import Path
from typing import Any

from combinators.errors import FormatError, message
from tapestry_jax.storage.boxes import check_cells, check_chunks, check_names, check_shape, count, slices, told
from tapestry_jax.storage.chunked.futures import WAIT, context, tensorstore, translated
from tapestry_jax.storage.chunked.gate import Gate, of_chunks, pieces
from tapestry_jax.storage.chunked.metadata import (
    FILES,
    Metadata,
    attributes_2,
    default_chunks,
    full_names,
    read_metadata,
    spec_of,
)
from tapestry_jax.storage.chunked.named import FilesThen
from tapestry_jax.storage.chunked.plain import read_chunks, whole_chunks
from tapestry_jax.storage.dtypes import ZARR, check_flags, read_dtype
from tapestry_jax.storage.errors import StorageError, WrittenError, check_process, of_system
from tapestry_jax.storage.files.folders import files_below, of_folder
from tapestry_jax.storage.files.threads import Threads
from tapestry_jax.storage.places import Place
from tapestry_jax.storage.protocols import Array, Beside, Box, Names, Shown
from tapestry_jax.storage.unfinished import partial
from tapestry_jax.storage.unfinished.filled import filled_again, keep_filled
from tapestry_jax.storage.unfinished.partial import Draft
from tapestry_jax.storage.unfinished.regular import check_file

_MOST_BYTES_OF_CHUNK = 2**32
Begin = Callable[[Any, Array], Any]
"""From a box of a TensorStore, and an array of its shape, to a future of TensorStore."""


class _Opened:
    """A TensorStore over a folder or an address, with what its metadata says."""

    _endings: tuple[str, ...] = ("",)
    """How files end that TensorStore opens, behind the names of chunks."""

    def __init__(self, store: Any, metadata: Metadata, names: Names | None, place: Place) -> None:
        self._store, self._metadata, self._place, self.where = store, metadata, place, place.text
        self._process = os.getpid()
        self.dtype = read_dtype(store.dtype.numpy_dtype, ZARR, f"`{self.where}`")
        self.shape = check_shape(tuple(store.shape), self.dtype, f"`{self.where}`")
        self.names = metadata.names if names is None else check_names(names, len(self.shape), f"`{self.where}`")
        chunks = tuple(store.chunk_layout.read_chunk.shape or ())
        self.chunks = tuple(max(1, min(size, own)) for size, own in zip(chunks, self.shape, strict=True))
        self._check_chunks(chunks)
        self._stored_chunks = tuple(max(1, size) for size in chunks)
        # As TensorStore has it: the process may go to another folder.
        self._folder = None if place.path is None else place.path.absolute()
        # Of shards one is a file.
        self._chunks_of_files = tuple(max(1, size) for size in store.chunk_layout.write_chunk.shape or ())
        self._under_way, self._gate = set[Future[None]](), Gate()

    def beside(self, sizes: tuple[int, ...]) -> Beside:
        """As `Stored.beside`: chunks that are encoded and decoded, of whatever boxes."""
        del sizes
        known = count(self._stored_chunks), count(self.shape)
        return of_chunks(*(size * self.dtype.itemsize for size in known))

    def _check_chunks(self, chunks: tuple[int, ...]) -> None:
        size = count(chunks) * self.dtype.itemsize
        if size > _MOST_BYTES_OF_CHUNK:
            details = (f"expected at most {_MOST_BYTES_OF_CHUNK} bytes", f"got {size}, for {self.dtype.name} {chunks}")
            remedy = "Store it in smaller chunks: one is decoded in memory as a whole."
            raise FormatError(message(f"a chunk of `{self.where}` is too large", *details, remedy=remedy))

    def _begun(self, box: Box, begin: Begin, what: str, array: Array, done: Callable[[], None]) -> Future[None]:
        """`done` is called when all is done well, before the future says so; what it raises, the future does."""
        error = given(_of, what=what, where=self.where)
        store, origin = self._opened(), [start for start, _ in box]
        parts = [
            self._part(store, begin, part, cost, array[(*slices(_moved(part, origin)), ...)])
            for part, cost in (pieces(box, self._stored_chunks, self.dtype.itemsize) if array.size else ())
        ]
        future = self._gate.begin(parts, error, done)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        return future

    def _part(self, store: Any, begin: Begin, part: Box, cost: int, array: Array) -> tuple[int, Callable[[], Any]]:
        """A part of a box, as the gate takes it: bytes under way beside the array, and what begins it."""
        return cost, given(self._begun_of_files, begin, part, store[slices(part)], array)

    def _begun_of_files(self, begin: Begin, part: Box, store: Any, array: Array) -> Any:
        named, folder = self._metadata.named, self._folder
        if named is not None and folder is not None:
            for name in named.of(part, self._chunks_of_files):
                for ending in self._endings:
                    check_file(folder / f"{name}{ending}")
        return begin(store, array)

    def _opened(self) -> Any:
        check_process(self._process, self.where)
        if self._store is None:
            raise StorageError(message(f"`{self.where}` is closed", remedy="Open it again."))
        return self._store

    def close(self) -> None:
        """Wait for what is under way, and let the store go."""
        if os.getpid() != self._process:
            return  # after a fork it is the other process's to close
        self._store = None
        for future in [*self._under_way]:
            future.exception()


class ZarrStored(_Opened, Shown):
    """A `Stored` in a Zarr folder or at an address."""

    def __init__(self, store: Any, metadata: Metadata, names: Names | None, place: Place) -> None:
        super().__init__(store, metadata, names, place)
        self._threads = Threads(self.where)
        self._then: FilesThen | None = None
        if self._folder is not None and not metadata.is_complete and metadata.named is not None:
            self._then = FilesThen([name for name, _ in files_below(self._folder)], self.where)

    def read(self, box: Box, into: Array) -> Future[None]:
        """As `Stored.read`; files that hold cells as they are go straight into `into`, others through TensorStore."""
        self._opened()
        box = check_cells(box, into, self, is_target=True)
        return self._begun(box, _read, f"read the box {told(box)}", into, given(self._check_read, box, into))

    def _check_read(self, box: Box, into: Array) -> None:
        named, then, folder = self._metadata.named, self._then, self._folder
        if named is not None and then is not None and folder is not None and into.size:
            for name in then.known([*named.of(box, self._chunks_of_files)]):
                if not os.access(f"{folder}/{name}", os.F_OK):
                    raise then.gone(name)
        check_flags(into, self.where)

    def _part(self, store: Any, begin: Begin, part: Box, cost: int, array: Array) -> tuple[int, Callable[[], Any]]:
        plain, folder = self._metadata.plain, self._folder
        decoded = super()._part(store, begin, part, cost, array)
        chunks = None if plain is None or folder is None else whole_chunks(part, self._stored_chunks, array)
        if chunks is None or plain is None or folder is None:
            return decoded

        def straight() -> None:
            if not read_chunks(folder, plain, chunks):
                decoded[1]().result()

        return 0, lambda: self._threads.submit(straight)

    def _metadata_now(self) -> str:
        place = self._place if self._folder is None else Place(self.where, self._folder, None)
        _check_metadata(place)
        files = tensorstore().KvStore.open(_kvstore(place), context=context()).result(timeout=WAIT)
        return read_metadata(files, self.where).checksum

    def close(self) -> None:
        """As `Stored.close`."""
        super().close()
        self._threads.close()

    def fingerprint(self) -> str:
        """Of a folder: its metadata, and the size, times of change and inode of every file in it.

        An edit that puts the first time back changes the second. Of an address: the
        metadata alone; that numbers have changed there is not seen.

        Raises:
          WrittenError: where the metadata are not those that it was opened by: chunks would be read as other ones.
        """
        if self._metadata_now() != self._metadata.checksum:
            raise WrittenError(self.where)
        files = of_folder(self._folder) if self._folder else "address"
        return f"zarr{self._metadata.version}:{self._metadata.checksum}:{files}"


class ZarrSink(_Opened, Shown):
    """A `Sink` into a Zarr folder; each chunk is synced as it is written."""

    # TensorStore writes a chunk under its second name, and puts it in its place.
    _endings = ("", ".__lock")

    def __init__(self, store: Any, metadata: Metadata, names: Names | None, draft: Draft) -> None:
        super().__init__(store, metadata, names, Place(str(draft.path), draft.path, None))
        self.draft, self.filled, self._folder = draft, filled_again(draft, self.shape), draft.place.absolute()

    def made_as(self) -> tuple[tuple[int, ...], str, tuple[int, ...], Names | None, bool]:
        """Shape, dtype, chunks, names as they are stored, and whether the array was made here."""
        stored = self._metadata.names
        if self._metadata.version == 2 and self.names and stored == full_names(self.names):
            stored = self.names
        return self.shape, self.dtype.name, self.chunks, stored, self._metadata.is_complete

    def write(self, box: Box, array: Array) -> Future[None]:
        """As `Sink.write`. A box that covers a chunk in part reads and writes the whole of it: keep to `chunks`."""
        self._opened()
        box = check_cells(box, array, self, is_target=False)
        return self._begun(box, _write, f"write the box {told(box)}", array, given(self._wrote, box, array))

    def _wrote(self, box: Box, array: Array) -> None:
        check_flags(array, self.where)
        self.filled.add(box, array)

    def read_back(self, box: Box, into: Array) -> Future[None]:
        """As `Stored.read`, of what is written so far."""
        self._opened()
        box = check_cells(box, into, self, is_target=True)
        return self._begun(box, _read, f"read the box {told(box)}", into, given(check_flags, into, self.where))

    def flush(self) -> None:
        """As `Sink.flush`: what is under way is waited for, then the names in the folder are synced."""
        self._opened()
        for future in [*self._under_way]:
            future.result()
        filled = self.filled.to_json()
        try:
            partial.sync_tree(self.draft.place)
            keep_filled(filled, self.draft.path)
        except OSError as error:
            raise of_system(error, "flush a tensor", self.where) from error

    def finish(self) -> ZarrStored:
        """As `Sink.finish`."""
        self.flush()
        self.filled.check(self.where)
        # The lock is let go when it is in its place: before, another could take it for what a dead process has left.
        self.draft.put_in_place()
        self.close()
        return open_zarr(self._place, self.names)

    def close(self) -> None:
        """As `Sink.close`."""
        if self._store is not None:
            super().close()
            self.draft.let_go()


def open_zarr(place: Place, names: Names | None = None) -> ZarrStored:
    """Open an array of version 2 or 3.

    Raises:
      StorageError: where there is none, or no answer.
      FormatError: for metadata or a dtype that cannot be read.
    """
    store, metadata = open_store(place, _kvstore(place), context())
    return ZarrStored(store, metadata, names, place)


def make_zarr(
    path: Path,
    shape: tuple[int, ...],
    dtype: Any,
    names: Names | None,
    chunks: tuple[int, ...] | None,
    *,
    version: int,
    overwrite: bool,
) -> ZarrSink:
    """Make the metadata of an array beside its place; chunks that are not written are missing ones.

    Raises:
      StorageError: where the tensor is there already.
      FormatError: for a dtype that the format does not hold.
    """
    dtype = read_dtype(dtype, ZARR, "a Zarr array")
    chunks = default_chunks(shape, dtype) if chunks is None else check_chunks(chunks, shape, str(path))
    draft = partial.begin(path, Path.mkdir, overwrite=overwrite)
    written = draft.place
    spec = spec_of(version, shape, dtype, names, chunks)
    kvstore = _kvstore(Place(str(written), written, None))
    try:
        tensorstore().open(
            {"driver": _driver(version), "kvstore": kvstore, **spec}, create=True, context=context()
        ).result()
        if version == 2:
            (written / ".zattrs").write_bytes(attributes_2(names))
    except (ValueError, OSError) as error:
        partial.remove(written)
        draft.let_go()
        raise _of(error, "make a Zarr array", str(path)) from error
    return _sink(draft, names)


def again_zarr(
    path: Path,
    shape: tuple[int, ...],
    dtype: Any,
    names: Names | None,
    chunks: tuple[int, ...] | None,
    *,
    overwrite: bool,
) -> ZarrSink:
    """Go on with what `make_zarr` began, in the chunks that it has where none are said.

    Raises:
      StorageError: where nothing was begun.
      FormatError: where it is an array of another shape, dtype, names or chunks.
    """
    dtype = read_dtype(dtype, ZARR, "a Zarr array")
    sink = _sink(partial.go_on(path, overwrite=overwrite), names)
    chunks = sink.chunks if chunks is None else check_chunks(chunks, shape, str(path))
    got, expected = sink.made_as(), (shape, dtype.name, chunks, names, True)
    if got != expected:
        sink.close()
        details = (f"expected shape, dtype, chunks, names and our mark {expected}", f"got {got}")
        remedy = "Go on with the program that began it, or begin anew with overwrite=True."
        raise FormatError(message(f"`{path}` is not what was begun", *details, remedy=remedy))
    return sink


def _sink(draft: Draft, names: Names | None) -> ZarrSink:
    place = Place(str(draft.place), draft.place, None)
    try:
        store, metadata = open_store(place, _kvstore(place), context())
        return ZarrSink(store, metadata, names, draft)
    except BaseException:
        draft.let_go()
        raise


def open_store(place: Place, kvstore: Any, ours: Any) -> tuple[Any, Metadata]:
    """A TensorStore over an array, with what its metadata says.

    Args:
      place: of the array.
      kvstore: what TensorStore reads it from.
      ours: the context of TensorStore in which it does.
    """
    try:
        _check_metadata(place)
        files = tensorstore().KvStore.open(kvstore, context=ours).result(timeout=WAIT)
        metadata = read_metadata(files, place.text)
        spec = {"driver": _driver(metadata.version), "kvstore": kvstore}
        spec["store_data_equal_to_fill_value"] = True
        spec["fill_missing_data_reads"] = not metadata.is_complete
        return tensorstore().open(spec, open=True, context=ours).result(timeout=WAIT), metadata
    except (ValueError, OSError, TimeoutError) as error:
        raise _of(error, "open a Zarr array", place.text) from error


def _check_metadata(place: Place) -> None:
    for name in FILES if place.path is not None else ():
        check_file(place.local("an array") / name)


def _read(store: Any, into: Array) -> Any:
    return tensorstore().array(into).write(store).commit


def _write(store: Any, array: Array) -> Any:
    return store.write(array).commit


def _moved(box: Box, origin: Sequence[int]) -> Box:
    """A box as it lies in an array that begins at `origin`."""
    return tuple((start - low, stop - low) for (start, stop), low in zip(box, origin, strict=True))


def _of(error: Exception, what: str, where: str) -> FormatError:
    return of_system(error, what, where) if isinstance(error, OSError) else translated(error, what, where)


def _driver(version: int) -> str:
    return "zarr3" if version == 3 else "zarr"


def _kvstore(place: Place) -> Any:
    if place.path is not None:
        # TensorStore takes no `..`, which means what links say.
        return {"driver": "file", "path": f"{place.path.resolve()}/"}
    return f"{place.address}/"
