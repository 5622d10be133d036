"""The table of formats: by which name and which suffix each goes, how it is opened, and how it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial as given
from pathlib import Path
from typing import Any, cast

import numpy as np

from combinators.errors import FormatError, message, spelt
from combinators.frozen import dataclass
from tapestry_jax.storage.boxes import count
from tapestry_jax.storage.chunked.fetched import open_fetched
from tapestry_jax.storage.chunked.gate import of_chunks
from tapestry_jax.storage.chunked.transactional import make_icechunk, open_icechunk
from tapestry_jax.storage.chunked.zarr import again_zarr, make_zarr, open_zarr
from tapestry_jax.storage.files.address import Address
from tapestry_jax.storage.files.laid_out import written_apart
from tapestry_jax.storage.files.npy import again_npy, make_npy, open_npy
from tapestry_jax.storage.files.npz import open_npz
from tapestry_jax.storage.files.objects import Objects
from tapestry_jax.storage.files.ranges import LocalFile, Ranges
from tapestry_jax.storage.files.safetensors import again_safetensors, make_safetensors, open_safetensors
from tapestry_jax.storage.places import OBJECTS, POSTGRES, Place, read_inner
from tapestry_jax.storage.protocols import Beside, Names, Sink, Stored
from tapestry_jax.storage.tables.arrow import open_arrow
from tapestry_jax.storage.tables.duck import open_duck
from tapestry_jax.storage.tables.parquet import open_parquet
from tapestry_jax.storage.tables.postgres import open_postgres

Sizes = tuple[int, ...]
Open = Callable[[Place, str | None, Names | None], Stored]
"""From a place, a tensor in it and names that were given."""


@dataclass(frozen=True)
class Making:
    """What a tensor is made from.

    Attributes:
      path: its place.
      shape: sizes.
      dtype: as it was given.
      names: of the axes, or None.
      chunks: sizes that are stored in one piece, or None.
      overwrite: whether it takes the place of what is there.
    """

    path: Path
    shape: tuple[int, ...]
    dtype: Any
    names: Names | None
    chunks: tuple[int, ...] | None
    overwrite: bool


@dataclass(frozen=True)
class Format:
    """A row of the table.

    Attributes:
      suffixes: by which a path is known to be of the format.
      open: to read.
      make: from what a tensor is made of; None where none are made.
      again: goes on with what was made; None where what is interrupted leaves nothing.
      beside: what writing takes beside the arrays, from the shape, the sizes of chunks, the dtype and the sizes of a
        box; of all that are made.
      has_chunks: whether pieces are stored whose sizes may be chosen.
    """

    suffixes: tuple[str, ...]
    open: Open
    make: Callable[[Making], Sink] | None = None
    again: Callable[[Making], Sink] | None = None
    beside: Callable[[Sizes, Sizes, np.dtype[Any], Sizes], Beside] | None = None
    has_chunks: bool = False


def _open_npy(place: Place, tensor: str | None, names: Names | None) -> Stored:
    _check_single(place, tensor, ".npy")
    return open_npy(_bytes_of(place), names)


def _open_bytes(opened: Callable[..., Stored], place: Place, tensor: str | None, names: Names | None) -> Stored:
    return opened(_bytes_of(place), tensor, names)


def _open_duck(place: Place, tensor: str | None, names: Names | None) -> Stored:
    return open_duck(place.local("a database"), tensor, names)


def _bytes_of(place: Place) -> Ranges:
    if place.path:
        return LocalFile(place.path)
    if place.scheme in POSTGRES:
        raise FormatError(message("a database is no file", f"got {place.text}", remedy="Leave format= out."))
    return Objects(place) if place.scheme in OBJECTS else Address(str(place.address), place.text)


def _open_zarr(place: Place, tensor: str | None, names: Names | None) -> Stored:
    if place.address and (place.scheme not in ("http", "https", *OBJECTS) or "?" in place.address):
        remedy = "Copy it to this machine, or serve it without a query."
        raise FormatError(message("Zarr is not read from this address", f"got {place.text}", remedy=remedy))
    if tensor is not None:
        inner = read_inner(tensor, f"the tensor of `{place.text}`")
        path = place.path / inner if place.path else None
        address = f"{place.address}/{inner}" if place.address else None
        place = Place(f"{place.text.rstrip('/')}/{inner}", path, address)
    return open_fetched(place, names) if place.scheme in OBJECTS else open_zarr(place, names)


def _make_npy(making: Making) -> Sink:
    return make_npy(making.path, making.shape, making.dtype, making.names, overwrite=making.overwrite)


def _again_npy(making: Making) -> Sink:
    return again_npy(making.path, making.shape, making.dtype, making.names, overwrite=making.overwrite)


def _make_safetensors(making: Making) -> Sink:
    return make_safetensors(making.path, making.shape, making.dtype, making.names, overwrite=making.overwrite)


def _again_safetensors(making: Making) -> Sink:
    return again_safetensors(making.path, making.shape, making.dtype, making.names, overwrite=making.overwrite)


def _make_zarr(version: int, making: Making) -> Sink:
    path, shape, dtype, names, chunks = making.path, making.shape, making.dtype, making.names, making.chunks
    return make_zarr(path, shape, dtype, names, chunks, version=version, overwrite=making.overwrite)


def _again_zarr(making: Making) -> Sink:
    path, shape, dtype, names, chunks = making.path, making.shape, making.dtype, making.names, making.chunks
    return again_zarr(path, shape, dtype, names, chunks, overwrite=making.overwrite)


def _make_icechunk(making: Making) -> Sink:
    return make_icechunk(
        making.path, making.shape, making.dtype, making.names, making.chunks, overwrite=making.overwrite
    )


def _in_chunks(shape: Sizes, chunks: Sizes, dtype: np.dtype[Any], sizes: Sizes) -> Beside:
    del sizes
    return of_chunks(*(count(each) * dtype.itemsize for each in (chunks, shape)))


FORMATS: Mapping[str, Format] = {
    "npy": Format((".npy",), _open_npy, _make_npy, _again_npy, written_apart),
    "npz": Format((".npz",), given(_open_bytes, open_npz)),
    "safetensors": Format(
        (".safetensors",), given(_open_bytes, open_safetensors), _make_safetensors, _again_safetensors, written_apart
    ),
    "parquet": Format((".parquet",), given(_open_bytes, open_parquet)),
    "arrow": Format((".arrow", ".feather"), given(_open_bytes, open_arrow)),
    "duckdb": Format((".duckdb",), _open_duck),
    "icechunk": Format((".icechunk",), open_icechunk, _make_icechunk, None, _in_chunks, has_chunks=True),
    "zarr": Format((".zarr",), _open_zarr, given(_make_zarr, 3), _again_zarr, _in_chunks, has_chunks=True),
    "zarr2": Format((), _open_zarr, given(_make_zarr, 2), _again_zarr, _in_chunks, has_chunks=True),
}
"""By name. What is called `zarr` opens both versions and makes version 3."""
_DATABASE = Format((), open_postgres)


def find_format(place: Place, name: Any, what: str) -> Format:
    """The format that is named, or that of the suffix.

    Raises:
      FormatError: where none is known.
    """
    known = cast("Any", FORMATS).get(name) if isinstance(name, str) else None
    if name is None and place.scheme in POSTGRES:
        return _DATABASE
    if name is None:
        ending = place.name.lower()
        known = next((row for row in FORMATS.values() if ending.endswith(row.suffixes or ("\0",))), None)
    if known is not None:
        return known
    suffixes = [suffix for row in FORMATS.values() for suffix in row.suffixes]
    details = (f"expected one of {', '.join(suffixes)}, or format= one of {', '.join(FORMATS)}",)
    got = f"got {spelt(place.text, 120)}" if name is None else f"got format={spelt(name, 40)}"
    raise FormatError(message(f"{what} does not know the format", *details, got, remedy='Say it: format="zarr".'))


def _check_single(place: Place, tensor: str | None, what: str) -> None:
    if tensor is not None:
        remedy = "Leave the name out."
        raise FormatError(
            message(f"a file {what} holds one tensor", f"got {spelt(tensor)} of {place.text}", remedy=remedy)
        )
