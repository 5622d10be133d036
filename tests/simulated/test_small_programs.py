"""What NumPy does in place of a compiled program of JAX's own: the same bits, the same types, nothing compiled."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.combinators.equations.test_primitives import of_axes, of_cells, traced
from tests.small_primitives import PRIMITIVES
from tests.small_programs import LEFT
from tests.thoroughly import thoroughly

pytestmark = [
    pytest.mark.skipif(jax.__version_info__ >= (0, 11), reason="newer ones are left as they are"),
    pytest.mark.skipif(thoroughly(), reason="thorough tests run what users run"),
]

COMPILE = importlib.import_module("jax._src.compiler").compile_or_get_cached
REALS = np.linspace(-3, 3, 24, dtype=np.float32).reshape(4, 6)
MOVED: dict[str, Callable[[Any], Any]] = {
    "reshape": lambda x: jnp.reshape(x, (3, 8)),
    "broadcast": lambda x: jnp.broadcast_to(x, (2, 4, 6)),
    "transpose": lambda x: x.T,
    "slice": lambda x: x[1:3, ::2],
    "a row": lambda x: x[2],
    "from the end": lambda x: x[::-1],
    "concatenate": lambda x: jnp.concatenate([x, x], 1),
    "stack": lambda x: jnp.stack([x, x], 1),
    "unstack": lambda x: jnp.unstack(x)[1],
    "tile": lambda x: jnp.tile(x, 2),
    "pad": lambda x: jnp.pad(x, 1),
    "dynamic slice": lambda x: jax.lax.dynamic_slice(x, (3, 1), (2, 2)),
    "dynamic update": lambda x: jax.lax.dynamic_update_slice(x, x[:2, :2], (3, 1)),
    "where": lambda x: jnp.where(x > 0, x, -x),
    "maximum of rows": lambda x: jnp.max(x, 0),
    "minimum of all": jnp.min,
    "clip": lambda x: jnp.clip(x, -1, 1),
    "twice": lambda x: x * 2,
    "one more": lambda x: x + 1,
    "less itself": lambda x: x - x[0],
    "square": jnp.square,
    "absolute": jnp.abs,
    "sign": jnp.sign,
    "equal": lambda x: (x == x[0]) | (x != x) & ~(x <= 0) ^ (x >= 1),
    "any": lambda x: jnp.any(x > 1, 0),
    "all": lambda x: jnp.all(x > -9, 1),
    "wider": lambda x: jnp.float32(x),
    "zeros": jnp.zeros_like,
    "copy": jnp.copy,
    "counted": lambda x: jax.lax.broadcasted_iota(jnp.int32, (3, 4), 1) << 2,
}
OF_REALS: dict[str, Callable[[Any], Any]] = {
    "remainder": lambda x: jax.lax.rem(x, jnp.full_like(x, 2)),
    "a third": lambda x: x / 3,
    "root": lambda x: jnp.sqrt(jnp.abs(x)),
    "finite": jnp.isfinite,
    "next": lambda x: jnp.nextafter(x, x + 1),
    "bits": lambda x: jax.lax.bitcast_convert_type(x, jnp.uint32) >> 9,
    "power": lambda x: x**2,
    "exponential": jnp.exp,
    "logarithm": lambda x: jnp.log(jnp.abs(x)),
    "logistic": jax.nn.sigmoid,
    "reciprocal root": lambda x: jax.lax.rsqrt(jnp.abs(x)),
    "sine": jnp.sin,
    "cosine": jnp.cos,
    "tangent": jnp.tanh,
}
DRAWN: dict[str, Callable[[Any], Any]] = {
    "uniform": lambda key: jax.random.uniform(key, (3, 4)),
    "between": lambda key: jax.random.uniform(key, (7,), minval=-1, maxval=3),
    "bernoulli": lambda key: jax.random.bernoulli(key, 0.3, (3, 4)),
    "bits": lambda key: jax.random.bits(key, (5,)),
    "normal": lambda key: jax.random.normal(key, (33,)),
    "truncated": lambda key: jax.random.truncated_normal(key, -2.0, 2.0, (5, 13)),
    "keys": lambda key: jax.random.key_data(jax.random.split(key, 3)),
    "half": lambda key: jax.random.uniform(key, (3,), jnp.float32, -2, 2),
}


def _refuse(backend: Any, computation: Any, *args: Any, **kwargs: Any) -> Any:
    """Compiles nothing but the blocks in which functions such as `exp` are computed."""
    name = str(computation.operation.attributes["sym_name"])
    if "in_a_block" in name:
        return COMPILE(backend, computation, *args, **kwargs)
    raise AssertionError(f"compiled {name}")


@pytest.fixture
def by_numpy(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Calls functions where nothing can be compiled."""

    def call(functions: dict[str, Callable[[Any], Any]], operand: Any) -> list[Any]:
        # Other tests of this process may have run one of these programs as often as is left to NumPy.
        LEFT.clear()
        with monkeypatch.context() as patched:
            patched.setattr("jax._src.compiler.compile_or_get_cached", _refuse)
            return [function(operand) for function in functions.values()]

    return call


def _by_xla(functions: dict[str, Callable[[Any], Any]], operand: Any) -> list[Any]:
    return jax.jit(lambda given: [function(given) for function in functions.values()])(operand)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16, jnp.int32])
