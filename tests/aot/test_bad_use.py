"""Compile-only devices run nothing, plans for other machines are refused, and so are options that compilers refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp

GRAPH = tp.trace(tp.fold(tp.aggregators.Sum(), "n -> "), tp.TensorType({"n": 8}, jnp.float32))
X = np.ones(8, np.float32)

RUN: dict[str, Callable[[Any], Any]] = {
    "called": lambda run: run(X),
    "differentiated": lambda run: jax.grad(run)(X),
    "its pullback": lambda run: jax.vjp(run, X),
    "forwards": lambda run: jax.jvp(run, (X,), (X,)),
    "of many": lambda run: jax.vmap(run)(np.ones((2, 8), np.float32)),
    "jitted": lambda run: jax.jit(run)(X),
    "a step": lambda run: jax.jit(lambda x: x - jax.grad(run)(x))(X),
    "jitted twice": lambda run: jax.jit(jax.jit(run))(X),
}
LOOKED_AT: dict[str, Callable[[Any], Any]] = {
    "lowered": lambda run: jax.jit(run).lower(X),
    "traced": lambda run: jax.jit(jax.jit(run)).trace(X),
    "its program": lambda run: jax.make_jaxpr(jax.jit(jax.grad(run)))(X),
    "its types": lambda run: jax.eval_shape(jax.jit(run), X),
    "its types while another is called": lambda run: jax.jit(lambda x: x + jax.eval_shape(run, X).ndim)(X),
}


def planned(machine: str, **given: Any) -> tp.Plan:
    return tp.plan(GRAPH, tp.topology(machine, d=8), {"n": "d"}, **given)


@pytest.mark.parametrize("name", RUN)
def test_a_program_that_only_compiles_says_so_where_it_should_run(name: str, machine: str) -> None:
    with pytest.raises(tp.MeshError, match="these devices only compile: they hold no arrays and run nothing"):
        RUN[name](planned(machine).compile())


@pytest.mark.parametrize("name", LOOKED_AT)
def test_what_runs_nothing_is_let_through(name: str, machine: str) -> None:
    LOOKED_AT[name](planned(machine).compile())


def test_a_plan_for_cpus_holds_kernels_that_all_machines_run(machine: str) -> None:
    seen = planned(machine, platforms="cpu").compile_only()
    assert seen.sent == seen.predicted_sent == {("all-reduce", ("d",)): 4}


def test_a_plan_for_another_accelerator_is_refused(machine: str) -> None:
    other = "cuda" if machine.startswith("v") else "tpu"
    for platforms in (other, ("cpu", other)):
        with pytest.raises(tp.PlanError, match=f"{other}, and these devices are"):
            planned(machine, platforms=platforms).compile_only()


BAD: dict[str, tuple[str, Any]] = {
    "of none": ("no_such_option", True),
    "of another kind": ("xla_gpu_enable_latency_hiding_scheduler", "maybe"),
    "of TPUs": ("xla_tpu_enable_latency_hiding_scheduler", "maybe"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_value_that_an_option_does_not_take_is_told_as_one(name: str, machine: str) -> None:
    with pytest.raises(tp.PlanError, match="has no such option, or it takes no such value"):
        planned(machine).compile_only(compiler_options=dict([BAD[name]]))
