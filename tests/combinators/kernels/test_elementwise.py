"""Which functions act cell by cell, and what is said of those that do not."""

from __future__ import annotations

import dataclasses
import functools
import operator
import re
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special
import numpy as np
import pytest

from combinators.errors import GraphError, KernelError
from combinators.index_space.signature import Signature
from combinators.kernels.elementwise import check_elementwise

MATRIX = jax.ShapeDtypeStruct((8, 128), jnp.float32)


def _fails(fn: Any, types: Any = None, where: str = "tp.Map(f)") -> str:
    with pytest.raises(KernelError) as caught:
        check_elementwise(fn, types, where)
    return str(caught.value)


@jax.custom_vjp
def _custom(x: Any) -> Any:
    return jnp.sin(x)


_custom.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (g * jnp.cos(x),))


@pytest.mark.parametrize(
    ("fn", "arity"),
    [
        (jax.nn.relu, 1),
        (jax.nn.relu6, 1),
        (jax.nn.gelu, 1),
        (functools.partial(jax.nn.gelu, approximate=False), 1),
        (jax.nn.silu, 1),
        (jax.nn.softplus, 1),
        (jax.nn.leaky_relu, 1),
        (jax.nn.elu, 1),
        (jax.nn.selu, 1),
        (jax.nn.mish, 1),
        (jax.nn.hard_tanh, 1),
        (jax.nn.sigmoid, 1),
        (jnp.tanh, 1),
        (jnp.sinc, 1),
        (jnp.nan_to_num, 1),
        (jnp.float32, 1),
        (jax.lax.stop_gradient, 1),
        (jax.scipy.special.erf, 1),
        (jax.scipy.special.gammaln, 1),
        (jnp.add, 2),
        (jnp.maximum, 2),
        (jnp.power, 2),
        (jnp.floor_divide, 2),
        (jnp.logaddexp, 2),
        (operator.add, 2),
        (jax.scipy.special.betainc, 3),
        (lambda x: x * 2 + 1, 1),
        (lambda x: x, 1),
        (lambda x: x + jnp.ones_like(x), 1),
        (lambda x: x + np.float32(2) * jnp.array(3.0), 1),
        (lambda x: (jnp.sin(x), x > 0), 1),
        (lambda x, y: jnp.where(x > y, x, 0.0), 2),
        (lambda x: jax.lax.cond(True, jnp.sin, jnp.cos, x), 1),
        (jax.checkpoint(jnp.sin), 1),
        (_custom, 1),
        (jax.vmap(jax.vmap(jax.grad(jnp.sin))), 1),
        (jax.jit(jax.grad(lambda x: jnp.sin(x).sum())), 1),  # the sum itself is dead code
        (jnp.vectorize(lambda x: x + 1), 1),
    ],
)
def test_accepts_cell_by_cell(fn: Any, arity: int) -> None:
    assert check_elementwise(fn, None, "tp.Map(f)") is True
    assert check_elementwise(fn, [MATRIX] * arity, "tp.Map(f)") is True


@pytest.mark.parametrize(("fn", "arity"), [(jnp.where, 3), (jnp.clip, 3), (jax.lax.clamp, 3)])
def test_accepts_functions_whose_arity_only_the_types_tell(fn: Any, arity: int) -> None:
    assert check_elementwise(fn, [MATRIX] * arity, "tp.Map(f)") is True


def _scan_rows(x: Any) -> Any:
    return jax.lax.scan(lambda carry, row: (carry + row, carry + row), jnp.zeros(x.shape[1]), x)[1]


_EVERYTHING = "[r] [c] -> [r] [c]"
_LAST = "... [c] -> ... [c]"


