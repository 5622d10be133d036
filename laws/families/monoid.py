"""The laws of monoids that hold of every one; those that a monoid has to declare are in `declared` and `framed`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from laws.draws.cells import type_name
from laws.law import Law, drawn
from laws.subjects.carrier import MonoidSubject as Monoid

CHAN = "Chan, Golub, LeVeque 1983"
ALGEBRA = "the definition of a monoid"
DABA = "Tangwongsan, Hirzel, Schneider 2017: every bracketing of an aggregation"


def structure(s: Monoid) -> tuple[Any, Any]:
    """Compare the types of `a + b` and of the identity with the type of a state."""
    cell = s.carrier.cell_type
    combined = jax.eval_shape(s.add, cell, cell)
    identity = jax.eval_shape(lambda: s.monoid.identity_for(cell))
    return (_types(combined), _types(identity)), (_types(cell), _types(cell))


def associativity(s: Monoid, a: Any, b: Any, c: Any) -> tuple[Any, Any]:
    """Combine three states in both ways."""
    return s.observe(s.add(s.add(a, b), c)), s.observe(s.add(a, s.add(b, c)))


def left_identity(s: Monoid, a: Any) -> tuple[Any, Any]:
    """Put the identity on the left."""
    return s.observe(s.add(s.identity_like(a), a)), s.observe(a)


def right_identity(s: Monoid, a: Any) -> tuple[Any, Any]:
    """Put the identity on the right."""
    return s.observe(s.add(a, s.identity_like(a))), s.observe(a)


def identity_range(s: Monoid, a: Any) -> tuple[Any, Any]:
    """Put the identity on both sides of a state at the ends of its range."""
    e = s.identity_like(a)
    return (s.observe(s.add(e, a)), s.observe(s.add(a, e))), (s.observe(a), s.observe(a))


def identity_gradient(s: Monoid, a: Any) -> tuple[Any, Any]:
    """Differentiate `e + e`, `e + a` and `a + e`; all derivatives have to be finite."""
    e = s.identity_like(a)
    finite = [finite_gradient(lambda x, y: (s.add(x, y), s.observe(s.add(x, y))), pair) for pair in _around(e, a)]
    return finite, jax.tree.map(jnp.ones_like, finite)


def bracketing(s: Monoid, a: Any, b: Any, c: Any, d: Any) -> tuple[Any, Any]:
    """Fold four states from the left, from the right and, stacked, by a balanced tree."""
    right = s.add(a, s.add(b, s.add(c, d)))
    left = s.observe(s.fold([a, b, c, d]))
    return (s.observe(right), s.observe(s.fold_stacked(_stacked(a, b, c, d)))), (left, left)


def mapping(s: Monoid, a: Any, b: Any, c: Any, d: Any) -> tuple[Any, Any]:
    """Combine two cells at once, as the library does, and one by one."""
    mapped = s.mapped(_stacked(a, b), _stacked(c, d))
    one, other = (jax.tree.map(lambda leaf, i=i: leaf[i], mapped) for i in (0, 1))
    return (s.observe(one), s.observe(other)), (s.observe(s.add(a, c)), s.observe(s.add(b, d)))


def congruence(s: Monoid, x: Any, y: Any, z: Any, b: Any) -> tuple[Any, Any]:
    """Combine two forms of an equal state with another one, on both sides."""
    one, other = s.add(s.add(x, y), z), s.add(x, s.add(y, z))
    left = s.observe(s.add(one, b)), s.observe(s.add(b, one))
    return left, (s.observe(s.add(other, b)), s.observe(s.add(b, other)))


def nothing(s: Monoid) -> tuple[Any, Any]:
    """Combine nothing with nothing, in several ways."""
    e = s.monoid.identity_for(s.carrier.cell_type)
    both = s.add(e, e)
    return [s.observe(both), s.observe(s.add(both, e)), s.observe(s.add(e, both))], [s.observe(e)] * 3


def repetition(s: Monoid, a: Any) -> tuple[Any, Any]:
    """Combine five times the same state by squaring, and one after the other."""
    twice = s.add(a, a)
    return s.observe(s.add(s.add(twice, twice), a)), s.observe(s.fold([a] * 5))


LAWS = (
    Law("monoid.structure", "type of a + b, of e ~ type of a", ALGEBRA, structure, judged="object"),
    Law(
        "monoid.associativity",
        "(a + b) + c ~ a + (b + c)",
        ALGEBRA,
        associativity,
        drawn("state", "a b c"),
        depth=2,
        eager=True,
    ),
    Law("monoid.left_identity", "e + a ~ a", ALGEBRA, left_identity, drawn("state", "a"), eager=True),
    Law("monoid.right_identity", "a + e ~ a", ALGEBRA, right_identity, drawn("state", "a"), eager=True),
    Law(
        "monoid.identity_range",
        "e + a, a + e ~ a, at the ends of the range",
        CHAN,
        identity_range,
        drawn("extreme", "a"),
        judged="range",
        eager=True,
    ),
    Law(
        "monoid.identity_gradient",
        "d(e + e), d(e + a), d(a + e) ~ finite",
        "the identity is where folds start, and where padding and masks put them",
        identity_gradient,
        drawn("state", "a"),
        judged="bits",
    ),
    Law(
        "monoid.bracketing",
        "a + (b + (c + d)), (a + b) + (c + d) ~ ((a + b) + c) + d",
        DABA,
        bracketing,
        drawn("state", "a b c d"),
        depth=3,
        eager=True,
    ),
    Law(
        "monoid.mapping",
        "vmap(+)([a, b], [c, d]) ~ [a + c, b + d]",
        "monoids are written for one cell and mapped by the library",
        mapping,
        drawn("state", "a b c d"),
        eager=True,
    ),
    Law(
        "monoid.congruence",
        "a + b, b + a ~ a' + b, b + a', with a = (x + y) + z, a' = x + (y + z)",
        "equality of a quotient",
        congruence,
        drawn("state", "x y z b"),
        depth=3,
        eager=True,
    ),
    Law(
        "monoid.nothing",
        "e + e, (e + e) + e, e + (e + e) ~ e",
        "all states that stand for nothing yet are one; DataFusion 13248, OnlineStats.jl 72: an empty merge gave NaN",
        nothing,
        judged="range",
        eager=True,
    ),
    Law(
        "monoid.repetition",
        "((a + a) + (a + a)) + a ~ (((a + a) + a) + a) + a",
        "powers of a semigroup: Knuth, The Art of Computer Programming 2, section 4.6.3",
        repetition,
        drawn("state", "a"),
        depth=4,
        eager=True,
    ),
)


def _types(tree: Any) -> Any:
    return jax.tree.map(type_name, tree)


def _stacked(*states: Any) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *states)


def _around(e: Any, a: Any) -> list[tuple[Any, Any]]:
    return [(e, e), (e, a), (a, e)]


def finite_gradient(function: Any, pair: tuple[Any, Any]) -> Any:
    """For each leaf of the derivative of the sum of all results whether it is finite."""
    leaves, tree = jax.tree.flatten(jax.tree.map(jnp.asarray, pair))
    inexact = [jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in leaves]

    def results(xs: list[Any]) -> list[Any]:
        given = iter(xs)
        filled = [next(given) if is_inexact else leaf for leaf, is_inexact in zip(leaves, inexact, strict=True)]
        out = jax.tree.leaves(function(*jax.tree.unflatten(tree, filled)))
        return [leaf for leaf in out if jnp.issubdtype(leaf.dtype, jnp.inexact)]

    values, pull = jax.vjp(results, [leaf for leaf, is_inexact in zip(leaves, inexact, strict=True) if is_inexact])
    return [jnp.all(jnp.isfinite(slope)) for slope in pull([jnp.ones_like(value) for value in values])[0]]
