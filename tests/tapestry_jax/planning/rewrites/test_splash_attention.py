"""Splash attention under plans: chosen for TPUs, the same in value, gradient and collectives, told by `explain`."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from combinators.numerics import splash_attention
from combinators.numerics.splash_attention import FitsSplash, SplashAttention
from combinators.operations.operation import Operation
from tapestry_jax.lowering.compiled import argument_structs
from tapestry_jax.planning.rewrites.operations import with_operations
from tests.contract import assert_contract, assert_same


@pytest.fixture
def takes_small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel stands in for blocks whose scores would stay in fast memory, too."""
    monkeypatch.setattr(splash_attention, "FAST", 0)
    monkeypatch.setattr(splash_attention, "FAST_AGAIN", 0)


RING = {"q": "data", "keys": tp.ring("data")}


def _attention(queries: int, keys: int, dtype: Any = jnp.float32, causal: bool = False) -> tp.Graph:
    sizes = {"q": queries, "keys": keys, "h": 2, "d": 8}
    q, k = (tp.TensorType({name: sizes[name] for name in (rows, "h", "d")}, dtype) for rows in ("q", "keys"))
    return tp.trace(lambda q, k, v: tp.attention(q, k, v, causal=causal), q, k, k)


def _interpreted(graph: tp.Graph) -> tp.Graph:
    """The graph whose kernels for TPUs run here, interpreted."""

    def change(_graph: Any, node: Any, _path: str) -> Operation:
        dense: list[Any] = []
        for entry in node.operation.dense:
            kernel = getattr(entry, "kernel", None)
            if isinstance(kernel, SplashAttention):
                here = dataclasses.replace(kernel, interpret=True)
                entry = dataclasses.replace(entry, kernel=here, takes=FitsSplash(here), platforms=("cpu",))
            dense.append(entry)
        return dataclasses.replace(node.operation, dense=tuple(dense))

    return with_operations(graph, change)


def _arrays(graph: tp.Graph) -> list[Any]:
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.standard_normal(node.results[0].shape), node.results[0].dtype) for node in graph.inputs]


@pytest.mark.parametrize(
    ("entries", "causal"),
    [
        pytest.param({"q": tp.striped("data"), "keys": tp.ring("data")}, True, marks=pytest.mark.thorough),
        pytest.param({"keys": "data"}, False, marks=pytest.mark.thorough),
        ({"keys": "data"}, True),
    ],
    ids=["a causal ring in stripes", "keys over the mesh", "causal, keys over the mesh"],
)
@pytest.mark.usefixtures("takes_small_blocks")
def test_it_stands_in_with_the_same_value_gradient_and_collectives(entries: Any, causal: bool) -> None:
    graph = _interpreted(_attention(256 if "q" in entries else 128, 256, causal=causal))
    plan = tp.plan(graph, tp.mesh(data=2), entries)
    plan.verify()
    assert "dense splash_state" in plan.explain()
    assert_contract(plan)
    assert_same(plan, _arrays(graph), atol=1e-4)


@pytest.mark.usefixtures("takes_small_blocks")
def test_a_plan_for_tpus_calls_it_forwards_and_backwards_and_one_for_cpus_does_not() -> None:
    graph = _attention(256, 256, jnp.bfloat16, causal=True)
    mesh = tp.mesh(data=2)
    plan = tp.plan(graph, mesh, RING, platforms=("cpu", "tpu"))
    assert "dense splash_state on tpu, else its own" in plan.explain()
    run, structs = plan.compile().jitted, argument_structs(plan.schedule, mesh)

    def gradient(*args: Any) -> Any:
        return jax.vjp(run, *args)[1](args[0])

    for platform, calls in (("tpu", True), ("cpu", False)):
        text = jax.jit(gradient).trace(*structs).lower(lowering_platforms=(platform,)).as_text()
        for phase in ("fwd_residuals", "dq_no_residuals", "dkv_no_residuals"):
            assert (f"splash_mha_{phase}" in text) is calls
    assert "splash" not in tp.plan(graph, mesh, RING).explain()


def test_what_it_does_not_take_runs_as_before_and_explain_says_why() -> None:
    def said(graph: tp.Graph, entries: Any, platforms: Any = "tpu") -> str:
        text = tp.plan(graph, tp.mesh(data=2), entries, platforms=platforms).explain()
        return next(line for line in text.splitlines() if line.startswith("attention"))

    short = _attention(256, 192)
    assert "dense dense_attention (not splash_attention: 192 keys in a block are no multiple of 128)" in said(short, {})
    assert "(not splash_state: 96 keys in a block are no multiple of 128)" in said(short, {"keys": "data"})
    half = _attention(128, 128, jnp.float16)
    assert "not splash_attention on tpu: it takes bfloat16 and float32, not float16" in said(half, {}, ("cpu", "tpu"))
    # What a plan for other machines passes over is nothing that it could have had.
    assert "not " not in said(short, {}, "cpu")


def test_small_blocks_are_written_out_and_explain_says_so() -> None:
    def said(queries: int, keys: int, entries: Any = None) -> str:
        graph = _attention(queries, keys, jnp.bfloat16)
        return tp.plan(graph, tp.mesh(data=2), entries or {}, platforms="tpu").explain()

    # Of 2 heads: 8 MiB, and twice as many; in a ring, which computes its turns again, 16 MiB, and twice as many.
    assert "dense dense_attention (not splash_attention: 8 MiB of scores in a block stay in fast" in said(1024, 1024)
    assert "dense splash_attention" in said(1024, 2048)
    assert "not splash_state: 16 MiB of scores in a block stay in fast" in said(2048, 4096, RING)
    assert "dense splash_state" in said(4096, 4096, RING)


def test_planning_for_other_machines_loads_no_pallas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splash_attention, "_kernels", lambda: pytest.fail("loaded"))
    splash_attention.missing.cache_clear()
    plan = tp.plan(_attention(128, 128), tp.mesh(data=2), {"h": "data"})
    assert "dense dense_attention" in plan.explain()
    plan.compile().lower()
    splash_attention.missing.cache_clear()
