"""Reshape: axes split and merge where their sizes divide; elsewhere they are whole."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from combinators.index_space.axis import Axis, Term
from combinators.index_space.operand import Operand
from combinators.index_space.signature import Signature
from combinators.kernels.regrouped import same_cells
from combinators.operations.operation import Operation
from tapestry_jax.lifting.kernels.reshape import Group, Reshape
from tapestry_jax.lifting.rules.views import squeeze
from tapestry_jax.lifting.values import Atom
from tapestry_jax.lifting.walk import Walk, types_of


def reshape(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """A view where only axes of size 1 come and go; else axes that split, merge, or are whole."""
    (out,), own = types_of(equation), walk.shape(atoms[0])
    if len(atoms) > 1 or equation.params.get("dimensions") is not None:
        return None
    found = squeeze(walk, equation, atoms)
    if found is not None:
        return found
    return walk.leaf(reshape_of(own, out.shape), atoms, [out])


def reshape_of(own: Sequence[int], out: Sequence[int]) -> Operation:
    """A reshape from one shape to another."""
    source, target, sizes, whole = split(own, out)
    told = Signature((_operand(source, whole),), (_operand(target, whole),))
    outermost = {group[0] for group in (*source, *target) if group}
    inner = {dim for group in (*source, *target) for dim in group[1:]}
    fixed = tuple(sorted((d, s) for d, s in sizes.items() if d in whole or d in inner or d not in outermost))
    given = tuple(sorted((d, sizes[d]) for d in sizes if d in inner or d in whole))
    return Operation(told, Reshape(source, target, fixed), sizes=given, name="reshape")


def parts_of(own: Sequence[int], out: Sequence[int]) -> tuple[tuple[int, ...], ...] | None:
    """For every axis of the result the sizes that both sides' boundaries cut it into; None where one does not fit."""
    found: list[tuple[int, ...]] = [(size,) for size in out]
    for left, right in same_cells(own, out):
        cuts = _cuts([own[a] for a in left], [out[a] for a in right])
        if cuts is None:
            return None
        below = math.prod(out[a] for a in right)
        for axis in right:
            above, below = below, below // out[axis]
            inside = cuts[cuts.index(above) : cuts.index(below) + 1]
            found[axis] = tuple(high // low for high, low in itertools.pairwise(inside))
    return tuple(found)


def split(
    own: Sequence[int], out: Sequence[int]
) -> tuple[tuple[Group, ...], tuple[Group, ...], dict[str, int], frozenset[str]]:
    """The dimensions of each axis of operand and result, their sizes, and those that are whole."""
    source: list[Group] = [() for _ in own]
    target: list[Group] = [() for _ in out]
    sizes: dict[str, int] = {}
    whole: set[str] = set()
    for left, right in same_cells(own, out):
        cuts = _cuts([own[a] for a in left], [out[a] for a in right])
        if cuts is None:
            for axes, shape, groups in ((left, own, source), (right, out, target)):
                for axis in axes:
                    name = f"d{len(sizes)}"
                    sizes[name], groups[axis] = shape[axis], (name,)
                    whole.add(name)
            continue
        names = [f"d{len(sizes) + at}" for at in range(len(cuts) - 1)]
        sizes |= {name: high // low for name, high, low in zip(names, cuts, cuts[1:], strict=False)}
        for axes, shape, groups in ((left, own, source), (right, out, target)):
            below = math.prod(shape[a] for a in axes)
            for axis in axes:
                above, below = below, below // shape[axis]
                groups[axis] = tuple(names[cuts.index(above) : cuts.index(below)])
    return tuple(source), tuple(target), sizes, frozenset(whole)


def _cuts(own: Sequence[int], out: Sequence[int]) -> list[int] | None:
    """The strides at which either side has a boundary, descending; None where one does not divide the next."""
    if 0 in own or 0 in out:
        return None
    found = {1}
    for shape in (own, out):
        found.update(math.prod(shape[at:]) for at in range(len(shape)))
    listed = sorted(found, reverse=True)
    return listed if all(high % low == 0 for high, low in itertools.pairwise(listed)) else None


def _operand(groups: Sequence[Group], whole: frozenset[str]) -> Operand:
    return Operand(tuple(_axis(group, whole) for group in groups))


def _axis(group: Group, whole: frozenset[str]) -> Axis:
    terms = tuple(Term(dim, 1, dim in whole) for dim in group)
    if not terms:
        return Axis("one")
    return Axis("affine" if len(terms) == 1 else "composite", terms)


TABLE = {"reshape": reshape}
