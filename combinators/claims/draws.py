"""What a kernel that is cut is asked with, and how often: chance must not make its boxes come to the whole.

A sum of floats is another number of every draw. What selects is not: the largest of all cells lies in the first box in
half of all draws, a condition is true of box and whole alike, whole numbers of a small range are equal. Programs that
do so are asked more often, of numbers that are equal too, as long as that costs little.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from combinators.claims.cut import Parts
from combinators.declared.drawn import about, drawn, moved, planted, scaled, shifted, stay, streaked, tied, totalled
from combinators.declared.numbers import number_of, said
from combinators.declared.preconditions import looks_for_infinities
from combinators.declared.runnable import cells_of
from combinators.equations.deciding import compares, decides
from combinators.equations.effort import Effort
from combinators.index_space.signature import Signature
from combinators.kernels.elementwise import CALLS
from combinators.kernels.jaxprs import is_literal, programs_inside

# Of fewer numbers than these more are drawn, so often at most.
_FEW, _ROUNDS = 8, 4
_SCALES = (10_000, 1e-3)
# What selects is asked so often, as long as all of that takes no more small equations. Each operand is of its own scale
# then (of the largest of two, one that is larger by far tells nothing of the other), and so are parts of some.
_OFTEN, _CHEAP = 20, 1 << 15
# Where data decide what is done next, box and whole take the same way of most numbers.
_TURNING, _OFTENER = ("cond", "while"), 80
_OWN_SCALES, _BESIDE = (1, 30, 1 / 30), 5
# Of so many numbers that something is compared with, cells before some place and behind it lie below (-1), at (0) or
# above (1) it, or anywhere.
_COMPARED, _ABOUT = 4, 3
_SIDES = ((-1, 1), (1, -1), (None, 1), (1, None), (None, -1), (-1, None), (0, None), (None, 0))
# So often numbers are drawn that grow, by powers of ten, and by what is added.
_WAYS, _POWERS, _SHIFTS = 3, range(-3, 5), range(-3, 4)
# About as many numbers are drawn while Python looks at one equation.
_NUMBERS = 1024
# What is another number wherever an operand is.
_SMOOTH_NAMES = """
    add add_any broadcast_in_dim complex concatenate conj conv_general_dilated convert_element_type copy cos cosh
    cumlogsumexp cumprod cumsum div dot_general erf exp exp2 expand_dims expm1 imag integer_pow iota log log1p logistic
    mul neg pad pow real reduce_prod reduce_sum reshape rev rsqrt scan sin sinh slice split sqrt square squeeze sub tan
    tanh transpose
