"""Boxes and buffers, held against the tensor that they are for before anything is read or written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from combinators.arguments import is_whole
from combinators.errors import FormatError, message, spelt
from combinators.index_space.usable import is_deleted
from tapestry_jax.storage.protocols import Box, Names, Sink, Stored

MOST_AXES = 32
"""More have no use, and TensorStore takes no more."""
_MOST_BYTES = 2**63


def whole(shape: Sequence[int]) -> Box:
    """The box of all cells."""
    return tuple((0, size) for size in shape)


def shape_of(box: Box) -> tuple[int, ...]:
    """The sizes of a box."""
    return tuple(stop - start for start, stop in box)


def slices(box: Box, origin: Box | None = None) -> tuple[slice, ...]:
    """A box as an index; into an array that begins where `origin` does."""
    if origin is None:
        return tuple(slice(start, stop) for start, stop in box)
    return tuple(slice(start - low, stop - low) for (start, stop), (low, _) in zip(box, origin, strict=True))


def told(box: Box) -> str:
    """A box for people: `[0:4, 8:16]`."""
    return f"[{', '.join(f'{start}:{stop}' for start, stop in box)}]"


def count(shape: Sequence[int]) -> int:
    """How many cells; of Python's integers, which do not overflow."""
    return math.prod(shape)


def check_box(box: Any, shape: tuple[int, ...], where: str) -> Box:
    """A box of whole numbers that lies within a shape.

    Raises:
      FormatError: for anything else.
    """
    try:
        found = tuple((start, stop) for start, stop in box)
    except (TypeError, ValueError):
        found = None
    is_right = found is not None and len(found) == len(shape)
    if found is not None and is_right:
        is_right = all(is_whole(end) for pair in found for end in pair) and all(
            0 <= start <= stop <= size for (start, stop), size in zip(found, shape, strict=True)
        )
    if found is None or not is_right:
        details = (f"`{where}` has the shape {shape}", f"got {spelt(box, 120)}")
        remedy = "Give (start, stop) for every axis, 0 <= start <= stop <= size."
        raise FormatError(message("a box does not lie within its tensor", *details, remedy=remedy))
    return tuple((int(start), int(stop)) for start, stop in found)


def check_cells(box: Any, array: Any, one: Stored | Sink, *, is_target: bool) -> Box:
    """What every reader and writer of cells begins with: the box lies within it, and the buffer fits the box.

    Raises:
      FormatError: as `check_box` and `check_array` do.
    """
    found = check_box(box, one.shape, one.where)
    check_array(array, found, one.dtype, one.where, is_target=is_target)
    return found


def check_given(array: Any, where: str) -> None:
    """Refuse what has no cells to be stored, or a mask that whatever reads the cells would drop.

    Raises:
      FormatError: for a type, a deleted array, and an array of NumPy with a mask.
    """
    found = None
    if isinstance(array, np.ma.MaskedArray):
        remedy = "Pass array.filled(value), or the mask as an input of its own."
        found = "an array with a mask cannot be stored: the mask would be dropped", remedy
    elif isinstance(array, jax.ShapeDtypeStruct):
        found = "this is the type of an array, and has no numbers", "Pass the array."
    elif is_deleted(array):
        found = "an array was deleted: it was donated to another function", "Keep the result of that function instead."
    if found is not None:
        raise FormatError(message(found[0], where, remedy=found[1]))


def check_array(array: Any, box: Box, dtype: np.dtype[Any], where: str, *, is_target: bool) -> None:
    """Hold a buffer against the box that is read into it, or written from it.

    Raises:
      FormatError: for another shape or dtype; of a target, also where it is not contiguous or not writeable.
    """
    check_given(array, f"`{where}`")
    expected = f"{dtype.name} {shape_of(box)}"
    kind = "C-contiguous, writeable" if is_target else "NumPy"
    is_right = isinstance(array, np.ndarray) and array.shape == shape_of(box) and array.dtype == dtype
    if is_right and not (is_target and not (array.flags.c_contiguous and array.flags.writeable)):
        return
    got = f"{array.dtype.name} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
    if isinstance(array, np.ndarray) and not array.dtype.isnative:
        got += ", in the other byte order"
    if is_right:
        got += ", not contiguous" * (not array.flags.c_contiguous) + ", read-only" * (not array.flags.writeable)
    headline = f"an array does not fit the box {told(box)} of `{where}`"
    remedy = "Make it by numpy.empty(shape, dtype)." if is_target else "Convert it first: array.astype(dtype)."
    raise FormatError(message(headline, f"expected a {kind} array {expected}", f"got {got}", remedy=remedy))


def check_shape(shape: Any, dtype: np.dtype[Any], what: str) -> tuple[int, ...]:
    """Sizes that are whole numbers, at least 0, and whose bytes can be counted in 63 bits.

    Raises:
      FormatError: for anything else.
    """
    sizes = tuple(shape) if isinstance(shape, tuple | list) else None
    is_right = sizes is not None and len(sizes) <= MOST_AXES and all(is_whole(size) and size >= 0 for size in sizes)
    if sizes is not None and is_right and count([max(1, size) for size in sizes]) * dtype.itemsize < _MOST_BYTES:
        return tuple(map(int, sizes))
    expected = f"expected at most {MOST_AXES} sizes, whole numbers from 0 on, below 2**63 bytes in all"
    raise FormatError(
        message(f"{what} has no shape", expected, f"got {spelt(shape, 120)}", remedy="Look at where it is from.")
    )


def check_chunks(chunks: Any, shape: tuple[int, ...], what: str) -> tuple[int, ...]:
    """Sizes of chunks, one for every axis, at least 1 and at most that of the axis.

    Raises:
      FormatError: for anything else.
    """
    sizes = tuple(chunks) if isinstance(chunks, tuple | list) else ()
    if len(sizes) != len(shape) or not all(is_whole(size) and size >= 1 for size in sizes):
        expected = f"expected {len(shape)} whole numbers from 1 on, for the shape {shape}"
        remedy = "Write a tuple: chunks=(64, 512)."
        raise FormatError(message(f"chunks of {what}", expected, f"got {spelt(chunks, 120)}", remedy=remedy))
    return tuple(max(1, min(int(chunk), size)) for chunk, size in zip(sizes, shape, strict=True))


def one_piece(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The chunks of a tensor that lies in one piece: its shape, with 1 for an empty axis."""
    return tuple(max(1, size) for size in shape)


def check_names(names: Any, rank: int, what: str) -> Names | None:
    """Names of axes: as many as there are, no name twice; None where no axis has one.

    Raises:
      FormatError: for anything else.
    """
    if names is None:
        return None
    found: tuple[Any, ...] = tuple(names) if isinstance(names, tuple | list) else (0,)
    real = [name for name in found if name is not None]
    if len(found) == rank and all(isinstance(name, str) and name for name in real) and len({*real}) == len(real):
        return found if real else None
    expected = f"expected {rank} names, each once, None for an axis without one"
    raise FormatError(
        message(f"names of {what}", expected, f"got {spelt(names, 120)}", remedy='Write ("row", "column").')
    )
