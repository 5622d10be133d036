"""What databases have in common: names in SQL, columns of one dtype, and tensors as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from combinators.errors import FormatError, message
from tapestry_jax.storage.files.pieces import pieces
from tapestry_jax.storage.protocols import Array, Stored
from tapestry_jax.storage.tables.arrow_arrays import pyarrow


def quoted(name: str) -> str:
    """A name as an identifier of SQL; whatever it holds, it stays one."""
    return '"' + name.replace('"', '""') + '"'


def one_dtype(columns: Sequence[tuple[str, str]], where: str) -> np.dtype[Any]:
    """The dtype of columns, by their names, that make one tensor.

    Raises:
      FormatError: where they have several.
    """
    if len({dtype for _, dtype in columns}) == 1:
        return np.dtype(columns[0][1])
    told = ", ".join(f"{name:.40}: {dtype:.40}" for name, dtype in columns)
    remedy = "Name one of its columns: tp.open(path, 'table/column')."
    headline = f"the columns of `{where}` have several dtypes"
    raise FormatError(message(headline, f"got {told:.200}", remedy=remedy))


def columns_for(name: str, tensor: Stored, kinds: Mapping[str, str]) -> list[tuple[str, str]]:
    """Names and kinds of the columns that hold a tensor: `value` of a vector, `c0`, `c1`, ... of a matrix.

    Args:
      name: of the tensor.
      tensor: a vector or a matrix.
      kinds: what the database calls dtypes.

    Raises:
      FormatError: for other tensors, or a dtype that the database does not hold.
    """
    kind, rank = kinds.get(tensor.dtype.name), len(tensor.shape)
    if kind is None or rank not in (1, 2) or not all(tensor.shape[1:]):
        details = (f"expected one or two axes of {', '.join(kinds)}",)
        headline = f"a table cannot hold `{name:.80}`, {tensor.dtype.name} {tensor.shape}"
        raise FormatError(message(headline, *details, remedy="Write it as Zarr."))
    columns = ["value"] if rank == 1 else [f"c{position}" for position in range(tensor.shape[1])]
    return [(column, kind) for column in columns]


def cell_of_columns(names: Sequence[str]) -> tuple[int, ...]:
    """The shape of a row: a number where there is one column, but for that of a matrix of one column, `c0`."""
    return () if len(names) == 1 and names[0] != "c0" else (len(names),)


def rows_of(columns: Sequence[Array], cell: tuple[int, ...]) -> Array:
    """The columns of some rows as one array, of a shape that `cell_of_columns` tells."""
    return np.stack(columns, axis=1) if cell else columns[0]


def create_table(name: str, columns: Sequence[tuple[str, str]]) -> str:
    """The statement that makes a table."""
    return f"CREATE TABLE {quoted(name)} ({', '.join(f'{column} {kind}' for column, kind in columns)})"


def tables_of(tensor: Stored, columns: Sequence[tuple[str, str]]) -> Iterator[Any]:
    """The rows of a tensor as tables of Arrow, some at a time."""
    names = [column for column, _ in columns]
    for piece in pieces(tensor):
        cells = [piece] if piece.ndim == 1 else [np.ascontiguousarray(cells) for cells in piece.T]
        yield pyarrow().table(dict(zip(names, cells, strict=True)))
