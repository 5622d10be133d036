"""`tp.open`: a tensor that lies in a file, a folder, a table or at an address."""

from __future__ import annotations

from dataclasses import field
from os import PathLike
from typing import Any, cast

from combinators.errors import FormatError, message
from combinators.frozen import dataclass
from tapestry_jax.storage.formats import find_format
from tapestry_jax.storage.places import POSTGRES, read_place, shown_address
from tapestry_jax.storage.protocols import Names, Stored
from tapestry_jax.storage.tables.postgres import open_query


@dataclass(frozen=True)
class Opened:
    """How a tensor was opened: what another process opens it by.

    Attributes:
      path: absolute, or an address, which may hold a password: it is not shown.
      tensor: which one, or None.
      format: what the suffix does not say, or None.
      names: what its axes were called, or None.
      query: what was asked of a database in place of a table, or None.
    """

    path: str = field(repr=False)
    tensor: str | None = None
    format: str | None = None
    names: Names | None = None
    query: str | None = field(default=None, repr=False)

    @property
    def shown(self) -> str:
        """The place for people."""
        return shown_address(self.path)

    def again(self) -> Stored:
        """Open it once more."""
        if self.query is not None:
            return query(self.path, self.query, names=self.names)
        return open(self.path, self.tensor, format=self.format, names=self.names)


def open(
    path: str | PathLike[str], tensor: str | None = None, *, format: str | None = None, names: Any = None
) -> Stored:
    """Open a tensor for reading box by box; nothing but its header is read.

    Args:
      path: a path, or an address: `file://`, `http://`, `https://`, `postgresql://`, or one that fsspec reads, such as
        `s3://`.
      tensor: which one, where the place holds several.
      format: what the suffix does not say.
      names: what the axes are called; by default what is stored, if that says.

    Returns:
      A `Stored`: shape, dtype, names, chunks, and `read(box, into)`. `tp.trace` takes it as a spec.

    Raises:
      StorageError: where it is not there or does not answer.
      FormatError: where its format is not known, or what it says cannot be so.

    Example:
      >>> import tempfile, numpy as np, tapestry_jax as tp
      >>> folder = tempfile.TemporaryDirectory()
      >>> np.save(f"{folder.name}/x.npy", np.arange(12.0).reshape(4, 3))
      >>> x, rows = tp.open(f"{folder.name}/x.npy", names=("row", "column")), np.empty((2, 3))
      >>> x.read(((1, 3), (0, 3)), rows).result()
      >>> x.shape, x.names, rows.tolist()
      ((4, 3), ('row', 'column'), [[3.0, 4.0, 5.0], [6.0, 7.0, 8.0]])
      >>> x.close(), folder.cleanup()
      (None, None)
    """
    place = read_place(path, "tp.open")
    found = find_format(place, format, "tp.open").open(place, tensor, names)
    text = str(place.path.absolute()) if place.path else str(place.address)
    tensor = getattr(found, "tensor", tensor)
    cast("Any", found).opened = Opened(text, tensor, format, None if names is None else found.names)
    return found


def query(address: str, text: Any, *, names: Any = None) -> Stored:
    """Open what a query of a database gives, of columns of numbers, as a matrix or a vector.

    The query runs as it is, in a transaction that writes nothing, and its rows are those of one moment.

    Args:
      address: of a database, `postgresql://user@host/name`.
      text: one query, SELECT or WITH; say ORDER BY where the order of rows matters.
      names: what the axes are called.

    Returns:
      A `Stored`.

    Raises:
      StorageError: where the database does not answer.
      FormatError: for what is no address of a database, a query that it refuses, or that gives other than numbers.
    """
    place = read_place(address, "query")
    if place.scheme not in POSTGRES or not isinstance(text, str):
        got = f"got {place.text:.120} and {type(text).__name__}"
        remedy = 'Write query("postgresql://user@host/name", "SELECT a, b FROM t").'
        raise FormatError(message("query takes the address of a database, and a text", got, remedy=remedy))
    found = open_query(place, text, names)
    cast("Any", found).opened = Opened(str(place.address), names=None if names is None else found.names, query=text)
    return found


def opened(source: Stored) -> Opened | None:
    """How a source was opened; None for one that `open` did not give."""
    found = getattr(source, "opened", None)
    return found if isinstance(found, Opened) else None
