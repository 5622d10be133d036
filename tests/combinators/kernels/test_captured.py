"""Arrays that kernels capture are found however they are hidden; arrays that kernels make are let through."""

from __future__ import annotations

import collections
import dataclasses
import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tapestry_jax as tp
from combinators.kernels import captured
from combinators.kernels.captured import check_captured, result_types

X = tp.TensorType({"n": 8})
ROWS = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]


class Model:
    """A user's object with arrays of JAX and NumPy, and with numbers."""

    shared = np.arange(8.0)

    def __init__(self) -> None:
        self.table, self.host, self.number = jnp.arange(8.0), np.arange(8, dtype=np.float32), 3.0
        self.step, self.key = jnp.float32(2), jax.random.key(0)

    def __getitem__(self, at: int) -> Any:
        return self.host if at == 0 else self.number

    def __call__(self, x: Any) -> Any:
        return x + self.table

    @property
    def half(self) -> Any:
        return self.table / 2

    @property
    def half_on_host(self) -> Any:
        return self.host / 2

    @functools.cached_property
    def squares(self) -> Any:
        return self.host**2

    def shifted(self, x: Any) -> Any:
        return x + self.table


class Slotted:
    __slots__ = ("table",)

    def __init__(self) -> None:
        self.table = np.ones(8)


@dataclasses.dataclass
class Config:
    table: Any
    scale: float = 2.0


