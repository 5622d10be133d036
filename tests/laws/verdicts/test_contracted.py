"""Which steps give one number however often they are computed."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from laws.verdicts.contracted import Flows, alone
from laws.verdicts.noise import Noise
from laws.verdicts.wide import _called

X = np.float32([0.3, 1.7, 0.3])


def one_number(function):
    """The primitives of a program that are, and those that are not; of calls those inside are not asked."""
    inner = jax.make_jaxpr(function)(X).jaxpr
    flow = Flows(_called).of(inner, alone(inner))
    asked = [(each.primitive.name, flow.is_one_number(each)) for each in inner.eqns if _called(each) is None]
    return {name for name, one in asked if one}, {name for name, one in asked if not one}


@jax.jit
def doubled(x):
    return x * 3


@jax.jit
def with_one(x):
    return x + 1


CASES = {
    "a sum": (lambda x: x + 1, {"add"}, set()),
    "a product": (lambda x: x * 3, {"mul"}, set()),
    "a fused product": (lambda x: x * 3 + 1, {"mul", "add"}, set()),
    "a product that two sums take": (lambda x: (y := x * 3) + jnp.maximum(y + 1, x), set(), {"mul", "add", "max"}),
    "a product that is a result, too": (lambda x: (y := x * 3, y + 1), set(), {"mul", "add"}),
    "a product that is moved": (lambda x: (x * 3)[::-1] + 1, {"mul", "add"}, {"rev"}),
    "a product that is moved and used twice": (lambda x: ((y := (x * 3)[::-1]) + 1, y), set(), {"mul", "add", "rev"}),
    "a product behind a choice": (lambda x: jnp.maximum(x * 3, 1.0) + 1, {"mul", "add"}, {"max"}),
    "a product of a call": (lambda x: (y := doubled(x)) + 1 + y, set(), {"add"}),
    "a product of a call, used once": (lambda x: doubled(x) + 1, {"add"}, set()),
    "a product that a call adds to": (lambda x: (with_one(y := x * 3), y), set(), {"mul"}),
    "a product that a call takes once": (lambda x: with_one(x * 3), {"mul"}, set()),
    "a function": (lambda x: jnp.sin(x / 3), {"sin", "div"}, set()),
    "an exponential": (jnp.exp, set(), {"exp"}),
    "a fold": (lambda x: jnp.sum(x) + 1, {"add"}, {"reduce_sum"}),
    "a fold that is used twice": (lambda x: (y := jnp.sum(x)) + y, set(), {"reduce_sum", "add"}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_step_is_one_number_unless_uses_may_round_it_otherwise(case):
    function, one, other = CASES[case]
    assert one_number(function) == (one, other)


def ties(before, x=X):
    """How far the gradient of a maximum moves by what its steps round."""
    function = jax.grad(lambda x: jnp.max(before(x)).astype(jnp.float32))
    return Noise(function, (x,), {}, "ties", moved=0.0).spread()


def test_ties_stay_ties_behind_what_is_one_number():
    np.testing.assert_allclose(ties(lambda x: 5 - x / 3), 0, atol=1e-6)


def test_ties_may_break_behind_what_is_not():
    # Nothing equals the largest: shares are 0 / 0, of which no bound is known.
    assert np.isnan(ties(lambda x: -jnp.exp(x))).all()


def test_ties_stay_ties_beside_what_is_none():
    """Of what is chosen cell by cell some is rounded otherwise, and what ties is not."""
    np.testing.assert_allclose(ties(lambda x: 5 - jnp.where(x > 1, jnp.exp(x), x) / 3), 0, atol=1e-6)


def test_ties_may_break_in_less_than_float32():
    """Compilers round bfloat16 where they like."""
    assert np.isnan(ties(lambda x: -x / 3, X.astype(jnp.bfloat16))).all()
