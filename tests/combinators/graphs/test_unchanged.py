"""A plan computes what its program computed when it was traced, or says that it does not."""

from __future__ import annotations

import dataclasses
import functools
import pickle
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas

import tapestry_jax as tp

X = np.arange(1, 9, dtype=np.float32)
ROW = "r -> r"
BY = 0


@dataclasses.dataclass
class Scaled:
    """Multiplies."""

    by: int

    def __call__(self, a: Any) -> Any:
        return a * self.by

    def method(self, a: Any) -> Any:
        return a * self.by


class Slotted:
    """Has no dictionary."""

    __slots__ = ("by",)

    def __call__(self, a: Any) -> Any:
        return a * self.by


def _of_list() -> tuple[Any, Callable[[int], None]]:
    held = [0]
    return tp.Map(lambda a: a * held[0]), lambda by: held.__setitem__(0, by)


def _of_dict_of_functions() -> tuple[Any, Callable[[int], None]]:
    held: dict[str, Callable[[], int]] = {"by": lambda: 0}
    return tp.Map(lambda a: a * held["by"]()), lambda by: held.update(by=lambda: by)


def _of_namespace() -> tuple[Any, Callable[[int], None]]:
    held = SimpleNamespace(by=0)
    return tp.Map(lambda a: a * held.by), lambda by: setattr(held, "by", by)


def _of_object(kernel: Any, held: Any) -> tuple[Any, Callable[[int], None]]:
    held.by = 0
    return tp.Map(kernel), lambda by: setattr(held, "by", by)


def _of_global() -> tuple[Any, Callable[[int], None]]:
    return tp.Map(lambda a: a * BY), lambda by: globals().update(BY=by)


def _times_global(a: Any) -> Any:
    return _by_global() * a


def _by_global() -> int:
    return BY


@dataclasses.dataclass(frozen=True)
class TimesGlobal:
    """Reads a variable of its module."""

    def __call__(self, a: Any) -> Any:
        return a * BY


class Named:
    """Reads a variable of its module, and is no dataclass."""

    @staticmethod
    def kernel(a: Any) -> Any:
        return a * BY

    def __call__(self, a: Any) -> Any:
        return self.kernel(a)


def _of_named_object() -> tuple[Any, Callable[[int], None]]:
    return tp.Map(Named()), lambda by: globals().update(BY=by)


def _of_named_function() -> tuple[Any, Callable[[int], None]]:
    return tp.Map(_times_global), lambda by: globals().update(BY=by)


def _of_named_class() -> tuple[Any, Callable[[int], None]]:
    return tp.Map(TimesGlobal()), lambda by: globals().update(BY=by)


def _of_local_class() -> tuple[Any, Callable[[int], None]]:
    class Local:
        def __call__(self, a: Any) -> Any:
            return a * by

    by = 0

    def change(value: int) -> None:
        nonlocal by
        by = value

    return tp.Map(Local()), change


def _of_rule() -> tuple[Any, Callable[[int], None]]:
    held = [0]
    kernel = jax.custom_jvp(lambda a: a * 1)
    kernel.defjvp(lambda primals, tangents: (primals[0] * 1, tangents[0] * held[0]))
    return tp.Map(kernel), lambda by: held.__setitem__(0, by)


def _of_scaled() -> tuple[Any, Callable[[int], None]]:
    held = Scaled(0)
    return _of_object(held, held)


def _of_method() -> tuple[Any, Callable[[int], None]]:
    held = Scaled(0)
    return _of_object(held.method, held)


def _of_slotted() -> tuple[Any, Callable[[int], None]]:
    held = Slotted()
    return _of_object(held, held)


def _of_monoid() -> tuple[Any, Callable[[int], None]]:
    held = [0]
    monoid = tp.Monoid(0.0, lambda a, b: jnp.maximum(a + b, held[0]))
    return tp.Scan(monoid, ROW, over="r"), lambda by: held.__setitem__(0, by)


def _of_identity() -> tuple[Any, Callable[[int], None]]:
    held = [0]
    monoid = tp.Monoid(lambda kind: jnp.full(kind.shape, -held[0], kind.dtype), jnp.maximum)
    return tp.Reduce(lambda a: a.max(), "r -> ", monoid), lambda by: held.__setitem__(0, by)


