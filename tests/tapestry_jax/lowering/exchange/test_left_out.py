"""Boxes that a merge leaves out have a slope of zero, where that of their own kernel is infinite."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.lowering.exchange.left_out import left_out
from tests.combinators.equations.test_steep import pushed

HYPOT = tp.Monoid(0.0, jnp.hypot, commutative=True)
ROOT = tp.Monoid(0.0, lambda a, b: jnp.sqrt(a * a + b * b), commutative=True)
ANGLE = tp.Monoid(
    (0.0, 0.0, 0.0),
    lambda a, b: (a[0] + b[0], a[1] + b[1], jnp.arctan2(a[1] + b[1], a[0] + b[0])),
    commutative=True,
)
CUBES = tp.Monoid(0.0, lambda a, b: (a**3 + b**3) ** (1 / 3), commutative=True)
LARGER = tp.Monoid(0.0, lambda a, b: jax.tree.map(jnp.maximum, a, b), commutative=True)


def maximum(kernel: Any, signature: str = "n [c] -> [c]") -> tp.Reduce:
    return tp.Reduce(kernel, signature, tp.monoids.Max)


def angle(x: Any, y: Any) -> Any:
    return x.sum(0), y.sum(0), jnp.arctan2(y.sum(0), x.sum(0))


# Rows of zeros fill a box of each plan.
X = np.zeros((8, 3), np.float32)
X[4:] = np.random.default_rng(0).uniform(1, 2, (4, 3))
# Of one column a box of zeros is left out that has the largest number of another.
MIXED = np.where(np.arange(8)[:, None] < 4, [[0, 3, 0]], [[1, 0, 2]]).astype(np.float32)
TWOS = np.full(3, 2.0, np.float32)
FOLDS: dict[str, tuple[tp.Reduce, tuple[Any, ...]]] = {
    "root": (maximum(lambda x: jnp.sqrt(x.max(0)), "n c -> c"), (X,)),
    "root of mixed columns": (maximum(lambda x: jnp.sqrt(x.max(0)), "n c -> c"), (MIXED,)),
    "root of mixed rows": (maximum(lambda x: jnp.sqrt(x.max(1)), "c n -> c"), (MIXED.T,)),
    "root of all": (maximum(lambda x: jnp.sqrt(x.max()), "n [c] -> "), (X,)),
    "logarithm": (maximum(lambda x: jnp.log(x.max(0)), "n c -> c"), (X,)),
    "power": (maximum(lambda x: x.max(0) ** 0.3, "n c -> c"), (X,)),
    "columns first": (maximum(lambda x: jnp.sqrt(x.max(1)), "c n -> c"), (X.T,)),
    "norm": (tp.Reduce(lambda x: jnp.sqrt((x * x).sum(0)), "n c -> c", HYPOT), (X,)),
    "norm by hand": (tp.Reduce(lambda x: jnp.sqrt((x * x).sum(0)), "n c -> c", ROOT), (X,)),
    "norm of cubes": (tp.Reduce(lambda x: (x**3).sum(0) ** (1 / 3), "n c -> c", CUBES), (X,)),
    "norm beside a sum": (
        tp.Reduce(lambda x: (jnp.sqrt((x * x).sum(0)), x.sum(0)), "n c -> c", ROOT & tp.monoids.Sum),
        (X,),
    ),
    "of a tangent of its own": (maximum(lambda x: pushed(x.max(0)), "n c -> c"), (X,)),
    "incomplete gamma": (maximum(lambda x: jax.scipy.special.gammainc(0.5, x.max(0)), "n c -> c"), (X,)),
    "angle": (tp.Reduce(angle, "n c, n c -> c", ANGLE, carrier="c, c, c", present=lambda s: s[2]), (X, X)),
    "of a call": (maximum(lambda x: jax.jit(jnp.sqrt)(x.max(0)), "n c -> c"), (X,)),
    "two leaves": (tp.Reduce(lambda x: {"a": jnp.sqrt(x.max(0)), "b": x.max(0)}, "n c -> c", LARGER), (X,)),
    "weighted": (maximum(lambda x, w: jnp.sqrt((x * w).max(0)), "n c, n c -> c"), (X, 1 + X)),
    "by what all share": (maximum(lambda x, w: jnp.sqrt((x * w).max()), "n [c], [c] -> "), (X, TWOS)),
}
CHUNKS = tp.chunks(2)
# Of four boxes two of zeros are merged, and left out by the others.
PLANS: dict[str, Any] = {"devices": "data", "chunks": CHUNKS, "four": tp.chunks(4), "both": ("data", CHUNKS)}


def gradients(run: Any, args: tuple[Any, ...]) -> tuple[Any, Any]:
    """The gradient, and how it moves with its arguments."""
    every = tuple(range(len(args)))

    def loss(*args: Any) -> Any:
        leaves = [jnp.ravel(leaf) for leaf in jax.tree.leaves(run(*args))]
        return sum(leaf @ jnp.arange(1.0, 1 + leaf.size) for leaf in leaves)

    return jax.jvp(jax.grad(loss, every), args, jax.tree.map(jnp.ones_like, args))


def planned(fold: tp.Reduce, args: tuple[Any, ...], entry: Any) -> Any:
    return tp.plan(tp.trace(fold, *args), tp.mesh(data=2), {"n": entry}).compile()


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", FOLDS)
def test_gradients_are_those_of_the_whole(name: str, plan: str) -> None:
    fold, args = FOLDS[name]
    found, wanted = gradients(planned(fold, args, PLANS[plan]), args), gradients(fold, args)
    first, second = jax.tree.leaves(wanted[0]), jax.tree.leaves(wanted[1])
    assert np.isfinite(np.concatenate([np.ravel(leaf) for leaf in first])).all()
    for one, other in zip(jax.tree.leaves(found[0]), first, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    # A norm of zeros curves infinitely, by as much as the merge curves the other way: no part knows their difference.
    for one, other in zip(jax.tree.leaves(found[1]), second, strict=True) if "norm" not in name else ():
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_planted_fault_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tapestry_jax.lowering.exchange.left_out.left_out", lambda shaped, operands, kernel: kernel)
    fold, args = FOLDS["root"]
    assert np.isnan(gradients(planned(fold, args, "data"), args)[0][0]).any()


def test_a_planted_fault_of_merges_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("combinators.merging.careful._is_steep", lambda *_: False)
    fold, args = FOLDS["norm by hand"]
    assert np.isnan(gradients(planned(fold, args, PLANS["four"]), args)[0][0]).any()


def test_sums_and_what_is_steep_at_single_cells_are_left_as_they_are() -> None:
    for fold, left in (
        (tp.Reduce(lambda x: jnp.sqrt(x.sum(0)) ** 2, "n c -> c", tp.monoids.Sum), True),
        (maximum(lambda x: jnp.sqrt(x).max(0), "n c -> c"), True),
        (maximum(lambda x: x.max(0) / 2, "n c -> c"), True),
        (maximum(lambda x: jax.jit(lambda one, all_: jnp.sqrt(one).max(0) + 0 * all_)(x, x.max(0)), "n c -> c"), True),
        (maximum(lambda x: x.max(0) / 0.0, "n c -> c"), False),
        (FOLDS["root"][0], False),
    ):
        graph = tp.trace(fold, X)
        shaped = graph.shaped(len(graph.nodes) - 1)
        assert (left_out(shaped, [X], kernel) is kernel) is left


def kernel(x: Any) -> Any:
    return x
