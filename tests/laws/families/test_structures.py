"""Semirings, homomorphisms and actions have their laws, and every law refuses a planted mutant."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import laws
from combinators import Monoid, monoids
from tests.thoroughly import some

F32 = jax.ShapeDtypeStruct((), jnp.float32)
HALF_SUM = Monoid(0.0, lambda a, b: a + b / 2, name="Half sum")


def move(state, point):
    decay, shift = state
    return decay * point + shift


LAWFUL = {
    "numbers": laws.Semiring(monoids.Sum, monoids.Prod),
    "tropical": laws.Semiring(monoids.Max, monoids.Sum),
    "truth values": laws.Semiring(monoids.Any, monoids.All),
    "signs": laws.Homomorphism(jnp.sign, monoids.Prod, monoids.Prod),
    "affine": laws.Action(move, monoids.AffineRecurrence, jax.ShapeDtypeStruct((2,), jnp.float32)),
}
MUTANTS = {
    "semiring.addition": laws.Semiring(HALF_SUM, monoids.Prod),
    "semiring.left_distribution": laws.Semiring(monoids.Sum, monoids.Sum),
    "semiring.right_distribution": laws.Semiring(monoids.Prod, monoids.Sum),
    "semiring.annihilation": laws.Semiring(Monoid(1.0, jnp.maximum, name="Max from 1"), monoids.Prod),
    "homomorphism.identity": laws.Homomorphism(jnp.cos, monoids.Sum, monoids.Sum),
    "homomorphism.combination": laws.Homomorphism(jnp.abs, monoids.Sum, monoids.Sum),
    "action.identity": laws.Action(lambda a, p: p + a + 1, monoids.Sum, F32),
    "action.combination": laws.Action(lambda a, p: p + a * a, monoids.Sum, F32),
}


@pytest.mark.parametrize("name", LAWFUL)
def test_structures_are_lawful(name):
    family = type(LAWFUL[name]).__name__.lower()
    # Not in integers: the identity of Max is their lowest number, and what is added to it overflows.
    types = [F32] if name == "tropical" else None
    expected = {law.name for law in laws.catalogue if law.family == family}
    assert set(laws.assert_lawful(LAWFUL[name], types, laws=family, examples=some(12)).held) == expected


@pytest.mark.parametrize("law", MUTANTS)
def test_law_rejects_its_mutant(law):
    with pytest.raises(laws.LawError, match=f"LAW {law} FAILED"):
        laws.assert_lawful(MUTANTS[law], laws=law, types=[F32], shrink=False)


def test_every_law_of_structures_has_a_mutant():
    families = {"semiring", "homomorphism", "action"}
    assert set(MUTANTS) == {law.name for law in laws.catalogue if law.family in families}


def test_integers_are_no_tropical_semiring():
    with pytest.raises(
        laws.LawError, match=r"(?s)LAW semiring.left_distribution FAILED  Semiring  i32.*have to be equal"
    ):
        laws.assert_lawful(LAWFUL["tropical"], [jax.ShapeDtypeStruct((), jnp.int32)], laws="semiring", shrink=False)


def test_both_monoids_of_a_semiring_are_checked():
    broken = laws.Semiring(monoids.Sum, Monoid(1.0, lambda a, b: a * b + 0 * a - (a - 1) * 0.5, name="Broken"))
    with pytest.raises(laws.LawError, match=r"FAILED  Semiring\.multiply"):
        laws.assert_lawful(broken, laws=["right_identity", "associativity"], types=[F32])