def _of_present() -> tuple[Any, Callable[[int], None]]:
    held = [0]
    summed = tp.Reduce(lambda a: a.sum(), "r -> ", tp.monoids.Sum, present=lambda state: state * held[0])
    return summed, lambda by: held.__setitem__(0, by)


def _of_module(registered: bool) -> tuple[Any, Callable[[int], None]]:
    held = ModuleType("settings_of_a_test")
    if registered:
        sys.modules[held.__name__] = held
    held.by = 0
    return tp.Map(lambda a: a * held.by), lambda by: setattr(held, "by", by)


def _of_new_module() -> tuple[Any, Callable[[int], None]]:
    return _of_module(False)


def _of_imported_module() -> tuple[Any, Callable[[int], None]]:
    return _of_module(True)


def _of_module_in_a_partial() -> tuple[Any, Callable[[int], None]]:
    held = ModuleType("settings_of_a_test")
    held.by = 0
    return tp.Map(functools.partial(lambda of, a: a * of.by, held)), lambda by: setattr(held, "by", by)


def _of_function_in_a_module() -> tuple[Any, Callable[[int], None]]:
    held = sys.modules[__name__]
    return tp.Map(lambda a: held._times_global(a)), lambda by: globals().update(BY=by)


def _gain() -> int:
    return _gain.by  # type: ignore[attr-defined]


def _of_attribute() -> tuple[Any, Callable[[int], None]]:
    _gain.by = 0  # type: ignore[attr-defined]
    return tp.Map(lambda a: a * _gain()), lambda by: setattr(_gain, "by", by)


def _of_attribute_of_a_local_function() -> tuple[Any, Callable[[int], None]]:
    def held(a: Any) -> Any:
        return a

    held.by = 0  # type: ignore[attr-defined]
    return tp.Map(lambda a: held(a) * held.by), lambda by: setattr(held, "by", by)  # type: ignore[attr-defined]


def _of_attribute_of_a_partial() -> tuple[Any, Callable[[int], None]]:
    held = functools.partial(jnp.multiply, 1.0)
    held.by = 0  # type: ignore[attr-defined]
    return tp.Map(lambda a: held(a) * held.by), lambda by: setattr(held, "by", by)  # type: ignore[attr-defined]


MAKERS = [
    _of_new_module,
    _of_imported_module,
    _of_module_in_a_partial,
    _of_function_in_a_module,
    _of_attribute,
    _of_attribute_of_a_local_function,
    _of_attribute_of_a_partial,
    _of_list,
    _of_dict_of_functions,
    _of_namespace,
    _of_scaled,
    _of_method,
    _of_slotted,
    _of_global,
    _of_named_function,
    _of_named_object,
    _of_named_class,
    _of_local_class,
    _of_rule,
    _of_monoid,
    _of_identity,
    _of_present,
]


def planned(run: Any) -> tp.Plan:
    return tp.plan(tp.trace(tp.program(lambda x: run(x)), tp.TensorType({"r": 8})), tp.mesh(data=2), {"r": "data"})


@pytest.mark.parametrize("make", MAKERS)
def test_a_plan_of_a_kernel_that_reads_something_else_by_now_is_refused(make: Any) -> None:
    leaf, change = make()
    change(2)
    plan = planned(leaf)
    plan.compile()
    change(3)
    with pytest.raises(tp.KernelError, match="has changed since the program was traced"):
        plan.compile()
    with pytest.raises(tp.KernelError, match="has changed since the program was traced"):
        plan.graph(X)
    change(2)
    plan.compile()


def test_the_refusal_says_where_and_what_to_do() -> None:
    leaf, change = _of_list()
    plan = planned(leaf)
    change(1)
    with pytest.raises(tp.KernelError) as error:
        plan.compile()
    assert str(error.value).splitlines() == [
        "the kernel of `lambda` reads what has changed since the program was traced",
        "  operation lambda: d0 -> d0",
        "  expected what it computed then; got another program of it now",
        "  Give each leaf what it reads: by functools.partial, a default argument `i=i`, a field of a frozen "
        "dataclass, or as an operand.",
    ]


