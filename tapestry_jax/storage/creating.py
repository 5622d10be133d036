"""`tp.create`: the place of a tensor that is still to be written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from combinators.arguments import is_whole, read_flag
from combinators.errors import FormatError, message, spelt
from combinators.frozen import dataclass
from tapestry_jax.storage.boxes import check_chunks, check_names, check_shape
from tapestry_jax.storage.dtypes import ALL, read_dtype
from tapestry_jax.storage.formats import FORMATS, Format, Making, find_format
from tapestry_jax.storage.places import read_place
from tapestry_jax.storage.protocols import Beside, Names, Sink


@dataclass(frozen=True)
class Creation:
    """A place where a tensor will be made, once its shape is known.

    Attributes:
      path: the place, absolute: the process may go to another folder before the tensor is finished.
      where: the place as it was given, for people.
      format: a row of the table of formats.
      chunks: sizes that are stored in one piece; None leaves them to who makes the tensor.
      overwrite: whether it takes the place of what is there.
    """

    path: Path
    where: str
    format: Format
    chunks: tuple[int, ...] | None
    overwrite: bool

    def __repr__(self) -> str:
        pieces = "" if self.chunks is None else f" in pieces of {self.chunks}"
        return f"<{self.where}: to be made{pieces}>"

    def make(self, shape: Any, dtype: Any, names: Names | None = None, chunks: Any = None) -> Sink:
        """Make the tensor; until `Sink.finish` it lies beside its place, under a name that ends in `.partial`.

        Args:
          shape: sizes.
          dtype: of the numbers.
          names: what the axes are called.
          chunks: sizes that are stored in one piece, where `tp.create` was not told any.

        Returns:
          A `Sink`.

        Raises:
          StorageError: where something is there already and `overwrite` is not said, another process writes it, or
            there is no room.
          FormatError: for what the format does not hold.
        """
        return _has(self.format.make, self)(self._making(shape, dtype, names, chunks))

    def again(self, shape: Any, dtype: Any, names: Names | None = None, chunks: Any = None) -> Sink:
        """Open what an interrupted `make` of the same arguments has left, with all that was written.

        Raises:
          StorageError: where nothing is left.
          FormatError: where it is something else.
        """
        return _has(self.format.again, self)(self._making(shape, dtype, names, chunks))

    @property
    def has_chunks(self) -> bool:
        """Whether the format stores pieces whose sizes may be chosen."""
        return self.format.has_chunks

    def beside(
        self, shape: Sequence[int], chunks: Sequence[int], dtype: np.dtype[Any], sizes: tuple[int, ...]
    ) -> Beside:
        """As `Creates.beside`: what writing takes, in such chunks where none were said."""
        assert self.format.beside is not None, "whatever is made says it"
        chosen = tuple(chunks) if self.chunks is None else self.chunks
        return self.format.beside(tuple(shape), chosen, dtype, sizes)

    def _making(self, shape: Any, dtype: Any, names: Any, chunks: Any) -> Making:
        kind = read_dtype(dtype, ALL, f"`{self.where}`")
        sizes = check_shape(shape, kind, f"`{self.where}`")
        named = check_names(names, len(sizes), f"`{self.where}`")
        chosen = chunks if self.chunks is None else self.chunks
        cut = None if chosen is None else check_chunks(chosen, sizes, f"`{self.where}`")
        return Making(self.path, sizes, kind, named, cut, self.overwrite)


def create(
    path: str | PathLike[str],
    *,
    format: str | None = None,
    chunks: tuple[int, ...] | None = None,
    overwrite: bool = False,
) -> Creation:
    """Say where a tensor will lie; nothing is made before its shape is known.

    Args:
      path: on this machine, or `file://`; the suffix says the format.
      format: what the suffix does not say; `"zarr2"` for Zarr of version 2.
      chunks: sizes that are stored in one piece, for formats that have pieces.
      overwrite: whether what is there is replaced, once the new tensor is finished.

    Returns:
      A `Creation`: `make` gives a `Sink`, `again` one that goes on.

    Raises:
      FormatError: for a path, format or chunks that cannot be.

    Example:
      >>> import tempfile, numpy as np, tapestry_jax as tp
      >>> folder = tempfile.TemporaryDirectory()
      >>> sink = tp.create(f"{folder.name}/y.npy").make((4, 3), np.float32)
      >>> for start in (0, 2):
      ...     sink.write(((start, start + 2), (0, 3)), np.full((2, 3), start, np.float32)).result()
      >>> y = sink.finish()
      >>> np.load(f"{folder.name}/y.npy")[:, 0]
      array([0., 0., 2., 2.], dtype=float32)
      >>> y.close(), folder.cleanup()
      (None, None)
    """
    place = read_place(path, "tp.create")
    known = find_format(place, format, "tp.create")
    local, replaces = place.local("tp.create: a tensor"), read_flag(overwrite, "overwrite= of tp.create")
    if chunks is not None and (not isinstance(chunks, tuple | list) or not all(is_whole(n) and n > 0 for n in chunks)):  # pyright: ignore[reportUnnecessaryIsInstance]
        details = ("expected whole numbers from 1 on, one for every axis", f"got {spelt(chunks)}")
        raise FormatError(message(f"chunks of `{local}`", *details, remedy="Write a tuple: chunks=(64, 512)."))
    made = Creation(local.absolute(), str(local), known, None if chunks is None else tuple(chunks), replaces)
    _has(known.make, made)
    return made


def _has(given: Callable[..., Sink] | None, made: Creation) -> Callable[..., Sink]:
    if given is not None:
        return given
    known = [name for name, row in FORMATS.items() if row.make]
    details = (f"expected a path of one of the formats {', '.join(known)}", f"got {made.where}")
    raise FormatError(message("tensors of this format are read, not made", *details, remedy='Write "x.zarr".'))
