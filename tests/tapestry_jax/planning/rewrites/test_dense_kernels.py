"""Dense kernels under plans: chosen by platform, by what is cut, inside the one SPMD program."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh

import tapestry_jax as tp
from combinators.numerics import fused_attention
from tapestry_jax.lowering.compiled import argument_structs
from tests.contract import assert_contract, assert_holds, assert_same

RNG = np.random.default_rng(0)
X = RNG.standard_normal((8, 16)).astype(np.float32)
FAR = X + 100
ROWS = partial(jnp.sum, axis=1)


def _marked(x: Any) -> Any:
    """A sum that tells itself apart by a number, of operands that no check draws: else plans refuse it."""
    return jnp.sum(x, axis=1) + jnp.where(jnp.min(x) > 50, 1000.0, 0.0)


def _never(x: Any) -> bool:
    return x.ndim == 0


def _sum(*dense: Any) -> tp.Graph:
    return tp.trace(tp.Reduce(ROWS, "i k -> i", tp.monoids.Sum, dense=list(dense)), FAR)


def test_a_kernel_for_whole_dimensions_runs_where_they_are_whole(mesh2x4: Any) -> None:
    graph = _sum(tp.Dense(_marked, whole=("i",)))
    for entries, marked in (({"k": "data"}, False), ({"i": "data"}, False), ({}, True)):
        plan = tp.plan(graph, mesh2x4, entries)
        np.testing.assert_allclose(plan.compile()(FAR), FAR.sum(1) + 1000 * marked, rtol=1e-4)
        assert ("dense marked" in plan.explain()) is marked


def test_a_kernel_for_a_platform_is_chosen_by_the_mesh(mesh8: Any) -> None:
    graph = _sum(tp.Dense(_marked, platforms=("cpu",)), ROWS)
    plan = tp.plan(graph, mesh8, {"i": "data"})
    np.testing.assert_allclose(plan.compile()(FAR), FAR.sum(1) + 1000, rtol=1e-5)
    np.testing.assert_allclose(graph(FAR), FAR.sum(1), rtol=1e-4, err_msg="an unplanned program is the same everywhere")
    assert "dense marked" in plan.explain()
    other = tp.plan(graph, mesh8, {"i": "data"}, platforms="tpu")
    assert "dense sum" in other.explain()
    np.testing.assert_allclose(other.compile()(FAR), FAR.sum(1), rtol=1e-4)
    abstract = tp.plan(graph, AbstractMesh((8,), ("data",), axis_types=mesh8.axis_types), {"i": "data"})
    assert "dense marked on cpu, else sum" in abstract.explain()


def test_one_program_holds_the_kernels_of_several_platforms(mesh8: Any) -> None:
    graph = _sum(tp.Dense(_marked, platforms=("tpu", "cuda")), tp.Dense(jnp.max, takes=_never), ROWS)
    plan = tp.plan(graph, mesh8, {"i": "data"}, platforms=("cpu", "tpu"))
    assert "dense marked on tpu, else sum" in plan.explain()
    assert_holds(plan, (FAR,))
    run, structs = plan.compile(), argument_structs(plan.schedule, mesh8)
    exported = jax.export.export(run.jitted, platforms=("cpu", "tpu"))(*structs)
    assert "1.000000e+03" in exported.mlir_module()
    np.testing.assert_allclose(exported.call(*plan.put(FAR)), FAR.sum(1), rtol=1e-4)
    # Lowered for one of them it holds that one's kernel alone.
    for platform, marked in (("cpu", False), ("tpu", True)):
        text = run.jitted.trace(*structs).lower(lowering_platforms=(platform,)).as_text()
        assert ("1.000000e+03" in text) is marked
    mapped = jax.jit(jax.vmap(jax.grad(lambda x: jnp.sum(run(x) ** 2))))(jnp.stack([FAR, 2 * FAR]))
    expected = 2 * np.stack([FAR, 2 * FAR]).sum(2, keepdims=True) * np.ones_like(FAR)
    np.testing.assert_allclose(mapped, expected, rtol=1e-4)


def _state(x: Any) -> Any:
    return jax.lax.stop_gradient(jnp.max(x, 1)), jnp.sum(jnp.exp(x - jax.lax.stop_gradient(jnp.max(x, 1))[:, None]), 1)


def _other_state(x: Any) -> Any:
    """The same state of the monoid in other numbers."""
    return jax.nn.logsumexp(x, axis=1), jnp.ones_like(x[:, 0])


@pytest.mark.parametrize("platforms", [pytest.param(None, marks=pytest.mark.thorough), ("cpu", "tpu")])
def test_a_state_kernel_stands_in_where_the_fold_is_cut_in_space_and_in_time(mesh2x4: Any, platforms: Any) -> None:
    dense = tp.Dense(_other_state, gives="state", platforms=None if platforms is None else ("cpu",))
    plans = [
        tp.plan(
            tp.trace(
                tp.Reduce(_state, "i k -> i", tp.monoids.LogSumExp, present=tp.monoids.logsumexp_value, dense=entry), X
            ),
            mesh2x4,
            {"i": "data", "k": "model" if platforms is None else ("model", tp.chunks(2))},
            platforms=platforms,
        )
        for entry in (dense, None)
    ]
    plan = plans[0]
    assert "dense other_state" in plan.explain()
    # It takes a logarithm, which the operation's own kernel does not.
    logarithms = [each.compile().lower().as_text().count("stablehlo.log ") for each in plans]
    assert logarithms[0] == logarithms[1] + 1
    assert_contract(plan)
    assert_same(plan, (X,), reference=lambda x: jax.nn.logsumexp(x, axis=1))


def test_json_says_for_which_platforms_a_plan_is(mesh8: Any) -> None:
    graph = _sum(tp.Dense(ROWS, platforms=("tpu",)))
    plan = tp.plan(graph, mesh8, {"i": "data"}, platforms=("cpu", "tpu"))
    again = tp.Plan.from_json(plan.to_json(), graph, mesh8)
    assert again.platforms == plan.platforms == ("cpu", "tpu")
    assert again.explain() == plan.explain()
    with pytest.raises(tp.PlanError, match=r"platforms names no platform(.|\n)*got 'gpu'(.|\n)*\"cuda\""):
        tp.plan(graph, mesh8, {"i": "data"}, platforms="gpu")


class _Library:
    """Stands for the cuDNN that a CPU machine has not: tracing asks for nothing but its version."""

    def cudnn_get_version(self) -> int:
        return 91000


def test_attention_of_whole_keys_is_cudnn_on_cuda(mesh2x4: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stablehlo = pytest.importorskip("jax._src.cudnn.fused_attention_stablehlo")
    if not hasattr(stablehlo, "cuda_versions"):
        pytest.skip("this JAX looks for cuDNN in another place")
    monkeypatch.setattr(stablehlo, "cuda_versions", _Library())
    monkeypatch.setattr(fused_attention, "_runs", fused_attention._runs.__wrapped__)  # pyright: ignore[reportPrivateUsage]
    q = tp.TensorType({"b": 2, "s": 16, "h": 4, "d": 8}, jnp.bfloat16)
    k = tp.TensorType({"b": 2, "keys": 16, "h": 4, "d": 8}, jnp.bfloat16)
    graph = tp.trace(lambda q, k, v: tp.attention(q, k, v, causal=True), q, k, k)
    entries = {"b": "data", "h": "model"}
    plan = tp.plan(graph, mesh2x4, entries, platforms=("cpu", "cuda"))
    assert "dense fused_attention on cuda, else dense_attention" in plan.explain()
    assert_contract(plan)
    run, structs = plan.compile().jitted, argument_structs(plan.schedule, mesh2x4)

    def gradient(cotangent: Any, *args: Any) -> Any:
        return jax.vjp(run, *args)[1](cotangent)

    for platform, calls in (("cuda", 1), ("cpu", 0)):
        forward = run.trace(*structs).lower(lowering_platforms=(platform,)).as_text()
        assert forward.count("__cudnn$fmhaSoftmax") == calls
        backward = jax.jit(gradient).trace(q.struct, *structs).lower(lowering_platforms=(platform,)).as_text()
        assert backward.count("__cudnn$fmhaSoftmaxBackward") == calls
    # Where queries are cut a causal kernel must know which ones it has; where keys are, it must give a state.
    for cut in ({"s": "data"}, {"s": tp.chunks(2)}, {"keys": "data"}, {"keys": tp.chunks(2)}):
        assert "fused_attention" not in tp.plan(graph, mesh2x4, cut, platforms="cuda").explain()


def test_attention_lowers_for_cuda_without_cudnn(mesh2x4: Any) -> None:
    q = tp.TensorType({"s": 16, "h": 4, "d": 8}, jnp.bfloat16)
    k = tp.TensorType({"keys": 16, "h": 4, "d": 8}, jnp.bfloat16)
    graph = tp.trace(lambda q, k, v: tp.attention(q, k, v), q, k, k)
    plan = tp.plan(graph, mesh2x4, {"h": "model"}, platforms="cuda")
    if "fused_attention" in plan.explain():
        pytest.skip("cuDNN is installed here")
    text = plan.compile().jitted.trace(*argument_structs(plan.schedule, mesh2x4)).lower(lowering_platforms=("cuda",))
    assert "__cudnn" not in text.as_text()
