"""Infinities and NaN beside padding: planned values and slopes have them where the unplanned program has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.lowering.on_device import pad, stripes
from tapestry_jax.lowering.padding import apart, level, valid
from tests.damaged import damaged
from tests.simulated.evaluate import run_traced

ROWS = 7
"""Padding on four devices, in chunks of two or three, and in stripes of three."""

PLANS: dict[str, tuple[int, Any]] = {
    "four": (4, "m"),
    "eight": (8, "m"),
    "chunks": (1, tp.chunks(3)),
    "both": (2, ("m", tp.chunks(2))),
    "stripes": (3, tp.striped("m")),
}


def thrice(x: Any, w: Any) -> Any:
    return x * w * w * w


def beside(x: Any, w: Any) -> Any:
    return x[:-2] * w + x[2:]


_SCALE = tp.Map(jnp.multiply, "r, -> r")


def twice(x: Any, w: Any, v: Any) -> Any:
    """What is made of padding by one kernel is padding of the next."""
    return _SCALE(tp.Map(jnp.exp, "r -> r")(_SCALE(x, w)), v)


def alone_then_shared(x: Any, w: Any) -> Any:
    """What is finite becomes infinite where rows share nothing, and then meets what they share."""
    return _SCALE(tp.Map(lambda x: 1 / x, "r -> r")(x), w)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "product": (_SCALE, ((ROWS,), ())),
    "contraction": (tp.einsum("r c, c d -> r d"), ((ROWS, 2), (2, 2))),
    "quotient": (tp.Map(lambda x, w: w / x, "r, -> r"), ((ROWS,), ())),
    "thrice": (tp.Map(thrice, "r, -> r"), ((ROWS,), ())),
    "two": (twice, ((ROWS,), (), ())),
    "alone, then shared": (alone_then_shared, ((ROWS,), ())),
    "window": (tp.Map(beside, "(r+[d]-1), -> r", sizes={"d": 3}, boundary="zero"), ((ROWS,), ())),
    "prefixes": (tp.Scan(tp.monoids.Prod, "t r, -> t r", "t", kernel=jnp.multiply), ((2, ROWS), ())),
    "rows alone": (tp.Map(lambda x: 1 / x, "r -> r"), ((ROWS,),)),
}
QUICK = {
    ("product", "four"),
    ("contraction", "chunks"),
    ("quotient", "both"),
    ("thrice", "chunks"),
    ("two", "stripes"),
    ("alone, then shared", "four"),
    ("window", "chunks"),
    ("prefixes", "four"),
    ("rows alone", "stripes"),
}
CASES = [
    pytest.param(program, plan, marks=() if (program, plan) in QUICK else pytest.mark.thorough)
    for program in PROGRAMS
    for plan in PLANS
]


def numbers(shapes: tuple[tuple[int, ...], ...]) -> list[list[Any]]:
    """Arguments of which one is infinite, NaN or zero: in its last row, or everywhere."""
    found: list[list[Any]] = []
    for place in range(len(shapes)):
        for number in (np.inf, -np.inf, np.nan, 0.0):
            for everywhere in (False, True)[len(shapes[place]) == 0 :]:
                args = [np.random.default_rng(i).uniform(0.5, 2, s).astype(np.float32) for i, s in enumerate(shapes)]
                args[place][() if everywhere else (..., -1) if shapes[place][-1] == ROWS else (-1, ...)] = number
                found.append(args)
    return found


def run(function: Callable[..., Any], args: list[Any]) -> Callable[[list[Any]], Any]:
    """Values and slopes, in NumPy; the program is traced once."""

    def weighed(*args: Any) -> Any:
        found = function(*args)
        return jnp.sum(found * jnp.arange(1.0, found.size + 1).reshape(found.shape)), found

    taken = jax.grad(weighed, tuple(range(len(args))), has_aux=True)
    closed, out = jax.make_jaxpr(taken, return_shape=True)(*args)
    return lambda given: run_traced(closed, jax.tree.structure(out), tuple(given))


def compare(program: str, plan: str) -> None:
    function, shapes = PROGRAMS[program]
    devices, entry = PLANS[plan]
    cases = numbers(shapes)
    planned = tp.plan(tp.trace(function, *cases[0]), tp.mesh(m=devices), {"r": entry}).compile()
    found, wanted = run(planned, cases[0]), run(function, cases[0])
    for args in cases:
        for own, expected in zip(jax.tree.leaves(found(args)), jax.tree.leaves(wanted(args)), strict=True):
            # Infinities and NaN have to be equal; rounding may differ.
            np.testing.assert_allclose(own, expected, rtol=1e-5)


@pytest.mark.parametrize(("program", "plan"), CASES)
def test_infinities_and_nan_are_where_they_are_unplanned(program: str, plan: str) -> None:
    compare(program, plan)


MUTANTS: dict[str, tuple[Any, str, str, tuple[str, str]]] = {
    "a copy that is infinite": (pad.finite, "if not", "if True or not", ("product", "four")),
    "a copy with a derivative": (pad._copied, "lax.stop_gradient", "", ("rows alone", "chunks")),  # pyright: ignore[reportPrivateUsage]
    "results that go back": (
        apart.apart,
        "zip(run(operands), places, strict=True)",
        "zip(run(operands), [{}])",
        ("two", "four"),
    ),
    "a slope that is infinite": (
        valid.is_steep_beside,
        "return program is not None",
        "return False",
        ("quotient", "both"),
    ),
    "two factors that rows share": (
        level.multiplies,
        "return True\n        reached",
        "return False\n        reached",
        ("thrice", "chunks"),
    ),
    "a stripe with a derivative": (stripes.stripe, "where_valid(valid, cells)", "cells", ("rows alone", "stripes")),
}


@pytest.mark.parametrize(
    "fault", [pytest.param(fault, marks=() if n < 1 else pytest.mark.thorough) for n, fault in enumerate(MUTANTS)]
)
def test_a_planted_fault_is_seen(fault: str) -> None:
    function, old, new, case = MUTANTS[fault]
    with damaged(function, old, new), pytest.raises(AssertionError):
        compare(*case)
