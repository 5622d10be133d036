"""Sums of loops whose gradients are scaled in the loop, by what stands behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.hlo.text import read
from tapestry_jax.lowering.time import presented as module
from tapestry_jax.lowering.time.presented import Presented, presented
from tests.contract import assert_contract
from tests.simulated.sampled import computed

product = tp.einsum("b e, e o -> b o")


def _present(of: Callable[[Any, Any], Any]) -> Any:
    """A fold of squares whose total and count are presented as `of` says."""

    def block(values: Any) -> tuple[Any, Any]:
        return jnp.sum(values * values), jnp.asarray(values.size, jnp.int32)

    return tp.Reduce(block, "b o -> ", tp.monoids.Mean, present=lambda state: of(*state))


MEAN = tp.fold(tp.aggregators.Mean(), "b o -> ")
WEIGHTED = tp.Reduce(
    lambda values: (jnp.sum(values), jnp.sum(values > 0, dtype=jnp.int32)),
    "b o -> ",
    tp.monoids.Mean,
    present=lambda state: state[0] / jnp.maximum(state[1], 1),
)
HALVED = _present(lambda total, count: -total / (2 * count))
ROOT = _present(lambda total, count: jnp.sqrt(total / count))
COUNT = _present(lambda total, count: count.astype(total.dtype))
TINY = _present(lambda total, count: total * 1e-30)


def _graph(fold: Any, rows: int = 8, dtype: Any = jnp.float32) -> tp.Graph:
    types = (tp.TensorType({"b": rows, "e": 3}, dtype), tp.TensorType({"e": 3, "o": 2}, dtype))
    return tp.trace(lambda x, w: fold(tp.Map(jnp.tanh)(product(x, w))), *types)


def _arrays(rows: int = 8, dtype: Any = jnp.float32) -> list[Any]:
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.standard_normal(shape), dtype) for shape in ((rows, 3), (3, 2))]


def _assert_close(ours: Any, whole: Any) -> None:
    jax.tree.map(lambda own, other: np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-7), ours, whole)


def _plan(graph: tp.Graph, entry: Any, devices: int = 1) -> tp.Plan:
    return tp.plan(graph, tp.mesh(data=devices), {"b": entry})


def _known(monkeypatch: pytest.MonkeyPatch, graph: tp.Graph, entry: Any, devices: int = 1) -> list[Presented]:
    found: list[Presented] = []

    def asked(*args: Any) -> Presented:
        found.append(presented(*args))
        return found[-1]

    monkeypatch.setattr(module, "presented", asked)
    jax.eval_shape(jax.grad(_plan(graph, entry, devices).compile()), *[node.results[0].struct for node in graph.inputs])
    return found


@pytest.mark.parametrize(
    ("fold", "entry", "devices", "counts", "slope"),
    [
        (MEAN, tp.chunks(4), 1, {1: 16}, 1 / 16),
        (MEAN, ("data", tp.chunks(2)), 4, {1: 4}, 1 / 16),
        (MEAN, tp.chunks(3), 1, {}, 1),
        (HALVED, tp.chunks(2), 1, {1: 16}, -1 / 32),
        (ROOT, tp.chunks(2), 1, {1: 16}, 1),
        (COUNT, tp.chunks(2), 1, {1: 16}, 1),
        (TINY, tp.chunks(2), 1, {1: 16}, 1),
        (WEIGHTED, tp.chunks(2), 1, {}, 1),
        (tp.fold(tp.aggregators.Sum(), "b o -> "), tp.chunks(2), 1, {}, 1),
    ],
    ids=["mean", "devices", "padded", "negative", "root", "count", "tiny", "weighted", "sum"],
)
def test_what_is_known_of_a_sum(
    monkeypatch: pytest.MonkeyPatch, fold: Any, entry: Any, devices: int, counts: Any, slope: float
) -> None:
    known = _known(monkeypatch, _graph(fold), entry, devices)
    assert known and all(each == Presented(counts, slope) for each in known)


@pytest.mark.parametrize("fold", [MEAN, HALVED, ROOT, COUNT, TINY, WEIGHTED])
@pytest.mark.parametrize("scale", [pytest.param(1.0, marks=pytest.mark.thorough), 0.3])
def test_gradients_are_those_of_the_program(fold: Any, scale: float) -> None:
    graph, arrays = _graph(fold), _arrays()
    run = _plan(graph, tp.chunks(4)).compile()
    ours, whole = (
        computed(jax.value_and_grad(lambda *args, of=of: scale * jnp.sum(of(*args)), (0, 1)), *arrays)
        for of in (run, lambda *args: graph(*args))
    )
    _assert_close(ours, whole)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_share_counted_by_integers_beside_a_mean(is_first: bool) -> None:
    def block(values: Any) -> tuple[Any, Any]:
        return jnp.sum(values > 0, dtype=jnp.int32), jnp.asarray(values.size, jnp.int32)

    both = tp.monoids.product(tp.monoids.Sum, tp.monoids.Sum)
    share = tp.Reduce(block, "b o -> ", both, present=lambda state: state[0] / state[1])

    def program(x: Any, w: Any) -> Any:
        made = tp.Map(jnp.tanh)(product(x, w))
        return (share(made), MEAN(made)) if is_first else (MEAN(made), share(made))

    graph, arrays = tp.trace(program, *(node.results[0] for node in _graph(MEAN).inputs)), _arrays()
    run = _plan(graph, tp.chunks(4)).compile()

    def loss(of: Any) -> Any:
        return lambda *args: (lambda made: (made[is_first], made[not is_first]))(of(*args))

    ours, whole = (
        computed(jax.value_and_grad(loss(of), (0, 1), has_aux=True), *arrays)
        for of in (run, lambda *args: graph(*args))
    )
    _assert_close(ours, whole)


def test_a_curvature_is_that_of_the_program() -> None:
    graph, (x, w) = _graph(MEAN), _arrays()
    run = _plan(graph, tp.chunks(4)).compile()
    ours, whole = (
        computed(lambda w, of=of: jax.jvp(jax.grad(lambda w: of(x, w) ** 2), (w,), (jnp.ones_like(w),)), w)
        for of in (run, lambda *args: graph(*args))
    )
    _assert_close(ours, whole)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, pytest.param(jnp.float16, marks=pytest.mark.thorough)])
def test_short_floats_have_the_gradients_of_the_program(dtype: Any) -> None:
    graph, arrays = _graph(MEAN, dtype=dtype), _arrays(dtype=dtype)
    run = _plan(graph, tp.chunks(4)).compile()
    ours, whole = (jax.jit(jax.grad(of, (0, 1)))(*arrays) for of in (run, lambda *args: graph(*args)))
    for own, other in zip(ours, whole, strict=True):
        assert own.dtype == dtype
        np.testing.assert_allclose(own.astype(np.float32), other.astype(np.float32), rtol=0.03, atol=1e-3)


def _passes(run: Any, arrays: Any, shape: str) -> int:
    """Kernels outside of loops that compute an array of a shape."""
    module = read(jax.jit(jax.value_and_grad(run, (0, 1))).lower(*arrays).compile().as_text() or "")
    computing = [each for each in module.computations[module.entry] if each.shape.startswith(shape)]
    return sum(each.opcode in ("fusion", "multiply", "call") for each in computing)


def test_no_gradient_is_scaled_behind_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, arrays = _graph(MEAN), _arrays()

    def run(*args: Any) -> Any:
        # Another one each time: plans are compiled once.
        return _plan(graph, tp.chunks(4)).compile()(*args)

    found = [_passes(run, arrays, shape) for shape in ("f32[3,2]", "f32[8,3]")]
    monkeypatch.setattr(module, "presented", lambda *args: Presented({}, 1.0))
    unknown = [_passes(lambda *args: run(*args), arrays, shape) for shape in ("f32[3,2]", "f32[8,3]")]
    assert [a - b for a, b in zip(unknown, found, strict=True)] == [1, 1]


def test_what_is_sent_is_what_was_predicted() -> None:
    assert_contract(_plan(_graph(MEAN), ("data", tp.chunks(2)), 4))
