"""Between which numbers lies what a program makes, whatever it is given: held against what it gives."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from combinators.choosing.bounds import ANY, bounds_of, bounds_of_number, is_decided
from combinators.kernels.jaxprs import is_literal

PROGRAMS: dict[str, tuple[Any, tuple[float, float]]] = {
    "places": (lambda x: jax.lax.argmax(x, 0, jnp.int32), (0, 6)),
    "in order": (lambda x: jax.lax.sort((x, jnp.arange(7)), num_keys=1)[1], (0, 6)),
    "of the largest": (lambda x: jax.lax.top_k(x, 3)[1], (0, 6)),
    "counts": (lambda x: (x > 0).astype(jnp.int32).sum(), (0, 7)),
    "running counts": (lambda x: jax.lax.cumsum((x > 0).astype(jnp.int32)), (0, 7)),
    "less counts": (lambda x: (x > 0).astype(jnp.int32).sum() - (x > 1).astype(jnp.int32).sum(), (-7, 7)),
    "one of two": (lambda x: jnp.concatenate([jnp.arange(3), 9 + (x > 0).astype(jnp.int32)]), (0, 10)),
    "no more than": (lambda x: jax.lax.min((x > 0).astype(jnp.int32).sum(), 3), (0, 3)),
    "at least": (lambda x: jax.lax.max((x > 0).astype(jnp.int32).sum(), 3), (3, 7)),
    "of few bits": (lambda x: (x > 0).astype(jnp.int8).sum(dtype=jnp.int8) + jnp.int8(100), (100, 107)),
    "beyond them": (lambda x: (x > 0).astype(jnp.int8).sum(dtype=jnp.int8) + jnp.int8(124), (-128, 127)),
    "truths": (lambda x: jnp.isfinite(x), (0, 1)),
    "shares": (lambda x: jax.lax.reduce_max(jax.lax.logistic(x), (0,)), (0, 1)),
    "magnitudes": (lambda x: jax.lax.max(abs(x), 2.0), (2, np.inf)),
    "more than eight": (lambda x: jax.lax.max(abs(x), 9.0), (0, np.inf)),
    "of floats": (lambda x: jax.lax.convert_element_type(jax.lax.tanh(x), jnp.int8), (-1, 1)),
}


def found(program: Any) -> Any:
    known: dict[Any, Any] = {}

    def of(atom: Any) -> Any:
        return bounds_of_number(atom.val) if is_literal(atom) else known.get(atom, ANY)

    for equation in program.jaxpr.eqns:
        inner = equation.params.get("jaxpr")
        given = [of(each) for each in equation.invars]
        known.update(zip(equation.outvars, [found(inner)] if inner else bounds_of(equation, given), strict=True))
    return of(program.jaxpr.outvars[0])


@pytest.mark.parametrize("name", PROGRAMS)
def test_whole_numbers_lie_between_their_bounds(name: str) -> None:
    function, bounds = PROGRAMS[name]
    arrays = [np.asarray(rows, np.float32) for rows in (range(-3, 4), range(3, -4, -1), [1] * 7, [-1] * 7, [0] * 7)]
    assert found(jax.make_jaxpr(function)(arrays[0])) == bounds
    for array in arrays:
        assert bounds[0] <= int(np.min(function(array))) <= int(np.max(function(array))) <= bounds[1]


def test_of_other_floats_nothing_is_known() -> None:
    assert found(jax.make_jaxpr(lambda x: x * 0)(np.ones(3, np.float32))) == ANY
    assert bounds_of_number(2.5) == ANY == bounds_of_number(np.nan)
    assert bounds_of_number(-np.inf) == (-np.inf, -np.inf)
    # The greatest of no cells is none among them.
    assert found(jax.make_jaxpr(lambda x: jax.lax.reduce_max_p.bind(x, axes=(0,)))(np.ones(0, np.int32)))[0] < 0


@pytest.mark.parametrize(
    ("name", "decided"),
    [("gt", True), ("lt", False), ("ge", False), ("le", False), ("max", True), ("min", True), ("ne", False)],
)
def test_what_is_no_number_is_neither_less_nor_more(name: str, decided: bool) -> None:
    program = jax.make_jaxpr(getattr(jax.lax, name))(np.float32(1), np.float32(2))
    assert is_decided(program.jaxpr.eqns[0], ((0, 1), (1, 1))) is decided


@pytest.mark.parametrize(
    ("function", "dtype", "bounds", "decided"),
    [
        (abs, np.float32, (0, np.inf), True),
        (abs, np.float32, (-1, np.inf), False),
        (jnp.sign, np.float32, (1, 8), True),
        (jnp.sign, np.float32, (0, 8), False),
        (lambda x: x.astype(bool), np.int32, (1, 8), True),
        (lambda x: x.astype(jnp.int32), np.float32, (1, 8), False),
        (lambda x: jax.lax.clamp(-1.0, x, 1.0), np.float32, (-1, 1), True),
        (lambda x: jax.lax.clamp(-1.0, x, 1.0), np.float32, (-1, 2), False),
    ],
)
def test_signs_and_bounds_that_follow_are_no_choice(function: Any, dtype: Any, bounds: Any, decided: bool) -> None:
    (equation,) = jax.make_jaxpr(function)(dtype(1)).jaxpr.eqns
    given = [bounds_of_number(each.val) if is_literal(each) else bounds for each in equation.invars]
    assert is_decided(equation, given) is decided


@pytest.mark.parametrize(
    ("name", "given", "decided"),
    [
        ("lt", ((0, 6), (0, 0)), True),
        ("lt", ((-1, 6), (0, 0)), False),
        ("ge", ((0, 6), (0, 0)), True),
        ("gt", ((0, 6), (6, 6)), True),
        ("gt", ((0, 6), (5, 5)), False),
        ("le", ((0, 6), (6, 9)), True),
        ("eq", ((0, 6), (7, 9)), True),
        ("ne", ((0, 6), (6, 9)), False),
        ("eq", (ANY, (6, 9)), False),
    ],
)
def test_what_follows_from_bounds_is_no_choice(name: str, given: Any, decided: bool) -> None:
    compares = {"lt": jnp.less, "ge": jnp.greater_equal, "gt": jnp.greater, "le": jnp.less_equal, "eq": jnp.equal}
    program = jax.make_jaxpr({**compares, "ne": jnp.not_equal}[name])(np.int32(1), np.int32(2))
    assert is_decided(program.jaxpr.eqns[0], given) is decided
