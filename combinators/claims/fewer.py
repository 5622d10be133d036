"""Sizes at which a kernel is asked: its own, or fewer cells that are cut as its own are, where those are too many.

A kernel of a million rows is none that may do as it likes. With fewer rows it is the same program but for sizes, which
is looked at: where it is another one, it is asked at further sizes, and at its own as long as anybody would wait.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from combinators.claims.cut import Boxed, Parts, Sizes, parts_of, plain
from combinators.claims.shrunk import shrunk
from combinators.declared.numbers import number_of
from combinators.declared.programs import alike_but_sizes
from combinators.declared.runnable import excess, never_runs
from combinators.kernels.jaxprs import is_literal, programs_inside

# Cells along what is not cut, where few will do; of single cells programs are often others.
_FEW = 2
# Of what may be run, how much is enough where fewer cells are the same program: a tenth of a second, and not some.
_ENOUGH = 1 / 32
# How often sizes are made less, and by how much where nothing but that they do not run is known of them.
_TRIES, _LESS = 4, 16
# By as many cells, or fewer, a kernel may take them: boxes keep what they leave when they are divided by it.
_GROUP, _LEAST = 1 << 10, 16
# So many pieces of a dimension tell what more of them would: of more than are put together (`cut`) it is two.
_MOST_PIECES = 17


def asked_at(kernel: Boxed, box: Mapping[str, int], share: float = 1, enough: float = _ENOUGH) -> Iterator[Parts]:
    """What is run of a kernel that is held to its boxes.

    Args:
      kernel: on all of its cells.
      box: the sizes of a part of its index space.
      share: of what may be run, how much what is given here may take.
      enough: of that, how much tells all where fewer cells are the same program.
    """
    own, part = dict(kernel.sizes), dict(box)
    program = kernel.at(own)
    if program is None or never_runs(program):
        return
    parts = parts_of(kernel, own, part, share) if excess(program) <= share else None
    as_it_is = [parts] if parts is not None and parts.ways else []
    less: list[Parts] = []
    if not as_it_is or excess(program) > 2 * enough * share:
        # Where it can be run as it is, that is better than as much of something else.
        shares = [enough * share] if as_it_is else [enough * share, share]
        for parts in _of_fewer(kernel, own, part, shares):
            yield parts
            if _is_alike(kernel, parts, own, part):
                return
            less.append(parts)
    yield from as_it_is
    if less and not as_it_is:
        # The code of all cells, where it can be told what it is of those that are run.
        sizes, part = less[0].sizes, less[0].box
        parts = parts_of(_with_own_code(kernel, box, sizes, part), sizes, part, share)
        if parts is not None and parts.ways:
            yield parts


def few_of(kernel: Boxed) -> Sizes:
    """Sizes of a block of few cells: along what is mapped or folded, and along all else as many as can be run."""
    sizes = {**kernel.sizes, **{dim: min(kernel.sizes[dim], _FEW) for dim in plain(kernel.signature)}}
    program = kernel.at(sizes)
    if program is None or never_runs(program) or excess(program) <= 1:
        return sizes
    others = [dim for dim in sizes if dim not in plain(kernel.signature)]
    less = _less(kernel, sizes, sizes, (), others, 1)
    return sizes if less is None else less.sizes


def _of_fewer(kernel: Boxed, own: Sizes, box: Sizes, shares: Sequence[float]) -> Iterator[Parts]:
    """What is run with less, within the first share of what may be run that anything can be run within."""
    for share in shares:
        found = _in_some_ways(kernel, own, box, share)
        if (first := next(found, None)) is not None:
            yield first
            yield from found
            return


def _in_some_ways(kernel: Boxed, own: Sizes, box: Sizes, share: float) -> Iterator[Parts]:
    """With less along what is cut, then with little along all that is mapped or folded, then less along the rest."""
    cut = [dim for dim, size in own.items() if box[dim] != size]
    mapped = plain(kernel.signature)
    others = {dim: min(own[dim], _FEW) for dim in mapped - set(cut)}
    few = {**own, **others}, {**box, **others}
    whole, rest = ([dim for dim in own if dim not in left] for left in (mapped, cut))
    seen = [(own, box)]
    # With dimensions that are made as little as they can be, and those that are made less.
    for (sizes, part), least, dims in (
        ((own, box), (), cut),
        (few, (), cut),
        (few, cut, whole),
        ((own, box), cut, rest),
    ):
        parts = _less(kernel, sizes, part, least, dims, share)
        if parts is not None and (parts.sizes, parts.box) not in seen:
            seen.append((parts.sizes, parts.box))
            yield parts


def _with_own_code(kernel: Boxed, box: Mapping[str, int], less: Sizes, part: Sizes) -> Boxed:
    """A kernel that has for few cells the code that it has for its own, made less (`shrunk`)."""
    # By each size of few cells that one of its own; of the last boxes too, which have less than others.
    owns = {
        dim: {
            less[dim] - part[dim]: size - box[dim],
            less[dim] % part[dim]: size % box[dim],
            part[dim]: box[dim],
            less[dim]: size,
        }
        for dim, size in kernel.sizes.items()
    }

    whole = {size: less[dim] for dim, size in kernel.sizes.items()}

    def at(sizes: Sizes) -> Any:
        small = kernel.at(sizes)
        own = kernel.at({dim: owns[dim].get(size, size) for dim, size in sizes.items()})
        return None if small is None or own is None else shrunk(own, small.in_avals, whole)

    return replace(kernel, at=at)


def _is_alike(kernel: Boxed, less: Parts, own: Sizes, box: Sizes) -> bool:
    """Whether the programs of fewer cells are those of all of them, but for sizes."""
    for sizes, fewer in ((own, less.sizes), (box, less.box)):
        program, other = kernel.at(sizes), kernel.at(fewer)
        if program is None or other is None or not is_alike(program, other, sizes, fewer, math.prod(own.values())):
            return False
    return True


def is_alike(program: Any, other: Any, sizes: Sizes, fewer: Sizes, cells: int) -> bool:
    """Whether a program of fewer cells is that of many but for sizes, and no number of it may be a place among those.

    Args:
      program: a closed jaxpr on many cells.
      other: that on fewer.
      sizes: of the dimensions where there are many.
      fewer: of the dimensions where there are fewer.
      cells: how many there are of the whole.
    """
    reached = min((fewer[dim] for dim in sizes if fewer[dim] != sizes[dim]), default=0)
    return alike_but_sizes(program, other) and not any(reached <= each <= cells for each in _literals(program.jaxpr))


def _less(
    kernel: Boxed, sizes: Sizes, box: Sizes, least: Collection[str], dims: Collection[str], share: float
) -> Parts | None:
    """What is run at some sizes, or at less along some dimensions; None where no less is taken or can be run."""
    program = kernel.at(sizes)
    if program is None:
        return None
    units = ((unit, _divided(sizes, box, least, math.inf, unit)) for unit in _units(program))
    found = (_in_units(kernel, *made, dims, share, unit) for unit, made in units)
    return next(filter(None, found), None)


def _in_units(kernel: Boxed, sizes: Sizes, box: Sizes, dims: Collection[str], share: float, unit: int) -> Parts | None:
    for _ in range(_TRIES):
        program = kernel.at(sizes)
        if program is None:
            return None
        over = excess(program) / share
        if over <= 1:
            parts = parts_of(kernel, sizes, box, share)
            if parts is None or parts.ways:
                return parts
            over = _LESS
        less = _divided(sizes, box, dims, over, unit)
        if less == (sizes, box):
            return None
        sizes, box = less
    return None


def _units(program: Any) -> Collection[int]:
    """By what divided boxes leave what they did: a power of two, what the shapes of a program say, then less.

    Of none less: a kernel that takes rows by fours need not be right of every box of two.
    """
    named = sorted(size for size in _shapes(program.jaxpr) if 1 < size <= _GROUP)
    together = (named, *([size] for size in named[: -1 - _TRIES : -1]), [])
    # Each once, in this order.
    return dict.fromkeys((_GROUP, *(math.lcm(_LEAST, *each) for each in together)))


def _shapes(jaxpr: Any) -> set[int]:
    """The sizes of what a program computes on the way."""
    found = {size for equation in jaxpr.eqns for out in equation.outvars for size in getattr(out.aval, "shape", ())}
    inner = (each for equation in jaxpr.eqns for each in programs_inside(equation))
    return found.union(*(_shapes(getattr(each, "jaxpr", each)) for each in inner))


def _divided(sizes: Sizes, box: Sizes, dims: Collection[str], by: float, unit: int) -> tuple[Sizes, Sizes]:
    """Boxes with fewer cells, each dimension as many times as others, and as many of them, up to some.

    Args:
      sizes: of all cells.
      box: of one of the boxes.
      dims: along which there may be less.
      by: how many times fewer cells there should be.
      unit: divided by it, sizes leave what they did.
    """
    less, part = dict(sizes), dict(box)
    # The least sizes first: by what they cannot be divided, others are.
    for done, dim in enumerate(sorted(dims, key=lambda each: box[each])):
        pieces, rest = divmod(sizes[dim], box[dim])
        kept = min(pieces, _MOST_PIECES)
        by /= pieces / kept
        cells = _leaving_as(box[dim], int(box[dim] / max(by, 1) ** (1 / (len(dims) - done))), unit)
        # The last box has fewer cells where it had.
        last = min(_leaving_as(rest, rest * cells // box[dim], unit), max(1, cells - 1)) if rest else 0
        by /= box[dim] / cells
        part[dim], less[dim] = cells, kept * cells + last
    return less, part


def _leaving_as(size: int, most: int, unit: int) -> int:
    """A size that leaves what `size` does, divided by a unit: the greatest one up to `most`, or the least."""
    left = size % unit or min(unit, size)
    return left + max(0, most - left) // unit * unit


def _literals(jaxpr: Any) -> Iterator[float]:
    """The magnitudes of the single numbers that a program names."""
    for equation in jaxpr.eqns:
        for atom in filter(is_literal, equation.invars):
            if (number := number_of(atom, {})) is not None:
                yield abs(float(number))
        for inner in programs_inside(equation):
            yield from _literals(getattr(inner, "jaxpr", inner))
