"""A tensor of a fabric that is still being written, box by box: it gets its name when it is finished."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from combinators.errors import message
from combinators.frozen import dataclass
from combinators.index_space.tensor_type import TensorType
from tapestry_jax.fabric.catalogue import reads, writes
from tapestry_jax.fabric.drafts import check_free, discard, kind_of, sync, told
from tapestry_jax.fabric.errors import FabricError
from tapestry_jax.fabric.opened import Opened
from tapestry_jax.fabric.streams.finished import Finished
from tapestry_jax.fabric.streams.of_version import OfVersion, of_blocks
from tapestry_jax.fabric.streams.sources import FabricSource
from tapestry_jax.fabric.tensors.boxes import Piece, pieces, shape_of, slices
from tapestry_jax.fabric.tensors.records import Block, Kind, Layout, Version
from tapestry_jax.storage.boxes import check_cells
from tapestry_jax.storage.protocols import Array, Beside, Box, Names
from tapestry_jax.storage.unfinished.filled import Filled, read_filled


@dataclass(frozen=True, eq=False)
class FabricCreation:
    """A name in a fabric for a tensor that will be made, once its shape is known.

    Attributes:
      opened: the fabric.
      name: of the tensor.
      layout: how it will lie on the mesh.
      overwrite: whether it takes the place of what is there.
      names: whether a tensor that is finished gets its name; otherwise that is left to who names several at once.
    """

    opened: Opened
    name: str
    layout: Layout
    overwrite: bool
    names: bool = True

    @property
    def where(self) -> str:
        """The place, for people."""
        return f"{self.name} in the fabric {self.opened.where}"

    def __repr__(self) -> str:
        return f"<{self.where}: to be made>"

    @property
    def has_chunks(self) -> bool:
        """Whether it has blocks whose sizes may be chosen: on devices a tensor is one."""
        return not self.opened.blocks.keeps_whole

    def beside(
        self, shape: Sequence[int], chunks: Sequence[int], dtype: np.dtype[Any], sizes: tuple[int, ...]
    ) -> Beside:
        """As `Creates.beside`: a block for each thread."""
        del sizes
        return of_blocks(shape, chunks, dtype)

    def make(self, shape: Any, dtype: Any, names: Names | None = None, chunks: Any = None) -> FabricSink:
        """Begin the tensor; what an earlier attempt has left under its name goes.

        Raises:
          FabricError: for a name that is taken. Whoever was writing it already is told so at the next flush.
        """
        kind = self._kind(shape, dtype, names, chunks)
        opened = self.opened
        with opened.changing():
            check_free(opened, [self.name], self.overwrite, "create")
            number = writes.add_version(opened.catalogue, kind, {})
            # Not a new one: whoever is killed when it has its name knows it by the version alone.
            filled = Filled(kind.type.shape, token=reads.token(opened.catalogue, number))
            writes.set_pending(opened.catalogue, self.name, opened.blocks.session, number, filled.to_json())
        return FabricSink(self, Version(number, kind), filled)

    def again(self, shape: Any, dtype: Any, names: Names | None = None, chunks: Any = None) -> FabricSink | Finished:
        """Go on with what an interrupted `make` of the same arguments has left, with all that was flushed.

        Chunks that are not said are those that it has. Where nothing is left, and the name stands for such a tensor, it
        is that one, which takes no box more but from the job that has made it.

        Raises:
          FabricError: where nothing is left, or something else.
        """
        kind, opened = self._kind(shape, dtype, names, chunks), self.opened
        if (finished := self._finished(kind)) is not None:
            return finished
        with opened.catalogue.writing():
            found = reads.pending(opened.catalogue, self.name)
            if found is not None and chunks is None:
                kind = Kind(kind.type, found[1].kind.chunks, kind.layout)
            if found is None or found[1].kind != kind:
                left = "nothing is left" if found is None else f"left is {found[1].kind.type}"
                remedy = "Begin anew: Creation.make makes it."
                raise FabricError(message(f"{self.name!r} was not begun as {kind.type}", left, remedy=remedy))
            filled = read_filled(reads.filled(opened.catalogue, self.name), kind.type.shape, self.where)
            writes.set_pending(opened.catalogue, self.name, opened.blocks.session, found[1].number, filled.to_json())
        return FabricSink(self, found[1], filled)

    def _finished(self, kind: Kind) -> Finished | None:
        """What the name stands for, where that is of this type and nothing is being written under it."""
        catalogue = self.opened.catalogue
        if not self.names or reads.pending(catalogue, self.name) is not None:
            return None
        if (found := reads.current(catalogue, self.name)) is None or found.kind.type != kind.type:
            return None
        source = FabricSource.pinned(self.opened, self.name)
        return Finished(source, reads.token(catalogue, source.number))

    def _kind(self, shape: Sequence[int], dtype: Any, names: Names | None, chunks: Any) -> Kind:
        type = TensorType.make((None,) * len(shape) if names is None else names, shape, dtype)
        return kind_of(self.opened, type, chunks, self.layout)


class FabricSink(OfVersion):
    """What is written lies in blocks; those that were flushed are named in the catalogue, under no name yet.

    Args:
      creation: where it will lie.
      version: what is being written.
      filled: which cells of it are written, and which of those that were begun under the name it is.
    """

    def __init__(self, creation: FabricCreation, version: Version, filled: Filled) -> None:
        super().__init__(creation.opened, creation.name, version)
        self._creation, self.filled = creation, filled
        self._turn = threading.Lock()
        self._locks: dict[int, threading.Lock] = {}
        self._fresh: dict[int, Block] = {}

    def write(self, box: Box, array: Array) -> Future[None]:
        """Begin to write a box; the same box again overwrites itself.

        Raises:
          FormatError: at once, where the box or the array does not fit.
        """
        box = check_cells(box, array, self, is_target=False)

        def put() -> None:
            kind = self._version.kind
            for piece in pieces(box, kind.type.shape, kind.chunks):
                with self._lock(piece), told(self._creation.name, kind, piece):
                    self._put(piece, array[slices(piece.part, box)])
            self.filled.add(box)

        return self._threads.submit(put)

    def flush(self) -> None:
        """All that was written survives the end of the process, for `FabricCreation.again`."""
        self._threads.drain()
        filled = self.filled.to_json()
        with self._turn:
            fresh, self._fresh = self._fresh, {}
        try:
            known = self._committed(fresh, filled)
        except BaseException:
            # They are on no disk yet: a flush that is tried again has them.
            with self._turn:
                self._fresh = fresh | self._fresh
            raise
        old = [block.file for at, block in known.items() if at in fresh and block.file]
        discard(self._opened, old)

    def _committed(self, fresh: Mapping[int, Block], filled: str) -> Mapping[int, Block]:
        """Name blocks in the catalogue; those that were named before."""
        opened, name, number = self._opened, self._creation.name, self._version.number
        sync(opened, name)
        with opened.catalogue.writing():
            self._check_ours()
            known = reads.blocks(opened.catalogue, number)
            writes.put_blocks(opened.catalogue, number, fresh, known)
            writes.set_pending(opened.catalogue, name, opened.blocks.session, number, filled)
        return known

    def finish(self) -> FabricSource:
        """Flush, and let the name stand for it, in one step. Until then it stands for what it stood for before.

        Raises:
          FabricError: where the name was taken meanwhile.
          StorageError: where cells were never written.
        """
        self.flush()
        self.filled.check(self.where)
        opened, name = self._opened, self._creation.name
        with opened.changing():
            self._check_ours()
            if self._creation.names:
                check_free(opened, [name], self._creation.overwrite, "create")
                writes.drop_pending(opened.catalogue, name)
                writes.name_version(opened.catalogue, name, self._version.number)
            writes.pin(opened.catalogue, opened.blocks.session, [self._version.number])
        self._threads.close()
        return FabricSource(opened, name, self._version)

    def close(self) -> None:
        """Wait for what is under way, unfinished; what was not flushed is written again later."""
        if self._threads.close():
            with self._turn:
                fresh, self._fresh = self._fresh, {}
            discard(self._opened, [block.file for block in fresh.values() if block.file])

    def _put(self, piece: Piece, array: Array) -> None:
        with self._turn:
            base = self._fresh.get(piece.position)
        before = base
        if base is None and not piece.is_all:
            base = self._named(piece)
        kind, blocks = self._version.kind, self._opened.blocks
        if piece.is_all:
            file, checksum = blocks.put(array, kind)
        else:
            parts = [(slices(piece.part, piece.block), array)]
            file, checksum = blocks.updated(base, shape_of(piece.block), kind, parts)
        with self._turn:
            self._fresh[piece.position] = Block(file, checksum, None)
        if before is not None and before.file:
            blocks.remove([before.file])

    def _named(self, piece: Piece) -> Block | None:
        """What the catalogue says of a block; where it has another writer by now, it says nothing of ours."""
        with self._opened.catalogue.reading():
            self._check_ours()
            return reads.block(self._opened.catalogue, self._version.number, piece.position)

    def _lock(self, piece: Piece) -> threading.Lock:
        """Boxes that touch one block take turns."""
        with self._turn:
            return self._locks.setdefault(piece.position, threading.Lock())

    def _check_ours(self) -> None:
        found = reads.pending(self._opened.catalogue, self._creation.name)
        if found is None or found != (self._opened.blocks.session, self._version):
            remedy = "Let one job at a time write a name."
            raise FabricError(message(f"{self._creation.name!r} is being written by somebody else now", remedy=remedy))