@pytest.mark.parametrize(
    ("fn", "reason", "spelled", "signature"),
    [
        (jax.nn.softmax, "reduce_max along the last axis", "jax.nn.softmax", _LAST),
        (jax.nn.log_softmax, "reduce_max along the last axis", "jax.nn.log_softmax", _LAST),
        (jax.nn.standardize, "reduce_sum along the last axis", "jax.nn.standardize", _LAST),
        (
            functools.partial(jax.nn.softmax, axis=0),
            "reduce_max along axis 0",
            "functools.partial(jax.nn.softmax, ...)",
            "[r] c -> [r] c",
        ),
        (jnp.sum, "reduce_sum along all axes", "jnp.sum", "[r] [c] ->"),
        (functools.partial(jnp.sum, axis=-1), "reduce_sum along the last axis", None, "... [c] -> ..."),
        (functools.partial(jnp.cumsum, axis=1), "cumsum along the last axis", None, _LAST),
        (jnp.cumsum, "reshape", "jnp.cumsum", "[r] [c] -> [d]"),
        (jnp.sort, "sort along the last axis", "jnp.sort", _LAST),
        (jnp.flip, "rev along all axes", "jnp.flip", _EVERYTHING),
        (jnp.fft.fft, "fft along the last axis", "jax.numpy.fft.fft", _LAST),
        (jax.nn.glu, "split along the last axis", "jax.nn.glu", "... [c] -> ... [d]"),
        (lambda x: x - x.mean(), "reduce_sum along all axes", "kernel", _EVERYTHING),
        (lambda x: x - x.mean(0), "reduce_sum along axis 0", "kernel", "[r] c -> [r] c"),
        (lambda x: x.T, "transpose along all axes", "kernel", "[r] [c] -> [c] [r]"),
        (lambda x: x[::-1], "rev along axis 0", "kernel", "[r] c -> [r] c"),
        (lambda x: x[0], "slice along axis 0", "kernel", "[r] c -> c"),
        (lambda x: jnp.take(x, 0, axis=1), "gather", "kernel", "[r] [c] -> [r]"),
        (lambda x: jnp.concatenate([x, x]), "concatenate along axis 0", "kernel", "[r] c -> [d] c"),
        (lambda x: x + jnp.arange(x.shape[-1]), "iota along the last axis", "kernel", _LAST),
        (lambda x: x.reshape(-1), "reshape", "kernel", "[r] [c] -> [d]"),
        (lambda x: x @ x.T, "transpose along all axes", "kernel", "[r] [c] -> [r] [d]"),
        (_scan_rows, "scan", "_scan_rows", _EVERYTHING),
        (
            lambda x: jax.lax.conv(x[None, None], jnp.ones((1, 1, 3, 3)), (1, 1), "SAME")[0, 0],
            "broadcast_in_dim along all axes",
            "kernel",
            _EVERYTHING,
        ),
        (lambda x: jax.lax.bitcast_convert_type(x, jnp.uint8), "bitcast_convert_type", None, "[r] [c] -> [r] [c] [d]"),
        (lambda x: x - jax.jit(jax.nn.relu)(x.max(-1, keepdims=True)), "reduce_max along the last axis", None, _LAST),
        (lambda x: jax.lax.cond(True, jnp.sin, jax.nn.softmax, x), "reduce_max along the last axis", None, _LAST),
        (jax.checkpoint(jax.nn.softmax), "reduce_max along the last axis", None, _LAST),
    ],
)
def test_names_what_mixes_cells_and_proposes_a_signature(
    fn: Any, reason: str, spelled: str | None, signature: str
) -> None:
    text = _fails(fn)
    assert text.startswith(f"tp.Map(f) is not elementwise: it uses {reason}.\n  Give it a signature: tp.Map(")
    assert text.endswith(f', "{signature}")')
    assert spelled is None or f"tp.Map({spelled.lstrip('_')}," in text or f"tp.Map({spelled}," in text
    Signature.parse(signature)


def test_error_text_of_softmax() -> None:
    assert _fails(jax.nn.softmax, where="tp.Map(softmax)") == (
        "tp.Map(softmax) is not elementwise: it uses reduce_max along the last axis.\n"
        '  Give it a signature: tp.Map(jax.nn.softmax, "... [c] -> ... [c]")'
    )


def test_the_error_is_a_graph_error() -> None:
    with pytest.raises(GraphError):
        check_elementwise(jnp.sort, None, "tp.Map(sort)")


@pytest.mark.parametrize("fn", [jnp.matmul, jnp.dot, operator.matmul, lambda x, y: x @ y])
def test_a_contraction_is_told_to_be_a_fold(fn: Any) -> None:
    text = _fails(fn)
    assert "it uses dot_general." in text
    assert re.search(r'tp\.Reduce\(\S+, "i k, k n -> i n", tp\.monoids\.Sum\)$', text)


def test_a_batched_contraction_is_told_to_be_an_einsum() -> None:
    types = [jax.ShapeDtypeStruct((2, 4, 4), jnp.float32)] * 2
    assert _fails(jnp.matmul, types).endswith("write it with tp.einsum, which brings its own kernel.")


@pytest.mark.parametrize(
    ("fn", "name"),
    [
        (lambda x: x + jax.random.normal(jax.random.key(0), x.shape), "random_seed"),
        (lambda x: x + jax.random.uniform(jax.random.PRNGKey(0), x.shape), "random_seed"),
        (lambda x: x + jax.lax.rng_uniform(0.0, 1.0, x.shape), "rng_uniform"),
    ],
)
def test_refuses_random_numbers(fn: Any, name: str) -> None:
    assert _fails(fn) == (
        f"tp.Map(f) is not elementwise: it draws random numbers ({name}).\n"
        "  Draw with tp.random, which counts cells, or take the numbers as an operand."
    )


