"""Which functions may be kernels, when two are the same, and what they are called."""

from __future__ import annotations

import dataclasses
import enum
import functools
import itertools
import math
import operator
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.stats
import numpy as np
import pytest

from combinators.errors import KernelError
from combinators.kernels.kernel import check_kernel, fingerprint, same, short_name
from combinators.kernels.names import public_name
from tests.ids import stable_id

TABLE = np.arange(3.0)
SCALE = 2.0
UNUSED = {"mean": TABLE}
mean = TABLE  # a global whose name is also that of an attribute which kernels use


@dataclasses.dataclass(frozen=True)
class AttentionKernel:
    scale: Any
    inner: Any = jnp.exp

    def __call__(self, x: Any) -> Any:
        return self.inner(x * self.scale)

    def method(self, x: Any) -> Any:
        return x * self.scale


class Holder:
    def __init__(self, table: Any) -> None:
        self.table = table

    def method(self, x: Any) -> Any:
        return x + self.table


def reads_table(x: Any) -> Any:
    def nested(y: Any) -> Any:
        return y + TABLE

    return nested(x)


def double(x: Any) -> Any:
    return x * SCALE


normalize = jax.jit(lambda x: x * 3)


def close_over(value: Any) -> Callable[[Any], Any]:
    def kernel(x: Any) -> Any:
        return (x, value)

    return kernel


def with_gain(value: Any, wrap: Callable[[Any], Any] = lambda act: act) -> Callable[[Any], Any]:
    def act(x: Any) -> Any:
        return x

    held = wrap(act)
    held.gain = value
    return lambda x: held(x) * held.gain


def with_module(name: str = "config", **read: Any) -> Callable[[Any], Any]:
    held = types.ModuleType(name)
    vars(held).update(read, unread=object())
    return lambda x: x * held.scale + held.inner.scale


def inner(scale: float) -> Any:
    held = types.ModuleType("config.inner")
    held.scale = scale  # type: ignore[attr-defined]
    return held


def with_helper(scale: float) -> Callable[[Any], Any]:
    def of(module: Any) -> Any:
        return module.scale

    held = inner(scale)
    return lambda x: x * of(held)


def with_enum(value: float) -> Callable[[Any], Any]:
    held = enum.Enum("Scale", {"A": value}).A
    return lambda x: x * held.value


def with_cached_property(value: float) -> Callable[[Any], Any]:
    class Scales:
        @functools.cached_property
        def scale(self) -> float:
            return value

    return lambda x: x * Scales().scale


def with_class(**attributes: Any) -> Callable[[Any], Any]:
    held = type("Scales", (), attributes)
    return lambda x: (x, held)


def with_default(x: Any, scale: Any = TABLE, *, shift: Any = 0.0) -> Any:
    return x * scale + shift


# check_kernel: what it lets through


@pytest.mark.parametrize(
    "fn",
    [
        jax.nn.gelu,
        jax.nn.relu,
        jnp.add,
        np.add,
        operator.add,
        double,
        close_over(3),
        close_over({"a": (1.0, None), "b": jnp.tanh}),
        functools.partial(jnp.sum, axis=0),
        AttentionKernel(2.0),
        AttentionKernel(2.0).method,
        jax.jit(close_over(3)),
        jax.grad(lambda x: x * SCALE),
        lambda x: x - x.mean(),
        close_over(np.float32(2)),
    ],
    ids=stable_id,
)
def test_check_accepts_kernels_without_arrays(fn: Any) -> None:
    check_kernel(fn, "tp.Map(f)")


def test_check_refuses_what_is_not_callable() -> None:
    with pytest.raises(KernelError, match=r"tp\.Map\(x\) needs a function as its kernel\.\n  got int: 3"):
        check_kernel(3, "tp.Map(x)")


# check_kernel: what it refuses


@pytest.mark.parametrize(
    ("fn", "named"),
    [
        (close_over(jnp.ones((2, 3))), "`value` in the closure of `kernel` is an array, float32[2,3]"),
        (close_over(np.ones(2)), "`value` in the closure of `kernel` is an array, float64[2]"),
        (close_over(jax.random.key(0)), "`value` in the closure"),
        (close_over((1, [np.ones(2)])), "`value[1][0]` in the closure"),
        (close_over({"w": np.ones(2)}), "`value['w']` in the closure"),
        (close_over({1: 0, "w": np.ones(2)}), "`value['w']` in the closure"),
        (close_over(close_over(np.ones(2))), "`value` in the closure"),
        (with_default, "`scale` among the defaults of `with_default`"),
        (functools.partial(with_default, scale=TABLE), "`scale` of the partial"),
        (functools.partial(jnp.add, TABLE), "`args[0]` of the partial"),
        (functools.partial(close_over(TABLE)), "`value` in the closure"),
        (AttentionKernel(scale=jnp.ones(2)), "`scale` among the fields of `AttentionKernel`"),
        (AttentionKernel(scale=jnp.ones(2)).method, "`scale` among the fields of `AttentionKernel`"),
        (Holder(TABLE).method, "`table` among the fields of `Holder`"),
        (reads_table, "`TABLE` among the globals of `reads_table`"),
        (jax.jit(reads_table), "`TABLE` among the globals"),
        (jax.jit(close_over(TABLE)), "`value` in the closure"),
        (jax.vmap(close_over(TABLE)), "`value` in the closure"),
        (jax.custom_jvp(close_over(TABLE)), "`value` in the closure"),
    ],
)
def test_check_names_the_array_that_a_kernel_holds(fn: Any, named: str) -> None:
    with pytest.raises(KernelError) as caught:
        check_kernel(fn, "tp.Map(f)")
    text = str(caught.value)
    assert text.startswith("tp.Map(f) has a kernel that closes over arrays.\n")
    assert named in text
    assert text.endswith("as an operand.")


