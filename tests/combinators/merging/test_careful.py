"""Merges with a pole: their slopes beside what leaves them out, with nothing planned."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from combinators.merging.careful import careful
from combinators.monoids.optional import Adjoined


def norm(a: Any, b: Any) -> Any:
    return jnp.sqrt(a * a + b * b)


NORM = tp.Monoid(0.0, norm, commutative=True)
PAIRS = NORM & tp.monoids.Sum
CHOSEN = tp.Monoid(0.0, lambda a, b: jax.lax.cond(a > b, norm, lambda a, b: norm(b, a), a, b), commutative=True)
ORDERED = tp.Monoid(0.0, norm)
KEYED = tp.monoids.function(NORM)
SWAPPED = tp.monoids.dual(ORDERED)
VALID = tp.monoids.optional(norm)
# Of one key all states count, of the other zeros are left out: each has its own cotangents.
TWO = 1 + 2 / 11**0.5


def of_keys(x: Any) -> Any:
    return jnp.stack([x, x + 1])


# By how much more the third state of 0, 0, 2 counts than the first, which it leaves out.
MERGED: dict[str, tuple[tp.Monoid, Any, float]] = {
    "by hand": (NORM, lambda x: x, 1),
    "swapped": (SWAPPED, lambda x: x, 1),
    "beside a sum": (PAIRS, lambda x: (x, x), 1),
    "of a key": (KEYED, lambda x: of_keys(x), TWO),
    "swapped, of a key": (tp.monoids.dual(tp.monoids.function(ORDERED)), lambda x: of_keys(x), TWO),
    "optional, of a key": (tp.monoids.optional(KEYED.combine), lambda x: (jnp.ones((), bool), of_keys(x)), TWO),
    "optional": (VALID, lambda x: (jnp.bool_(True), x), 1),
}


@pytest.mark.parametrize("name", MERGED)
def test_nothing_comes_back_to_merged_zeros(name: str) -> None:
    monoid, state, more = MERGED[name]

    def total(xs: Any) -> Any:
        merged = monoid.merge(monoid.merge(state(xs[0]), state(xs[1])), state(xs[2]))
        return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(merged) if jnp.issubdtype(leaf.dtype, jnp.inexact))

    for run in (total, jax.jit(total)):
        found = jax.grad(run)(np.array([0.0, 0.0, 2.0], np.float32))
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found[2] - found[0], more, rtol=1e-6)


def test_a_merge_that_chooses_is_derived() -> None:
    fold = tp.fold(tp.Aggregator(lambda x: x, CHOSEN, lambda s: s), "n -> ")
    plain = tp.fold(tp.Aggregator(lambda x: x, NORM, lambda s: s), "n -> ")
    xs = np.array([0.0, 0.0, 0.5, 0.7, 0.2], np.float32)
    np.testing.assert_allclose(jax.grad(fold)(xs), jax.grad(plain)(xs), rtol=1e-6)


def test_merges_without_a_pole_and_our_own_are_called_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for ours in (tp.monoids.LogSumExp, tp.monoids.Moments):
        assert careful(ours.combine) is ours.combine
    assert careful(Adjoined(tp.monoids.Moments.combine)).combine is tp.monoids.Moments.combine  # pyright: ignore[reportFunctionMemberAccess]
    assert careful(Adjoined(norm)) != Adjoined(norm)

    def fail(*_: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr("combinators.merging.careful.silent", fail)
    assert float(careful(lambda a, b: a * b)(2.0, 3.0)) == 6
    with pytest.raises(AssertionError):
        careful(norm)(2.0, 3.0)


def test_what_cannot_be_hashed_is_merged() -> None:
    class Norm:
        __hash__ = None  # pyright: ignore[reportAssignmentType]

        def __call__(self, a: Any, b: Any) -> Any:
            return norm(a, b)

    assert float(careful(Norm())(3.0, 4.0)) == pytest.approx(5)


def test_what_does_not_merge_says_so_itself() -> None:
    def refuse(a: Any, b: Any) -> Any:
        raise ValueError("three and four")

    with pytest.raises(ValueError, match="three and four"):
        careful(refuse)(3.0, 4.0)
