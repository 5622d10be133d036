"""Where the cells of a column lie in a file of Arrow: what is not compressed is read there, and nothing is decoded.

Its library reads a record batch as a whole, of which a batch may be all that there is. What a batch is and where its
buffers lie is said by metadata of some hundred bytes each; they are read here, and the cells as those of `.npy`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

from combinators.errors import FormatError
from combinators.frozen import dataclass
from tapestry_jax.storage.files.ranges import Ranges
from tapestry_jax.storage.tables.arrow_arrays import pyarrow
from tapestry_jax.storage.tables.flat import Flat, NotKnown

_MAGIC = b"ARROW1"
_RECORD_BATCH = 3
_BLOCK, _PAIR = "qi4xq", "qq"
_MOST_METADATA = 2**26


@dataclass(frozen=True)
class Batch:
    """A record batch, of one of whose columns this tells.

    Attributes:
      rows: how many.
      offset: of the first cell of the column in the file; None where cells are compressed, missing or laid oddly.
      stored: bytes of the column, as they lie there.
    """

    rows: int
    offset: int | None
    stored: int


def batches_of(source: Ranges, schema: Any, number: int, cell: Sequence[int], bits: int) -> list[Batch] | None:
    """The record batches of a file.

    Args:
      source: the file.
      schema: of all columns, as pyarrow has it.
      number: of the column.
      cell: the shape of a row of it.
      bits: of a number.

    Returns:
      None where their metadata are not understood: its library reads it then, or says what is wrong.
    """
    try:
        footer = Flat(_footer(source))
        described = footer.table(1)
        if described is None or described.number(0, "h") != (sys.byteorder != "little"):
            return None
        before = [_counts(schema.field(index).type) for index in range(number)]
        first, own = tuple(map(sum, zip((0, 0), *before, strict=True))), _counts(schema.field(number).type)
        blocks = footer.structs(3, _BLOCK)
        return [
            _batch(source, block, (first[0], first[1]), own, math.prod(cell) * bits, math.prod(cell))
            for block in blocks
        ]
    except (NotKnown, FormatError):
        return None


def _batch(
    source: Ranges, block: tuple[int, int, int], first: tuple[int, int], own: tuple[int, int], bits: int, cells: int
) -> Batch:
    begin, head, body = block
    if head <= 8 or head > _MOST_METADATA or begin < 0 or body < 0 or begin + head + body > source.size:
        raise NotKnown
    data = _bytes(source, begin, head)
    # The newer way has a mark in front of the length.
    message = Flat(data[8 if data[:4] == b"\xff" * 4 else 4 :])
    batch = message.table(2)
    if batch is None or message.number(1, "B") != _RECORD_BATCH:
        raise NotKnown
    rows, nodes, buffers = batch.number(0, "q"), batch.structs(1, _PAIR), batch.structs(2, _PAIR)
    ours, held = nodes[first[0] : first[0] + own[0]], buffers[first[1] : first[1] + own[1]]
    if rows < 0 or len(ours) != own[0] or len(held) != own[1]:
        raise NotKnown
    offset, length = held[-1]
    is_plain = batch.table(3) is None and not any(missing for _, missing in ours)
    is_plain &= [size for size, _ in ours] == [rows, rows * cells][: own[0]] and 8 * length >= rows * bits
    is_plain &= 0 <= offset <= body - length
    return Batch(rows, begin + head + offset if is_plain else None, sum(max(0, size) for _, size in held))


def _counts(kind: Any) -> tuple[int, int]:
    """How many nodes and buffers a column of a type has.

    Raises:
      NotKnown: for types that have them in other ways in other versions.
    """
    types = pyarrow().types
    if isinstance(kind, pyarrow().BaseExtensionType):
        return _counts(kind.storage_type)
    if types.is_fixed_size_list(kind) or types.is_struct(kind):
        inner = [_counts(kind.field(index).type) for index in range(kind.num_fields)]
        return 1 + sum(nodes for nodes, _ in inner), 1 + sum(buffers for _, buffers in inner)
    if types.is_list(kind) or types.is_large_list(kind):
        nodes, buffers = _counts(kind.value_type)
        return 1 + nodes, 2 + buffers
    if types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind) or types.is_large_binary(kind):
        return 1, 3
    if types.is_null(kind):
        return 1, 0
    if types.is_primitive(kind) or types.is_fixed_size_binary(kind) or types.is_decimal(kind):
        return 1, 2
    raise NotKnown


def _footer(source: Ranges) -> bytes:
    tail = _bytes(source, source.size - 10, 10) if source.size > 10 else b""
    size = int.from_bytes(tail[:4], "little", signed=True)
    if tail[4:] != _MAGIC or not 0 < size <= min(_MOST_METADATA, source.size - 10):
        raise NotKnown
    return _bytes(source, source.size - 10 - size, size)


def _bytes(source: Ranges, begin: int, length: int) -> bytes:
    found = bytearray(length)
    source.read(begin, memoryview(found))
    return bytes(found)