def test_check_refuses_traced_arrays() -> None:
    def traced(x: jax.Array) -> jax.Array:
        with pytest.raises(KernelError, match=r"`value` in the closure of `kernel` is a traced array, float32\[3\]"):
            check_kernel(close_over(x), "tp.Map(f)")
        return x

    jax.jit(traced)(jnp.ones(3))


def test_check_names_all_arrays_at_once() -> None:
    fn = functools.partial(close_over(np.ones(2)), np.zeros(4))
    with pytest.raises(KernelError, match=r"(?s)`value` in.*args\[0\].*Pass each as an operand"):
        check_kernel(fn, "tp.Map(f)")


def test_check_error_text() -> None:
    with pytest.raises(KernelError) as caught:
        check_kernel(close_over(np.ones(2)), "tp.Map(kernel)")
    assert str(caught.value) == (
        "tp.Map(kernel) has a kernel that closes over arrays.\n"
        "  `value` in the closure of `kernel` is an array, float64[2]\n"
        "  Pass it as an operand."
    )


def test_check_looks_only_at_direct_globals() -> None:
    check_kernel(lambda x: x + UNUSED["mean"], "tp.Map(f)")


def test_check_survives_recursive_closures() -> None:
    def outer() -> Callable[[Any], Any]:
        def recurse(x: Any) -> Any:
            return recurse(x)

        return recurse

    check_kernel(outer(), "tp.Map(f)")


# public_name


@pytest.mark.parametrize(
    ("fn", "name"),
    [
        (jax.nn.gelu, "jax.nn:gelu"),
        (jax.nn.relu, "jax.nn:relu"),
        (jax.nn.silu, "jax.nn:silu"),
        (jnp.add, "jax.numpy:add"),
        (jnp.matmul, "jax.numpy:matmul"),
        (jnp.linalg.norm, "jax.numpy.linalg:norm"),
        (jnp.fft.fft, "jax.numpy.fft:fft"),
        (jax.lax.exp, "jax.lax:exp"),
        (jax.scipy.special.erf, "jax.scipy.special:erf"),
        (jax.scipy.stats.norm.logpdf, "jax.scipy.stats.norm:logpdf"),
        (jax.random.normal, "jax.random:normal"),
        (jax.jit, "jax:jit"),
        (np.add, "numpy:add"),
        (operator.add, "operator:add"),
        (math.sin, "math:sin"),
        (AttentionKernel.method, f"{__name__}:AttentionKernel.method"),
        (double, f"{__name__}:double"),
    ],
)
def test_public_name_is_what_users_import(fn: Any, name: str) -> None:
    assert public_name(fn) == name


def test_public_name_of_what_the_module_holds_under_another_name() -> None:
    def hidden(x: Any) -> Any:
        return x

    hidden.__qualname__ = "hidden"
    assert public_name(hidden) is None
    globals()["published"] = hidden
    try:
        assert public_name(hidden) == f"{__name__}:published"
    finally:
        del globals()["published"]


@pytest.mark.parametrize(
    "fn", [lambda x: x, close_over(1), normalize, functools.partial(double), AttentionKernel(1.0), 3], ids=stable_id
)
def test_public_name_is_none_where_no_import_gives_the_object(fn: Any) -> None:
    assert public_name(fn) is None


def test_public_name_is_none_for_an_impostor_and_for_main() -> None:
    def gelu(x: Any) -> Any:
        return x

    gelu.__module__, gelu.__qualname__ = "jax.nn", "gelu"
    assert public_name(gelu) is None
    gelu.__module__ = "__main__"
    assert public_name(gelu) is None


