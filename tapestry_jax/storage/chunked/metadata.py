"""What the metadata of a Zarr array says, read with bounds: the version, the names of axes, and our mark."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from combinators.errors import FormatError, message
from combinators.frozen import dataclass
from tapestry_jax.storage.boxes import check_names
from tapestry_jax.storage.chunked.futures import WAIT, translated
from tapestry_jax.storage.chunked.named import Named, named_of
from tapestry_jax.storage.chunked.plain import Plain, plain_of
from tapestry_jax.storage.errors import StorageError
from tapestry_jax.storage.protocols import Names

FILES = ("zarr.json", ".zarray", ".zattrs")
"""The files that metadata lie in, of both versions."""
MARK = "tapestry_jax"
"""The attribute of what is made here: every chunk is stored, also one of zeros, so that a missing one is a lost one."""
_MOST_BYTES = 2**20
_BYTES_OF_CHUNK = 16 * 2**20
_AXES_OF_XARRAY = "_ARRAY_DIMENSIONS"


@dataclass(frozen=True)
class Metadata:
    """What is read beside the array.

    Attributes:
      version: 2 or 3.
      names: of the axes, or None.
      is_complete: whether a missing chunk is a lost one.
      checksum: of the metadata's bytes.
      plain: how chunks are called whose files hold their cells as they are; None where they have to be decoded.
      named: how the files of chunks are called; None where that is not known.
    """

    version: int
    names: Names | None
    is_complete: bool
    checksum: str
    plain: Plain | None = None
    named: Named | None = None


def read_metadata(kvstore: Any, where: str) -> Metadata:
    """Read what lies beside the chunks.

    Raises:
      StorageError: where no array is there.
      FormatError: for metadata that cannot be read.
    """
    texts = {name: _text(kvstore, name, where) for name in FILES}
    checksum = checksum_of(texts)
    if texts["zarr.json"] is not None:
        said = _parsed(texts["zarr.json"], where)
        if said.get("node_type") != "array":
            remedy = 'Name an array in it: tp.open("x.zarr", "name").'
            raise FormatError(message(f"`{where}` is a Zarr group, not an array", remedy=remedy))
        names, marks, version = said.get("dimension_names"), said.get("attributes"), 3
    elif texts[".zarray"] is not None:
        said = _parsed(texts[".zarray"], where)
        marks = _parsed(texts[".zattrs"], where) if texts[".zattrs"] is not None else {}
        names, version = marks.get(_AXES_OF_XARRAY), 2
    else:
        remedy = "Look at the path; an array in a group is named: tp.open(path, name)."
        raise StorageError(message(f"no Zarr array lies at `{where}`", remedy=remedy))
    shape = said.get("shape")
    rank = len(shape) if isinstance(shape, list) else 0
    mark = marks.get(MARK) if isinstance(marks, dict) else None
    is_complete = isinstance(mark, dict) and mark.get("complete") is True
    kept, plain, named = check_names(names, rank, f"`{where}`"), plain_of(version, said), named_of(version, said)
    return Metadata(version, kept, is_complete, checksum, plain, named)


def checksum_of(texts: Mapping[str, bytes | None]) -> str:
    """What tells metadata from other metadata: of their files, by name; None for one that is not there."""
    return hashlib.sha256(b"\0".join(texts.get(name) or b"" for name in FILES)).hexdigest()


def spec_of(
    version: int, shape: Sequence[int], dtype: np.dtype[Any], names: Names | None, chunks: Sequence[int]
) -> Any:
    """What TensorStore makes an array from, without its place."""
    marks: dict[str, Any] = {MARK: {"complete": True}}
    if version == 2:
        return {"metadata": {"shape": [*shape], "chunks": [*chunks], "compressor": None}, "dtype": dtype.name}
    metadata: dict[str, Any] = {
        "shape": [*shape],
        "data_type": dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [*chunks]}},
        # Uncompressed, so that reading costs what the disk costs, and checksummed.
        "codecs": [_bytes_codec(dtype), {"name": "crc32c"}],
        "fill_value": False if dtype == np.bool_ else [0.0, 0.0] if dtype.kind == "c" else 0,
        "attributes": marks,
    }
    return {"metadata": metadata | ({"dimension_names": [*names]} if names else {})}


def attributes_2(names: Names | None) -> bytes:
    """The file `.zattrs` of version 2, in which xarray looks for names."""
    named = {_AXES_OF_XARRAY: full_names(names)} if names else {}
    return json.dumps({MARK: {"complete": True}, **named}).encode()


def full_names(names: Names) -> Names:
    """Names as version 2 stores them, where every axis has one."""
    return tuple(name or f"dim_{axis}" for axis, name in enumerate(names))


def default_chunks(shape: Sequence[int], dtype: np.dtype[Any]) -> tuple[int, ...]:
    """Chunks of 16 MiB at most: whole in the last axes, cut along the first ones."""
    chunks = [max(1, size) for size in shape]
    for axis in range(len(chunks)):
        rest = dtype.itemsize * math.prod(chunks[axis + 1 :])
        chunks[axis] = max(1, min(chunks[axis], _BYTES_OF_CHUNK // rest))
    return tuple(chunks)


def _bytes_codec(dtype: np.dtype[Any]) -> dict[str, Any]:
    return {"name": "bytes"} | ({"configuration": {"endian": "little"}} if dtype.itemsize > 1 else {})


def _text(kvstore: Any, name: str, where: str) -> bytes | None:
    try:
        found = kvstore.read(name).result(timeout=WAIT)
    except (ValueError, OSError, TimeoutError) as error:
        raise translated(error, "read metadata", where) from error
    if found.state != "value":
        return None
    if len(found.value) > _MOST_BYTES:
        details = (f"expected at most {_MOST_BYTES} bytes", f"got {len(found.value)}")
        raise FormatError(message(f"the metadata of `{where}` is too long", *details, remedy="Look at what it is."))
    return bytes(found.value)


def _parsed(text: bytes, where: str) -> dict[str, Any]:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        details = ("expected one JSON object", f"got {text[:80]!r}")
        remedy = "Take a copy that is intact, or write it again."
        raise FormatError(message(f"the metadata of `{where}` is damaged", *details, remedy=remedy))
    return said
