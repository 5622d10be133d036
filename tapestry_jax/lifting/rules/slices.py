"""Slices: maps whose signature says which cells they read."""

from __future__ import annotations

from typing import Any

from combinators.index_space.axis import Axis, Term
from combinators.index_space.operand import Operand
from combinators.index_space.signature import Signature
from combinators.operations.operation import Operation
from combinators.recording.slicing import Pick
from tapestry_jax.lifting.values import Atom
from tapestry_jax.lifting.walk import Walk, types_of


def slice_(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom]:
    """Each axis reads `step * d + start`; a window of one cell, so that `d` has a size of its own."""
    (out,), shape = types_of(equation), walk.shape(atoms[0])
    starts = equation.params["start_indices"]
    steps = equation.params["strides"] or (1,) * len(shape)
    read: list[Axis] = []
    written: list[Axis] = []
    sizes: dict[str, int] = {}
    for axis, (size, count) in enumerate(zip(shape, out.shape, strict=True)):
        name, start, step = f"d{axis}", int(starts[axis]) if count else 0, int(steps[axis])
        if size == count:
            read.append(Axis("one") if size == 1 else Axis("affine", (Term(name),)))
        else:
            # One cell of many is read by a dimension that is never cut.
            terms = (Term(name, step, count == 1), Term(f"w{axis}", 1, True))
            read.append(Axis("affine", terms, start))
            sizes |= {name: count, f"w{axis}": 1}
        whole = size != count and count == 1
        written.append(Axis("one") if size == count == 1 else Axis("affine", (Term(name, 1, whole),)))
    told = Signature((Operand(tuple(read)),), (Operand(tuple(written)),))
    same = [size == count for size, count in zip(shape, out.shape, strict=True)]
    kernel = Pick(tuple(1 if kept else int(step) for kept, step in zip(same, steps, strict=True)), ())
    return walk.leaf(Operation(told, kernel, sizes=tuple(sorted(sizes.items())), name="slice"), atoms, [out])


TABLE = {"slice": slice_}
