"""Numbers that kernels are run on: of both signs, between 0 and 1, whole numbers in their order and in none.

What a program takes its operands to be (`preconditions`), they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from combinators.declared.preconditions import Preconditions, preconditions
from combinators.index_space.signature import Signature

# What operands are moved by, in roundings of their dtype.
_MOVED = 4
# Whole numbers begin at 0, since many are places; others are as far from it, on either side.
_PLACES, _FAR = 3, 5
# How many times greater, or less, some cells are than others.
_STREAKS = 10.0
# No place is as far, whatever is computed of it.
_NO_PLACE = 1 << 20


def drawn(
    signature: Signature, program: Any, sizes: Mapping[str, int], rounds: int = 1, first: int = 0
) -> Iterator[list[Any]]:
    """Operands of a program, one list of arrays after the other.

    Floats of both signs, then between 0 and 1. Whole numbers rise along every axis, as labels and edges do; then they
    come in any order, repeated, and negative where no place is computed of them.

    Args:
      signature: of the kernel, without an ellipsis.
      program: its closed jaxpr on all of its cells.
      sizes: of its dimensions.
      rounds: how often each kind of numbers is drawn.
      first: the round to begin with.
    """
    taken = preconditions(program)
    told = taken.rising | taken.distinct
    ordered = [
        operand.coordinate is not None or number in told or not _is_whole(aval.dtype)
        for number, (operand, aval) in enumerate(zip(signature.operands, program.in_avals, strict=True))
    ]
    kinds = [(False, True), (True, True), *([] if all(ordered) else [(False, False)])]
    for seed in range(first, rounds):
        for positive, rising in kinds:
            rng = np.random.default_rng(seed)
            # Of a single cell the first draws may all be of one sign.
            sign = -1 if seed % 2 else 1
            yield [
                np.arange(sizes[operand.coordinate]).astype(aval.dtype)
                if operand.coordinate is not None
                else _operand(rng, number, aval, taken, 0 if positive else sign, rising)
                for number, (operand, aval) in enumerate(zip(signature.operands, program.in_avals, strict=True))
            ]


def moved(array: Any, way: int = 0) -> Any:
    """Numbers next to those of an array, others in each way: what they change is what rounding may."""
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        return array
    signs = np.random.default_rng(1 + way).choice([-1, 1], array.shape)
    return (array * (1 + _MOVED * float(jnp.finfo(array.dtype).eps) * signs)).astype(array.dtype)


def scaled(array: Any, factor: float) -> Any:
    """Greater, smaller or negative numbers; truths and keys as they are, and whole numbers that cannot be so."""
    if factor == 1 or is_key(array.dtype) or array.dtype == bool:
        return array
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        if abs(factor) < 1:
            return array
        limits = jnp.iinfo(array.dtype)
        return np.clip((1 + array.astype(np.int64)) * factor, limits.min, min(limits.max, _NO_PLACE)).astype(
            array.dtype
        )
    return (array * factor).astype(array.dtype)


def shifted(array: Any, step: float) -> Any:
    """Floats to which something is added, of any size from a step of -3 to one of 3; all else as it is."""
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        return array
    return (array + math.copysign(10.0 ** abs(step) - 1, step)).astype(array.dtype)


def streaked(array: Any, rng: np.random.Generator) -> Any:
    """Along each axis cells of a scale of their own, and along some of a sign, so that parts are unlike each other.

    Numbers that are not negative stay so; whole numbers are of a sign of their own alone.
    """
    if is_key(array.dtype) or array.dtype == bool or not array.size:
        return array
    is_float, streaks = jnp.issubdtype(array.dtype, jnp.inexact), np.ones(())
    is_signed = jnp.isrealobj(array) and bool((array < 0).any())
    for axis, size in enumerate(array.shape):
        shape = [size if each == axis else 1 for each in range(array.ndim)]
        # Each cell, or all up to some place and all behind it: a box of many cells is of one kind then.
        split = max(1, size // 2) if rng.integers(2) else rng.integers(1, max(size, 2))
        runs = np.arange(size) if rng.integers(2) else np.arange(size) >= split
        signs = rng.choice([-1, 1], size)[runs.astype(int)] if is_signed and rng.integers(2) else np.ones(size)
        scales = _STREAKS ** rng.uniform(-1, 1, size)[runs.astype(int)] if is_float and rng.integers(2) else 1
        streaks = streaks * (signs * scales).reshape(shape)
    return (abs(array) * streaks if is_signed else array * streaks).astype(array.dtype)


def tied(array: Any) -> Any:
    """Floats of which several are equal, whole ones; whole numbers of which no two are."""
    if is_key(array.dtype) or array.dtype == bool:
        return array
    if jnp.issubdtype(array.dtype, jnp.inexact):
        return np.clip(np.round(array.astype(np.float32)), -2, 2).astype(array.dtype)
    limits = jnp.iinfo(array.dtype)
    places = np.random.default_rng(array.size).permutation(array.size) - (array.size // 2 if limits.min < 0 else 0)
    return np.clip(places, limits.min, min(limits.max, _NO_PLACE)).astype(array.dtype).reshape(array.shape)


def planted(array: Any, number: float, share: float = 4) -> Any:
    """Floats of which one of so many is a number, as NaN, and at least one; all else as it is."""
    if not jnp.issubdtype(array.dtype, jnp.inexact) or not array.size:
        return array
    places = np.random.default_rng(array.size).permutation(array.size)[: max(1, math.ceil(array.size / share))]
    changed = array.copy().reshape(-1)
    changed[places] = number
    return changed.reshape(array.shape)


def about(
    array: Any,
    number: float,
    sides: Sequence[int | None],
    rng: np.random.Generator,
    places: Sequence[tuple[int, int]] = (),
) -> Any:
    """Cells on some sides of a number: those before some place along an axis on the first, those behind on the second.

    Args:
      array: what is changed; truths and keys are not.
      number: of any dtype; it may be infinite.
      sides: -1 for below, 0 for at, 1 for above, and None for cells as they are.
      rng: of the places and of how far cells are from the number.
      places: axes and places along them, one of which it is; any where there is none.
    """
    if is_key(array.dtype) or array.dtype == bool or not array.size or not array.ndim:
        return array
    axis = int(rng.integers(array.ndim))
    place = int(rng.integers(1, max(array.shape[axis], 2)))
    if places:
        axis, place = places[int(rng.integers(len(places)))]
    behind = (np.arange(array.shape[axis]) >= place).reshape([-1 if each == axis else 1 for each in range(array.ndim)])
    is_float = jnp.issubdtype(array.dtype, jnp.inexact)
    farthest = max(1.0, abs(number)) * 10.0 ** rng.uniform(-3, 0)
    far = farthest * rng.uniform(0.01, 1, array.shape) if is_float else rng.integers(1, 3, array.shape)
    for side, cells in zip(sides, (~behind, behind), strict=True):
        if side is not None:
            array = np.where(cells, _within(number + side * far if side else number, array.dtype), array)
    return array


def totalled(array: Any, number: float, places: Sequence[tuple[int, int]], count: int) -> Any:
    """Floats of which so many cells in a row come to a number, along axes from their begin to some places.

    Args:
      array: what is shifted as a whole; all else than floats stays as it is.
      number: that the sum of `count` cells comes to.
      places: axes, and where the cells end that are looked at.
      count: of 1 it is their mean.
    """
    if not jnp.issubdtype(array.dtype, jnp.inexact) or not array.size or not places:
        return array
    begin = array[tuple(slice(dict(places).get(axis)) for axis in range(array.ndim))]
    wide = np.result_type(begin.dtype, np.float64) if begin.dtype.kind in "fc" else np.float64
    mean = begin.mean(tuple(axis for axis, _ in places), wide, keepdims=True)
    return (array + (number / count - mean)).astype(array.dtype)


def _within(numbers: Any, dtype: Any) -> Any:
    """Numbers of a dtype, the nearest ones where it has no such."""
    if jnp.issubdtype(dtype, jnp.inexact):
        return np.asarray(numbers).astype(dtype)
    limits = jnp.iinfo(dtype)
    least, most = max(limits.min, -_NO_PLACE), min(limits.max, _NO_PLACE)
    return np.clip(np.nan_to_num(np.floor(numbers)), least, most).astype(dtype)


def stay(signature: Signature, program: Any) -> list[bool]:
    """Which operands of a program stay as they are drawn: coordinates, and what it takes to be places or in order."""
    taken = preconditions(program)
    told = taken.rising | taken.distinct | taken.places
    return [each.coordinate is not None or number in told for number, each in enumerate(signature.operands)]


def are_whole(arrays: Sequence[Any]) -> bool:
    """Whether all of some arrays but random keys are whole numbers or truths, which are not rounded."""
    return all(array.dtype.kind in "biu" for array in arrays if not is_key(array.dtype))


def is_key(dtype: Any) -> bool:
    """Whether numbers are random keys."""
    return jnp.issubdtype(dtype, jax.dtypes.prng_key)


def _is_whole(dtype: Any) -> bool:
    return not jnp.issubdtype(dtype, jnp.inexact) and not is_key(dtype)


def _operand(rng: np.random.Generator, number: int, aval: Any, taken: Preconditions, sign: int, rising: bool) -> Any:
    """Numbers of one operand; floats between 0 and 1 where `sign` is 0, else of both signs."""
    if is_key(aval.dtype):
        return _keys(int(rng.integers(1 << 30)), aval)
    if number in taken.distinct:
        values = np.arange(math.prod(aval.shape)).reshape(aval.shape)
        values = values if number in taken.rising else rng.permutation(values.ravel()).reshape(aval.shape)
        return values.astype(aval.dtype)
    if not _is_whole(aval.dtype):
        values = 3 * sign * rng.normal(size=aval.shape) if sign else rng.uniform(0.1, 0.9, aval.shape)
    elif aval.dtype == bool:
        values = rng.integers(0, 2, aval.shape)
    elif rising or number in taken.places | taken.rising:
        values = rng.integers(0, _PLACES, aval.shape)
    else:
        least = 0 if jnp.issubdtype(aval.dtype, jnp.unsignedinteger) else -_FAR
        values = rng.integers(least, _FAR, aval.shape)
    if number in taken.rising or (rising and _is_whole(aval.dtype)):
        for axis in range(values.ndim):
            values = np.sort(values, axis)
    return values.astype(aval.dtype)


def _keys(seed: int, aval: Any) -> Any:
    kinds: list[Any] = []  # which only arrays tell
    jax.eval_shape(lambda keys: kinds.append(jax.random.key_impl(keys)), jax.ShapeDtypeStruct(aval.shape, aval.dtype))
    return jax.random.split(jax.random.key(seed, impl=kinds[0]), aval.shape)
