"""Primitives of JAX in NumPy, those that give the same bits as XLA's, and the draws of Threefry.

A rule takes the equation and its operands. Here are movement of data, arithmetic that IEEE 754 rounds to one result,
comparisons, and what `jax.random` draws with. Functions such as `exp` are XLA's, which rounds them in its own way,
compiled once for all shapes. Sums, whose order is XLA's, are not here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import numpy as np

Rule = Callable[..., Any]

CALLS = frozenset({"jit", "pjit", "closed_call", "core_call"})
"""Primitives that call a jaxpr."""


class LeftToXlaError(Exception):
    """NumPy gives something else for these operands."""


def _plainly(function: Callable[..., Any]) -> Rule:
    return lambda equation, *operands: function(*operands)


def _reshape(equation: Any, operand: Any) -> Any:
    if equation.params["dimensions"] is not None:
        raise LeftToXlaError
    return operand.reshape(equation.params["new_sizes"])


def _broadcast_in_dim(equation: Any, operand: Any) -> Any:
    shape = equation.params["shape"]
    lined_up = [1] * len(shape)
    for axis, size in zip(equation.params["broadcast_dimensions"], operand.shape, strict=True):
        lined_up[axis] = size
    return np.broadcast_to(operand.reshape(lined_up), shape)


def _slice(equation: Any, operand: Any) -> Any:
    starts, limits = equation.params["start_indices"], equation.params["limit_indices"]
    strides = equation.params["strides"] or (1,) * operand.ndim
    return operand[tuple(map(slice, starts, limits, strides))]


def _dynamic_slice(equation: Any, operand: Any, *starts: Any) -> Any:
    return operand[_window(operand.shape, equation.params["slice_sizes"], starts)]


def _dynamic_update_slice(equation: Any, operand: Any, update: Any, *starts: Any) -> Any:
    result = operand.copy()
    result[_window(operand.shape, update.shape, starts)] = update
    return result


def _window(shape: tuple[int, ...], sizes: tuple[int, ...], starts: tuple[Any, ...]) -> tuple[slice, ...]:
    """Where a window lies, moved inside as XLA does."""
    firsts = [min(max(int(start), 0), all_ - size) for start, all_, size in zip(starts, shape, sizes, strict=True)]
    return tuple(slice(first, first + size) for first, size in zip(firsts, sizes, strict=True))


def _iota(equation: Any) -> Any:
    shape, axis = equation.params["shape"], equation.params["dimension"]
    lined_up = [1] * len(shape)
    lined_up[axis] = shape[axis]
    return np.broadcast_to(np.arange(shape[axis]).reshape(lined_up), shape)


def _convert(equation: Any, operand: Any) -> Any:
    dtype = np.dtype(equation.params["new_dtype"])
    is_inexact = jax.dtypes.issubdtype(operand.dtype, np.inexact)
    if is_inexact and not jax.dtypes.issubdtype(dtype, np.inexact):
        # Numbers that are none, or too large, XLA converts in its own way.
        raise LeftToXlaError
    if jax.dtypes.issubdtype(operand.dtype, np.complexfloating) and not jax.dtypes.issubdtype(
        dtype, np.complexfloating
    ):
        operand = operand.real
    return operand.astype(dtype)


def _divide(equation: Any, left: Any, right: Any) -> Any:
    if left.dtype not in (np.float32, np.float64):
        raise LeftToXlaError
    return _normal(np.divide(_normal(left), _normal(right)))


def _remainder(equation: Any, left: Any, right: Any) -> Any:
    is_plain = left.dtype in (np.float32, np.float64) or left.dtype.kind in "iu"
    if not is_plain or (left.dtype.kind in "iu" and np.any(right == 0)):
        raise LeftToXlaError
    return _normal(np.fmod(_normal(left), _normal(right)))


def _pad(equation: Any, operand: Any, value: Any) -> Any:
    config = equation.params["padding_config"]
    if any(low < 0 or high < 0 or between for low, high, between in config):
        raise LeftToXlaError
    return np.pad(operand, [(low, high) for low, high, _ in config], constant_values=value)


def _unstack(equation: Any, operand: Any) -> Any:
    return list(np.moveaxis(operand, equation.params["axis"], 0))


def _select(equation: Any, which: Any, *cases: Any) -> Any:
    if which.dtype != np.bool_ or len(cases) != 2:
        raise LeftToXlaError
    return np.where(which, cases[1], cases[0])


def _integer_power(equation: Any, operand: Any) -> Any:
    if equation.params["y"] != 2:
        raise LeftToXlaError
    return _normal(_normal(operand) * operand)


def _bits_as(equation: Any, operand: Any) -> Any:
    dtype = np.dtype(equation.params["new_dtype"])
    if dtype.itemsize != operand.dtype.itemsize:
        raise LeftToXlaError
    return np.ascontiguousarray(operand).view(dtype).reshape(operand.shape)


def _over_axes(function: Callable[..., Any]) -> Rule:
    def rule(equation: Any, operand: Any) -> Any:
        if operand.size == 0:
            raise LeftToXlaError
        return function(_normal(operand), axis=tuple(equation.params["axes"]))

    return rule


def _shifted(function: Callable[..., Any]) -> Rule:
    def rule(equation: Any, operand: Any, by: Any) -> Any:
        if np.any(by < 0) or np.any(by >= 8 * operand.dtype.itemsize):
            raise LeftToXlaError
        unsigned = operand.view(f"u{operand.dtype.itemsize}")
        return function(unsigned, by.astype(unsigned.dtype)).view(operand.dtype)

    return rule


def _arithmetic(function: Callable[..., Any]) -> Rule:
    """Of real numbers, none of them subnormal: XLA takes those for zero, and multiplies complex ones in its own way."""

    def rule(equation: Any, *operands: Any) -> Any:
        return _normal(function(*map(_normal, operands)))

    return rule


def _normal(array: Any) -> Any:
    if jax.dtypes.issubdtype(array.dtype, np.complexfloating):
        raise LeftToXlaError
    if jax.dtypes.issubdtype(array.dtype, np.floating):
        sizes = np.abs(array)
        if np.any((sizes > 0) & (sizes < jax.numpy.finfo(array.dtype).tiny)):
            raise LeftToXlaError
    return array


def _greatest(function: Callable[..., Any]) -> Callable[..., Any]:
    """Of zeros of both signs XLA takes another one."""

    def of(*operands: Any, **settings: Any) -> Any:
        if jax.dtypes.issubdtype(operands[0].dtype, np.floating):
            signs = [np.signbit(operand[operand == 0]) for operand in operands]
            if len(np.unique(np.concatenate(signs))) > 1:
                raise LeftToXlaError
        return function(*operands, **settings)

    return of


def _random_bits(equation: Any, key: Any) -> Any:
    """Threefry 2x32 in twenty rounds, of the number of each cell (Salmon et al., Parallel random numbers, 2011)."""
    shape, width = equation.params["shape"], equation.params["bit_width"]
    if key.shape != (2,) or width != 32 or not jax.config.jax_threefry_partitionable:
        raise LeftToXlaError
    high, low = threefry(key[0], key[1], *_numbered(shape))
    return high ^ low


def _numbered(shape: tuple[int, ...]) -> tuple[Any, Any]:
    """The number of each cell in two words."""
    numbers = np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.uint64).reshape(shape)
    return (numbers >> np.uint64(32)).astype(np.uint32), numbers.astype(np.uint32)


def threefry(key: Any, other_key: Any, first: Any, second: Any) -> tuple[Any, Any]:
    """The two words that Threefry 2x32 makes of two words."""
    keys = [key, other_key, key ^ other_key ^ np.uint32(0x1BD11BDA)]
    first, second = first + keys[0], second + keys[1]
    for turn in range(5):
        for by in ((13, 15, 26, 6), (17, 29, 16, 24))[turn % 2]:
            first = first + second
            second = ((second << np.uint32(by)) | (second >> np.uint32(32 - by))) ^ first
        first = first + keys[(turn + 1) % 3]
        second = second + keys[(turn + 2) % 3] + np.uint32(turn + 1)
    return first, second


def add_to_product(name: str, given: Sequence[Any], factors: Sequence[Sequence[Any] | None]) -> Any:
    """A sum or difference one of whose operands is a product, rounded once: processors have an instruction for it."""
    if given[0].dtype.kind in "iu":
        return given[0] + given[1] if name == "add" else given[0] - given[1]
    if given[0].dtype != np.float32 or all(each is not None for each in factors):
        raise LeftToXlaError
    # Two numbers of 24 bits have a product of 48, which 53 hold.
    first, second = (
        operand.astype(np.float64) if pair is None else np.multiply(*pair, dtype=np.float64)
        for operand, pair in zip(given, factors, strict=True)
    )
    return _normal(np.float32(first + second if name == "add" else first - second))


OF_XLA = ("cos", "erf", "erf_inv", "exp", "log", "logistic", "rsqrt", "sin", "tanh")
BLOCK = 1024
"""Cells of the programs that functions such as `exp` are compiled to."""


def _by_xla(equation: Any, operand: Any) -> Any:
    """A function of each cell for itself, whose rounding is XLA's: one program for all shapes."""
    if operand.dtype != np.float32:
        raise LeftToXlaError
    blocks = max(1, -(-operand.size // BLOCK))
    padded = np.full((blocks, BLOCK), 0.5, np.float32)
    padded.reshape(-1)[: operand.size] = operand.reshape(-1)
    settings = tuple(sorted(equation.params.items()))
    made = [np.asarray(_compiled(equation.primitive, settings)(block)) for block in padded]
    return np.concatenate(made)[: operand.size].reshape(operand.shape)


@cache
def _compiled(primitive: Any, settings: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    def in_a_block(block: Any) -> Any:
        return primitive.bind(block, **dict(settings))

    return jax.jit(in_a_block)


ROUNDED = frozenset({"add", "sub", "mul", "div", "square", "sqrt", "integer_pow", *OF_XLA})
"""Primitives that round; of two in one program XLA may make one that rounds once."""

PRIMITIVES: dict[str, Rule] = {
    "abs": _arithmetic(np.abs),
    "add": _arithmetic(np.add),
    "and": _plainly(np.bitwise_and),
    "bitcast_convert_type": _bits_as,
    "broadcast_in_dim": _broadcast_in_dim,
    "concatenate": lambda equation, *operands: np.concatenate(operands, equation.params["dimension"]),
    "convert_element_type": _convert,
    "copy": _plainly(np.copy),
    "div": _divide,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "eq": _arithmetic(np.equal),
    **dict.fromkeys(OF_XLA, _by_xla),
    "ge": _arithmetic(np.greater_equal),
    "gt": _arithmetic(np.greater),
    "integer_pow": _integer_power,
    "iota": _iota,
    "iota_2x32_shape": lambda equation: _numbered(equation.params["shape"]),
    "is_finite": _plainly(np.isfinite),
    "le": _arithmetic(np.less_equal),
    "lt": _arithmetic(np.less),
    "max": _arithmetic(_greatest(np.maximum)),
    "min": _arithmetic(_greatest(np.minimum)),
    "mul": _arithmetic(np.multiply),
    "ne": _arithmetic(np.not_equal),
    "neg": _plainly(np.negative),
    "nextafter": _plainly(np.nextafter),
    "not": _plainly(np.invert),
    "or": _plainly(np.bitwise_or),
    "pad": _pad,
    "random_bits": _random_bits,
    "reduce_and": _over_axes(np.bitwise_and.reduce),
    "reduce_max": _over_axes(_greatest(np.max)),
    "reduce_min": _over_axes(_greatest(np.min)),
    "reduce_or": _over_axes(np.bitwise_or.reduce),
    "rem": _remainder,
    "reshape": _reshape,
    "rev": lambda equation, operand: np.flip(operand, equation.params["dimensions"]),
    "select_n": _select,
    "shift_left": _shifted(np.left_shift),
    "shift_right_logical": _shifted(np.right_shift),
    "sign": _arithmetic(lambda operand: np.where(operand == 0, operand, np.sign(operand))),
    "slice": _slice,
    "sqrt": _arithmetic(np.sqrt),
    "square": _arithmetic(np.square),
    "squeeze": lambda equation, operand: operand.reshape(equation.outvars[0].aval.shape),
    "stack": lambda equation, *operands: np.stack(operands, equation.params["axis"]),
    "stop_gradient": _plainly(np.asarray),
    "sub": _arithmetic(np.subtract),
    "threefry2x32": lambda equation, *words: threefry(*words),
    "tile": lambda equation, operand: np.tile(operand, equation.params["reps"]),
    "transpose": lambda equation, operand: operand.transpose(equation.params["permutation"]),
    "unstack": _unstack,
    "xor": _plainly(np.bitwise_xor),
}
"""By name of the primitive."""

_READ = frozenset(
    (
        *("axes", "axis", "bit_width", "broadcast_dimensions", "dimension", "dimensions", "dtype", "limit_indices"),
        *("new_dtype", "new_sizes", "padding_config", "permutation", "reps", "shape", "slice_sizes", "start_indices"),
        *("strides", "weak_type", "y"),
    )
)
"""Parameters that the rules above read, or that change nothing."""


def is_known(equation: Any) -> bool:
    """Whether a rule knows what the equation asks for."""
    name = equation.primitive.name
    if name in OF_XLA:
        return True
    others = (value for parameter, value in equation.params.items() if parameter not in _READ)
    return name in PRIMITIVES and all(value is None or value is False for value in others)
