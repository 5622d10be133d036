"""What a program computes in float64, whatever dtypes its steps ask for, and how far their own rounding moves it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from laws.verdicts.noise import Noise
from laws.verdicts.wide import Wide

X = np.float32([0.3, 1.7, -2.9, 0.01])
BF16 = jnp.bfloat16


def narrow(x):
    """Steps in bfloat16, with everything that names a dtype."""
    y = jnp.exp(x.astype(BF16)) * jnp.arange(4, dtype=BF16)
    z = jax.lax.reduce_precision(y.astype(jnp.float32), 8, 7)
    return jax.lax.dot_general(z, jnp.outer(y, y), (([0], [0]), ([], [])), preferred_element_type=jnp.float32)


def looped(x):
    """A scan, a choice and a loop without a known end."""
    carry, rows = jax.lax.scan(lambda c, _: ((c * x).astype(BF16).astype(jnp.float32), c), x, None, length=3)
    chosen = jax.lax.cond(x[0] > 0, lambda v: v / 3, lambda v: v, carry)
    return jax.lax.while_loop(lambda v: v[1] < 9, lambda v: v.astype(BF16).astype(v.dtype) * 2, chosen + 1) + rows.sum(
        0
    )


def by_hand(x):
    y = np.exp(x) * np.arange(4)
    return y @ np.outer(y, y)


def looped_by_hand(x):
    rows = x + x**2 + x**3
    carry = x**4 / 3 + 1
    while carry[1] < 9:
        carry = carry * 2
    return carry + rows


def many_loops(x):
    """Each ends by itself."""
    return jax.vmap(lambda v: jax.lax.while_loop(lambda c: c < 9, lambda c: c.astype(BF16).astype(c.dtype) * 2 + 1, v))(
        jnp.abs(x)
    )


def many_by_hand(x):
    found = []
    for number in np.abs(x):
        while number < 9:
            number = number * 2 + 1
        found.append(number)
    return np.array(found)


@pytest.mark.parametrize(
    ("function", "reference"), [(many_loops, many_by_hand), (narrow, by_hand), (looped, looped_by_hand)]
)
def test_casts_round_nothing(function, reference):
    wide = Wide.of(function, X)
    np.testing.assert_allclose(wide((X,))[0].array, reference(X.astype(np.float64)), rtol=1e-14)
    assert not np.allclose(jax.jit(function)(X), reference(X.astype(np.float64)), rtol=1e-4)
    assert wide.unit == 2.0**-8


@pytest.mark.parametrize(("place", "taken"), [(-7, 0), (0, 0), (1, 1), (2, 2), (9, 2)])
def test_of_branches_that_are_not_there_the_nearest_is_taken(place, taken):
    def chosen(place):
        return jax.lax.switch(place, [lambda: 0.0, lambda: 1.0, lambda: 2.0])

    def placed(place):
        # `switch` clamps itself, the primitive behind it as well.
        branches = [jax.make_jaxpr(lambda n=n: jnp.float32(n))() for n in range(3)]
        return jax.lax.cond_p.bind(place, branches=tuple(branches))[0]

    for function in (chosen, placed):
        assert Wide.of(function, np.int32(place))((np.int32(place),))[0].array == taken


def test_what_reads_bits_runs_as_it_was_traced():
    def sign(x):
        return jax.lax.bitcast_convert_type(x, jnp.uint32) >> 31

    np.testing.assert_array_equal(Wide.of(sign, X)((X,))[0].array, [0, 0, 1, 0])


@pytest.mark.parametrize(
    ("function", "unit"),
    [
        (lambda x: jnp.sqrt(x), 2.0**-24),
        (lambda x: jnp.sqrt(x.astype(BF16)).astype(jnp.float32), 2.0**-8),
        (lambda x: jnp.sqrt(x.astype(jnp.float16)).astype(jnp.float32), 2.0**-11),
    ],
    ids=["float32", "bfloat16", "float16"],
)
def test_each_step_rounds_to_its_own_dtype(function, unit):
    numbers = np.abs(X)
    found = Noise(function, (numbers,), {}, "steps", moved=0.0).spread()
    assert found is not None
    assert 0.3 * unit < (found / np.sqrt(numbers)).max() < 2 * unit


def test_partial_sums_round_where_pieces_are_merged():
    """1 - 1 + 1 - 1 ... in bfloat16: the total is 0, and so is its rounding, but not that of what was added before."""
    numbers = np.float32(np.tile([1.01, -1.01], 8))

    def total(x):
        return jnp.sum(x.astype(BF16), dtype=jnp.float32).astype(BF16).astype(jnp.float32)

    whole, pieces = (Noise(total, (numbers,), {}, "sum", moved=0.0, pieces=n).spread() for n in (1, 8))
    assert whole is not None
    assert pieces is not None
    assert whole[0] < 0.03
    assert 2.0**-8 < pieces[0] < 0.3


def test_what_leads_out_of_range_hides_nothing():
    found = Noise(lambda x: jnp.exp(x * 100), (np.float32([7.09, 0.5]),), {}, "range", moved=1e-2).spread()
    assert found is not None
    assert np.isfinite(found[1])
    assert found[1] > 0