def test_numpy_gives_the_bits_of_xla(by_numpy: Callable[..., Any], dtype: Any):
    functions = {**MOVED, **(OF_REALS if dtype == jnp.float32 else {})}
    operand = jnp.asarray(REALS.astype(dtype))
    for name, made, wanted in zip(functions, by_numpy(functions, operand), _by_xla(functions, operand), strict=True):
        assert (made.aval, made.sharding) == (wanted.aval, wanted.sharding), name
        np.testing.assert_array_equal(np.asarray(made), np.asarray(wanted), err_msg=name)


@pytest.mark.parametrize(
    ("group", "dtype"),
    [
        *((of_cells, "float32"), (of_cells, "bfloat16"), (of_axes, "bfloat16"), (of_axes, "int8")),
        *(pytest.param(*each, marks=pytest.mark.thorough) for each in ((of_cells, "int8"), (of_axes, "float32"))),
    ],
)
def test_extremes_are_those_of_xla(group: Any, dtype: str):
    """What NumPy does not know is compiled, and the same anyway; so all cases are here that the table has names for."""
    with jax.enable_x64(True), np.errstate(all="ignore"):
        cases = [case for case, closed in traced(group, dtype) if is_a_rule(closed.jaxpr)]
        wanted = jax.jit(lambda many: [f(*each) for (f, _), each in zip(cases, many, strict=True)])(
            [operands for _, operands in cases]
        )
        for (function, operands), want in zip(cases, wanted, strict=True):
            made = function(*map(jnp.asarray, operands))
            assert made.aval == want.aval
            # NumPy knows no number that is none in `bfloat16`.
            pair = (np.asarray(each, np.float32 if each.dtype == jnp.bfloat16 else None) for each in (made, want))
            np.testing.assert_array_equal(*pair, err_msg=str(function))


def is_a_rule(jaxpr: Any) -> bool:
    return len(jaxpr.outvars) == 1 and [*{equation.primitive.name for equation in jaxpr.eqns} - PRIMITIVES.keys()] == []


def test_numpy_draws_the_bits_of_threefry(by_numpy: Callable[..., Any]):
    key = jax.random.key(3)
    for name, made, wanted in zip(DRAWN, by_numpy(DRAWN, key), _by_xla(DRAWN, key), strict=True):
        np.testing.assert_array_equal(np.asarray(made), np.asarray(wanted), err_msg=name)


def test_every_primitive_is_met():
    """What no case above meets is nobody's."""
    traced = [jax.make_jaxpr(f)(REALS) for f in (*MOVED.values(), *OF_REALS.values())]
    traced += [jax.make_jaxpr(draw)(jax.random.key(0)) for draw in DRAWN.values()]
    # What splitting a key is made of.
    met = {"threefry2x32", "iota_2x32_shape"}

    def meet(jaxpr: Any) -> None:
        for equation in jaxpr.eqns:
            met.add(equation.primitive.name)
            if "jaxpr" in equation.params:
                meet(equation.params["jaxpr"].jaxpr)

    for each in traced:
        meet(each.jaxpr)
    assert sorted(set(PRIMITIVES) - met) == []


def test_results_share_no_memory_with_operands():
    array = jnp.asarray(np.ones((64, 64), np.float32))
    moved = jnp.reshape(array, (-1,))
    jax.jit(lambda x: x + 1, donate_argnums=0)(array).block_until_ready()
    np.testing.assert_array_equal(np.asarray(moved), 1)


def test_numbers_that_are_none_become_integers_as_by_xla():
    given = jnp.asarray(np.array([np.nan, np.inf, -1e20, 2.5], np.float32))
    wanted = jax.jit(lambda x: x.astype(jnp.int32))(given)
    np.testing.assert_array_equal(np.asarray(given.astype(jnp.int32)), np.asarray(wanted))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * x,
        lambda x: x + x,
        jnp.square,
        lambda x: jnp.maximum(x, x[::-1]),
        jnp.max,
        lambda x: x > 0,
        jnp.sign,
    ],
    ids=["times", "plus", "square", "maximum", "greatest", "positive", "sign"],
)
def test_subnormal_numbers_and_signs_of_zeros_are_those_of_xla(function: Callable[[Any], Any], dtype: Any):
    tiny = float(jnp.finfo(dtype).tiny)
    given = jnp.asarray(np.array([tiny / 4, -tiny / 2, 0.0, -0.0, tiny], dtype))
    made, wanted = np.asarray(function(given)), np.asarray(jax.jit(lambda x: function(x))(given))
    np.testing.assert_array_equal(made, wanted)
    np.testing.assert_array_equal(np.signbit(made), np.signbit(wanted))


def test_what_is_called_often_is_compiled(monkeypatch: pytest.MonkeyPatch):
    operand = jnp.asarray(np.ones((3, 5, 7), np.float32))
    for _ in range(50):
        jnp.reshape(operand, (21, 5))
    monkeypatch.setattr("jax._src.compiler.compile_or_get_cached", _refuse)
    with pytest.raises(AssertionError, match=r"compiled .*reshape"):
        jnp.reshape(operand, (21, 5))


def test_arrays_on_several_devices_stay_there(mesh8: jax.sharding.Mesh):
    sharding = jax.sharding.NamedSharding(mesh8, jax.sharding.PartitionSpec("data"))
    spread = jax.device_put(np.arange(16.0, dtype=np.float32), sharding)
    assert (spread * 2).sharding.device_set == sharding.device_set


def test_programs_of_tests_are_compiled(monkeypatch: pytest.MonkeyPatch):
    operand = jnp.asarray(REALS)
    monkeypatch.setattr("jax._src.compiler.compile_or_get_cached", _refuse)
    with pytest.raises(AssertionError, match="compiled"):
        jax.jit(lambda x: x + 5)(operand)