class Frame:
    """What NumPy reads as an array, as a data frame of another library is."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.ones(8, dtype)


model, slotted, config, deep = Model(), Slotted(), Config(np.ones(8)), types.SimpleNamespace(inner=Config(jnp.ones(8)))
frame, queue, listed, by_name = Frame(), collections.deque([np.ones(8)]), [[np.ones(8)]], {"mean": jnp.ones(8)}
proxy, chain = types.MappingProxyType({"q": np.ones(8)}), collections.ChainMap({"q": np.ones(8)})
module = types.ModuleType("somebodys_module")
module.TABLE = np.ones(8)  # pyright: ignore[reportAttributeAccessIssue]
sys.modules["somebodys_module"] = module
mixed = [np.float32(1), np.ones(()), *ROWS[2:]]


def helper(x: Any) -> Any:
    return x + by_name["mean"]


def helper_of_helper(x: Any) -> Any:
    return helper(x)


@jax.jit
def jitted_helper(x: Any) -> Any:
    return x + by_name["mean"]


@jax.jit
def jitted_that_makes_its_own(x: Any) -> Any:
    return x + jnp.array(ROWS)


@jax.custom_jvp
def with_jvp(x: Any) -> Any:
    return x * 2


with_jvp.defjvp(lambda primals, tangents: (primals[0] * 2, tangents[0] * model.table))


@jax.custom_vjp
def with_vjp(x: Any) -> Any:
    return x * 2


with_vjp.defvjp(lambda x: (x * 2, None), lambda _, g: (g * model.host,))


@functools.lru_cache
def cached(size: int) -> Any:
    return np.linspace(0, 1, size)


def evaluated() -> Any:
    with jax.ensure_compile_time_eval():
        return model.table * 2


HIDDEN: dict[str, Callable[[Any], Any]] = {
    "attribute": lambda x: x + model.table,
    "attribute on the host": lambda x: x + model.host,
    "attribute of an attribute": lambda x: x + deep.inner.table,
    "property": lambda x: x + model.half,
    "property on the host": lambda x: x + model.half_on_host,
    "cached property": lambda x: x + model.squares,
    "item": lambda x: x + model[0],
    "method": lambda x: model.shifted(x),
    "object that is called": lambda x: model(x),
    "attribute of a class": lambda x: x + Model.shared,
    "slot": lambda x: x + slotted.table,
    "dataclass": lambda x: x + config.table,
    "list": lambda x: x + listed[0][0],
    "dictionary": lambda x: x + by_name["mean"],
    "deque": lambda x: x + queue[0],
    "mapping proxy": lambda x: x + proxy["q"],
    "chain map": lambda x: x + chain["q"],
    "module": lambda x: x + module.TABLE,
    "loaded module": lambda x: x + sys.modules["somebodys_module"].TABLE,
    "global by its name": lambda x: x + getattr(globals()["model"], "ta" + "ble"),
    "array-like": lambda x: x + np.asarray(frame),
    "helper": helper,
    "helper of a helper": lambda x: helper_of_helper(x),
    "jitted helper": lambda x: jitted_helper(x),
    "custom jvp": lambda x: with_jvp(x),
    "custom vjp": lambda x: with_vjp(x),
    "scan": lambda x: lax.scan(lambda c, _: (c + model.table, None), x, None, length=2)[0],
    "while": lambda x: lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] + model.table), (0, x))[1],
    "cond": lambda x: lax.cond(True, lambda: x + model.table, lambda: x),
    "vmap": lambda x: jax.vmap(jnp.add)(x, model.table),
    "checkpoint": jax.checkpoint(lambda x: x + model.table),
    "grad": lambda x: jax.grad(lambda y: (y * model.host).sum())(x),
    "first rows": lambda x: x + model.table[: x.shape[0]],
    "first rows on the host": lambda x: x + model.host[: x.shape[0]],
    "product on the host": lambda x: x + config.table * 2,
    "scalar array": lambda x: x * model.step,
    "random key": lambda x: x * jax.random.uniform(model.key),
    "arrays in a list of numbers": lambda x: x + jnp.array(mixed),
    "computed while tracing": lambda x: x + evaluated(),
    "cache": lambda x: x + cached(8),
    "callback": lambda x: jax.pure_callback(lambda v: np.asarray(v) + model.host, x, x),
    "callback in a loop": lambda x: jax.lax.fori_loop(
        0, 2, lambda _, v: jax.pure_callback(lambda u: np.asarray(u) + model.host, v, v), x
    ),
    "rule in a call": lambda x: jax.jit(lambda v: with_vjp(v))(x),
    "partial of a method": functools.partial(Model.__call__, model),
}

MADE: dict[str, Callable[[Any], Any]] = {
    "jnp.array": lambda x: x + jnp.array(ROWS),
    "np.array": lambda x: x + np.array(ROWS),
    "np.arange": lambda x: x + np.arange(x.shape[0]),
    "jnp.linspace": lambda x: x + jnp.linspace(0, 1, 8),
    "random key": lambda x: x * jax.random.uniform(jax.random.key(0)),
    "jitted function": lambda x: jitted_that_makes_its_own(x),
    "numbers of an object": lambda x: x * model.number,
    "numbers beside an array": lambda x: x * config.scale + np.arange(8),
    "scalars": lambda x: x * np.float32(3) * jnp.float32(2**-3) * np.array(2.0),
    "relu": lambda x: jax.nn.relu(x) * 2,
    "coefficients of JAX": lambda x: jax.scipy.special.ndtri(x),
    "convolution": lambda x: jnp.convolve(x, jnp.array([1.0, 2.0, 1.0]), mode="same"),
}


def traced(kernel: Callable[..., Any]) -> None:
    tp.trace(lambda v: tp.Map(kernel, "[n] -> [n]", name="kernel")(v), X)


@pytest.mark.parametrize("how", HIDDEN)
def test_a_captured_array_is_refused(how: str) -> None:
    with pytest.raises(tp.KernelError, match=r"(captures|closes over) arrays"):
        traced(HIDDEN[how])


@pytest.mark.parametrize("how", MADE)
def test_an_array_that_the_kernel_makes_is_fine(how: str) -> None:
    for _ in range(2):  # jitted functions answer from a cache the second time
        result_types(MADE[how], [X.struct], "the kernel")


def test_the_error_names_the_expression_and_the_remedy() -> None:
    with pytest.raises(tp.KernelError) as caught:
        traced(lambda x: x + deep.inner.table)
    assert str(caught.value) == (
        "the kernel of `kernel` captures arrays.\n"
        "  `deep.inner.table` among the globals of `<lambda>` is an array, float32[8]\n"
        "  Pass it as an operand."
    )


def test_what_cannot_be_followed_is_described() -> None:
    with pytest.raises(tp.KernelError, match=r"an array, float\d\d\[8\], which is there before `lambda` is called"):
        traced(HIDDEN["global by its name"])


SUM = tp.monoids.Sum


def summed(monoid: Any, **options: Any) -> Any:
    return tp.Reduce(lambda x: x.sum(0), "n ->", monoid, **options)


def scaled(x: Any) -> Any:
    return x * model.step


FRAME = tp.Frame(lambda s: s, "sum", scaled, lambda s, f: s, lambda f, total: total)
PARTS: dict[str, Any] = {
    "combine": lambda: summed(tp.Monoid(0.0, lambda a, b: a + scaled(b))),
    "identity": lambda: summed(tp.Monoid(lambda kind: model.step, jnp.add)),
    "inverse": lambda: summed(tp.Monoid(0.0, jnp.add, inverse=scaled)),
    "frame": lambda: summed(tp.Monoid(0.0, jnp.add, frame=FRAME)),
    "present": lambda: summed(SUM, present=scaled),
    "steps": lambda: tp.Scan(SUM, "n -> n", "n", kernel=scaled),
    "lift": lambda: tp.fold(tp.Aggregator(scaled, SUM, lambda s: s), "n ->"),
    "contramap": lambda: tp.fold(tp.aggregators.Sum().contramap(scaled), "n ->"),
    "labels": lambda: tp.fold(tp.aggregators.Sum().by_key(lambda x: scaled(x).astype(int), 3), "n ->"),
    "mask": lambda: tp.fold(tp.aggregators.Sum().masked(lambda x: x > model.step), "n ->"),
    "result": lambda: tp.fold(tp.aggregators.Sum().map(scaled), "n ->"),
    "scan": lambda: tp.scan(tp.aggregators.Sum().contramap(scaled), "t -> t"),
    "dense": lambda: tp.Map(lambda x: x, "n -> n", dense=scaled),
    "dense elsewhere": lambda: tp.Map(lambda x: x, "n -> n", dense=tp.Dense(scaled, platforms="tpu")),
    "elementwise": lambda: tp.Map(scaled),
    "loop": lambda: tp.program(lambda v: tp.iterate(lambda c: tp.Map(scaled)(c), 3)(v)),
}


@pytest.mark.parametrize("part", PARTS)
def test_every_function_of_a_user_is_looked_at(part: str) -> None:
    with pytest.raises(tp.KernelError, match=r"captures arrays.*\n.*`model.step`"):
        tp.trace(PARTS[part](), tp.TensorType((8,)))


def test_infer_looks_as_well() -> None:
    with pytest.raises(tp.KernelError, match="captures arrays"):
        tp.infer(scaled, [X])


def test_values_of_the_program_may_be_captured_by_steps() -> None:
    graph = tp.trace(lambda v, w: tp.iterate(lambda c: c + w, 3)(v), X, X)
    assert graph(jnp.zeros(8), jnp.ones(8)).tolist() == [3.0] * 8


def test_a_fault_in_looking_at_a_kernel_is_not_taken_for_one_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    table = np.arange(8.0)

    def fails(value: object, name: str) -> Any:
        raise LookupError("a fault of ours")

    monkeypatch.setattr(captured, "reachable_arrays", fails)
    with pytest.raises(LookupError, match="a fault of ours"):
        check_captured(lambda x: x + table, [X.struct], "a kernel")


def test_a_kernel_that_does_not_run_here_is_not_refused_where_it_may_stand_aside() -> None:
    table = np.arange(8.0)

    def elsewhere(x: Any) -> Any:
        raise RuntimeError(f"no such device, for {table.shape}")

    check_captured(elsewhere, [X.struct], "a kernel")


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_trace_ends(raised: type[BaseException]) -> None:
    def interrupted(x: Any) -> Any:
        raise raised

    with pytest.raises(raised):
        check_captured(interrupted, [X.struct], "a kernel")
