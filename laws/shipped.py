"""Everything that the library ships and that has laws: `tapestry laws laws.shipped:pieces`."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from combinators import aggregators, monoids
from combinators.aggregation.aggregator import Aggregator
from combinators.merging.monoid import Monoid
from laws.draws.cells import BOOL, F32, I32, Struct
from laws.given import Given, given
from laws.shipped_pieces.aggregators import aggregator_pieces, piece
from laws.shipped_pieces.arrows import arrows, operations
from laws.subjects.examples import shipped
from laws.subjects.structures import Action, Homomorphism, Semiring


def pieces() -> dict[str, Given]:
    """Every shipped monoid, aggregator, operation and arrow, by name, with what its laws need to know."""
    return monoid_pieces() | aggregator_pieces() | grouped_pieces() | structures() | operations() | arrows()


def monoid_pieces() -> dict[str, Given]:
    """The shipped monoids, and those that are made of them."""
    found = {f"monoids.{name}": given(getattr(monoids, name)) for name in shipped()}
    made: dict[str, tuple[Monoid, Any, tuple[Struct, ...]]] = {
        "monoids.struct": (monoids.struct(top=monoids.ArgMax, total=monoids.Mean), None, ()),
        "monoids.product": (monoids.product(monoids.LogSumExp, monoids.MinMax), None, ()),
        "monoids.dual": (monoids.dual(monoids.AffineRecurrence), pair, (F32, F32)),
        "monoids.optional": (monoids.optional(jnp.minimum, commutative=True, idempotent=True), some, (F32,)),
        "monoids.lexicographic": (monoids.lexicographic(monoids.Max, monoids.Sum), pair, (F32, I32)),
        "monoids.map_values": (monoids.map_values(monoids.Max, "a", "b"), named_pair, (F32, F32)),
        "monoids.function": (monoids.function(monoids.Sum), itself, (Struct((3,), jnp.float32),)),
        "monoids.segmented": (monoids.segmented(monoids.AffineRecurrence), flagged, (BOOL, F32, F32)),
        "monoids.runs": (monoids.runs(monoids.AffineRecurrence), labelled, (I32, F32, F32)),
        "monoids.decayed": (monoids.decayed(2.0), aggregators.Decayed(2.0).lift, (F32, I32)),
    }
    for name, (monoid, lift, types) in made.items():
        found[name] = given(monoid, lift=lift, types=types or None, name=name)
    return found


def grouped_pieces() -> dict[str, Given]:
    """What aggregators make of aggregators."""
    both = aggregators.Mean() & aggregators.Max()
    made: dict[str, tuple[Aggregator, tuple[Struct, ...]]] = {
        "&": (both, (F32,)),
        "by_key": (both.by_key(remainder_of_3, 3), (I32,)),
        "by_key in order": (recurrence().by_key(remainder_of_3, 3), (I32,)),
        "masked": (piece("LogSumExp").masked(), (F32, BOOL)),
        "segmented aggregator": (both.segmented(), (F32, BOOL)),
        "by_run": (recurrence().by_run(remainder_of_3), (I32,)),
    }
    return {name: given(piece, types=types, name=name) for name, (piece, types) in made.items()}


def structures() -> dict[str, Given]:
    """Semirings, homomorphisms and actions of shipped monoids."""
    laws = ("semiring", "homomorphism", "action")
    found: dict[str, tuple[Any, tuple[Struct, ...] | None]] = {
        "numbers": (Semiring(monoids.Sum, monoids.Prod), None),
        # In floats: the identity of Max is the lowest integer, and what is added to it overflows.
        "tropical": (Semiring(monoids.Max, monoids.Sum), (F32,)),
        "truth values": (Semiring(monoids.Any, monoids.All), None),
        "signs": (Homomorphism(jnp.sign, monoids.Prod, monoids.Prod), None),
        "affine": (Action(move, monoids.AffineRecurrence, Struct((2,), jnp.float32)), None),
    }
    return {
        name: given(
            piece, types=types, laws=next(law for law in laws if type(piece).__name__.lower() == law), name=name
        )
        for name, (piece, types) in found.items()
    }


def recurrence() -> Aggregator:
    """A recurrence of one number, whose monoid keeps order and has neither collective nor frame."""
    return Aggregator(step_of, monoids.AffineRecurrence, second, name="recurrence")


def step_of(x: Any) -> Any:
    """Lift an integer: `h -> x / 4 * h + x`."""
    x = jnp.asarray(x, jnp.float32)
    return x / 4, x


def second(state: Any) -> Any:
    """What the recurrence has come to from 0."""
    return state[1]


def itself(x: Any) -> Any:
    """Lift what is a state."""
    return x


def pair(x: Any, y: Any) -> Any:
    """Lift two elements."""
    return x, y


def named_pair(x: Any, y: Any) -> Any:
    """Lift two elements by name."""
    return {"a": x, "b": y}


def some(x: Any) -> Any:
    """Lift an element that is there."""
    return jnp.array(True), x


def flagged(begins: Any, x: Any, y: Any) -> Any:
    """Lift a flag and a pair."""
    return begins, (x, y)


def labelled(label: Any, x: Any, y: Any) -> Any:
    """Lift a label and a pair; few labels, so that runs are long."""
    return jnp.int8(1), label % 3, (x, y)


def remainder_of_3(x: Any) -> Any:
    """The key of an integer."""
    return x % 3


def move(state: Any, point: Any) -> Any:
    """Let a recurrence act on a point."""
    decay, shift = state
    return decay * point + shift
