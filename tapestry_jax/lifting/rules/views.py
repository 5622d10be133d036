"""Primitives that only move, spread or drop axes, and coordinates: free where a program cell by cell reads them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapestry_jax.lifting.kernels.cells import Instruction, Program
from tapestry_jax.lifting.values import Atom, Dims
from tapestry_jax.lifting.walk import Walk, types_of

_SAME = Program((), (0,))


def broadcast_in_dim(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """Axes of the operand go to axes of the result; the others repeat it."""
    (out,), own = types_of(equation), walk.shape(atoms[0])
    if len(atoms) > 1:
        return None  # sizes that are known only at run time
    if type(atoms[0]) is not int:
        return [walk.cells("full", [], Program((), (atoms[0],)), out.shape, out.dtype)]
    to = [int(axis) for axis in equation.params["broadcast_dimensions"]]
    dims: Dims = tuple(None if size == 1 else axis for size, axis in zip(own, to, strict=True))
    return [walk.cells("broadcast", [(atoms[0], dims)], _SAME, out.shape, out.dtype)]


def transpose(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom]:
    """Axis `i` of the result is axis `permutation[i]` of the operand."""
    (out,), permutation = types_of(equation), [int(axis) for axis in equation.params["permutation"]]
    dims = tuple(None if out.shape[permutation.index(a)] == 1 else permutation.index(a) for a in range(len(out.shape)))
    return [walk.cells("transpose", [(walk.value(atoms[0]), dims)], _SAME, out.shape, out.dtype)]


def squeeze(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """Axes of size 1 come and go; all others stay in order."""
    (out,), own = types_of(equation), walk.shape(atoms[0])
    places = [axis for axis, size in enumerate(out.shape) if size != 1]
    if [size for size in own if size != 1] != [out.shape[axis] for axis in places]:
        return None
    listed = iter(places)
    dims: Dims = tuple(None if size == 1 else next(listed) for size in own)
    return [walk.cells("reshape", [(walk.value(atoms[0]), dims)], _SAME, out.shape, out.dtype)]


def iota(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """The coordinates along one axis."""
    (out,), axis = types_of(equation), int(equation.params["dimension"])
    if atoms:
        return None
    if out.shape[axis] == 1:
        return [walk.cells("iota", [], Program((), (np.zeros((), out.dtype)[()],)), out.shape, out.dtype)]
    params = (("new_dtype", np.dtype(out.dtype)), ("sharding", None), ("weak_type", False))
    program = Program((Instruction("convert_element_type", params, (0,)),), (1,))
    return [walk.cells("iota", [], program, out.shape, out.dtype, [axis])]


TABLE = {
    "broadcast_in_dim": broadcast_in_dim,
    "transpose": transpose,
    "squeeze": squeeze,
    "expand_dims": squeeze,
    "iota": iota,
}
