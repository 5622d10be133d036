"""A box of a tensor, written from an array."""

from __future__ import annotations

from typing import Any

import numpy as np

from combinators.errors import message
from tapestry_jax.fabric.errors import FabricError
from tapestry_jax.fabric.moving.copying import Written, write_box
from tapestry_jax.fabric.opened import Opened
from tapestry_jax.fabric.tensors.boxes import Box, read_box, shape_of, shown, slices
from tapestry_jax.fabric.tensors.casting import check_cast
from tapestry_jax.storage.boxes import check_given


def write(opened: Opened, name: str, array: Any, box: Any) -> None:
    """Write an array into a box, given as a user gives it.

    Raises:
      FabricError: where the tensor is not there, or the array has another shape or dtype.
    """
    type = opened.version(name).kind.type
    into, where = read_box(box, type, f"write {name!r}"), f"write {name!r}"
    check_given(array, where)
    found = np.asarray(array)
    if not found.dtype.isnative:
        found = found.astype(found.dtype.newbyteorder("="))
    check_cast(found.dtype, type.dtype, False, where, remedy="Convert it first: array.astype(dtype).")
    if found.shape != shape_of(into):
        told = f"expected {shape_of(into)} for {shown(into, type.names)}, got {found.shape}"
        raise FabricError(message(f"{where}: the array has another shape", told, remedy="Give the box as large."))

    def read(part: Box) -> Any:
        return found[slices(part, into)]

    write_box(opened, name, type, Written(into, read))