# fingerprint and same


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (functools.partial(jnp.sum, axis=0), functools.partial(jnp.sum, axis=0)),
        (AttentionKernel(2.0), AttentionKernel(2.0)),
        (close_over(2), close_over(2)),
        (close_over({"a": (1, 2.0)}), close_over({"a": (1, 2.0)})),
        (close_over(np.float32(2)), close_over(np.float32(2))),
        (jax.jit(close_over(2)), jax.jit(close_over(2))),
        (jax.custom_jvp(close_over(2)), jax.custom_jvp(close_over(2))),
        (jax.grad(close_over(2)), jax.grad(close_over(2))),
        (jnp.frompyfunc(close_over(2), 1, 1), jnp.frompyfunc(close_over(2), 1, 1)),
        (AttentionKernel(2.0).method, AttentionKernel(2.0).method),
        (np.dtype("float32"), jnp.dtype(jnp.float32)),
        (with_gain(2), with_gain(2)),
        (with_gain(2, jax.jit), with_gain(2, jax.jit)),
        (with_module(scale=2.0, inner=inner(1.0)), with_module(scale=2.0, inner=inner(1.0))),
        (jax.nn.gelu, jax.nn.gelu),
    ],
)
def test_equal_structure_is_the_same_kernel(a: Any, b: Any) -> None:
    assert fingerprint(a) == fingerprint(b)
    assert same(a, b)


_add_one, _add_two = (lambda x: x + 1), (lambda x: x + 2)
_sin, _cos = (lambda x: jnp.sin(x)), (lambda x: jnp.cos(x))


def make_class(factor: int) -> Any:
    class Local:
        def __call__(self, x: Any) -> Any:
            return x * factor

    return Local()


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (functools.partial(jnp.sum, axis=0), functools.partial(jnp.sum, axis=1)),
        (functools.partial(jnp.sum, axis=0), functools.partial(jnp.max, axis=0)),
        (functools.partial(jnp.add, 1), functools.partial(jnp.add, 1.0)),
        (functools.partial(jnp.add, 1), functools.partial(jnp.add, True)),
        (AttentionKernel(2.0), AttentionKernel(3.0)),
        (AttentionKernel(2.0, jnp.exp), AttentionKernel(2.0, jnp.tanh)),
        (AttentionKernel(2.0).method, AttentionKernel(3.0).method),
        (close_over(2), close_over(3)),
        (close_over(close_over(2)), close_over(close_over(3))),
        (close_over(0.0), close_over(-0.0)),
        (close_over(np.float32(2)), close_over(np.float64(2))),
        (close_over((1,)), close_over([1])),
        (close_over("1"), close_over(1)),
        (_add_one, _add_two),
        (_sin, _cos),
        (lambda x, a=1: x + a, lambda x, a=2: x + a),
        (lambda x, *, a=1: x + a, lambda x, *, a=2: x + a),
        (lambda x: (lambda: x + 1)(), lambda x: (lambda: x + 2)()),
        (jax.jit(close_over(2)), jax.jit(close_over(3))),
        (jax.custom_jvp(close_over(2)), jax.custom_jvp(close_over(3))),
        (jax.grad(close_over(2)), jax.grad(close_over(3))),
        (jnp.frompyfunc(close_over(2), 1, 1), jnp.frompyfunc(close_over(3), 1, 1)),
        (make_class(2), make_class(3)),
        (with_gain(2), with_gain(3)),
        (with_gain(2, jax.jit), with_gain(3, jax.jit)),
        (with_gain(2, functools.partial), with_gain(3, functools.partial)),
        (with_gain(2, functools.wraps(jnp.sin)), with_gain(3, functools.wraps(jnp.sin))),
        (with_module(scale=2.0, inner=inner(1.0)), with_module(scale=3.0, inner=inner(1.0))),
        (with_module(scale=2.0, inner=inner(1.0)), with_module(scale=2.0, inner=inner(3.0))),
        (with_helper(2.0), with_helper(3.0)),
        (with_enum(2.0), with_enum(3.0)),
        (with_cached_property(2.0), with_cached_property(3.0)),
        (with_class(scales=(2.0,)), with_class(scales=(3.0,))),
        (
            with_class(scale=staticmethod(jax.jit(close_over(2)))),
            with_class(scale=staticmethod(jax.jit(close_over(3)))),
        ),
        (with_module(scale=jnp.sin, inner=inner(1.0)), with_module(scale=jnp.cos, inner=inner(1.0))),
        (close_over(np.dtype("f4")), close_over(np.dtype("f4", metadata={"scale": 3}))),
        (jnp.add, np.add),
        (jnp.add, jnp.subtract),
    ],
)
def test_different_structure_is_another_kernel(a: Any, b: Any) -> None:
    assert fingerprint(a) != fingerprint(b)
    assert not same(a, b)


def test_fingerprint_of_importable_kernels_is_their_name() -> None:
    assert fingerprint(jax.nn.gelu) == "name(jax.nn:gelu)"
    assert fingerprint(functools.partial(jnp.sum, axis=0)) == (
        "partial(function=name(jax.numpy:sum),arguments=tuple(),keywords=dict('axis':0))"
    )


