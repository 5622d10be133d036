"""What `jax.vmap` gives one cell at a time learns nothing of its block, unless it says itself how it is mapped."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.custom_batching import custom_vmap

import tapestry_jax as tp
from combinators.claims import boxed, pulled
from combinators.claims.provenance import takes_cells

A = tp.aggregators
X = np.linspace(-1, 1, 13, dtype=np.float32)
HYPOT = tp.Monoid(0.0, lambda a, b: jnp.hypot(a, b), commutative=True, name="hypot")


@custom_vmap
def less_by_mean(x: Any) -> Any:
    return x


@less_by_mean.def_vmap
def _(axis_size: int, in_batched: Any, x: Any) -> tuple[Any, bool]:
    return x - x.mean() / axis_size, True


def on_host(x: Any) -> Any:
    return jax.pure_callback(lambda x: x - x.mean(), x, x, vmap_method="broadcast_all")


def mapped_inside(x: Any) -> Any:
    inner = custom_vmap(lambda x: x)
    inner.def_vmap(lambda size, _, x: (x * size, True))
    return inner(x)


CELLS = {
    "contramap": A.Moments().contramap(lambda x: 2 * x),
    "lift": tp.Aggregator(lambda x: (x, x * x), tp.monoids.Sum & tp.monoids.Sum, lambda s: s[0] / s[1]),
    "monoid": tp.Aggregator(lambda x: jnp.abs(x), HYPOT, lambda s: s),
    "labels": A.Sum().by_key(lambda x: (x > 0).astype(jnp.int32), 2),
    "runs": A.Sum().by_run(lambda x: x > 0),
    "mask": A.Max().masked(lambda x: x > 0),
    "beside": A.Mean() & A.Moments().contramap(lambda x: 3 * x),
}
BLOCKS = {
    "custom_vmap": A.Sum().contramap(less_by_mean),
    "custom_vmap inside": A.Sum().contramap(mapped_inside),
    "callback": A.Sum().contramap(on_host),
    "lift_many": tp.Aggregator(
        lambda x: x, tp.monoids.Sum, lambda s: s, lift_many=lambda x: x.sum() * (1 + (len(x) > 5))
    ),
}


def kernel(aggregator: tp.Aggregator) -> Any:
    graph = tp.trace(tp.fold(aggregator, "row -> "), X)
    return next(graph.shaped(at) for at in range(1, len(graph.nodes))).operation.kernel


@pytest.mark.parametrize("name", CELLS)
def test_what_takes_cells_is_not_run_on_boxes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any, **__: Any) -> Any:
        raise AssertionError("it is run on boxes")

    arrow = tp.fold(CELLS[name], "row -> ")
    assert takes_cells(kernel(CELLS[name]))
    for module in (boxed, pulled):
        monkeypatch.setattr(module, "asked_at", run)
    got = tp.plan(tp.trace(arrow, X), tp.mesh(d=3), {"row": "d"}).compile()(X)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), got, arrow(X))


@pytest.mark.parametrize("name", BLOCKS)
def test_what_learns_of_its_block_is_run_and_refused(name: str) -> None:
    assert not takes_cells(kernel(BLOCKS[name]))
    compiled = tp.plan(tp.trace(tp.fold(BLOCKS[name], "row -> "), X), tp.mesh(d=3), {"row": "d"}).compile()
    with pytest.raises(tp.KernelError, match="is not right for a box of any size"):
        compiled.lower(X)


def test_what_draws_by_itself_is_refused_though_it_takes_cells() -> None:
    rng = np.random.default_rng(0)
    drawing = A.Sum().contramap(lambda x: x * rng.random())
    with pytest.raises(tp.KernelError, match="is no function of its operands"):
        tp.plan(tp.trace(tp.fold(drawing, "row -> "), X), tp.mesh(d=3), {"row": "d"}).compile().lower(X)
