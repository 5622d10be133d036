"""Which cells of the arguments each cell of a program is made of: what equations do to sets of cells.

A cell that is computed is a set of cells of arguments, as a number whose bits they are. Indices, masks, coordinates and
whatever else follows from constants, turns and places of devices are numbers: slices are taken where they say, of a
choice one side is taken. Where that is not known, or an equation is not, a cell may be made of anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, final

import jax.numpy as jnp
import numpy as np

from combinators.equations.primitives import PRIMITIVES, in_numpy, run_primitive
from tapestry_jax.shards.numeric.devices import COLLECTIVES, Devices, Lanes, reduced
from tapestry_jax.shards.numeric.simulated import Meaning

ANYTHING = -1
"""Made of it is not known what: all bits."""


class _Number(int):
    """A cell that is made of nothing, whose number is known."""


def _boxed(number: _Number) -> Any:
    """As an array: NumPy would make a plain integer of it."""
    found = np.empty((), object)
    found[()] = number
    return found


ZERO, LEAST = _boxed(_Number(0)), _boxed(_Number(0))
"""The number 0: what is multiplied by it is 0. Minus infinity, which masks: its exponential is 0."""
MOST_PRODUCTS = 2**20
"""Of one product that are looked at."""


def cells(shape: Sequence[int], first: int) -> Any:
    """An argument: every cell is made of itself, the `first`-th cell of all and those behind it."""
    found = np.empty(shape, object)
    found.ravel()[:] = [1 << (first + number) for number in range(found.size)]
    return found


def is_cells(value: Any) -> bool:
    """Whether an array says what its cells are made of, and is no number."""
    return getattr(value, "dtype", None) == np.dtype(object)


@final
class MadeOf(Meaning):
    """Sets of cells."""

    def run(self, equation: Any, row: Sequence[Any]) -> list[Any]:
        """What the results of an equation are made of."""
        if not any(map(is_cells, row)):
            return run_primitive(equation, row)
        name, avals = equation.primitive.name, [variable.aval for variable in equation.outvars]
        if name in ("optimization_barrier", "later"):
            return list(row)
        if name == "select_n" and not is_cells(row[0]) and np.all(row[0] == row[0].flat[0] if row[0].size else True):
            # One side alone, which may be numbers.
            return [row[1 + int(row[0].flat[0] if row[0].size else 0)]]
        if name in _NOTHING_OF_NOTHING and jnp.issubdtype(avals[0].dtype, jnp.integer) and any(map(_is_nothing, row)):
            # A number again, whatever the other one is made of.
            return [np.zeros(avals[0].shape, avals[0].dtype)]
        found = _found(equation, name, avals, list(row))
        if found is None:
            return [_anything(aval.shape) for aval in avals]
        return [_shaped(each, aval.shape) for each, aval in zip(found, avals, strict=True)]

    def collective(self, equation: Any, devices: Devices, operands: Sequence[Lanes]) -> list[Lanes]:
        """Sums and extrema are made of what all devices have."""
        name = equation.primitive.name
        function = COLLECTIVES[name]
        lanes = [devices.spread(each) for each in operands]
        if any(is_cells(value) for each in lanes for value in each):
            lanes = [[_sets(value) for value in each] for each in lanes]
            function = _MERGES.get(name, function)
        made = function(devices, equation.params, lanes)
        avals = [variable.aval for variable in equation.outvars]
        return [
            [
                value.reshape(aval.shape) if is_cells(value) else np.asarray(value, aval.dtype).reshape(aval.shape)
                for value in each
            ]
            for each, aval in zip(made, avals, strict=True)
        ]

    def number(self, value: Any) -> int | None:
        """What follows from constants."""
        return None if is_cells(value) else int(value)

    def alike(self, arrays: Sequence[Any]) -> list[Any]:
        """Numbers beside sets are made of nothing."""
        return list(map(_sets, arrays)) if any(map(is_cells, arrays)) else list(arrays)

    def either(self, cases: Sequence[Any], chosen: Any) -> Any:
        """What decides, and all of the cases."""
        sets = [np.broadcast_to(_sets(each), cases[0].shape) for each in cases]
        found = reduce(np.bitwise_or, sets, np.full(cases[0].shape, _all(_sets(chosen)), object))
        return _shaped(found, cases[0].shape)


def _found(equation: Any, name: str, avals: Sequence[Any], row: list[Any]) -> list[Any] | None:
    params = equation.params
    if name in _PLACED:
        return _moved(equation, avals, row)
    if name in _REDUCED:
        return [_union(_sets(row[0]), params["axes"])] * len(avals)
    if name in _CUMULATIVE:
        return [_running(_sets(row[0]), params["axis"], params["reverse"])]
    if name == "dot_general":
        found = _product(_sets(row[0]), _sets(row[1]), params["dimension_numbers"])
        return None if found is None else [found]
    if name == "sort":
        whole = [_along(_sets(each), params["dimension"]) for each in row]
        return [reduce(np.bitwise_or, whole)] * len(avals)
    if name in _ELEMENTWISE:
        return _computed(name, avals, [_sets(each) for each in row])
    return None


def _computed(name: str, avals: Sequence[Any], sets: list[Any]) -> list[Any]:
    """Cells by cells at their places; where numbers are known, as masks and identities are, they are kept."""
    if name == "mul":
        return _merged(avals, _factors(*sets))
    found = _merged(avals, sets)
    least = [np.broadcast_to(_holds(each, LEAST), avals[0].shape) for each in sets]
    if name == "div":
        return [np.where(np.broadcast_to(_holds(sets[0], ZERO), avals[0].shape), ZERO, found[0])]
    if name == "exp":
        return [np.where(least[0], ZERO, found[0])]
    if name == "max":
        return [np.where(least[0] & least[1], LEAST, found[0])]
    if name in ("add", "sub"):
        return [np.where(least[0] | (least[1] & (name == "add")), LEAST, found[0])]
    return found if name in _SAME else [_plain(each) for each in found]


def _is_nothing(value: Any) -> bool:
    return not is_cells(value) and not np.any(value)


def _moved(equation: Any, avals: Sequence[Any], row: list[Any]) -> list[Any] | None:
    """Cells that change places: the equation runs on the places of the cells, one number for each."""
    name = equation.primitive.name
    data = _PLACED[name](len(row))
    if any(is_cells(each) for number, each in enumerate(row) if number not in data):
        # Which cells are taken depends on data.
        if name != "select_n":
            return None
        return _merged(avals, [_sets(each) for each in row])
    flat, given = [0], list(row)
    for number in data:
        sets = _sets(row[number])
        given[number] = np.arange(len(flat), len(flat) + sets.size, dtype=np.int64).reshape(sets.shape)
        flat += list(sets.ravel())
    known = np.empty(len(flat), object)
    known[:] = flat
    if name in PRIMITIVES:
        # What lies outside, where a gather fills, is made of nothing.
        made = in_numpy(equation, avals[0], given, **({"fill_value": 0} if name == "gather" else {}))
    else:
        made = np.asarray(equation.primitive.bind(*(np.asarray(each, np.int32) for each in given), **equation.params))
    listed = made if isinstance(made, list) else [made]
    return [known.take(np.asarray(each, np.int64)) for each in listed]


def _merged(avals: Sequence[Any], sets: Sequence[Any]) -> list[Any]:
    if len(sets) == 1:
        return [np.broadcast_to(sets[0], avals[0].shape)] * len(avals)
    return [reduce(np.bitwise_or, [np.broadcast_to(each, avals[0].shape) for each in sets])] * len(avals)


def _factors(x: Any, y: Any) -> list[Any]:
    """What is multiplied by 0 is 0: identities of recurrences hold zeros."""
    is_zero = np.logical_or(_holds(x, ZERO), _holds(y, ZERO))
    return [np.where(is_zero, ZERO, np.broadcast_to(each, is_zero.shape)) for each in (x, y)]


def _holds(sets: Any, number: Any) -> Any:
    """Which cells are a known number."""
    sets = _shaped(sets, np.shape(sets))
    found = np.fromiter((cell is number[()] for cell in sets.ravel()), bool, sets.size)
    return found.reshape(sets.shape)


def _plain(sets: Any) -> Any:
    """Without known numbers."""
    sets = _shaped(sets, np.shape(sets))
    found = np.empty(sets.size, object)
    found[:] = [int(cell) for cell in sets.ravel()]
    return found.reshape(sets.shape)


def _sets(value: Any) -> Any:
    if is_cells(value):
        return value
    found = np.zeros(np.shape(value), object)
    if jnp.issubdtype(value.dtype, jnp.floating):
        found[np.asarray(value) == 0] = ZERO
        found[np.asarray(value) == -np.inf] = LEAST
    return found


def _shaped(value: Any, shape: Sequence[int]) -> Any:
    if is_cells(value):
        return value.reshape(shape)
    # NumPy gives what has no axes as it is.
    found = np.empty((), object)
    found[()] = value
    return found


def _anything(shape: Sequence[int]) -> Any:
    return np.full(shape, ANYTHING, object)


def _all(sets: Any) -> int:
    return reduce(int.__or__, sets.ravel().tolist(), 0)


def _union(sets: Any, axes: Sequence[int]) -> Any:
    for axis in sorted(axes, reverse=True):
        sets = np.asarray(np.bitwise_or.reduce(sets, axis=axis, initial=0), object)
    return sets


def _along(sets: Any, axis: int) -> Any:
    return np.broadcast_to(np.expand_dims(_union(sets, (axis,)), axis), sets.shape)


def _running(sets: Any, axis: int, is_reversed: bool) -> Any:
    turned = np.flip(sets, axis) if is_reversed else sets
    found = np.bitwise_or.accumulate(turned, axis=axis) if sets.size else sets
    return np.flip(found, axis) if is_reversed else found


def _product(x: Any, y: Any, numbers: Any) -> Any:
    """A sum of products is made of the factors of those that are not 0; None where there are too many."""
    (of_x, of_y), (batch_x, batch_y) = numbers
    sides: list[Any] = []
    for sets, gone, batch in ((x, of_x, batch_x), (y, of_y, batch_y)):
        free = [axis for axis in range(sets.ndim) if axis not in (*gone, *batch)]
        moved = np.transpose(sets, (*batch, *free, *gone))
        folded = math.prod(sets.shape[axis] for axis in gone)
        sides.append(moved.reshape((*moved.shape[: len(batch) + len(free)], folded)))
    count, free_x, free_y = len(batch_x), sides[0].ndim - len(batch_x) - 1, sides[1].ndim - len(batch_x) - 1
    left = sides[0].reshape((*sides[0].shape[:-1], *[1] * free_y, sides[0].shape[-1]))
    right = sides[1].reshape((*sides[1].shape[:count], *[1] * free_x, *sides[1].shape[count:]))
    if math.prod(np.broadcast_shapes(left.shape, right.shape)) > MOST_PRODUCTS:
        return None
    return _union(reduce(np.bitwise_or, _factors(left, right)), (left.ndim - 1,))


def _stack_union(stacked: Any, axis: int) -> Any:
    return _union(stacked, (axis,))


def _scattered(devices: Devices, params: Mapping[str, Any], operands: Sequence[Lanes]) -> list[Lanes]:
    whole = reduced(_stack_union)(devices, {"axes": params["axis_name"]}, operands)
    axis, axes = params["scatter_dimension"], params["axis_name"]
    names = tuple(axes) if isinstance(axes, tuple | list) else (axes,)
    return [
        [
            np.split(value, len(devices.group(device, names)), axis)[devices.index(device, names)]
            for device, value in enumerate(devices.spread(lanes))
        ]
        for lanes in whole
    ]


_MERGES: dict[str, Callable[..., list[Lanes]]] = {
    **dict.fromkeys(
        ("psum", "psum_invariant", "pmax", "pmax_invariant", "pmin", "pmin_invariant"), reduced(_stack_union)
    ),
    "reduce_scatter": _scattered,
}
_PLACED: dict[str, Callable[[int], Sequence[int]]] = {
    **dict.fromkeys(
        (
            *("slice", "dynamic_slice", "reshape", "squeeze", "transpose", "broadcast_in_dim"),
            *("rev", "gather", "split", "slice_alike"),
        ),
        lambda count: (0,),
    ),
    **dict.fromkeys(("dynamic_update_slice", "pad"), lambda count: (0, 1)),
    "concatenate": range,
    "select_n": lambda count: range(1, count),
}
"""Which operands hold the cells that change places; the others say where to."""
_REDUCED = frozenset(name for name in PRIMITIVES if name.startswith(("reduce_", "arg"))) - {"reduce_precision"}
_CUMULATIVE = frozenset(name for name in PRIMITIVES if name.startswith("cum"))
_NOTHING_OF_NOTHING = frozenset(("and", "mul"))
"""What is 0 in integers wherever one operand is."""
_SAME = frozenset(("convert_element_type", "copy", "name", "pvary", "reshard", "stop_gradient"))
"""What leaves numbers as they are."""
_AT_PLACE = """
neg sign floor ceil is_finite exp exp2 log expm1 log1p tan tanh sin cos sinh cosh atan asin acos abs sqrt rsqrt
square cbrt not erf erfc erf_inv logistic real imag conj complex atan2 add add_any sub mul rem max min pow eq ne ge
gt le lt and or xor shift_left shift_right_arithmetic div shift_right_logical integer_pow convert_element_type
bitcast_convert_type reduce_precision clamp nextafter round copy stop_gradient name sharding_constraint
reshard pvary threefry2x32 population_count clz lgamma digamma
"""
_ELEMENTWISE = frozenset(_AT_PLACE.split())
"""Cells of the results are made of the cells at their place."""
