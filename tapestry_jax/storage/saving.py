"""Tensors written whole into one file: for formats whose parts follow each other, and are not written box by box."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from combinators.arguments import read_flag
from combinators.errors import FormatError, message, spelt
from tapestry_jax.storage.errors import of_system
from tapestry_jax.storage.files.npz import write_npz
from tapestry_jax.storage.files.safetensors import write_safetensors
from tapestry_jax.storage.formats import FORMATS
from tapestry_jax.storage.places import POSTGRES, read_inner, read_place
from tapestry_jax.storage.protocols import Stored
from tapestry_jax.storage.tables.arrow import write_arrow
from tapestry_jax.storage.tables.duck import write_duck
from tapestry_jax.storage.tables.parquet import write_parquet
from tapestry_jax.storage.tables.postgres import write_postgres
from tapestry_jax.storage.unfinished import partial

_WRITERS: Mapping[str, Callable[[Path, Mapping[str, Stored]], None]] = {
    "npz": write_npz,
    "safetensors": write_safetensors,
    "parquet": write_parquet,
    "arrow": write_arrow,
    "duckdb": write_duck,
}


def save(
    path: str | PathLike[str], tensors: Mapping[str, Stored], *, format: str | None = None, overwrite: bool = False
) -> None:
    """Write tensors into one file, a few rows at a time; it takes its place once it is whole.

    Args:
      path: on this machine; the suffix says the format: `.npz`, `.safetensors`, `.parquet`, `.arrow`, `.duckdb`. Or the
        address of a database, `postgresql://`.
      tensors: by name. In Parquet and Arrow they are columns of one table, so that all have as many rows; in databases
        each is a table, of one or two axes, and `overwrite` is said of each table.
      format: what the suffix does not say.
      overwrite: whether what is there is replaced.

    Raises:
      StorageError: where something is there already and `overwrite` is not said, or there is no room.
      FormatError: for what the format does not hold, or tensors that cannot be read.

    Example:
      >>> import tempfile, numpy as np
      >>> from tapestry_jax.storage import save, stored
      >>> folder = tempfile.TemporaryDirectory()
      >>> save(f"{folder.name}/x.npz", {"a": stored(np.arange(3)), "b": stored(np.ones((2, 2)))})
      >>> {name: array.tolist() for name, array in np.load(f"{folder.name}/x.npz").items()}
      {'a': [0, 1, 2], 'b': [[1.0, 1.0], [1.0, 1.0]]}
      >>> folder.cleanup()
    """
    where, overwrite = read_place(path, "save"), read_flag(overwrite, "overwrite= of save")
    if where.scheme in POSTGRES:
        write_postgres(where, _checked(tensors, where.text), overwrite=overwrite)
        return
    place = where.local("save: a file")
    write = _writer(place, format)
    named = _checked(tensors, str(place))
    # In a folder, as what writes makes its files itself, and more than one.
    draft = partial.begin(place, Path.mkdir, overwrite=overwrite)
    written = draft.place / place.name
    try:
        write(written, named)
        with written.open("rb+") as file:
            os.fsync(file.fileno())
    except OSError as error:
        partial.remove(draft.place)
        raise of_system(error, "write a file", str(place)) from error
    except BaseException:
        partial.remove(draft.place)
        raise
    draft.put_in_place(written)
    draft.let_go()


def is_saved(path: Any, format: Any) -> bool:
    """Whether a place is written by `save` alone, and not box by box by `tp.create`.

    Raises:
      FormatError: for what is neither a path nor an address.
    """
    place = read_place(path, "save")
    if place.path is None:
        return place.scheme in POSTGRES
    name = _format(place.path, format) or ""
    return name in _WRITERS and FORMATS[name].make is None


def _format(path: Path, format: Any) -> str | None:
    name = path.suffix.lower().removeprefix(".") if format is None else format
    if not isinstance(name, str):
        return None
    return "arrow" if name == "feather" else name


def _writer(path: Path, format: Any) -> Callable[[Path, Mapping[str, Stored]], None]:
    name = _format(path, format) or ""
    if name in _WRITERS:
        return _WRITERS[name]
    details = (f"expected one of {', '.join(_WRITERS)}", f"got {spelt(name, 40)}")
    remedy = 'Say it: format="npz"; .npy and Zarr are written by tp.create.'
    raise FormatError(message("save does not know the format", *details, remedy=remedy))


def _checked(tensors: Any, where: str) -> dict[str, Stored]:
    is_right = isinstance(tensors, Mapping) and bool(tensors)
    if not is_right or not all(isinstance(each, Stored) for each in tensors.values()):
        remedy = 'Pass {"x": tp.open(path)}; arrays in memory: {"x": stored(array)}.'
        raise FormatError(message(f"`{where}` is written from tensors by name", f"got {spelt(tensors)}", remedy=remedy))
    return {read_inner(name, f"a name in `{where}`"): tensor for name, tensor in tensors.items()}