def _prints(x: Any) -> Any:
    jax.debug.print("{}", x)
    return x


@pytest.mark.parametrize(
    ("fn", "reason"),
    [
        (_prints, "it has a side effect (debug_print)"),
        (lambda x: jax.pure_callback(np.sin, x, x), "it calls back into Python (pure_callback)"),
    ],
)
def test_refuses_side_effects_and_callbacks(fn: Any, reason: str) -> None:
    assert _fails(fn) == f"tp.Map(f) is not elementwise: {reason}.\n  Take it out of the kernel."


@pytest.mark.parametrize("fn", [lambda x: 1.0, lambda x: jnp.zeros((3,)), lambda x: jnp.zeros((1, 6))])
def test_refuses_results_of_another_shape(fn: Any) -> None:
    assert re.search(r"it gives a result of shape \(.*\) for operands of shape \(4, 6\)\.", _fails(fn))


def test_refuses_constants_that_differ_by_position() -> None:
    table = np.arange(24.0).reshape(4, 6)
    assert "it holds a constant array of shape (4, 6)" in _fails(lambda x: x + table)
    assert check_elementwise(lambda x: x + np.array(3.0), None, "tp.Map(f)") is True


@pytest.mark.parametrize(
    "fn",
    [
        jnp.clip,  # takes none, by its signature
        jnp.where,  # takes one, by its signature
        jnp.bitwise_and,  # takes no floats
        lambda *xs: xs[0],
        max,
        lambda x, *, key: x,
    ],
)
def test_is_undecided_without_types(fn: Any) -> None:
    assert check_elementwise(fn, None, "tp.Map(f)") is False


def test_types_decide_what_float32_could_not() -> None:
    integers = jax.ShapeDtypeStruct((8, 128), jnp.int32)
    assert check_elementwise(jnp.bitwise_and, [integers, integers], "tp.Map(f)") is True


def test_a_trace_that_fails_with_types_is_an_error() -> None:
    text = _fails(jnp.bitwise_and, [MATRIX, MATRIX])
    assert text.startswith(
        "tp.Map(f) cannot be traced as an elementwise kernel.\n  tried on float32[4,6], float32[4,6],"
    )
    assert "TypeError" in text


def test_the_rank_of_the_types_is_used() -> None:
    vector, cube = jax.ShapeDtypeStruct((128,), jnp.float32), jax.ShapeDtypeStruct((2, 3, 5), jnp.float32)

    def outermost_of_three(x: Any) -> Any:
        return x - x.mean(0) if x.ndim == 3 else x

    assert check_elementwise(outermost_of_three, None, "tp.Map(f)") is True
    assert check_elementwise(outermost_of_three, [vector], "tp.Map(f)") is True
    assert _fails(outermost_of_three, [cube]).endswith('"[a0] a1 a2 -> [a0] a1 a2")')
    assert _fails(jax.nn.softmax, [cube]).endswith(f'"{_LAST}")')
    assert _fails(jax.nn.softmax, [vector]).endswith(f'"{_LAST}")')


def test_scalars_are_cells() -> None:
    scalar = jax.ShapeDtypeStruct((), jnp.float32)
    assert check_elementwise(jnp.sin, [scalar], "tp.Map(f)") is True
    assert check_elementwise(jnp.multiply, [MATRIX, scalar], "tp.Map(f)") is True


def test_the_shapes_of_the_types_do_not_hide_a_transpose() -> None:
    square = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    assert "transpose" in _fails(lambda x: x.T, [square])


def test_a_function_is_traced_once_for_equal_types() -> None:
    calls: list[int] = []

    def counted(x: Any) -> Any:
        calls.append(1)
        return x + 1

    for size in (8, 16, 32):
        check_elementwise(counted, [jax.ShapeDtypeStruct((size, 4), jnp.float32)], "tp.Map(f)")
    assert len(calls) == 2  # two sizes, so that a kernel that looks at its block is found; each once
    check_elementwise(counted, [jax.ShapeDtypeStruct((8, 4), jnp.int32)], "tp.Map(f)")
    assert len(calls) == 4


def test_kernels_that_cannot_be_hashed_are_traced_each_time() -> None:
    @dataclasses.dataclass
    class Unhashable:
        def __call__(self, x: Any) -> Any:
            return x + 1

    assert check_elementwise(Unhashable(), None, "tp.Map(f)") is True


def test_works_inside_a_trace() -> None:
    def traced(x: jax.Array) -> jax.Array:
        assert check_elementwise(lambda y: y * 3, None, "tp.Map(f)") is True
        assert "reduce_sum" in _fails(lambda y: y / y.sum())
        return x

    jax.jit(traced)(jnp.ones(3))
