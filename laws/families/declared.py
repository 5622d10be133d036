"""The laws that hold of a monoid where it declares them, and only there: a plan uses only what is declared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from combinators.merging.leafwise import leafwise
from laws.law import Law, drawn
from laws.subjects.carrier import MonoidSubject as Monoid

COLLECTIVES: dict[str, Callable[..., Any]] = {
    "sum": jnp.sum,
    "max": jnp.max,
    "min": jnp.min,
    "or": jnp.any,
    "and": jnp.all,
}


def commutativity(s: Monoid, a: Any, b: Any) -> tuple[Any, Any]:
    """Swap two states."""
    return s.observe(s.add(a, b)), s.observe(s.add(b, a))


def idempotence(s: Monoid, a: Any) -> tuple[Any, Any]:
    """Merge a state twice."""
    return s.observe(s.add(a, a)), s.observe(a)


def inverse(s: Monoid, a: Any) -> tuple[Any, Any]:
    """Take a state away again, from both sides."""
    assert s.monoid.inverse is not None
    opposite = leafwise(s.monoid.inverse)(a)
    e = s.observe(s.identity_like(a))
    return (s.observe(s.add(a, opposite)), s.observe(s.add(opposite, a))), (e, e)


def native(s: Monoid, a: Any, b: Any, c: Any) -> tuple[Any, Any]:
    """Reduce the stacked leaves by the collective that the monoid claims to be."""
    assert s.monoid.native is not None
    reduce = COLLECTIVES[s.monoid.native]
    reduced = jax.tree.map(lambda *x: _reduced(reduce, [jnp.asarray(leaf) for leaf in x]), a, b, c)
    return s.observe(reduced), s.observe(s.fold([a, b, c]))


def parts(s: Monoid, a: Any, b: Any) -> tuple[Any, Any]:
    """Combine the parts of a product on their own."""
    keys = s.monoid.keys if s.monoid.keys is not None else tuple(range(len(s.monoid.parts)))
    merged = [part.merge(a[key], b[key]) for part, key in zip(s.monoid.parts, keys, strict=True)]
    whole = s.add(a, b)
    return merged, [whole[key] for key in keys]


def _reduced(reduce: Callable[..., Any], leaves: list[Any]) -> Any:
    return reduce(jnp.stack(leaves), axis=0).astype(leaves[0].dtype)


def _declares(flag: str) -> Callable[[Monoid], str | None]:
    def applies(s: Monoid) -> str | None:
        value = getattr(s.monoid, flag)
        return f"`{s.name}` does not declare {flag}" if value is None or value is False or value == () else None

    return applies


LAWS = (
    Law(
        "monoid.commutativity",
        "a + b ~ b + a",
        "declared: commutative",
        commutativity,
        drawn("state", "a b"),
        _declares("commutative"),
        eager=True,
    ),
    Law(
        "monoid.idempotence",
        "a + a ~ a",
        "declared: idempotent",
        idempotence,
        drawn("state", "a"),
        _declares("idempotent"),
        eager=True,
    ),
    Law(
        "monoid.inverse",
        "a + inverse(a), inverse(a) + a ~ e",
        "declared: inverse",
        inverse,
        drawn("state", "a"),
        _declares("inverse"),
        eager=True,
    ),
    Law(
        "monoid.native",
        "collective([a, b, c]) ~ a + b + c",
        "a mesh axis folds a native monoid by one collective",
        native,
        drawn("state", "a b c"),
        _declares("native"),
        depth=2,
        eager=True,
    ),
    Law(
        "monoid.parts",
        "parts of a + parts of b ~ parts of (a + b)",
        "a lowering may treat the parts of a product on their own",
        parts,
        drawn("state", "a b"),
        _declares("parts"),
        eager=True,
    ),
)