"""
_SMOOTH = CALLS - {"cond"} | frozenset(_SMOOTH_NAMES.split())

Move = Callable[..., Any]
"""From an array to one that is the same but for rounding, or exactly the same."""


def draws(
    signature: Signature, parts: Parts, effort: Effort, *, chooses: bool = False
) -> Iterator[tuple[list[Any], Move]]:
    """Operands, and how they are moved to see what rounding does.

    They are of a few units, then of more and of less, and not finite where a kernel looks for that.

    Args:
      signature: of the kernel, without an ellipsis.
      parts: what is run of it.
      effort: what runs of it may still take.
      chooses: whether cells that are cut are known to choose together.
    """
    sizes, program = parts.sizes, parts.programs[tuple(parts.sizes.values())]
    # Of two parts that give one number chance alone may make that equal.
    told = min((math.prod(aval.shape) for aval in program.out_avals), default=1) * max(1, len(parts.boxes) - 1)
    rounds = min(_ROUNDS, -(-_FEW // max(1, told)))
    fixed, turning = stay(signature, program), any(map(turns, parts.programs.values()))
    together = turning or bool(parts.joined) or chooses

    def changed(change: Callable[..., Any], arrays: Sequence[Any], *by: Any) -> list[Any]:
        return [array if still else change(array, *by) for array, still in zip(arrays, fixed, strict=True)]

    for arrays in drawn(signature, program, sizes, rounds):
        yield arrays, moved
    if any(map(selects, (*parts.programs.values(), *parts.joined.values()))):
        rng, before = np.random.default_rng(0), effort.left
        often = _OFTENER if together else _OFTEN
        for number, arrays in enumerate(drawn(signature, program, sizes, often, rounds)):
            if before - effort.left + number * cells_of(program) // _NUMBERS > _CHEAP:
                break
            # Two operands meet in each pair of their scales.
            places = range(len(arrays))
            scales = [_OWN_SCALES[number // 3 ** (at % 2) % 3] * _BESIDE ** rng.uniform(-1, 1) for at in places]
            own = [each if still else scaled(each, by) for each, by, still in zip(arrays, scales, fixed, strict=True)]
            yield changed(streaked, own, rng) if rng.integers(2) else own, moved
        for arrays in itertools.islice(drawn(signature, program, sizes), 1):
            # Moved by a little, what was equal is so no longer.
            yield changed(tied, arrays), _unmoved
    # Sums may stop, or be nothing, at some number.
    for scale, arrays in itertools.product(_SCALES, list(drawn(signature, program, sizes))):
        yield changed(scaled, arrays, scale), moved
    if looks_for_infinities(program):
        numbers = (np.nan, np.inf, -np.inf)
        for arrays, number in itertools.product(drawn(signature, program, sizes), numbers):
            yield changed(planted, arrays, number), moved
        # What looks for one among all cells finds it in one box alone.
        for arrays, number in itertools.product(drawn(signature, program, sizes, 2 * turning), numbers):
            yield changed(planted, arrays, number, math.inf), moved
    yield from _about_numbers(signature, parts, changed, together=together)


def _about_numbers(
    signature: Signature, parts: Parts, changed: Callable[..., list[Any]], *, together: bool
) -> Iterator[tuple[list[Any], Move]]:
    """Operands on both sides of each number that something is compared with, of which others would hardly tell.

    Where nothing is compared that cells come to `together`, those about numbers far from all others.
    """
    program = parts.programs[tuple(parts.sizes.values())]
    # Nothing is close to none of them, and a box of it is often what another one is not.
    compared = sorted({0.0, *numbers_of(program, compares)}, key=abs)[: 1 + _COMPARED] if together else []
    numbers = [*compared, *itertools.islice(_far(program), _FAR)]
    rng, fixed, ends = np.random.default_rng(0), stay(signature, program), _ends(signature, parts)
    for number, sides in itertools.product(numbers, _SIDES):
        for turn, arrays in enumerate(drawn(signature, program, parts.sizes, _ABOUT)):
            if turn % 2:
                # Cells on one side of it along one axis, and on one side along another.
                beside = _SIDES[rng.integers(len(_SIDES))] if rng.integers(2) else (None, None)
                found = changed(about, changed(about, arrays, number, beside, rng), number, sides, rng)
            else:
                # Those of the first box on one side, and of the others on one side.
                beside, trios = (None, None), zip(arrays, ends, fixed, strict=True)
                found = [each if still else about(each, number, sides, rng, at) for each, at, still in trios]
            # Moved by a little, what was at it is so no longer.
            yield found, _unmoved if 0 in (*sides, *beside) else moved
    # What cancels to nothing is rounding.
    yield from _totals(signature, parts, [each for each in numbers if each], ends)


def _totals(
    signature: Signature, parts: Parts, numbers: Sequence[float], ends: Sequence[list[tuple[int, int]]]
) -> Iterator[tuple[list[Any], Move]]:
    """Operands of whose first box sums lie at a number, then means: those of the whole do not."""
    program = parts.programs[tuple(parts.sizes.values())]
    fixed = stay(signature, program)
    counts = [math.prod(place for _, place in each) for each in ends]
    for number, share in itertools.product(numbers, (counts, [1] * len(counts))):
        for arrays in drawn(signature, program, parts.sizes, 1):
            few = zip(arrays, ends, share, fixed, strict=True)
            yield [each if still else totalled(each, number, at, count) for each, at, count, still in few], moved


def _far(program: Any) -> Iterator[float]:
    """Numbers of a program, far from all usual ones, about which it may turn though it compares nothing with them.

    `trunc(s / 1e6)` turns there, and so does what is compared with `s - 1e6` or with one of several numbers.
    """
    said = [*numbers_of(program, lambda equation: equation.primitive.name in _SHIFTING)]
    held = [np.ravel(each) for each in getattr(program, "consts", ()) if np.size(each) <= _SMALL and np.isrealobj(each)]
    said += [float(number) for each in held if each.dtype.kind in "fiu" for number in each]
    # Those that other draws come close to, by chance, are last.
    yield from sorted(
        {each for each in said if _BEYOND <= abs(each) < math.inf}, key=lambda each: (abs(each) < _FAR_FROM, abs(each))
    )


def _ends(signature: Signature, parts: Parts) -> list[list[tuple[int, int]]]:
    """Of each operand the axes along which it is cut, and where the first box ends."""
    return [
        [
            (place, parts.box[axis.name])
            for place, axis in enumerate(operand.axes)
            if axis.name in parts.box and parts.box[axis.name] != parts.sizes[axis.name]
        ]
        for operand in signature.operands
    ]


def numbers_of(program: Any, of: Callable[[Any], bool], given: Mapping[Any, Any] | None = None) -> Iterator[float]:
    """The real numbers that a program says, and gives to some equations beside others that it does not say.

    Args:
      program: a jaxpr.
      of: which equations.
      given: those of its operands that are numbers.
    """
    jaxpr = getattr(program, "jaxpr", program)
    known = said(jaxpr, given or {})
    for equation in jaxpr.eqns:
        numbers = [number_of(atom, known) for atom in equation.invars]
        if None in numbers and of(equation):
            yield from (float(number) for number in numbers if number is not None)
        for inner in programs_inside(equation):
            taken = getattr(inner, "jaxpr", inner).invars
            alike = equation.primitive.name in CALLS and len(taken) == len(numbers)
            yield from numbers_of(inner, of, dict(zip(taken, numbers, strict=True)) if alike else {})


_SHIFTING = frozenset(("add", "div", "mul", "rem", "sub"))
_FAR, _FAR_FROM, _BEYOND, _SMALL = 4, 64.0, 8.0, 16
"""How many far numbers are drawn about, from where they are far, and beyond what is drawn by itself, and of how many
constants they are looked for."""

Way = tuple[Sequence[float], Callable[[float], list[Any]]]
"""Some steps, and what gives operands at each of them and between."""


def ways_of(signature: Signature, parts: Parts) -> Iterator[Way]:
    """Operands that grow, all of them, then each alone."""
    program, rng = parts.programs[tuple(parts.sizes.values())], np.random.default_rng(0)
    fixed = stay(signature, program)
    free = [number for number, still in enumerate(fixed) if not still]
    for which in (free, *([[number] for number in free] if len(free) > 1 else [])):
        for number, arrays in enumerate(drawn(signature, program, parts.sizes, _WAYS)):
            streaks = [streaked(each, rng) if number % 2 and at in free else each for at, each in enumerate(arrays)]
            yield from grown(streaks, which)


def grown(arrays: Sequence[Any], which: Collection[int]) -> Iterator[Way]:
    """Some of these arrays growing from small to large, then from below zero to above it."""
    yield _POWERS, partial(_changed, arrays, frozenset(which), lambda each, step: scaled(each, 10.0**step))
    yield _SHIFTS, partial(_changed, arrays, frozenset(which), shifted)


def _changed(
    arrays: Sequence[Any], which: Collection[int], change: Callable[[Any, float], Any], step: float
) -> list[Any]:
    return [change(array, step) if number in which else array for number, array in enumerate(arrays)]


def _unmoved(array: Any, way: int = 0) -> Any:
    del way
    return array


def selects(program: Any) -> bool:
    """Whether a program may give the same for other operands: it compares, takes extrema or ways, or has no floats."""
    jaxpr = getattr(program, "jaxpr", program)
    return not _are_floats(jaxpr.outvars) or any(map(_may_select, jaxpr.eqns))


def _may_select(equation: Any) -> bool:
    smooth = equation.primitive.name in _SMOOTH and not decides(equation)
    return not smooth or any(map(selects, programs_inside(equation)))


def turns(program: Any) -> bool:
    """Whether data decide what a program does next: a choice that none of its numbers makes, or a loop until one."""
    return any(
        (equation.primitive.name in _TURNING and not is_literal(equation.invars[0]))
        or any(map(turns, programs_inside(equation)))
        for equation in getattr(program, "jaxpr", program).eqns
    )


def _are_floats(atoms: Sequence[Any]) -> bool:
    return all(jnp.issubdtype(atom.aval.dtype, jnp.inexact) for atom in atoms)
