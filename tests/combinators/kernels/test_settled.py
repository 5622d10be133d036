"""Leaves keep the variables that their kernels read; leaves that were equal do not stand in for each other later."""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from combinators.kernels.fingerprint import fingerprint
from combinators.kernels.settled import changeable, settled

X = np.arange(1, 9, dtype=np.float32)


def _helped(i: int) -> Callable[[Any], Any]:
    def inner(a: Any) -> Any:
        return a * 10 + i

    return lambda a: inner(a)


# Each makes a kernel in a loop: what it reads is another value in the next turn.
KERNELS: dict[str, Callable[[], list[Any]]] = {
    "a lambda": lambda: [tp.Map(lambda a: a * 10 + i) for i in (1, 2, 3)],  # noqa: B023 - this is what is tested
    "a partial": lambda: [tp.Map(functools.partial(lambda b, a: a * b + i, 10)) for i in (1, 2, 3)],  # noqa: B023
    "what vmap gives": lambda: [tp.Map(jax.vmap(lambda a: a * 10 + i), "r -> r") for i in (1, 2, 3)],  # noqa: B023
    "what jit gives": lambda: [tp.Map(jax.jit(lambda a: a * 10 + i), "r -> r") for i in (1, 2, 3)],  # noqa: B023
    "what checkpoint gives": lambda: [tp.Map(jax.checkpoint(lambda a: a * 10 + i), "r -> r") for i in (1, 2, 3)],  # noqa: B023
    "a helper": lambda: [tp.Map(_helped(i)) for i in (1, 2, 3)],
    "cells of a stencil": lambda: [
        tp.stencil(lambda u: u[0] * 10 + i, {"r": (0, 1)}, boundary="zero")  # noqa: B023
        for i in (1, 2, 3)
    ],
    "a loop": lambda: [tp.iterate(tp.Map(lambda a: a * 10 + i), 1) for i in (1, 2, 3)],  # noqa: B023
    "a list": lambda: _read_from([0]),
}


def _read_from(numbers: list[int]) -> list[Any]:
    made = list[Any]()
    for number in (1, 2, 3):
        own = [number, *numbers]
        made.append(tp.Map(lambda a, own=own: a * 10 + own[0]))
    return made


def _expected() -> Any:
    return ((X * 10 + 1) * 10 + 2) * 10 + 3


@pytest.mark.parametrize("name", KERNELS)
def test_a_leaf_reads_what_it_read_when_it_was_made(name: str) -> None:
    def program(x: Any) -> Any:
        for leaf in KERNELS[name]():
            x = leaf(x)
        return x

    # Again: leaves of the first call are equal to those of the second, and must not run in their place.
    for _ in range(2):
        np.testing.assert_array_equal(program(X), _expected())
    graph = tp.trace(tp.program("r -> r")(program), X)
    plan = tp.plan(graph, tp.mesh(data=2), {"r": ("data", tp.chunks(2))})
    np.testing.assert_array_equal(plan.compile()(X), _expected())


def test_folds_and_monoids_keep_what_they_read() -> None:
    def program(x: Any) -> Any:
        made = list[Any]()
        for most in (10.0, 20.0, 30.0):
            capped = tp.Monoid(-jnp.inf, lambda a, b: jnp.minimum(jnp.maximum(a, b), most))  # noqa: B023
            made.append(tp.Reduce(lambda a: jnp.minimum(10 * a.max(), most), "r -> ", capped)(x))  # noqa: B023
        return tuple(made)

    for _ in range(2):
        assert list(map(float, program(X))) == [10, 20, 30]
    plan = tp.plan(tp.trace(tp.program("r -> , ,")(program), X), tp.mesh(data=2), {"r": "data"})
    assert list(map(float, plan.compile()(X))) == [10, 20, 30]


def test_aggregators_keep_what_they_read() -> None:
    total = tp.aggregators.Sum()
    made = [dataclasses.replace(total, present=lambda s: s * i) for i in (1, 2, 3)]  # noqa: B023
    assert [float(each.run(X)) for each in made] == [36, 72, 108]
    assert [float(tp.fold(each, "r -> ")(X)) for each in made] == [36, 72, 108]


def _scaled_by(factor: list[float]) -> Callable[[Any], Any]:
    return lambda a: a * factor[0]


def _scaled_by_default(factor: list[float]) -> Callable[[Any], Any]:
    return lambda a, *, by=factor: a * by[0]


class _Scaled:
    def __init__(self, factor: list[float]) -> None:
        self.factor = factor

    def __call__(self, a: Any) -> Any:
        return a * self.factor[0]

    def method(self, a: Any) -> Any:
        return a * self.factor[0]


@pytest.mark.parametrize(
    "kernel",
    [_scaled_by, _scaled_by_default, _Scaled, lambda factor: _Scaled(factor).method],
    ids=["a variable", "a default", "an object", "a method"],
)
def test_a_leaf_that_was_equal_once_does_not_run_in_place_of_another(kernel: Any) -> None:
    first, second = [2.0], [2.0]
    leaf = tp.Map(kernel(first), "r -> r")
    np.testing.assert_array_equal(leaf(X), 2 * X)
    first[0] = 3.0
    np.testing.assert_array_equal(tp.Map(kernel(second), "r -> r")(X), 2 * X)


