"""A frozen job as bytes: sixteen that say what it is, the length of a header, the header in JSON, the arrays.

The bytes may come from anywhere: they are data. Nothing in them is unpickled, looked up or called, and nothing is
allocated that the file is not long enough for.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any, cast

import ml_dtypes  # which jax needs as well; importing it gives NumPy these dtypes
import numpy as np

from combinators.errors import FormatError, message
from combinators.stored.json import (
    boolean,
    check_storable,
    checksum,
    entries,
    integer,
    listed,
    malformed,
    read_json,
    text_of,
)
from tapestry_jax.streaming.frozen.state import Frozen, Position

_MAGIC = b"tapestry-frozen\n"
_VERSION = 1
_LENGTH = struct.Struct("<Q")
_LONGEST_HEADER = 32 * 2**20  # bytes, as of all texts
_MOST_AXES = 64  # as many as NumPy has
REMEDY = "Remove it to go on from the state before it; without one the job begins anew."
_KEYS = ("version", "job", "sources", "sinks", "position", "arrays", "content", "checksum")

_ALIGNED = 16  # bytes: each array begins at a multiple, so that what is read is used where it lies

_OF_NUMPY = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128"
_OF_JAX = (
    "bfloat16 float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz "
    "float8_e8m0fnu float4_e2m1fn int2 int4 uint2 uint4"
)
_DTYPES: dict[str, np.dtype[Any]] = {
    **{name: np.dtype(name) for name in _OF_NUMPY.split()},
    **{name: np.dtype(getattr(ml_dtypes, name)) for name in _OF_JAX.split() if hasattr(ml_dtypes, name)},
}


class OtherVersionError(FormatError):
    """A state that another version of this library wrote."""


def encode(frozen: Frozen) -> list[bytes | memoryview]:
    """The bytes of a state, in parts that are written one after the other; those of arrays are not copied.

    Raises:
      FormatError: for an array of a dtype that JAX does not have, a name that is not printable, or a header that is
        too long to be read again.
    """
    arrays = {name: _plain(name, array) for name, array in frozen.arrays.items()}
    bodies = [part for array in arrays.values() for part in _body(array)]
    content = hashlib.sha256()
    for body in bodies:
        content.update(body)
    header: dict[str, Any] = {
        "version": _VERSION,
        "job": dict(frozen.job),
        "sources": dict(frozen.sources),
        "sinks": dict(frozen.sinks),
        "position": [frozen.position.step, frozen.position.cells, frozen.position.finished],
        "arrays": [[name, array.dtype.name, list(array.shape)] for name, array in arrays.items()],
        "content": content.hexdigest(),
    }
    names = {part: list(header[part]) for part in ("job", "sources", "sinks")}
    check_storable({**names, "arrays": header["arrays"]}, "the state of the job", FormatError)
    text = json.dumps({**header, "checksum": checksum(header)}).encode()
    text += b" " * (-(len(_MAGIC) + _LENGTH.size + len(text)) % _ALIGNED)
    if len(text) > _LONGEST_HEADER:
        told = f"its header has {len(text)} bytes, at most {_LONGEST_HEADER}"
        raise FormatError(message("the state of the job is too large to be kept.", told, remedy="Name fewer tensors."))
    return [_MAGIC, _LENGTH.pack(len(text)), text, *bodies]


def decode(data: bytearray, where: str) -> Frozen:
    """The state that bytes hold. Its arrays are views of them.

    Args:
      data: all of a file.
      where: its name, as errors call it.

    Raises:
      FormatError: for bytes that `encode` did not write, that were cut or changed since, or of another version.
    """
    begin = len(_MAGIC) + _LENGTH.size
    if len(data) < begin or not data.startswith(_MAGIC):
        raise _damaged(where, "it does not begin as the state of a job does", f"got {bytes(data[:16])!r}")
    (length,) = _LENGTH.unpack_from(data, len(_MAGIC))
    if length > min(_LONGEST_HEADER, len(data) - begin):
        raise _damaged(where, f"its header of {length} bytes ends after the file, which has {len(data)}: truncated?")
    header = _header(bytes(data[begin : begin + length]), where)
    sums = header.pop("checksum")
    if sums != checksum(header):
        raise _damaged(where, "its header does not have its checksum: it was damaged or edited")
    body = memoryview(data)[begin + length :]
    arrays = dict(_arrays(listed(header["arrays"], f"{where}, arrays"), body, where))
    if hashlib.sha256(body).hexdigest() != header["content"]:
        raise _damaged(where, "its arrays do not have their checksum: they were damaged or edited")
    job, sources, sinks = (_texts(header[part], f"{where}, {part}") for part in ("job", "sources", "sinks"))
    return Frozen(job, sources, sinks, _position(header["position"], f"{where}, position"), arrays)


def _header(text: bytes, where: str) -> dict[str, Any]:
    try:
        stored = read_json(text.decode(), f"the header of {where}", REMEDY, any_text=True)
    except UnicodeDecodeError as error:
        raise _damaged(where, "its header is no text") from error
    version = cast("dict[str, Any]", stored).get("version") if isinstance(stored, dict) else None
    if type(version) is int and version != _VERSION:
        raise OtherVersionError(
            message(
                f"{where} was written by another version of this library.",
                f"expected format {_VERSION}",
                f"got format {version}",
                remedy="Finish the job with the version that began it, or name another folder to begin anew.",
            )
        )
    found = entries(stored, _KEYS, where)
    if type(version) is not int:
        raise malformed(f"{where}, version", str(_VERSION), version)
    return found


def _arrays(rows: list[Any], body: memoryview, where: str) -> Iterator[tuple[str, np.ndarray]]:
    at, seen = 0, set[str]()
    for number, row in enumerate(rows):
        place = f"{where}, array {number}"
        name, kind, sizes = _row(row, place)
        if name in seen:
            raise malformed(place, "each name once", name)
        seen.add(name)
        if kind not in _DTYPES:
            raise malformed(place, "a dtype of JAX", kind)
        shape = tuple(integer(size, place) for size in listed(sizes, place))
        if len(shape) > _MOST_AXES or any(size >= 2**31 for size in shape):
            raise malformed(place, f"at most {_MOST_AXES} sizes below 2**31", sizes)
        # Multiplied as Python integers: no product can overflow into one that fits.
        length = math.prod(shape) * _DTYPES[kind].itemsize
        if at + length > len(body):
            raise _damaged(where, f"array {number} {kind}{list(shape)!r:.80} ends after the file: truncated?")
        part = np.frombuffer(body[at : at + length], np.uint8)
        if kind == "bool" and length and part.max() > 1:
            raise _damaged(where, f"array {number} is of booleans, and holds others")
        yield name, part.view(_DTYPES[kind]).reshape(shape)
        at = min(at + length + -length % _ALIGNED, len(body))
    if at != len(body):
        raise _damaged(where, f"its arrays take {at} bytes, and {len(body)} follow its header")


def _row(row: Any, place: str) -> tuple[str, str, Any]:
    parts = listed(row, place)
    if len(parts) != 3:
        raise malformed(place, "a name, a dtype and a shape", row)
    return text_of(parts[0], place), text_of(parts[1], place), parts[2]


def _position(stored: Any, place: str) -> Position:
    parts = listed(stored, place)
    if len(parts) != 3:
        raise malformed(place, "a step, a count of cells and whether all is done", stored)
    return Position(integer(parts[0], place), integer(parts[1], place), boolean(parts[2], place))


def _texts(stored: Any, place: str) -> Mapping[str, str]:
    if not isinstance(stored, dict):
        raise malformed(place, "texts by name", stored)
    texts = cast("dict[str, Any]", stored)
    if not all(isinstance(text, str) for text in texts.values()):
        raise malformed(place, "texts by name", stored)
    # What they say is another matter: a path may hold anything, and is shown as `repr` has it.
    return {text_of(name, f"{place}, a name"): text for name, text in texts.items()}


def _body(array: np.ndarray) -> Iterator[memoryview]:
    yield array.reshape(-1).view(np.uint8).data
    if spare := -array.nbytes % _ALIGNED:
        yield memoryview(bytes(spare))


def _plain(name: str, array: np.ndarray) -> np.ndarray:
    """The array in C order and in the byte order of files, which is that of every machine that JAX runs on."""
    plain = np.asarray(array)
    plain = np.ascontiguousarray(plain, plain.dtype.newbyteorder("<")).reshape(plain.shape)
    if plain.dtype.name not in _DTYPES or plain.dtype != _DTYPES[plain.dtype.name]:
        told = f"{name!r} is of dtype {plain.dtype}"
        raise FormatError(message("the state of a job holds numbers alone.", told, remedy="Carry it as numbers."))
    return plain


def _damaged(where: str, *details: str) -> FormatError:
    return FormatError(message(f"{where} is no whole state of a job.", *details, remedy=REMEDY))
