"""Columns of Arrow as arrays: plain numbers, lists of a fixed size, fixed-shape tensors; and the way back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from combinators.errors import FormatError, first_line, message
from tapestry_jax.storage.errors import missing_package
from tapestry_jax.storage.files.pieces import rows, rows_at_once
from tapestry_jax.storage.protocols import Array, Names, Stored
from tapestry_jax.storage.tables.columns import has_nulls, no_numbers


def pyarrow() -> Any:
    """The package.

    Raises:
      StorageError: where it is not installed.
    """
    try:
        # An extra, of 130 MB: few programs read tables.
        import pyarrow as found
    except ModuleNotFoundError as error:
        raise missing_package("this format", "pyarrow", "fabric") from error
    return found


def cell_of(kind: Any, where: str) -> tuple[tuple[int, ...], Any, Names | None]:
    """Shape and dtype of a row's cell, and the names of its axes where the type says them.

    Raises:
      FormatError: for texts, dates, decimals, lists of varying sizes, and whatever else is no tensor.
    """
    types = pyarrow().types
    if isinstance(kind, pyarrow().FixedShapeTensorType):
        if kind.permutation is not None and [*kind.permutation] != sorted(kind.permutation):
            raise no_numbers(where, f"{kind}, whose axes are permuted")
        named = tuple(kind.dim_names) if kind.dim_names else None
        return tuple(kind.shape), cell_of(kind.value_type, where)[1], named
    if types.is_fixed_size_list(kind):
        inner, dtype, _ = cell_of(kind.value_type, where)
        return (kind.list_size, *inner), dtype, None
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return (), np.dtype(kind.to_pandas_dtype()), None
    raise no_numbers(where, str(kind))


def to_array(column: Any, where: str) -> Array:
    """The numbers of a column of Arrow, which may come in pieces.

    Raises:
      FormatError: where a row, or a cell of it, has no number.
    """
    pieces = column.chunks if isinstance(column, pyarrow().ChunkedArray) else [column]
    cell, dtype, _ = cell_of(column.type, where)
    found = [_piece(piece, where).reshape(len(piece), *cell) for piece in pieces]
    if len(found) == 1:
        return found[0]
    return np.concatenate(found) if found else np.empty((0, *cell), dtype)


def _piece(piece: Any, where: str) -> Array:
    if piece.null_count:
        raise has_nulls(where, piece.null_count)
    if isinstance(piece, pyarrow().ExtensionArray):
        piece = piece.storage
    if pyarrow().types.is_fixed_size_list(piece.type):
        return _piece(piece.flatten(), where)
    try:
        return piece.to_numpy(zero_copy_only=False)
    except pyarrow().ArrowException as error:
        remedy = "Take a copy that is intact."
        raise FormatError(message(f"`{where}` cannot be read", first_line(error), remedy=remedy)) from error


def batches(tensors: Mapping[str, Stored]) -> Iterator[Any]:
    """Tensors as tables of one schema, some rows at a time; one table without rows where there are none.

    Raises:
      FormatError: where they differ in the number of rows, or are no columns.
    """
    lengths = {name: each.shape[0] if each.shape else None for name, each in tensors.items()}
    if len({*lengths.values()}) > 1 or None in lengths.values():
        details = (f"got {', '.join(f'`{name:.40}`: {length}' for name, length in lengths.items())}",)
        remedy = "Save them into files of their own, or as .npz."
        raise FormatError(message("columns of one table have to have as many rows", *details, remedy=remedy))
    total, step = max(length or 0 for length in lengths.values()), min(map(rows_at_once, tensors.values()))
    for start in range(0, max(1, total), step):
        stop = min(start + step, total)
        yield pyarrow().table({name: from_array(rows(each, start, stop), each.names) for name, each in tensors.items()})


def from_array(rows: Array, names: Names | None) -> Any:
    """An array of Arrow with a row for each index of the first axis.

    Args:
      rows: at least one axis; of NumPy's dtypes without complex numbers, which Arrow does not have.
      names: of all axes; those of a row's cell are kept where all of them have one.

    Raises:
      FormatError: for a scalar, or complex numbers.
    """
    got = f"got {rows.dtype.name} {rows.shape}"
    if not rows.ndim or rows.dtype.kind not in "biuf":
        details = "expected at least one axis, and no complex numbers", got
        raise FormatError(message("a column cannot hold this tensor", *details, remedy="Write it as Zarr."))
    try:
        flat = pyarrow().array(np.ascontiguousarray(rows).reshape(-1))
    except pyarrow().ArrowException as error:
        # Some floats of eight bits say that they are of NumPy's own kind.
        details = first_line(error), got
        raise FormatError(message("a column cannot hold this tensor", *details, remedy="Write it as Zarr.")) from error
    if rows.ndim == 1:
        return flat
    cell = rows.shape[1:]
    inner = names[1:] if names and all(names[1:]) else None
    kind = pyarrow().fixed_shape_tensor(flat.type, cell, dim_names=inner)
    if not math.prod(cell):
        raise FormatError(message("a column cannot hold empty rows", f"got {rows.shape}", remedy="Write it as Zarr."))
    storage = pyarrow().FixedSizeListArray.from_arrays(flat, math.prod(cell))
    return pyarrow().ExtensionArray.from_storage(kind, storage)
