"""Numbers of finite fields: their laws, against Python's own integers and fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tapestry_jax.shards.lowered import residues
from tapestry_jax.shards.lowered.residues import LEAST, MOST, UNKNOWN, P, Q

ENDS = np.array([LEAST, MOST, UNKNOWN, 0])


def some(*shape: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(7)
    return tuple(residues.drawn(shape, rng) for _ in range(3))  # pyright: ignore[reportReturnType]


def modulo(value: Fraction, prime: int) -> int:
    return value.numerator * pow(value.denominator, -1, prime) % prime


def test_both_moduli_are_primes_of_which_one_is_twice_the_other_and_one() -> None:
    def is_prime(number: int) -> bool:
        return number % 2 == 1 and all(number % each for each in range(3, int(number**0.5) + 1, 2))

    assert is_prime(P) and is_prime(Q) and P == 2 * Q + 1
    assert residues.BASE != 1 and pow(residues.BASE, Q, P) == 1


def test_arithmetic_is_that_of_fractions() -> None:
    values = [0.0, 1.0, -1.0, 0.5, -3.25, 7.0, 1024.0, 2.0**-20]
    x, y = np.meshgrid(np.array(values), np.array(values))
    a, b = residues.residues(x), residues.residues(y)
    for made, of in (
        (residues.add(a, b), lambda x, y: x + y),
        (residues.multiply(a, b), lambda x, y: x * y),
        (residues.add(a, residues.negative(b)), lambda x, y: x - y),
        (residues.multiply(a, residues.inverse(b)), lambda x, y: x / y if y else None),
        (residues.power(a, 3), lambda x, y: x**3),
    ):
        for place in np.ndindex(x.shape):
            want = of(Fraction(float(x[place])), Fraction(float(y[place])))
            if want is None:
                assert made[place] == (0 if x[place] == 0 else UNKNOWN)
            else:
                assert residues.first(made[place]) % P == modulo(want, P)
                assert (made[place] & (2**31 - 1)) == modulo(want, Q)


def test_laws_of_fields_hold_and_orders_do_not_count() -> None:
    x, y, z = some(50)
    add, multiply = residues.add, residues.multiply
    np.testing.assert_array_equal(add(add(x, y), z), add(x, add(z, y)))
    np.testing.assert_array_equal(multiply(multiply(x, y), z), multiply(x, multiply(z, y)))
    np.testing.assert_array_equal(multiply(x, add(y, z)), add(multiply(x, y), multiply(x, z)))
    np.testing.assert_array_equal(multiply(x, residues.inverse(x)), np.full(50, residues.residues(1.0)))
    assert not np.any(add(x, x) == x)
    np.testing.assert_array_equal(residues.folded(add, x, 0, 0), residues.running(add, x[::-1], 0)[-1])


def test_powers_of_sums_are_products_and_of_minus_infinity_0() -> None:
    x, y, _ = some(50)
    made = residues.exponential(residues.add(x, y))
    product = residues.multiply(residues.exponential(x), residues.exponential(y))
    np.testing.assert_array_equal(residues.first(made), residues.first(product))
    assert len(set(residues.first(made).tolist())) == 50
    assert residues.exponential(np.array([LEAST, 0, MOST])).tolist() == [0, int(residues.residues(1.0)), UNKNOWN]
    # The power of a power is not known.
    assert (residues.exponential(made) == UNKNOWN).all()


def test_a_minus_turns_the_order_round() -> None:
    x, y, _ = some(50)
    least = residues.negative(residues.maximum(residues.negative(x), residues.negative(y)))
    np.testing.assert_array_equal(least, residues.minimum(x, y))
    small = residues.residues(np.array([-3.0, -1.0, 0.0, 2.0, np.inf, -np.inf, 1e30]))
    assert small.argsort(kind="stable").tolist() == [5, 0, 1, 2, 3, 4, 6]
    np.testing.assert_array_equal(residues.absolute(small[:4]), residues.residues(np.array([3.0, 1.0, 0.0, 2.0])))


@pytest.mark.parametrize("of", [residues.add, residues.multiply, residues.maximum, residues.minimum])
def test_what_is_not_known_stays_so(of: Any) -> None:
    made = of(ENDS[:, None], ENDS[None, :])
    np.testing.assert_array_equal(made, made.T)
    unknown = made[2].tolist()
    assert unknown == [UNKNOWN] * 3 + [0 if of is residues.multiply else UNKNOWN]
    one = residues.residues(1.0)
    assert of(np.array(UNKNOWN), one) == UNKNOWN
    assert residues.residues(np.array([np.nan])).tolist() == [UNKNOWN]


def test_an_infinity_and_its_minus_give_nothing_known() -> None:
    assert residues.add(np.array(MOST), np.array(LEAST)) == UNKNOWN
    assert residues.add(np.array(LEAST), residues.residues(5.0)) == LEAST
    assert residues.inverse(np.array([MOST, LEAST, 0])).tolist() == [0, 0, UNKNOWN]


def test_other_functions_give_the_same_of_the_same_and_differ_by_name() -> None:
    x, y, _ = some(50)
    np.testing.assert_array_equal(residues.opaque("tanh", x), residues.opaque("tanh", x.copy()))
    # The second number, which may not be known, says nothing.
    np.testing.assert_array_equal(
        residues.opaque("tanh", x), residues.opaque("tanh", residues.only_first(residues.first(x)))
    )
    assert not np.any(residues.opaque("tanh", x) == residues.opaque("sin", x))
    assert not np.any(residues.opaque("pow", x, y) == residues.opaque("pow", y, x))
    assert residues.opaque("tanh", np.array(UNKNOWN)) == UNKNOWN


def test_nothing_along_an_axis_is_the_identity() -> None:
    empty = np.zeros((0, 3), np.int64)
    assert residues.folded(residues.maximum, empty, 0, LEAST).tolist() == [LEAST] * 3
    assert residues.running(residues.add, empty, 0).shape == (0, 3)
    assert residues.residues(np.zeros((0, 2))).shape == (0, 2)


def test_powers_may_differ_from_cell_to_cell() -> None:
    x, _, _ = some(6)
    made = residues.power(x, np.array([0, 1, 2, 3, -1, -2]))
    want = [residues.residues(1.0), x[1], residues.multiply(x[2], x[2]), residues.power(x[3], 3)]
    want += [residues.inverse(x[4]), residues.inverse(residues.power(x[5], 2))]
    assert made.tolist() == [int(each) for each in want]
    assert residues.power(np.array([UNKNOWN, LEAST]), np.array([2, -1])).tolist() == [UNKNOWN, UNKNOWN]


def test_signs_are_those_of_the_first_numbers() -> None:
    """Nothing has no sign, whether or not its second number is known."""
    x, _, _ = some(4)
    nothing = residues.add(residues.exponential(x), residues.negative(residues.exponential(x)))
    assert residues.sign(nothing).tolist() == [0] * 4
    assert residues.sign(np.array([MOST, LEAST, UNKNOWN, 0])).tolist() == [*residues.residues([1.0, -1.0]), UNKNOWN, 0]