def test_fingerprint_of_a_module_says_nothing_of_what_an_import_of_it_gives() -> None:
    held = sys.modules[__name__]
    assert "double" not in fingerprint(lambda x: held.double(x))  # type: ignore[attr-defined]
    assert "TABLE=" in fingerprint(lambda x: x + held.TABLE)  # type: ignore[attr-defined]


def test_functions_that_hold_each_other_are_told_once() -> None:
    held: list[Any] = [lambda x: x for _ in range(30)]
    for number, other in itertools.product(range(30), held):
        for function in held:
            setattr(function, f"other{number}", other)
    assert len(fingerprint(lambda x: held[0](x))) < 1_000_000
    made = [types.ModuleType(f"made{number}") for number in range(12)]
    for one, (number, other) in itertools.product(made, enumerate(made)):
        setattr(one, f"m{number}", other)
    first = made[0]
    assert len(fingerprint(lambda x: (x, first.m1.m2.m3.m4.m5.m6.m7.m8.m9))) < 1_000_000  # type: ignore[attr-defined]


def test_fingerprint_tells_custom_derivative_rules_apart() -> None:
    def make(factor: float) -> Any:
        fn = jax.custom_jvp(lambda x: x)
        fn.defjvp(lambda primals, tangents: (primals[0], tangents[0] * factor))
        return fn

    assert fingerprint(make(1.0)) == fingerprint(make(1.0))
    assert fingerprint(make(1.0)) != fingerprint(make(2.0))


def test_fingerprint_sees_the_globals_that_a_lambda_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    fn = lambda x: x * SCALE  # noqa: E731
    before = fingerprint(fn)
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 5.0)
    assert fingerprint(fn) != before


def test_fingerprint_of_recursive_functions_ends() -> None:
    def outer(step: int) -> Callable[[Any], Any]:
        def recurse(x: Any) -> Any:
            return recurse(x - step)

        return recurse

    assert fingerprint(outer(1)) == fingerprint(outer(1)) != fingerprint(outer(2))


def test_fingerprint_refuses_what_has_no_structure() -> None:
    with Path(os.devnull).open() as file:
        with pytest.raises(KernelError, match="cannot be told from other kernels"):
            fingerprint(close_over(file))
        assert not same(close_over(file), close_over(file))
        fn = close_over(file)
        assert same(fn, fn)


def test_fingerprint_is_equal_in_another_process_with_another_hash_seed(tmp_path: Path) -> None:
    source = """
import enum, functools, sys, types
import jax.numpy as jnp
from combinators.kernels.kernel import fingerprint
def make(n):
    class Settings:
        names = {"x", "y", "z", n}
        @functools.cached_property
        def size(self):
            return n
    class Kind(enum.Enum):
        WIDE = frozenset({"p", "q", "r"})
    module = types.ModuleType("settings")
    module.table = {"u", "v", "w"}
    def act(x):
        return x
    act.other, act.kinds = act, {"k", "l", "m"}
    held = Settings, Kind.WIDE, act
    return lambda x: jnp.where(
        x in {"a", "b", "c", n}, functools.partial(jnp.sum, axis=n), [lambda: n, held, module.table, act.kinds]
    )
if __name__ == "__main__":
    sys.stdout.write(fingerprint(make(3)))
"""
    script = tmp_path / "script.py"
    script.write_text(source)
    root = str(Path(__file__).parents[3])
    env = {**os.environ, "PYTHONPATH": root, "JAX_PLATFORMS": "cpu"}
    # Not that of this process, which is drawn where it is not said.
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    env["PYTHONHASHSEED"] = seed
    run = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    space: dict[str, Any] = {"__name__": "elsewhere"}
    exec(compile(source, "<another file>", "exec", dont_inherit=True), space)
    assert fingerprint(space["make"](3)) == run.stdout


# short_name


@pytest.mark.parametrize(
    ("fn", "name"),
    [
        (jax.nn.gelu, "gelu"),
        (jax.nn.relu, "relu"),
        (jnp.matmul, "matmul"),
        (jnp.add, "add"),
        (AttentionKernel(1.0), "attention_kernel"),
        (AttentionKernel, "attention_kernel"),
        (AttentionKernel(1.0).method, "method"),
        (functools.partial(jnp.sum, axis=0), "sum"),
        (lambda x: x, "lambda"),
        (jax.jit(lambda x: x), "lambda"),
        (close_over(1), "kernel"),
        (jax.vmap(jnp.sin), "sin"),
        (dataclasses.make_dataclass("MLPBlock2D", [], frozen=True)(), "mlp_block2_d"),
    ],
)
def test_short_name_is_what_paths_show(fn: Any, name: str) -> None:
    assert short_name(fn) == name
