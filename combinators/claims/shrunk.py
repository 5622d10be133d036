"""The code that a kernel has for many cells, run on few: a program with every size made less as those of its operands.

A kernel whose code chooses by a size is another program of few cells, which tells nothing of what it does with many.
Only programs are made less whose primitives take any number of cells and have no number of them but in a shape, and
whose sizes follow from those of the operands: so many times one, a part of one, or a few cells fewer. A number that may
be a place among many cells is the place as far along the few (`x.at[20_000_000].set(0)`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from combinators.declared.rules import CUMULATIVE, REDUCTIONS
from combinators.frozen import dataclass
from combinators.kernels.elementwise import CELLWISE
from combinators.kernels.jaxprs import WRAPPERS, is_literal, scan_parts

_NAMES = """
    concatenate dot_general dynamic_update_slice expand_dims rev scatter scatter-add scatter-max scatter-min scatter-mul
    scatter_max scatter_min sort squeeze transpose
"""
_TAKE_ANY = CELLWISE | CUMULATIVE | REDUCTIONS | frozenset(_NAMES.split())
# By which parameters others say how many cells they give, and which.
_SIZED = {
    "broadcast_in_dim": ("shape",),
    "dynamic_slice": ("slice_sizes",),
    "gather": ("slice_sizes",),
    "iota": ("shape",),
    "reshape": ("new_sizes",),
    "slice": ("start_indices", "limit_indices"),
}
_CALLED = {**dict.fromkeys(WRAPPERS, "jaxpr"), "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}
# What is no more is a number of its own, and so are as many cells fewer, or such parts and multiples.
_FEW = 1 << 10

# Floats of 32 bits count so far; what is about as large, or its inverse or root, may be a count that was rounded.
_COUNTED, _ROUNDING = 1 << 24, 2.0**-7

Sizes = Mapping[int, int]


@dataclass(frozen=True)
class _Numbers:
    """Attributes: what each of the `sizes` of a program is of fewer cells, and those of the `whole`."""

    sizes: Sizes
    whole: Sizes


class _OtherError(Exception):
    """A program of which nothing is known where there are fewer cells."""


def shrunk(program: Any, types: Sequence[Any], whole: Sizes | None = None) -> Any:
    """A program on operands of less cells; None where that is not known to be the same code.

    Args:
      program: a closed jaxpr.
      types: of the operands, each with as many axes as there.
      whole: how few cells there are for how many, along the dimensions of the whole of which the program takes a box;
        by default, those of the program.
    """
    pairs = {
        pair
        for own, less in zip(program.in_avals, types, strict=True)
        for pair in zip(own.shape, less.shape, strict=True)
    }
    sizes = dict(pairs)
    if len(sizes) < len(pairs):
        return None  # two dimensions of one size, of which one is made less
    if any(own != less and own <= _FEW for own, less in sizes.items()):
        return None  # such numbers of a program may be something else

    numbers = _Numbers(sizes, sizes if whole is None else whole)

    def run(*arrays: Any) -> list[Any]:
        return _run(program.jaxpr, program.consts, arrays, numbers)

    try:
        return jax.make_jaxpr(run)(*(jax.ShapeDtypeStruct(each.shape, each.dtype) for each in types))
    except Exception:  # noqa: BLE001 - JAX refuses sizes that do not go together in many ways
        return None


def _less(size: int, sizes: Sizes) -> int:
    """What a size of a program is of fewer cells, where it follows from one of its operands."""
    if size in sizes:
        return sizes[size]
    for own, less in sizes.items():
        if own == less or size == 0:
            continue
        if abs(own - size) <= _FEW and size > _FEW:
            return less - (own - size)
        if own % size == 0 and own // size <= _FEW:
            if less % (own // size):
                raise _OtherError
            return less // (own // size)
        if size % own == 0 and size // own <= _FEW:
            return size // own * less
    return size


def _run(jaxpr: Any, consts: Sequence[Any], arrays: Sequence[Any], numbers: _Numbers) -> list[Any]:
    held = [_constant(each, numbers) for each in consts]
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*held, *arrays), strict=True))

    def value(atom: Any) -> Any:
        return _number(atom.val, numbers) if is_literal(atom) else known[atom]

    for equation in jaxpr.eqns:
        found = _found(equation, list(map(value, equation.invars)), numbers)
        # Not every primitive looks at what it is told.
        for each, out in zip(found, equation.outvars, strict=True):
            if jnp.shape(each) != tuple(_less(size, numbers.sizes) for size in out.aval.shape):
                raise _OtherError
        known.update(zip(equation.outvars, found, strict=True))
    return list(map(value, jaxpr.outvars))


def _number(number: Any, numbers: _Numbers) -> Any:
    """A literal: what counts cells counts fewer, and a place is as far along them."""
    dtype = np.result_type(number)
    if jnp.issubdtype(dtype, jnp.floating):
        return np.asarray(_count(float(number), numbers.sizes), dtype)
    if not jnp.issubdtype(dtype, jnp.integer) or abs(int(number)) <= _FEW:
        return number
    found = _less(int(number), numbers.sizes)
    return np.asarray(_place(found, numbers.whole) if found == int(number) else found, dtype)


def _constant(value: Any, numbers: _Numbers) -> Any:
    """An array that the program holds: whole numbers may be places."""
    if not isinstance(value, (np.ndarray, np.generic, jax.Array)) or not jnp.issubdtype(value.dtype, jnp.integer):
        return value
    if value.size > _FEW:
        raise _OtherError
    return np.asarray([_number(each, numbers) for each in np.ravel(value)], value.dtype).reshape(value.shape)


def _place(number: int, whole: Sizes) -> int:
    """A place among few cells that is as far along them as a number is among many; that of an axis that stays stays."""
    if any(own == less and 0 <= own - number <= 1 for own, less in whole.items()):
        return number
    own = min((own for own, less in whole.items() if own != less and 0 <= number < own), default=None)
    if own is None:
        raise _OtherError
    return number * whole[own] // own


def _count(number: float, sizes: Sizes) -> float:
    for own, less in sizes.items():
        if own == less:
            continue
        if own < _COUNTED and number in (own, own - 1):
            return less - (own - number)
        cells = (own * other for other in (1, *sizes))
        likely = (each for count in cells for each in (count, 1 / count, math.sqrt(count), 1 / math.sqrt(count)))
        if any(math.isclose(abs(number), each, rel_tol=_ROUNDING) for each in likely):
            raise _OtherError
    return number


def _found(equation: Any, values: list[Any], numbers: _Numbers) -> list[Any]:
    name, params = equation.primitive.name, dict(equation.params)
    if name in _CALLED:
        inner = params[_CALLED[name]]
        return _run(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), values, numbers)
    if name == "scan":
        return _turned(equation, values, numbers)
    if name not in _TAKE_ANY and name not in _SIZED:
        raise _OtherError
    params |= {key: tuple(_less(size, numbers.sizes) for size in params[key]) for key in _SIZED.get(name, ())}
    bound = equation.primitive.bind(*values, **params)
    found = list(bound) if equation.primitive.multiple_results else [bound]
    if name == "reshape" and jnp.size(found[0]) != jnp.size(values[0]):
        raise _OtherError
    return found


def _turned(equation: Any, values: list[Any], numbers: _Numbers) -> list[Any]:
    """What a loop gives that takes cells one after the other."""
    body, (constants, carries) = equation.params["jaxpr"], scan_parts(equation)
    held, carry, slices = values[:constants], values[constants : constants + carries], values[constants + carries :]

    def turn(carried: list[Any], given: list[Any]) -> tuple[list[Any], list[Any]]:
        found = _run(body.jaxpr, body.consts, [*held, *carried, *given], numbers)
        return found[:carries], found[carries:]

    length = _less(equation.params["length"], numbers.sizes)
    last, stacked = jax.lax.scan(turn, carry, slices, length, equation.params["reverse"])
    return [*last, *stacked]