def test_blocks_and_streams_are_refused_as_well() -> None:
    leaf, change = _of_list()
    plan = planned(leaf)
    shards = plan.shards()
    job = tp.stream(plan.graph, {"r": tp.chunks(2)}, sources={"x": X})
    change(1)
    for run in (lambda: shards.run(X), job.run):
        with pytest.raises(tp.KernelError, match="has changed since the program was traced"):
            run()


def test_a_kernel_in_a_loop_is_looked_at() -> None:
    leaf, change = _of_list()
    plan = planned(tp.iterate(leaf, 2))
    change(1)
    with pytest.raises(tp.KernelError, match="operation iterate"):
        plan.compile()


def test_what_changes_without_a_meaning_is_let_through() -> None:
    calls, held = [0], SimpleNamespace(by=2, name="before")

    def kernel(a: Any) -> Any:
        calls[0] += 1
        return a * held.by

    plan = planned(tp.Map(kernel, ROW))
    held.name = "after"
    np.testing.assert_array_equal(plan.compile()(X), 2 * X)
    np.testing.assert_array_equal(plan.graph(X), 2 * X)


def test_two_leaves_that_read_one_list_are_not_one_program() -> None:
    held = [0]

    def program(x: Any) -> Any:
        for by in (1, 2, 3):
            held[0] = by
            x = tp.Map(lambda a: a * 10 + held[0])(x)
        return x

    np.testing.assert_array_equal(program(X), ((X * 10 + 1) * 10 + 2) * 10 + 3)
    with pytest.raises(tp.KernelError, match="has changed since the program was traced"):
        planned(program).compile()


def test_a_program_that_is_traced_again_reads_what_is_there_by_then() -> None:
    leaf, change = _of_list()
    change(2)
    early = planned(leaf)
    change(3)
    late = planned(leaf)
    np.testing.assert_array_equal(late.compile()(X), 3 * X)
    with pytest.raises(tp.KernelError, match="has changed since the program was traced"):
        early.compile()


def test_settings_of_jax_are_no_change() -> None:
    # Its program says at which precision it multiplies, which is the caller's to choose.
    plan = planned(tp.Map(_times_global))
    with jax.default_matmul_precision("highest"), jax.enable_x64(True):
        plan.compile()
    product = tp.Map(_product, "r [c] -> r [c]")
    graph = tp.trace(product, tp.TensorType({"r": 2, "c": 2}))
    with jax.default_matmul_precision("highest"):
        np.testing.assert_array_equal(graph(np.eye(2, dtype=np.float32)), BY * np.eye(2))


def test_what_changes_without_a_meaning_is_let_through_under_other_settings_too() -> None:
    held = SimpleNamespace(by=2, name="before")
    kernel = tp.Map(lambda a: jnp.dot(a[:, None], jnp.ones((1, 1)))[:, 0] * held.by, ROW)
    plan = planned(kernel)
    held.name = "after"
    with jax.default_matmul_precision("highest"), jax.enable_x64(True):
        plan.compile()
    held.by = 3
    with jax.default_matmul_precision("highest"), pytest.raises(tp.KernelError, match="has changed since"):
        plan.compile()


def test_a_pallas_kernel_that_reads_a_dict_is_what_it_reads() -> None:
    held = {"by": 2.0, "name": "before"}

    def kernel(read: Any, write: Any) -> None:
        write[...] = read[...] * held["by"]

    def called(a: Any) -> Any:
        return pallas.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(a.shape, a.dtype), interpret=True)(a)

    plan = planned(tp.Map(called, ROW))
    held["name"] = "after"
    np.testing.assert_array_equal(plan.compile()(X), 2 * X)
    held["by"] = 3.0
    with pytest.raises(tp.KernelError, match="has changed since"):
        plan.compile()


def _product(a: Any) -> Any:
    return jnp.dot(a, jnp.eye(2)) * BY


def test_a_program_of_such_kernels_can_be_copied() -> None:
    graph = planned(tp.Map(_times_global)).graph
    again = pickle.loads(pickle.dumps(graph))
    assert again.key == graph.key
    np.testing.assert_array_equal(again(X), BY * X)
