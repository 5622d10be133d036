"""Every entry of the table of primitives gives what JAX gives, also at the ends of what numbers can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from combinators.equations.evaluate import evaluator
from combinators.equations.primitives import PRIMITIVES, run_primitive

# Conversions of complex numbers, which JAX says as well.
pytestmark = pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
Case = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function of JAX, and its operands."""
DTYPES = ["bool", "int8", "int32", "uint8", "uint32", "float16", "bfloat16", "float32", "float64", "complex64"]
FLOATS = [np.nan, np.inf, -np.inf, 0, -0.0, 1, -1, 0.5, 2.5, -2.5, 3, -7, 129, 300, -300, 7e4, 3e9, -3e9, 1e20, 1e-6]
TOLERANCE = {
    "float16": 2e-3,
    "bfloat16": 1e-2,
    "float32": 2e-5,
    "float64": 1e-12,
    "complex64": 1e-4,
    "complex128": 1e-12,
}
ONE = [
    "neg",
    "sign",
    "floor",
    "ceil",
    "is_finite",
    "exp",
    "exp2",
    "log",
    "expm1",
    "log1p",
    "tan",
    "tanh",
    "sin",
    "cos",
    "sinh",
    "cosh",
    "atan",
    "abs",
    "sqrt",
    "rsqrt",
    "square",
    "bitwise_not",
    "erf",
    "erfc",
    "logistic",
    "real",
    "imag",
    "conj",
]
TWO = [
    "atan2",
    "add",
    "sub",
    "mul",
    "rem",
    "max",
    "min",
    "pow",
    "div",
    "eq",
    "ne",
    "ge",
    "gt",
    "le",
    "lt",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "shift_left",
    "shift_right_arithmetic",
    "shift_right_logical",
]
FOLDS = ["reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "reduce_xor"]
RUNS = ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"]
SCATTERS = ["scatter", "scatter_add", "scatter_mul", "scatter_min", "scatter_max", "scatter_sub"]


def extremes(dtype: Any) -> Any:
    """Numbers at which functions are not what they are elsewhere."""
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return np.array([0, 1, -1, 1 + 2j, -3 - 0.5j, 2j, -2j, 0.25 - 0.75j], dtype)
    if jnp.issubdtype(dtype, jnp.floating):
        return np.array(FLOATS).astype(dtype)
    if np.issubdtype(dtype, np.bool_):
        return np.array([False, True])
    known = np.iinfo(dtype)
    return np.array([known.min, *(known.max - np.arange(8)), 0, 1, 2, 3, 7, 8, 31, 32, 33]).astype(dtype)


def calm(dtype: Any, *shape: int) -> Any:
    """Small numbers, many of them twice."""
    return (np.arange(np.prod(shape)).reshape(shape) % 7 - 3).astype(dtype)


def of_cells(dtype: Any) -> Iterator[Case]:
    """Cell by cell: all extremes, and all pairs of them."""
    x = extremes(dtype)
    pairs = np.repeat(x, len(x)), np.tile(x, len(x))
    yield from ((getattr(lax, name), (x,)) for name in ONE)
    yield from ((getattr(lax, name), pairs) for name in TWO)
    yield from ((partial(lax.integer_pow, y=y), (x,)) for y in (-3, -1, 0, 2, 7))
    yield partial(lax.mul_p.bind, out_dtype=jnp.float32), pairs
    yield from ((partial(lax.convert_element_type, new_dtype=to), (x,)) for to in DTYPES)
    yield from ((partial(lax.bitcast_convert_type, new_dtype=to), (x,)) for to in DTYPES)
    wide = np.resize(x, (3, 8 // x.dtype.itemsize))
    yield from ((partial(lax.bitcast_convert_type, new_dtype=to), (wide[:, : 4 // wide.itemsize],)) for to in DTYPES)
    for exponent, mantissa in ((8, 7), (5, 10), (4, 3), (8, 23)):
        yield partial(lax.reduce_precision, exponent_bits=exponent, mantissa_bits=mantissa), (x,)
    if x.dtype.kind not in "bc":  # XLA has no such thing.
        # What searches and sorts compare by; JAX has no other name for it.
        yield from ((each.bind, pairs) for each in (lax.eq_to_p, lax.le_to_p, lax.lt_to_p))
        yield lax.clamp, (x[0], x, x[-1])
        yield lax.clamp, (pairs[0][::-1].copy(), np.roll(pairs[1], 3), pairs[0])
    yield lax.select_n, (pairs[0] == pairs[1], *pairs)
    yield lax.select_n, (np.arange(len(x), dtype=np.int32) % 5 - 1, x, x[::-1].copy(), np.roll(x, 1))
    yield lambda x, y: lax.optimization_barrier((x, y)), pairs
    yield jnp.copy, (x,)
    yield jax.device_put, (x,)
    yield partial(checkpoint_name, name="x"), (x,)


def of_axes(dtype: Any) -> Iterator[Case]:
    """What folds, orders and runs along axes; ties are in all three arrays."""
    few, places = np.resize(extremes(dtype)[::3], (4, 3, 5)), np.arange(60).reshape(4, 3, 5)
    for x in (np.resize(extremes(dtype), (4, 3, 5)), few, calm(dtype, 4, 3, 5)):
        yield from ((partial(getattr(lax, name), axes=axes), (x,)) for name in FOLDS for axes in ((1,), (0, 2), ()))
        for name, axis, kind in product(("argmax", "argmin"), (0, 2), (np.int32, np.int8)):
            if x.dtype.kind != "c":  # JAX traces it, and cannot lower it.
                yield partial(getattr(lax, name), axis=axis, index_dtype=kind), (x,)
        for name, (axis, turned) in product(RUNS, ((1, True), (2, False))):
            if name == "cumlogsumexp" and not jnp.issubdtype(dtype, jnp.inexact):
                continue  # Nor these.
            yield partial(getattr(lax, name), axis=axis, reverse=turned), (x,)
        yield partial(lax.sort, dimension=0), (x,)
        yield from ((partial(_sorted, keys), (x, few, places.astype(np.int32))) for keys in (1, 2))
    yield from ((partial(getattr(lax, name), axes=(1,)), (few[:, :0],)) for name in FOLDS)


def _sorted(keys: int, *operands: Any) -> Any:
    return lax.sort(operands, dimension=2, num_keys=keys)


def of_places(dtype: Any) -> Iterator[Case]:
    """What moves cells."""
    x, at = np.resize(extremes(dtype), (4, 3, 5)), np.array([-9, 2, 99], np.int32)
    yield lambda x: (lax.reshape(x, (5, 12), (2, 0, 1)), lax.reshape(x, (60,))), (x,)
    yield lambda x: (lax.broadcast_in_dim(x, (2, 4, 3, 7, 5), (1, 2, 4)), lax.broadcast(x, (2,))), (x,)
    yield lambda x: (lax.squeeze(x, (1,)), lax.expand_dims(x, (0, 3)), lax.rev(x, (0, 2))), (x[:, :1],)
    yield lambda x: (lax.transpose(x, (2, 0, 1)), lax.concatenate([x, x[:, :1]], 1), lax.split(x, (1, 0, 4), 2)), (x,)
    yield lambda x: jnp.stack([x, 2 * x], 1), (x,)
    yield lambda x: (lax.slice(x, (1, 0, 0), (4, 2, 5), (2, 1, 3)), lax.slice(x, (1, 0, 2), (4, 2, 2))), (x,)
    for starts in (at, at.astype(np.uint8)):
        yield lambda x, i: lax.dynamic_slice(x, (i[0], i[1], i[2]), (2, 3, 4)), (x, starts)
        yield lambda x, i: lax.dynamic_update_slice(x, x[:2, 1:, :4], (i[0], i[1], i[2])), (x, starts)
    yield lambda: (lax.iota(dtype, 300), lax.broadcasted_iota(dtype, (2, 5, 3), 1)), ()
    for config in (
        [(1, 2, 0), (0, 0, 2), (-1, -2, 0)],
        [(-2, 3, 1), (-4, 1, 0), (-3, -3, 3)],
        [(0, 0, 1), (3, -5, 0), (-1, 2, 2)],
    ):
        yield from ((partial(lax.pad, padding_config=config), (each, x[1, 1, 1])) for each in (x, x[:, :0]))


def of_indices(dtype: Any) -> Iterator[Case]:
    """Gathers and scatters, in order and batched, of windows inside and outside; every mode."""
    x, updates = np.resize(extremes(dtype), (4, 3, 5)), extremes(dtype)[1:]
    inside = np.array([[[0, 1], [3, 0]], [[1, 1], [0, 1]], [[2, 0], [2, 1]]], np.int32)
    outside = np.array([[[-1, 1], [3, 4]], [[1, 1], [9, 1]], [[2, -7], [2, 2]]], np.int32)
    gathered = (
        lax.GatherDimensionNumbers((0, 2), (1,), (2, 1)),
        lax.GatherDimensionNumbers((2,), (0,), (2, 0), (1,), (0,)),
    )
    scattered = (
        (lax.ScatterDimensionNumbers((0, 2), (1,), (2, 1)), (3, 3, 2, 2)),
        (lax.ScatterDimensionNumbers((2,), (0,), (2, 0), (1,), (0,)), (3, 2, 2)),
    )
    modes = ("clip", "fill", "promise_in_bounds")
    for mode, at in (*product(modes, (inside, outside)), ("fill", outside.astype(np.uint8))):
        for numbers, sizes, fill in zip(gathered, ((3, 1, 2), (1, 1, 2)), (1, None), strict=True):
            yield partial(lax.gather, dimension_numbers=numbers, slice_sizes=sizes, mode=mode, fill_value=fill), (x, at)
        for name, (numbers, shape) in product(SCATTERS, scattered):
            function = partial(getattr(lax, name), dimension_numbers=numbers, mode=mode)
            yield function, (x, at, np.resize(updates, shape))
    for numbers, shape in scattered:
        apply = partial(lax.scatter_apply, func=_twice, dimension_numbers=numbers, update_shape=shape)
        yield apply, (x, inside)


def _twice(x: Any) -> Any:
    return jnp.add(x, x)


def of_products(dtype: Any) -> Iterator[Case]:
    """Products of extremes and of small numbers, with and without batches, added up as asked for."""
    numbers = ((((2,), (0,)), ((0,), (1,))), (((), ()), ((0,), (1,))), (((2, 0), (0, 1)), ((), ())))
    shapes = (4, 3, 5), (5, 4, 2)
    small = tuple(calm(dtype, *shape) for shape in shapes)
    large = tuple(np.resize(extremes(dtype)[skipped:], shape) for skipped, shape in enumerate(shapes))
    for operands, dims, kind in product((small, large), numbers, (None, np.int32, np.float32, np.int16)):
        yield partial(lax.dot_general, dimension_numbers=dims, preferred_element_type=kind), operands
    for precision in ("highest", lax.DotAlgorithmPreset.BF16_BF16_F32):
        yield partial(lax.dot_general, dimension_numbers=numbers[0], precision=precision), small
    yield partial(lax.dot_general, dimension_numbers=numbers[0]), (small[0][..., :0], small[1][:0])
    # It has no entry, and runs in JAX with all of its parameters.
    taps = calm(dtype, 4, 2, 3)
    yield (
        partial(lax.conv_general_dilated, window_strides=(1,), padding="SAME", feature_group_count=2),
        (small[0].reshape(3, 4, 5), taps),
    )


GROUPS: dict[Any, list[str]] = {
    of_cells: DTYPES,
    of_axes: ["bool", "int8", "uint32", "bfloat16", "float32", "complex64"],
    of_places: ["int8", "bfloat16"],
    of_indices: ["int8", "float32"],
    of_products: ["int8", "bfloat16", "float32"],
}
EACH = [(group, dtype) for group, dtypes in GROUPS.items() for dtype in dtypes]
# Of numbers of each kind the widest, or the narrowest, is among the others.
THOROUGH = {
    *((of_cells, dtype) for dtype in ("int32", "uint8", "uint32", "float16", "float64")),
    *((of_axes, dtype) for dtype in ("int8", "uint32", "bfloat16", "complex64")),
    *((of_indices, "float32"), (of_products, "bfloat16")),
}


@cache
def traced(group: Any, dtype: str) -> list[tuple[Case, Any]]:
    """The cases that JAX takes, and what is traced of them."""
    found: list[tuple[Case, Any]] = []
    for function, operands in group(jnp.dtype(dtype)):
        try:
            with jax.enable_x64(True):
                found.append(((function, operands), jax.make_jaxpr(function)(*operands)))
        except (TypeError, ValueError):
            continue  # Sines of integers.
    return found


@pytest.mark.parametrize(
    ("group", "dtype"),
    [pytest.param(*each, marks=[pytest.mark.thorough] * (each in THOROUGH)) for each in EACH],
    ids=[f"{group.__name__} {dtype}" for group, dtype in EACH],
)
def test_primitives_give_what_jax_gives(group: Any, dtype: str) -> None:
    with jax.enable_x64(True), np.errstate(all="ignore"):
        cases = traced(group, dtype)
        operands = [operands for (_, operands), _ in cases]
        # One program: each of its own would take most of the time.
        wanted = jax.jit(lambda many: [f(*each) for ((f, _), _), each in zip(cases, many, strict=True)])(operands)
        for ((_, given), closed), results in zip(cases, wanted, strict=True):
            found = evaluator(closed)([np.asarray(each) for each in given])
            for got, want in zip(found, map(np.asarray, jax.tree.leaves(results)), strict=True):
                assert_same(got, want, f"{closed}")


def assert_same(got: Any, want: Any, told: str) -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape), told
    tolerance = TOLERANCE.get(str(want.dtype))
    if tolerance is None:
        np.testing.assert_array_equal(got, want, told)
        return
    for part in (np.real, np.imag) if np.iscomplexobj(want) else (np.asarray,):
        pair = (part(each).astype(np.float64) for each in (got, want))
        np.testing.assert_allclose(*pair, rtol=tolerance, atol=tolerance / 10, err_msg=told)


def test_every_primitive_of_the_table_is_among_them() -> None:
    names: set[str] = set()
    for group, dtype in EACH:
        if (group, dtype) not in THOROUGH:
            names |= {equation.primitive.name for _, closed in traced(group, dtype) for equation in closed.jaxpr.eqns}
    # What gives its operand wherever it lies, or in its own time, and what derivatives alone make.
    others = {"stop_gradient", "sharding_constraint", "reshard", "pvary", "later"}
    assert set(PRIMITIVES) - names == {"add_any", "empty2", *others}


def test_parameters_that_an_entry_does_not_read_are_refused() -> None:
    (equation,) = jax.make_jaxpr(jnp.tanh)(1.0).eqns
    equation = equation.replace(params={**equation.params, "twice": True})
    with pytest.raises(TypeError, match="unexpected keyword argument 'twice'"):
        run_primitive(equation, [np.ones(())])


def test_what_is_put_somewhere_is_the_same_in_a_batch() -> None:
    # JAX moves the axes of a batch and not those of the place, which then need not divide it.
    place = NamedSharding(jax.make_mesh((2,), ("x",), axis_types=(AxisType.Auto,)), PartitionSpec("x"))
    closed = jax.make_jaxpr(jax.vmap(lambda x: jax.device_put(x, place) + 1))(np.zeros((3, 4), np.float32))
    (found,) = evaluator(closed)([np.ones((3, 4), np.float32)])
    np.testing.assert_array_equal(found, np.full((3, 4), 2))


def test_random_keys_move_in_jax() -> None:
    def moved(seed: Any) -> Any:
        keys = jax.random.split(jax.random.wrap_key_data(seed), 3)
        return jax.random.key_data(jnp.concatenate([keys[1:], keys[None, 0]]))

    seed = np.array([1, 2], np.uint32)
    (found,) = evaluator(jax.make_jaxpr(moved)(seed))([seed])
    np.testing.assert_array_equal(found, moved(seed))
