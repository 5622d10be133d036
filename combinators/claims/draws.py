"""What a kernel that is cut is asked with, and how often: chance must not make its boxes come to the whole.

A sum of floats is another number of every draw. What selects is not: the largest of all cells lies in the first box in
half of all draws, a condition is true of box and whole alike, whole numbers of a small range are equal. Programs that
do so are asked more often, of numbers that are equal too, as long as that costs little.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from combinators.claims.cut import Parts
from combinators.declared.drawn import drawn, moved, planted, scaled, stay, streaked, tied
from combinators.declared.preconditions import looks_for_infinities
from combinators.declared.runnable import cells_of
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


def draws(signature: Signature, parts: Parts, effort: Effort) -> Iterator[tuple[list[Any], Move]]:
    """Operands, and how they are moved to see what rounding does.

    They are of a few units, then of more and of less, and not finite where a kernel looks for that.

    Args:
      signature: of the kernel, without an ellipsis.
      parts: what is run of it.
      effort: what runs of it may still take.
    """
    sizes, program = parts.sizes, parts.programs[tuple(parts.sizes.values())]
    # Of two parts that give one number chance alone may make that equal.
    told = min((math.prod(aval.shape) for aval in program.out_avals), default=1) * max(1, len(parts.boxes) - 1)
    rounds = min(_ROUNDS, -(-_FEW // max(1, told)))
    fixed, turning = stay(signature, program), any(map(turns, parts.programs.values()))

    def changed(change: Callable[..., Any], arrays: Sequence[Any], *by: Any) -> list[Any]:
        return [array if still else change(array, *by) for array, still in zip(arrays, fixed, strict=True)]

    for arrays in drawn(signature, program, sizes, rounds):
        yield arrays, moved
    if any(map(selects, (*parts.programs.values(), *parts.joined.values()))):
        rng, before = np.random.default_rng(0), effort.left
        often = _OFTENER if turning or parts.joined else _OFTEN
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


def _unmoved(array: Any, way: int = 0) -> Any:
    del way
    return array


def selects(program: Any) -> bool:
    """Whether a program may give the same for other operands: it compares, takes extrema or ways, or has no floats."""
    jaxpr = getattr(program, "jaxpr", program)
    return not _are_floats(jaxpr.outvars) or any(map(_may_select, jaxpr.eqns))


def _may_select(equation: Any) -> bool:
    return equation.primitive.name not in _SMOOTH or any(map(selects, programs_inside(equation)))


def turns(program: Any) -> bool:
    """Whether data decide what a program does next: a choice that none of its numbers makes, or a loop until one."""
    return any(
        (equation.primitive.name in _TURNING and not is_literal(equation.invars[0]))
        or any(map(turns, programs_inside(equation)))
        for equation in getattr(program, "jaxpr", program).eqns
    )


def _are_floats(atoms: Sequence[Any]) -> bool:
    return all(jnp.issubdtype(atom.aval.dtype, jnp.inexact) for atom in atoms)
