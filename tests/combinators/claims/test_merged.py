"""Two ways to merge states are told apart by a few numbers, but for rounding and chance."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from combinators.claims.cut import Boxed
from combinators.claims.merged import Claimed, merges_otherwise
from combinators.claims.slopes import pullback, sloped
from combinators.claims.standing import gives_otherwise
from combinators.index_space.signature import Signature

FOLDED = Signature.parse("rows -> ")
MAPPED = Signature.parse("rows -> rows")


def swapped(merge: Any) -> Claimed:
    return Claimed(2, lambda states: merge(*states), lambda states: merge(states[1], states[0]))


def regrouped(merge: Any) -> Claimed:
    return Claimed(3, lambda s: merge(merge(s[0], s[1]), s[2]), lambda s: merge(s[0], merge(s[1], s[2])))


def fold(kernel: Any) -> Boxed:
    def at(sizes: dict[str, int]) -> Any:
        return jax.make_jaxpr(lambda x: [kernel(x)])(jax.ShapeDtypeStruct((sizes["rows"],), jnp.float32))

    return Boxed(FOLDED, {"rows": 9}, [()], None, list, at)


def leafwise(merge: Any) -> Any:
    return lambda a, b: [merge(x, y) for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize(
    ("merge", "commutes", "regroups"),
    [
        (jnp.add, True, True),
        (jnp.subtract, False, False),
        (lambda a, b: a, False, True),
        (lambda a, b: (a + b) / 2, True, False),
        (lambda a, b: jnp.clip(a + b, -100, 100), True, False),
        (lambda a, b: jnp.where(jnp.isnan(a), b, a), False, True),
        (lambda a, b: a + b + 1e-9 * a, True, True),
        (lambda a, b: jnp.float32(jnp.nan) * a * b, True, True),
    ],
    ids=["sum", "difference", "the first", "half", "a sum that stops", "the first number", "rounding", "NaN"],
)
def test_ways_to_merge_are_told_apart(merge: Any, commutes: bool, regroups: bool) -> None:
    found = leafwise(merge)
    assert merges_otherwise(fold(jnp.sum), swapped(found)) is not commutes
    assert merges_otherwise(fold(jnp.sum), regrouped(found)) is not regroups


def test_what_is_shown_alone_counts() -> None:
    kernel = fold(jnp.sum)
    hidden = Boxed(kernel.signature, kernel.sizes, kernel.shown, None, lambda state: [state[0] * 0], kernel.at)
    assert not merges_otherwise(hidden, swapped(leafwise(jnp.subtract)))


def test_steps_of_a_scan_are_states() -> None:
    def at(sizes: dict[str, int]) -> Any:
        return jax.make_jaxpr(lambda x: [x])(jax.ShapeDtypeStruct((sizes["rows"],), jnp.float32))

    steps = Boxed(MAPPED, {"rows": 9}, [("rows",)], None, list, at)
    assert merges_otherwise(steps, regrouped(leafwise(jnp.subtract)), "rows", [0])
    assert not merges_otherwise(steps, regrouped(leafwise(jnp.hypot)), "rows", [0])
    few = Boxed(MAPPED, {"rows": 2}, [("rows",)], None, list, at)
    assert not merges_otherwise(few, regrouped(leafwise(jnp.subtract)), "rows", [0]), "two steps merge in one way"


def test_of_what_raises_nothing_is_known() -> None:
    def raises(*_: Any) -> Any:
        raise ValueError("no states")

    assert not merges_otherwise(fold(jnp.sum), swapped(raises))


def traced(kernel: Any) -> Any:
    return jax.make_jaxpr(kernel)(jax.ShapeDtypeStruct((5,), jnp.float32))


@jax.custom_jvp
def flat(x: Any) -> Any:
    return jnp.sin(x)


flat.defjvp(lambda primals, tangents: (flat(*primals), 0 * tangents[0]))


def test_kernels_are_told_apart_by_values_and_slopes() -> None:
    sizes = {"rows": 5}
    assert gives_otherwise(MAPPED, sizes, traced(jnp.sin), traced(jnp.cos))
    assert gives_otherwise(MAPPED, sizes, traced(jnp.sin), traced(flat))
    assert not gives_otherwise(MAPPED, sizes, traced(jnp.sin), traced(lambda x: jnp.cos(jnp.pi / 2 - x)))
    assert not gives_otherwise(MAPPED, sizes, traced(jnp.sin), traced(lambda x: jnp.sin(x) + 1e-6))
    assert gives_otherwise(MAPPED, sizes, traced(jnp.square), traced(lambda x: jnp.sqrt(x) * jnp.sqrt(x) ** 3))


def test_slopes_are_a_program_of_the_operands_that_have_some() -> None:
    program = jax.make_jaxpr(lambda x, n: x * n)(jnp.ones(3), jnp.arange(3))
    assert sloped(program) == [0]
    found = pullback(program)
    assert [aval.dtype for aval in found.out_avals] == [jnp.float32]
    beside = pullback(traced(lambda x: (jnp.sin(x), 2.0)))
    assert beside is not None and len(beside.out_avals) == 1, "a plain number among the results hides no slope"
    assert pullback(traced(lambda x: x > 0)) is None and pullback(traced(lambda x: jnp.round(x).astype(int))) is None
