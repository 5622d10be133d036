"""Zarr in stores that fsspec reads: the files of chunks are fetched, and TensorStore decodes them in memory.

Every box has a store in memory of its own, with the metadata and the chunks that it touches, so that codecs, shards,
checksums, fill values and errors are those of folders. Of a shard all is fetched.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from typing import Any

from combinators.errors import FormatError, message
from tapestry_jax.storage.boxes import slices
from tapestry_jax.storage.chunked.futures import context, tensorstore
from tapestry_jax.storage.chunked.metadata import FILES, Metadata, checksum_of
from tapestry_jax.storage.chunked.named import FilesThen, Named
from tapestry_jax.storage.chunked.zarr import Begin, ZarrStored, open_store
from tapestry_jax.storage.errors import StorageError, WrittenError
from tapestry_jax.storage.files.objects import Folder
from tapestry_jax.storage.places import Place
from tapestry_jax.storage.protocols import Array, Box, Names

_MEMORY = {"driver": "memory", "path": "x/"}


class ZarrFetched(ZarrStored):
    """A `Stored` of a Zarr array behind fsspec."""

    def __init__(
        self,
        opened: tuple[Any, Metadata],
        names: Names | None,
        place: Place,
        folder: Folder,
        texts: Mapping[str, bytes],
    ) -> None:
        store, metadata = opened
        super().__init__(store, metadata, names, place)
        self._files, self._texts = folder, texts
        if not metadata.is_complete:
            # A store may let nobody list what it holds.
            with contextlib.suppress(StorageError):
                self._then = FilesThen(folder.names(), self.where)
        # What is fetched at once is what is written at once: a shard.
        written = tuple(store.chunk_layout.write_chunk.shape or ())
        self._check_chunks(written)
        self._stored_chunks = tuple(max(1, size) for size in written)
        self.chunks = tuple(max(1, min(size, own)) for size, own in zip(written, self.shape, strict=True))

    def _part(self, store: Any, begin: Begin, part: Box, cost: int, array: Array) -> tuple[int, Any]:
        del store

        def fetched() -> None:
            kept = dict(self._texts)
            for name in self._named.of(part, self._stored_chunks):
                if (content := self._files.content(name)) is not None:
                    kept[name] = content
                elif self._then is not None and any(self._then.known([name])):
                    raise self._then.gone(name)
            opened, _ = open_store(self._place, _MEMORY, _holding(kept))
            begin(opened[slices(part)], array).result()

        return cost, lambda: self._threads.submit(fetched)

    @property
    def _named(self) -> Named:
        if self._metadata.named is None:
            headline = f"the chunks of `{self.where}` are named in a way that is not known"
            raise FormatError(message(headline, remedy="Fetch it first, and open the folder."))
        return self._metadata.named

    def fingerprint(self) -> str:
        """Of its metadata, and what the store says of every file: size, and version, `ETag`, checksum or times.

        Raises:
          WrittenError: where the metadata are not those that it was opened by.
        """
        if checksum_of({name: self._files.content(name) for name in FILES}) != self._metadata.checksum:
            raise WrittenError(self.where)
        told = hashlib.sha256("\n".join(self._files.told()).encode()).hexdigest()
        return f"zarr{self._metadata.version}:{self._metadata.checksum}:{told}"


def open_fetched(place: Place, names: Names | None = None) -> ZarrFetched:
    """Open an array in a store that fsspec reads.

    Raises:
      StorageError: where there is none, or no answer.
      FormatError: for metadata or a dtype that cannot be read.
    """
    folder = Folder(place)
    found = {name: folder.content(name) for name in FILES}
    texts = {name: text for name, text in found.items() if text is not None}
    return ZarrFetched(open_store(place, _MEMORY, _holding(texts)), names, place, folder, texts)


def _holding(files: Mapping[str, bytes]) -> Any:
    """A context whose memory holds some files."""
    ours = context()
    memory = tensorstore().KvStore.open(_MEMORY, context=ours).result()
    for name, content in files.items():
        memory.write(name, content).result()
    return ours