@pytest.mark.parametrize("definition", ["def kernel(a): return a * {}", "kernel = jax.jit(lambda a: a * {})"])
def test_a_module_that_is_loaded_again_has_kernels_of_its_own(
    definition: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    name = f"loaded_again_{len(definition)}"
    for factor in (2, 300):
        (tmp_path / f"{name}.py").write_text(f"import jax\n{definition.format(factor)}\n")
        importlib.invalidate_caches()
        module = importlib.reload(sys.modules[name]) if name in sys.modules else importlib.import_module(name)
        np.testing.assert_array_equal(tp.Map(module.kernel, "r -> r")(X), factor * X)
    monkeypatch.delitem(sys.modules, name)


def test_a_monoid_that_is_loaded_again_is_folded_by_key_as_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    name = "merged_again"
    for least in (1, 30):
        (tmp_path / f"{name}.py").write_text(
            f"import jax.numpy as jnp\ndef merge(a, b): return jnp.minimum(a + b, {least})\n"
        )
        importlib.invalidate_caches()
        module = importlib.reload(sys.modules[name]) if name in sys.modules else importlib.import_module(name)
        capped = tp.Aggregator(_itself, tp.Monoid(0.0, module.merge), _itself).by_key(None, 2)
        np.testing.assert_array_equal(capped.run(X, np.array([0] * 7 + [1])), np.minimum([28, 8], [least, 8]))
    monkeypatch.delitem(sys.modules, name)


def _itself(x: Any) -> Any:
    return x


def test_a_decorator_is_settled_although_what_it_wraps_is() -> None:
    inner = settled(_helped(1))
    by = 2

    @functools.wraps(inner)
    def outer(a: Any) -> Any:
        return inner(a) * by

    kept, by = settled(outer), 3
    np.testing.assert_array_equal(kept(X), 2 * (X * 10 + 1))


def test_what_nobody_can_change_is_itself() -> None:
    for kernel in (
        jnp.sin,
        jax.nn.gelu,
        functools.partial(jnp.sum, axis=0),
        lambda a: a + 1,
        jax.jit(jnp.sin),
    ):
        assert settled(kernel) is kernel
        assert changeable(kernel) == ()
    kept = settled(_helped(1))
    assert settled(kept) is kept
    assert changeable(kept) == ()
    assert len(changeable(_helped(1))) == 2  # `inner`, and `i` of it


def test_a_function_of_its_own_variables_and_unbound_ones() -> None:
    def power(a: Any, times: int = 3) -> Any:
        return a if times == 1 else a * power(a, times - 1)

    np.testing.assert_array_equal(settled(power)(X), X**3)

    def early(a: Any) -> Any:
        return a + late

    kept = settled(early)
    late = 5
    np.testing.assert_array_equal(kept(X), X + late)


def test_a_kernel_may_count_its_calls() -> None:
    calls = 0

    def counted(a: Any) -> Any:
        nonlocal calls
        calls += 1
        return a + 1

    tp.Map(counted, "r -> r")(X)
    assert calls > 0


def test_a_copy_is_called_what_the_function_is_called() -> None:
    def scaled(a: Any, *, by: float = 2.0) -> Any:
        """Scale."""
        return a * by * offset

    offset = 1.0
    kept = settled(scaled)
    assert kept is not scaled
    for name in ("__name__", "__qualname__", "__module__", "__doc__", "__kwdefaults__", "__annotations__"):
        assert getattr(kept, name) == getattr(scaled, name)
    np.testing.assert_array_equal(kept(X), 2 * X)


# Each makes three kernels in a loop, of which every function reads the variable of the loop.
def _jvps() -> Iterator[Any]:
    for i in (1, 2, 3):
        kernel = jax.custom_jvp(lambda a: a * 10 + i)  # noqa: B023 - this is what is tested
        kernel.defjvp(lambda primals, tangents: (primals[0] * 10 + i, tangents[0] * i))  # noqa: B023
        yield kernel


def _jvps_that_call_it() -> Iterator[Any]:
    for i in (1, 2, 3):
        kernel = jax.custom_jvp(lambda a: a * 10 + i)  # noqa: B023
        kernel.defjvp(lambda primals, tangents: (kernel(*primals), tangents[0] * i))  # noqa: B023
        yield kernel


def _jvps_by_argument() -> Iterator[Any]:
    for i in (1, 2, 3):
        kernel = jax.custom_jvp(lambda a: a * 10 + i)  # noqa: B023
        kernel.defjvps(lambda tangent, out, a: tangent * i)  # noqa: B023
        yield kernel


def _vjps() -> Iterator[Any]:
    for i in (1, 2, 3):
        kernel = jax.custom_vjp(lambda a: a * 10 + i)  # noqa: B023
        kernel.defvjp(lambda a: (a * 10 + i, None), lambda kept, given: (given * i,))  # noqa: B023
        yield kernel


def _with_options() -> Iterator[Any]:
    for i in (1, 2, 3):
        kernel = jax.custom_jvp(lambda by, a: a * by + i, nondiff_argnums=(0,))  # noqa: B023

        def rule(by: int, primals: Any, tangents: Any, kernel: Any = kernel) -> Any:
            assert not isinstance(tangents[0], jax.custom_derivatives.SymbolicZero)
            return kernel(by, *primals), tangents[0] * i  # noqa: B023

        kernel.defjvp(rule, symbolic_zeros=True)
        yield functools.partial(kernel, 10)


@pytest.mark.parametrize("kernels", [_jvps, _jvps_that_call_it, _jvps_by_argument, _vjps, _with_options])
def test_rules_read_what_they_read_when_the_leaf_was_made(kernels: Callable[[], Iterator[Any]]) -> None:
    def program(x: Any) -> Any:
        for leaf in [tp.Map(kernel) for kernel in kernels()]:
            x = leaf(x)
        return x

    run = tp.plan(tp.trace(tp.program("r -> r")(program), X), tp.mesh(data=2), {"r": "data"}).compile()
    jitted = jax.jit(lambda x: (run(x), jax.grad(lambda x: run(x).sum())(x)))
    value, slope = jitted(X)
    np.testing.assert_array_equal(value, _expected())
    np.testing.assert_array_equal(slope, np.full(8, 6, np.float32))


def test_rules_of_batches_are_kept_and_told_apart() -> None:
    @jax.custom_batching.custom_vmap
    def first(a: Any) -> Any:
        return a + by

    by = 1
    first.def_vmap(lambda size, batched, a: (a + 10 * by, True))
    kept, by = settled(first), 2
    np.testing.assert_array_equal(jax.vmap(kept)(X), X + 10)
    other = copy.copy(first)
    other.vmap_rule = None
    assert fingerprint(other) != fingerprint(first)


@pytest.mark.parametrize("kernels", [_jvps, _jvps_that_call_it, _jvps_by_argument, _vjps])
def test_what_is_settled_with_its_rules_is_settled_once(kernels: Callable[[], Iterator[Any]]) -> None:
    kept = settled(next(kernels()))
    assert settled(kept) is kept
    # Who writes another rule onto it has another function.
    kept.fun = lambda a: a
    np.testing.assert_array_equal(settled(kept).fun(X), X)
    assert settled(kept) is not kept


def test_a_settled_function_may_be_given_rules() -> None:
    by = 3.0
    inner = settled(lambda a: a * by)
    kernel = jax.custom_jvp(inner)
    kernel.defjvp(lambda primals, tangents: (inner(*primals), by * tangents[0]))
    kept = settled(kernel)
    assert kept is not kernel and settled(kept) is kept
    np.testing.assert_array_equal(kept(X), 3 * X)


def test_rules_that_were_equal_once_do_not_stand_in_for_each_other() -> None:
    def made(factor: list[float]) -> Any:
        kernel = jax.custom_jvp(lambda a: a * 2)
        kernel.defjvp(lambda primals, tangents: (primals[0] * 2, tangents[0] * factor[0]))
        return kernel

    first, second = [2.0], [2.0]
    assert set(changeable(made(first))) & set(changeable(made(first)))
    assert not set(changeable(made(first))) & set(changeable(made(second)))


def test_what_vmap_gives_reads_lists_too() -> None:
    factor = [2.0]
    assert id(factor) in changeable(jax.vmap(_scaled_by(factor)))


def test_a_default_that_is_a_function_is_settled() -> None:
    kernels = list[Any]()
    for i in (1, 2):

        def kernel(a: Any, own: Any = lambda a: a + i, *, more: Any = lambda a: a * i) -> Any:
            return more(own(a))

        kernels.append(settled(kernel))
    assert [float(kernel(1.0)) for kernel in kernels] == [2, 6]


def test_methods_of_a_class_that_is_local() -> None:
    class Scaled:
        by = 2

        @classmethod
        def kernel(cls, a: Any) -> Any:
            return a * cls.by

    np.testing.assert_array_equal(tp.Map(Scaled.kernel)(X), 2 * X)


def test_kernels_are_told_apart_by_what_has_no_structure() -> None:
    def scaled(by: float) -> Any:
        held = types.SimpleNamespace(by=by, lock=threading.Lock())

        def kernel(x: Any) -> Any:
            return x * kernel.held.by  # type: ignore[attr-defined]

        kernel.held = held  # type: ignore[attr-defined]
        return kernel

    x = jnp.arange(4.0)
    one, other = (tp.Map(scaled(by), "n -> n") for by in (2.0, 3.0))
    np.testing.assert_array_equal(one(x), 2 * x)
    np.testing.assert_array_equal(other(x), 3 * x)
    assert tp.trace(one, x) != tp.trace(other, x)
