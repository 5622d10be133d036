"""The laws of semirings, homomorphisms and actions."""

from __future__ import annotations

from typing import Any

import jax

from laws.law import Law, drawn
from laws.subjects.structures import Action, Homomorphism, Semiring, StructureSubject

RINGS = "Golan 1999, Semirings and their Applications"
ALGEBRA = "the definition of a homomorphism"
ACTIONS = "the definition of an action"


def _semiring(s: StructureSubject) -> Semiring:
    assert isinstance(s.structure, Semiring)
    return s.structure


def addition(s: StructureSubject, a: Any, b: Any) -> tuple[Any, Any]:
    """Swap the terms of a sum."""
    add = _semiring(s).add.merge
    return s.observe(add(a, b)), s.observe(add(b, a))


def left_distribution(s: StructureSubject, a: Any, b: Any, c: Any) -> tuple[Any, Any]:
    """Multiply a sum from the left."""
    add, multiply = _semiring(s).add.merge, _semiring(s).multiply.merge
    return s.observe(multiply(a, add(b, c))), s.observe(add(multiply(a, b), multiply(a, c)))


def right_distribution(s: StructureSubject, a: Any, b: Any, c: Any) -> tuple[Any, Any]:
    """Multiply a sum from the right."""
    add, multiply = _semiring(s).add.merge, _semiring(s).multiply.merge
    return s.observe(multiply(add(a, b), c)), s.observe(add(multiply(a, c), multiply(b, c)))


def annihilation(s: StructureSubject, a: Any) -> tuple[Any, Any]:
    """Multiply with zero, from both sides."""
    zero, multiply = _semiring(s).add.identity_for(a), _semiring(s).multiply.merge
    return (s.observe(multiply(zero, a)), s.observe(multiply(a, zero))), (s.observe(zero), s.observe(zero))


def _mapped(s: StructureSubject) -> Homomorphism:
    assert isinstance(s.structure, Homomorphism)
    return s.structure


def keeps_identity(s: StructureSubject, a: Any) -> tuple[Any, Any]:
    """Map the identity."""
    h = _mapped(s)
    image = h.function(h.source.identity_for(a))
    return image, h.target.identity_for(jax.eval_shape(h.function, a))


def keeps_combination(s: StructureSubject, a: Any, b: Any) -> tuple[Any, Any]:
    """Combine and map, and map and combine."""
    h = _mapped(s)
    return h.function(h.source.merge(a, b)), h.target.merge(h.function(a), h.function(b))


def _acting(s: StructureSubject) -> Action:
    assert isinstance(s.structure, Action)
    return s.structure


def identity_acts(s: StructureSubject, a: Any, p: Any) -> tuple[Any, Any]:
    """Let the identity act."""
    action = _acting(s)
    return action.act(action.monoid.identity_for(a), p), p


def combination_acts(s: StructureSubject, a: Any, b: Any, p: Any) -> tuple[Any, Any]:
    """Let a combination act, and its parts one after the other."""
    action = _acting(s)
    return action.act(action.monoid.merge(a, b), p), action.act(b, action.act(a, p))


_A, _AB, _ABC, _P = drawn("state", "a"), drawn("state", "a b"), drawn("state", "a b c"), drawn("point", "p")

LAWS = (
    Law("semiring.addition", "a + b ~ b + a", RINGS, addition, _AB),
    Law("semiring.left_distribution", "a * (b + c) ~ a * b + a * c", RINGS, left_distribution, _ABC, depth=2),
    Law("semiring.right_distribution", "(a + b) * c ~ a * c + b * c", RINGS, right_distribution, _ABC, depth=2),
    Law("semiring.annihilation", "0 * a, a * 0 ~ 0", RINGS, annihilation, _A),
    Law("homomorphism.identity", "h(e) ~ e'", ALGEBRA, keeps_identity, _A),
    Law("homomorphism.combination", "h(a + b) ~ h(a) +' h(b)", ALGEBRA, keeps_combination, _AB, depth=2),
    Law("action.identity", "e acts on p ~ p", ACTIONS, identity_acts, _A + _P),
    Law(
        "action.combination",
        "(a + b) acts on p ~ b acts on (a acts on p)",
        ACTIONS,
        combination_acts,
        _AB + _P,
        depth=2,
    ),
)
