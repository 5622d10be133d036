"""What equations are in numbers of finite fields (`residues`): arithmetic, powers and orders; all else is opaque."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy import special

from combinators.equations.primitives import PRIMITIVES, in_numpy
from tapestry_jax.shards.lowered import residues
from tapestry_jax.shards.numeric.devices import Devices, Lanes, reduced


class UnfollowedError(Exception):
    """A choice, or an integer, depends on a float that is not known here."""


def is_float(dtype: Any) -> bool:
    """Whether numbers of this type stand as pairs."""
    return jnp.issubdtype(dtype, jnp.inexact)


def in_pairs(value: Any, aval: Any) -> Any:
    """Floats as pairs; these have the type of no float."""
    if not is_float(aval.dtype) or value.dtype == np.int64:
        return value
    if np.iscomplexobj(value):
        raise UnfollowedError
    return residues.residues(value)


def typed(value: Any, aval: Any) -> Any:
    """A result as it has to be: floats as pairs, all else in its type."""
    array = np.asarray(value)
    if is_float(aval.dtype):
        array = residues.residues(array) if is_float(array.dtype) else array.astype(np.int64)
    elif array.dtype != aval.dtype:
        array = array.astype(aval.dtype)
    return array.reshape(aval.shape)


def found_by(equation: Any, avals: Sequence[Any], given: Sequence[Any]) -> Sequence[Any] | None:
    """The results; None where nothing is known of them."""
    name = equation.primitive.name
    if any(jnp.issubdtype(v.aval.dtype, jnp.complexfloating) for v in (*equation.invars, *equation.outvars)):
        raise UnfollowedError(name)
    if name in _PLACED:
        return _placed(equation, avals, given)
    if name in _SAME:
        return list(given)
    if name in _AT_PLACE:
        return [_AT_PLACE[name](*given)]
    if name in _ORDERED:
        if any(map(residues.is_unknown, given)):
            raise UnfollowedError(name)
        return [_ORDERED[name](*map(residues.first, given))]
    rule = _RULES.get(name)
    return None if rule is None else rule(equation, avals, given)


def _placed(equation: Any, avals: Sequence[Any], given: Sequence[Any]) -> Sequence[Any]:
    """Cells that change places."""
    name, params = equation.primitive.name, equation.params
    if name not in PRIMITIVES:
        places = np.arange(given[0].size, dtype=np.int32).reshape(given[0].shape)
        rest = [np.asarray(each, np.int32) for each in given[1:]]
        return [given[0].ravel().take(np.asarray(equation.primitive.bind(places, *rest, **params)))]
    more: dict[str, Any] = {}
    if name == "gather":
        fill = params["fill_value"]
        more = {"fill_value": residues.UNKNOWN if fill is None else residues.residues(fill)}
    made = in_numpy(equation, avals[0], given, **more)
    return made if isinstance(made, list) else [made]


def _converted(equation: Any, avals: Sequence[Any], given: Sequence[Any]) -> Sequence[Any]:
    (x,), before, after = given, equation.invars[0].aval.dtype, avals[0].dtype
    if not is_float(before):
        return [residues.residues(x)]
    if is_float(after):
        return [x]
    if residues.is_unknown(x) or not np.all(residues.is_finite(x)):
        raise UnfollowedError
    own = residues.first(x)
    return [own != 0 if after == np.bool_ else own % jnp.iinfo(after).max]


def _reduced(merge: Callable[..., Any], identity: int, equation: Any, _: Any, given: Sequence[Any]) -> Sequence[Any]:
    (x,) = given
    for axis in sorted(equation.params["axes"], reverse=True):
        x = residues.folded(merge, x, axis, identity)
    return [x]


def _running(merge: Callable[..., Any], equation: Any, _: Any, given: Sequence[Any]) -> Sequence[Any]:
    axis, (x,) = equation.params["axis"], given
    turned = np.flip(x, axis) if equation.params["reverse"] else x
    made = residues.running(merge, turned, axis)
    return [np.flip(made, axis) if equation.params["reverse"] else made]


def _chosen(equation: Any, avals: Sequence[Any], given: Sequence[Any]) -> Sequence[Any]:
    """What is sorted, or found, by the orders of fields."""
    floats = [is_float(variable.aval.dtype) for variable in equation.invars]
    if any(residues.is_unknown(each) for each, is_own in zip(given, floats, strict=True) if is_own):
        raise UnfollowedError
    made = in_numpy(equation, avals[0], given)
    return made if isinstance(made, list) else [made]


def _product(equation: Any, _: Any, given: Sequence[Any]) -> Sequence[Any] | None:
    (gone_x, gone_y), (batch_x, batch_y) = equation.params["dimension_numbers"]
    floats = [is_float(variable.aval.dtype) for variable in equation.invars]
    x, y = (each if is_own else residues.residues(each) for each, is_own in zip(given, floats, strict=True))
    sides: list[Any] = []
    for side, gone, batch in ((x, gone_x, batch_x), (y, gone_y, batch_y)):
        free = [axis for axis in range(side.ndim) if axis not in (*gone, *batch)]
        moved = np.transpose(side, (*batch, *free, *gone))
        kept = moved.shape[: len(batch) + len(free)]
        sides.append(moved.reshape((*kept, int(np.prod([side.shape[axis] for axis in gone], dtype=int)))))
    count = len(batch_x)
    left = sides[0].reshape((*sides[0].shape[:-1], *[1] * (sides[1].ndim - count - 1), sides[0].shape[-1]))
    right = sides[1].reshape((*sides[1].shape[:count], *[1] * (sides[0].ndim - count - 1), *sides[1].shape[count:]))
    return [residues.folded(residues.add, residues.multiply(left, right), -1, 0)]


def _scattered_sum(equation: Any, avals: Sequence[Any], given: Sequence[Any]) -> Sequence[Any] | None:
    """Sums into cells are linear: each field by itself, in integers."""
    operand, places, updates = given
    if not (np.all(residues.is_finite(operand)) and np.all(residues.is_finite(updates))):
        return None
    own = in_numpy(equation, avals[0], [residues.first(operand), places, residues.first(updates)])
    if own is NotImplemented:
        return None
    # Of the second numbers nothing is said.
    return [residues.only_first(own % residues.P)]


def _power(equation: Any, _: Any, given: Sequence[Any]) -> Sequence[Any]:
    return [residues.power(given[0], equation.params["y"])]


def _clamped(low: Any, x: Any, high: Any) -> Any:
    return residues.minimum(residues.maximum(low, x), high)


def _stacked(merge: Callable[..., Any], identity: int) -> Callable[..., list[Lanes]]:
    return reduced(lambda stacked, axis: residues.folded(merge, stacked, axis, identity))


def _scattered(devices: Devices, params: Mapping[str, Any], operands: Sequence[Lanes]) -> list[Lanes]:
    axes, axis = params["axis_name"], params["scatter_dimension"]
    names = tuple(axes) if isinstance(axes, tuple | list) else (axes,)
    whole = _stacked(residues.add, 0)(devices, {"axes": names}, operands)
    return [
        [
            np.split(value, len(devices.group(device, names)), axis)[devices.index(device, names)]
            for device, value in enumerate(devices.spread(lanes))
        ]
        for lanes in whole
    ]


MERGES: dict[str, Callable[..., list[Lanes]]] = {
    **dict.fromkeys(("psum", "psum_invariant"), _stacked(residues.add, 0)),
    **dict.fromkeys(("pmax", "pmax_invariant"), _stacked(residues.maximum, residues.LEAST)),
    **dict.fromkeys(("pmin", "pmin_invariant"), _stacked(residues.minimum, residues.MOST)),
    "reduce_scatter": _scattered,
}
_PLACED = frozenset(
    (
        *("slice", "dynamic_slice", "reshape", "squeeze", "transpose", "broadcast_in_dim", "rev", "gather", "split"),
        *("slice_alike", "dynamic_update_slice", "pad", "concatenate", "select_n", "iota"),
    )
)
_SAME = frozenset(
    (
        *("copy", "name", "pvary", "reshard", "stop_gradient", "sharding_constraint", "reduce_precision"),
        *("optimization_barrier", "later"),
    )
)
_LISTED = "floor ceil log log1p tan tanh sin cos sinh cosh atan sqrt rsqrt erf erfc logistic"
_OTHERS: dict[str, Callable[[Any], Any]] = {
    **{name: partial(PRIMITIVES[name], None) for name in _LISTED.split()},
    "asin": np.arcsin,
    "acos": np.arccos,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "round": np.round,
    "erf_inv": special.erfinv,
    "lgamma": special.gammaln,
    "digamma": special.digamma,
}
OF_REALS = frozenset(
    (
        *(*_OTHERS, "abs", "sign", "max", "min", "clamp", "atan2", "rem", "nextafter", "pow", "eq", "ne", "ge", "gt"),
        *("le", "lt", "sort", "argmax", "argmin", "reduce_max", "reduce_min", "cummax", "cummin", "cumlogsumexp"),
    )
)
"""What has laws beside those of fields and of powers: `max(x, y) + z`, `sqrt(x) sqrt(x)`, `log(x y)`."""
_POINTS = 0.0, 1.0, -1.0, np.inf, -np.inf
"""What padding and identities hold: there functions give what they give."""


def _other(name: str, x: Any) -> Any:
    """A function of which nothing is known but what it gives at a few points."""
    with np.errstate(all="ignore"):
        given = residues.residues(np.asarray(_OTHERS[name](np.array(_POINTS))))
    points = residues.residues(np.array(_POINTS))
    made = residues.opaque(name, x)
    for point, value in zip(points, given, strict=True):
        made = np.where(residues.first(x) == residues.first(point), value, made)
    return made


def _raised(equation: Any, _: Any, given: Sequence[Any]) -> Sequence[Any]:
    """Powers of integers, and others, of which nothing is known but that those of 0 are 0."""
    x, y = given
    if not is_float(equation.invars[1].aval.dtype):
        return [residues.power(x, y)]
    is_zero = (residues.first(x) == 0) & (y != 0) & (y != residues.UNKNOWN)
    return [np.where(is_zero, 0, residues.opaque("pow", x, y))]


_AT_PLACE: dict[str, Callable[..., Any]] = {
    **{name: partial(_other, name) for name in _OTHERS},
    **{name: partial(residues.opaque, name) for name in ("atan2", "rem", "nextafter")},
    # Sums of powers are positive, which no field knows: some take the logarithm of what has no minus.
    "log": lambda x: _other("log", residues.absolute(x)),
    "add": residues.add,
    "add_any": residues.add,
    "sub": lambda x, y: residues.add(x, residues.negative(y)),
    "neg": residues.negative,
    "mul": residues.multiply,
    "div": lambda x, y: residues.multiply(x, residues.inverse(y)),
    "square": lambda x: residues.multiply(x, x),
    "exp": residues.exponential,
    "exp2": partial(residues.exponential, base=residues.BASE**2),
    "expm1": lambda x: residues.add(residues.exponential(x), residues.residues(-1.0)),
    "abs": residues.absolute,
    "sign": residues.sign,
    "max": residues.maximum,
    "min": residues.minimum,
    "clamp": _clamped,
}
_ORDERED: dict[str, Callable[..., Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "ge": np.greater_equal,
    "gt": np.greater,
    "le": np.less_equal,
    "lt": np.less,
    "is_finite": residues.is_finite,
}
_RULES: dict[str, Callable[[Any, Sequence[Any], Sequence[Any]], Sequence[Any] | None]] = {
    "convert_element_type": _converted,
    "integer_pow": _power,
    "pow": _raised,
    "dot_general": _product,
    "scatter-add": _scattered_sum,
    "sort": _chosen,
    "argmax": _chosen,
    "argmin": _chosen,
    "reduce_sum": partial(_reduced, residues.add, 0),
    "reduce_prod": partial(_reduced, residues.multiply, int(residues.residues(1.0))),
    "reduce_max": partial(_reduced, residues.maximum, residues.LEAST),
    "reduce_min": partial(_reduced, residues.minimum, residues.MOST),
    "cumsum": partial(_running, residues.add),
    "cumprod": partial(_running, residues.multiply),
    "cummax": partial(_running, residues.maximum),
    "cummin": partial(_running, residues.minimum),
}
