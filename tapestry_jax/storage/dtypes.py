"""The dtypes that tensors have in files: those of numbers, in NumPy and in ml_dtypes, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from combinators.errors import FormatError, message
from tapestry_jax.storage.protocols import Array

_PLAIN = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
_SMALL = (
    *("bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz"),
    *("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
)

PLAIN: Mapping[str, np.dtype[Any]] = {name: np.dtype(name) for name in _PLAIN}
"""NumPy's own."""

ALL: Mapping[str, np.dtype[Any]] = {**PLAIN, **{name: np.dtype(getattr(ml_dtypes, name)) for name in _SMALL}}
"""NumPy's and those of ml_dtypes that fill whole bytes."""

ZARR: Mapping[str, np.dtype[Any]] = {name: dtype for name, dtype in ALL.items() if name != "float8_e4m3"}
"""Those that TensorStore knows."""


def as_bytes(array: Array) -> memoryview:
    """The memory of a contiguous array, as bytes; not a copy."""
    flat: Any = array.reshape(-1).view(np.uint8)
    return memoryview(flat)


def read_dtype(dtype: Any, known: Mapping[str, np.dtype[Any]], what: str) -> np.dtype[Any]:
    """A dtype in the byte order of this machine.

    Args:
      dtype: what NumPy makes one from.
      known: what the format holds.
      what: whose dtype, for the error.

    Raises:
      FormatError: for any other: texts, objects, records, dates, `float128`.
    """
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError):
        found = None
    if found is not None and known.get(found.name) == found.newbyteorder("="):
        return known[found.name]
    also = " Zarr holds it." if found is not None and found.name in ZARR else ""
    raise FormatError(
        message(
            f"{what} cannot have the dtype {dtype if found is None else found.name!s:.60}",
            f"expected one of {', '.join(known)}",
            remedy=f"Convert it to one of these first.{also}",
        )
    )


def check_flags(array: Array, where: str) -> None:
    """Refuse booleans whose bytes are neither 0 nor 1: compiled programs may make anything of them.

    Raises:
      FormatError: where there is one.
    """
    if array.dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
        headline = f"`{where}` holds booleans that are neither 0 nor 1"
        raise FormatError(message(headline, "expected bytes 0 and 1", remedy="Write the file again, from bool."))
