"""Files safetensors: a header of JSON, read with bounds as data, then the cells of every tensor, in C order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from combinators.arguments import is_whole
from combinators.errors import FormatError, message, spelt
from combinators.stored.json import shown
from tapestry_jax.storage.boxes import check_names, check_shape, count
from tapestry_jax.storage.dtypes import ALL, as_bytes, read_dtype
from tapestry_jax.storage.files.laid_out import Laid, LaidOut, LaidOutSink, again_file, make_file
from tapestry_jax.storage.files.pieces import pieces
from tapestry_jax.storage.files.ranges import LocalFile, Ranges, cut_short
from tapestry_jax.storage.files.strided import Layout
from tapestry_jax.storage.protocols import Names, Stored
from tapestry_jax.storage.several import choose, named

CODES: Mapping[str, str] = {
    "bool": "BOOL",
    **{f"{kind}{bits}": f"{code}{bits}" for kind, code in (("int", "I"), ("uint", "U")) for bits in (8, 16, 32, 64)},
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "bfloat16": "BF16",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
}
"""What the format calls our dtypes."""
_KNOWN = {name: ALL[name] for name in CODES}
_DTYPES = {code: ALL[name] for name, code in CODES.items()}
_MOST_BYTES = 100_000_000
_REMEDY = "Write it again, or take a copy that is intact."
_NAMES = "axes"


def open_safetensors(source: Ranges, tensor: str | None = None, names: Names | None = None) -> LaidOut:
    """Open a tensor of a file; the bytes are let go where that cannot be.

    Raises:
      FormatError: for a header that cannot be so, or a name that the file does not have.
    """
    try:
        tensors = read_tensors(source)
        name = choose(tensors, tensor, source.where)
        laid = tensors[name]
        given_names = check_names(names, len(laid.shape), f"`{source.where}`")
    except FormatError:
        source.close()
        raise
    kept = laid.names if given_names is None else given_names
    laid = Laid(laid.shape, laid.dtype, laid.layout, kept)
    found = LaidOut(source, laid, f"{source.where}, `{name}`", _header_size(source))
    return named(found, name)


def read_tensors(source: Ranges) -> dict[str, Laid]:
    """What a file holds, by name; nothing is made room for before all sizes fit the file.

    Raises:
      FormatError: for a header that cannot be so.
    """
    begins = _header_size(source)
    text = bytearray(begins - 8)
    source.read(8, memoryview(text))
    try:
        said = json.loads(bytes(text), object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as error:
        raise _refused(source, "cannot be read", str(error)[:120]) from error
    if not isinstance(said, dict):
        raise _refused(source, "is no object", f"{spelt(said)}")
    about = said.pop("__metadata__", {})
    found = {name: _laid(source, name, entry, begins, about) for name, entry in said.items()}
    _check_places(source, found, begins)
    return found


def make_safetensors(
    path: Path, shape: tuple[int, ...], dtype: Any, names: Names | None, *, overwrite: bool
) -> LaidOutSink:
    """As `make_file`, of one tensor that is called like the file; a dtype that the format does not hold is refused."""
    head, laid = _planned(path, shape, dtype, names)
    return make_file(path, head, laid, _open, overwrite=overwrite)


def again_safetensors(
    path: Path, shape: tuple[int, ...], dtype: Any, names: Names | None, *, overwrite: bool
) -> LaidOutSink:
    """As `again_file`."""
    head, laid = _planned(path, shape, dtype, names)
    return again_file(path, head, laid, _open, overwrite=overwrite)


def write_safetensors(path: Path, tensors: Mapping[str, Stored]) -> None:
    """Write tensors one after the other.

    Raises:
      FormatError: for a dtype that the format does not hold.
    """
    head = header({name: (each.shape, each.dtype, each.names) for name, each in tensors.items()})
    with path.open("xb") as file:
        file.write(head)
        for tensor in tensors.values():
            for piece in pieces(tensor):
                file.write(as_bytes(piece))


def _planned(path: Path, shape: tuple[int, ...], dtype: Any, names: Names | None) -> tuple[bytes, Laid]:
    dtype = read_dtype(dtype, _KNOWN, "a file safetensors")
    head = header({path.name.partition(".")[0]: (shape, dtype, names)})
    return head, Laid(shape, dtype, Layout.of(len(head), shape, dtype), names)


def header(tensors: Mapping[str, tuple[tuple[int, ...], np.dtype[Any], Names | None]]) -> bytes:
    """The header of tensors that follow each other in this order; names of axes stand in its metadata.

    Raises:
      FormatError: for a dtype that the format does not hold.
    """
    said: dict[str, Any] = {}
    axes = {name: names for name, (_, _, names) in tensors.items() if names}
    if axes:
        said["__metadata__"] = {_NAMES: json.dumps(axes)}
    end = 0
    for name, (shape, dtype, _) in tensors.items():
        begin, end = end, end + count(shape) * dtype.itemsize
        code = CODES[read_dtype(dtype, _KNOWN, "a file safetensors").name]
        said[name] = {"dtype": code, "shape": [*shape], "data_offsets": [begin, end]}
    text = json.dumps(said).encode()
    text += b" " * (-(len(text) + 8) % 64)  # so that cells are aligned
    return len(text).to_bytes(8, "little") + text


def _open(path: Path) -> LaidOut:
    return open_safetensors(LocalFile(path))


def _header_size(source: Ranges) -> int:
    """Where the cells begin."""
    if source.size < 8:
        raise cut_short(source.where, 8, source.size)
    width = bytearray(8)
    source.read(0, memoryview(width))
    length = int.from_bytes(width, "little")
    if length > _MOST_BYTES:
        raise _refused(source, f"is longer than {_MOST_BYTES} bytes", f"{length}")
    if 8 + length > source.size:
        raise cut_short(source.where, 8 + length, source.size)
    return 8 + length


def _laid(source: Ranges, name: str, entry: Any, begins: int, about: Any) -> Laid:
    is_entry = isinstance(entry, dict) and entry.keys() == {"dtype", "shape", "data_offsets"}
    places = entry["data_offsets"] if is_entry else None
    if not (isinstance(places, list) and len(places) == 2 and all(is_whole(place) for place in places)):
        raise _refused(source, f"has no dtype, shape and data_offsets of `{shown(name[:80])}`", f"{spelt(entry, 120)}")
    dtype = _DTYPES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    if dtype is None:
        raise _refused(source, f"has a dtype of `{shown(name[:80])}` that is not read", f"{entry['dtype']!r:.40}")
    shape = check_shape(entry["shape"], dtype, f"`{shown(name[:80])}` of `{source.where}`")
    begin, end = places
    if not 0 <= begin <= end or end - begin != count(shape) * dtype.itemsize:
        told = f"places {places} for {dtype.name} {shape}"
        raise _refused(source, f"places `{shown(name[:80])}` where it does not fit", told)
    if begins + end > source.size:
        raise cut_short(source.where, begins + end, source.size)
    return Laid(shape, dtype, Layout.of(begins + begin, shape, dtype), _names(about, name, len(shape)))


def _names(about: Any, name: str, rank: int) -> Names | None:
    """Names that we wrote; what others mean by metadata is theirs."""
    try:
        named = json.loads(about[_NAMES]).get(name)
        return check_names(named, rank, name)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, FormatError):
        return None


def _check_places(source: Ranges, tensors: Mapping[str, Laid], begins: int) -> None:
    """Tensors follow each other without a hole to the end, as the format asks: no two share a byte."""
    end = begins
    for laid in sorted(tensors.values(), key=lambda laid: (laid.layout.offset, count(laid.shape))):
        if laid.layout.offset != end:
            raise _refused(source, f"leaves a hole, or lets tensors overlap, at byte {end}", f"{laid.layout.offset}")
        end += count(laid.shape) * laid.dtype.itemsize
    if end != source.size:
        raise _refused(source, f"ends its tensors at byte {end}", f"a file of {source.size} bytes")


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def _refused(source: Ranges, what: str, got: str) -> FormatError:
    return FormatError(message(f"the header of `{source.where}` {what}", f"got {got}", remedy=_REMEDY))
