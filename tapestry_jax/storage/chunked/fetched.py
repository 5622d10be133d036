"""Zarr in stores that fsspec reads: the files of chunks are fetched, and TensorStore decodes them in memory.

Every box has a store in memory of its own, with the metadata and the chunks that it touches, so that codecs, shards,
checksums, fill values and errors are those of folders. Of a shard all is fetched.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from combinators.errors import FormatError, message
from tapestry_jax.storage.boxes import slices
from tapestry_jax.storage.chunked.futures import context, tensorstore
from tapestry_jax.storage.chunked.metadata import FILES, Metadata, checksum_of
from tapestry_jax.storage.chunked.zarr import Begin, ZarrStored, open_store
from tapestry_jax.storage.errors import WrittenError
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
            opened, _ = open_store(self._place, _MEMORY, _holding(kept))
            begin(opened[slices(part)], array).result()

        return cost, lambda: self._threads.submit(fetched)

    @cached_property
    def _named(self) -> _Named:
        return _named(self._texts, self._metadata.version, self.where)

    def fingerprint(self) -> str:
        """Of its metadata, and what the store says of every file: size, and version, `ETag`, checksum or times.

        Raises:
          WrittenError: where the metadata are not those that it was opened by.
        """
        if checksum_of({name: self._files.content(name) for name in FILES}) != self._metadata.checksum:
            raise WrittenError(self.where)
        told = hashlib.sha256("\n".join(self._files.told()).encode()).hexdigest()
        return f"zarr{self._metadata.version}:{self._metadata.checksum}:{told}"


class _Named:
    """How the files of chunks are called."""

    def __init__(self, prefix: str, separator: str, whole: str) -> None:
        self._prefix, self._separator, self._whole = prefix, separator, whole

    def of(self, box: Box, chunks: Sequence[int]) -> Iterator[str]:
        """The files of the chunks that a box touches."""
        pairs = zip(box, chunks, strict=True)
        indices = [range(start // size, -(-stop // size)) for (start, stop), size in pairs]
        for index in itertools.product(*indices):
            yield self._prefix + self._separator.join(map(str, index)) if index else self._whole


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


def _named(texts: Mapping[str, bytes], version: int, where: str) -> _Named:
    """What the metadata says, which TensorStore has read without an error."""
    if version == 2:
        return _Named("", json.loads(texts[".zarray"]).get("dimension_separator", "."), "0")
    said = json.loads(texts["zarr.json"]).get("chunk_key_encoding")
    name, given = (said, {}) if isinstance(said, str) else (said.get("name"), said.get("configuration") or {})
    if name == "default":
        separator = given.get("separator", "/")
        return _Named(f"c{separator}", separator, "c")
    if name == "v2":
        return _Named("", given.get("separator", "."), "0")
    remedy, told = "Fetch it first, and open the folder.", f"got {name!r:.80}"
    raise FormatError(message(f"the chunks of `{where}` are named in a way that is not known", told, remedy=remedy))
