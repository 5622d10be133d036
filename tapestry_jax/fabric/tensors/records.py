"""What the catalogue says of tensors, as values: read from rows that anybody may have edited, and checked."""

from __future__ import annotations

import json
from typing import Any, cast

from combinators.errors import FormatError, GraphError, message, spelt
from combinators.frozen import dataclass
from combinators.index_space.tensor_type import TensorType
from combinators.stored.json import read_json, text_of

Layout = tuple[tuple[str, tuple[str, ...]], ...]
"""Dimension and the mesh axes that cut it, outermost first."""
Made = tuple[tuple[int, int], ...] | None
"""How a block came to be: operations and the number of their output, in order; None where nobody can tell."""
_MOST_AXES = 64
_MOST_TEXT = 2**20


@dataclass(frozen=True)
class Kind:
    """What a tensor is, whatever it holds.

    Attributes:
      type: names, sizes and dtype.
      chunks: the sizes of its blocks.
      layout: how it lies on a mesh.
    """

    type: TensorType
    chunks: tuple[int, ...]
    layout: Layout = ()


@dataclass(frozen=True)
class Version:
    """A tensor as it was at one time: nothing of it changes any more.

    Attributes:
      number: in the catalogue; later versions have larger ones.
      kind: what it is.
    """

    number: int
    kind: Kind


@dataclass(frozen=True)
class Block:
    """Where a block of a version lies.

    Attributes:
      file: its name in the store; None where it was dropped, and can only be computed again.
      checksum: of its bytes; empty in memory.
      made: how it came to be.
    """

    file: str | None
    checksum: str
    made: Made


@dataclass(frozen=True)
class Operation:
    """What made blocks.

    Attributes:
      number: in the catalogue.
      kind: `apply`, `load` or `copy`.
      detail: what of it JSON holds.
      graph: the key of its graph; None where it has none.
      inputs: the versions that it read.
    """

    number: int
    kind: str
    detail: dict[str, Any]
    graph: str | None
    inputs: tuple[int, ...]


def kind_to_row(kind: Kind) -> tuple[str, str, str, str]:
    """Dtype, dimensions, chunks and layout as text."""
    dims = [[name, size] for name, size in zip(kind.type.names, kind.type.shape, strict=True)]
    return kind.type.dtype.name, json.dumps(dims), json.dumps(kind.chunks), json.dumps(kind.layout)


def kind_from_row(dtype: Any, dims: Any, chunks: Any, layout: Any) -> Kind:
    """The way back.

    Raises:
      FormatError: when the row says no kind.
    """
    try:
        sizes = [(name, size) for name, size in _listed(dims)]
        kind = TensorType(sizes, text_from_row(dtype))
        cut = tuple(_listed(chunks))
        places = tuple((str(name), tuple(map(str, axes))) for name, axes in _listed(layout))
    except (TypeError, ValueError, GraphError) as error:
        raise damaged("a tensor has no type that can be read", f"{spelt(dtype, 40)}, {spelt(dims)}") from error
    whole = all(type(chunk) is int and 0 < chunk < 2**63 for chunk in cut)
    if not whole or len(cut) != kind.ndim or any(size >= 2**63 for size in kind.shape):
        raise damaged("the blocks of a tensor have no sizes that can be read", f"{spelt(chunks)} for {kind}")
    return Kind(kind, cut, places)


def made_to_row(made: Made) -> str | None:
    """How a block was made, as text."""
    return None if made is None else json.dumps(made)


def made_from_row(text: Any) -> Made:
    """The way back.

    Raises:
      FormatError: when the text says no operations.
    """
    if text is None:
        return None
    try:
        found = [(operation, output) for operation, output in _listed(text, 2**16)]
    except (TypeError, ValueError) as error:
        raise damaged("how a block was made cannot be read", f"{spelt(text)}") from error
    return tuple((number_from_row(operation), number_from_row(output)) for operation, output in found)


def number_from_row(value: Any) -> int:
    """A whole number that SQLite can hold: its columns take what is put in, of any type.

    Raises:
      FormatError: for anything else.
    """
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise damaged("a number cannot be read", f"{spelt(value)}")
    return value


def text_from_row(value: Any) -> str:
    """A name, or another text that is shown: it can be printed.

    Raises:
      FormatError: for anything else.
    """
    try:
        return text_of(value, "the row")
    except FormatError as error:
        raise damaged("a text cannot be read", f"{spelt(value)}") from error


def _listed(text: Any, most: int = _MOST_AXES) -> list[Any]:
    try:
        found = read_json(text, "the row") if isinstance(text, str) and len(text) <= _MOST_TEXT else None
    except FormatError:
        found = None
    if not isinstance(found, list) or len(cast("list[Any]", found)) > most:
        raise ValueError("expected a list")
    return cast("list[Any]", found)


def detail_from_row(text: Any) -> dict[str, Any]:
    """What an operation says of itself.

    Raises:
      FormatError: when the text is no object of JSON.
    """
    try:
        found = json.loads(text) if isinstance(text, str) and len(text) <= 64 * _MOST_TEXT else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise damaged("an operation cannot be read", f"{spelt(text)}")
    return cast("dict[str, Any]", found)


def damaged(what: str, got: str) -> FormatError:
    """The error of a catalogue that says what none of ours does."""
    remedy = "It was edited or damaged: put back a copy of the folder, or load its tensors into a new fabric."
    return FormatError(message(f"the catalogue of the fabric is damaged: {what}", f"got {got}", remedy=remedy))
