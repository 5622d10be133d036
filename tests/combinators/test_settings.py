"""What is known of kernels is known for the settings of JAX under which it was found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from combinators.settings import remembered

X = np.arange(21, dtype=np.float32).reshape(7, 3) / 4
DOUBLES = (False, True, False)

PROGRAMS: dict[str, Callable[[], Any]] = {
    "mean": lambda: tp.fold(tp.aggregators.Mean(), "b c -> c"),
    "count": lambda: tp.fold(tp.aggregators.Moments(), "b c -> c"),
    "cells": lambda: tp.Map(lambda x: x * np.float64(2)),
    "a sum of products": lambda: tp.Reduce(lambda x: jnp.sum(x * np.float64(2), 0), "b c -> c", tp.monoids.Sum),
    "attention": lambda: lambda x: tp.attention(x, x.rename(b="keys"), x.rename(b="keys"), over="keys"),
}


def _types(tree: Any) -> list[str]:
    return [str(leaf.dtype) for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_traced_and_planned_anew_where_doubles_come_or_go(name: str) -> None:
    # The kernels are the same ones: what is known of a kernel is found by the kernel.
    program = PROGRAMS[name]()
    types, found = list[list[str]](), list[list[str]]()
    for doubles in DOUBLES:
        with jax.enable_x64(doubles):
            graph = tp.trace(program, tp.TensorType({"b": 7, "c": 3}))
            plan = tp.plan(graph, tp.mesh(d=4), {"b": "d"})
            got, want = plan.compile()(X), graph(X)
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), got, want)
            types.append([str(graph.type_of(ref).dtype) for _, ref in graph.outputs])
            found.append(_types(got))
            assert _types(want) == types[-1] == found[-1]
    assert found[0] == found[2]


@pytest.mark.parametrize("make", [PROGRAMS["cells"], PROGRAMS["count"]])
def test_an_arrow_is_called_anew_where_doubles_come_or_go(make: Callable[[], Any]) -> None:
    arrow, found = make(), list[list[str]]()
    for doubles in DOUBLES:
        with jax.enable_x64(doubles):
            found.append(_types(arrow(X)))
    assert found[0] == found[2] != found[1]


@pytest.mark.parametrize("before", [False, True])
def test_a_plan_of_another_setting_is_refused_where_that_decides_what_kernels_give(before: bool) -> None:
    with jax.enable_x64(before):
        total = tp.fold(tp.aggregators.Sum(), "b c -> c")
        graphs = [
            tp.trace(program, tp.TensorType({"b": 7, "c": 3}))
            for program in (PROGRAMS["cells"](), PROGRAMS["mean"](), total)
        ]
        *plans, alike = [tp.plan(graph, tp.mesh(d=4), {"b": "d"}) for graph in graphs]
    with jax.enable_x64(not before):
        for plan in plans:
            with pytest.raises(tp.KernelError) as caught:
                plan.compile()(X)
            lines = str(caught.value).splitlines()
            assert lines[0].endswith(f"was traced where jax_enable_x64 was {before}, and it is {not before} now")
            assert lines[-1] == "  Switch it before tracing, or trace and plan again."
        np.testing.assert_allclose(alike.compile()(X), X.sum(0))


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_a_dtype_that_no_setting_explains_is_told_as_it_is(dtype: str) -> None:
    kernel = tp.Map(lambda x: x.astype(dtype) if len(x) < 4 else x, "b c -> b c")
    with jax.enable_x64(True):
        plan = tp.plan(tp.trace(kernel, tp.TensorType({"b": 7, "c": 3})), tp.mesh(d=4), {"b": "d"})
        with pytest.raises(tp.KernelError, match=rf"it gives \(b c\) the dtype {dtype}, and not float32"):
            plan.compile()(X)


def test_answers_are_kept_for_the_settings_they_were_found_under() -> None:
    asked = list[int]()

    @remembered(maxsize=8)
    def zeros(size: int) -> str:
        asked.append(size)
        return str(jnp.zeros(size).dtype)

    for doubles in DOUBLES:
        with jax.enable_x64(doubles):
            assert zeros(3) == zeros(3) == ("float64" if doubles else "float32")
    assert asked == [3, 3]
    with jax.numpy_dtype_promotion("strict"):
        zeros(3)
    assert asked == [3, 3, 3]
    assert zeros.cache_info().hits == 4
