"""The verdicts on floats: what rounding explains passes, however large; any other difference is found."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import laws
from combinators import Monoid, monoids
from laws.counterexamples.message import law_error
from laws.counterexamples.search import Failure, judge
from laws.pieces import Asked
from laws.shipped import pieces
from laws.verdicts.conditioning import magnitudes, wide_sides
from laws.verdicts.noise import Noise
from laws.verdicts.verdict import Terms, compare, unit_roundoff

F32 = jax.ShapeDtypeStruct((), jnp.float32)


def law(name):
    return next(law for law in laws.catalogue if law.name == name)


def subject(monoid, **options):
    return Asked(monoid, [F32], **options).subjects()[0]


def lifted(*numbers):
    return [["lift", float(np.float32(x))] for x in numbers]


def verdict(left, right, scale=1.0, **options):
    settings = {"judged": "rounding", "depth": 1.0, "unit": 2.0**-24, "exact": False, "oracle": False} | options

    def measure(picks):
        return np.full(len(picks), scale)

    unit = settings["unit"]
    terms = Terms(measure=measure, sides=lambda: None, spread=lambda: None, inside=lambda: unit, **settings)
    return compare(np.asarray(left), np.asarray(right), terms)


def test_cancelling_sums_are_not_refused():
    """Triples like (1e8, -1e8, 1): a relative tolerance refuses correct float32 sums."""
    source = np.random.default_rng(0)
    sums = subject(monoids.Sum)
    refused = 0
    for _ in range(200):
        big, small = source.standard_normal(2) * 10.0 ** source.integers(-3, 9, 2)
        triple = source.permutation([big, -big * (1 + 1e-7 * source.integers(0, 3)), small])
        a, b, c = (np.float32(x) for x in triple)
        refused += not np.isclose((a + b) + c, a + (b + c), rtol=1e-6, atol=0)
        assert judge(law("monoid.associativity"), sums, lifted(a, b, c)).holds
    assert refused > 10


def test_small_bug_on_small_numbers_is_found():
    """An absolute tolerance of 1e-6 sees no error of one part in ten thousand of a thousandth."""
    leaky = Monoid(0.0, lambda a, b: a + b * (1 + jnp.where(jnp.abs(a) > 1e-3, 1e-4, 0)), name="Leaky")
    recipe = lifted(1.1e-3, 1.3e-3, 1.7e-3)
    found = judge(law("monoid.associativity"), subject(leaky), recipe)
    left, right = (float(side) for side in found.sides)
    assert not found.holds
    assert found.kind == "conditioned"
    assert np.isclose(left, right, atol=1e-6)


def test_rounding_beyond_the_conditioning_is_told_from_a_wrong_law():
    """Adding 1e6 and taking it away is right, and loses six digits: unstable, not wrong."""

    def unstable(a, b):
        million = 1e6 + 0 * a  # a constant would be folded away
        return ((a + b) + million) - million

    sums, associativity = subject(Monoid(0.0, unstable, name="Unstable")), law("monoid.associativity")
    source = np.random.default_rng(0)
    recipes = [lifted(*source.standard_normal(3)) for _ in range(30)]
    found = [(recipe, judge(associativity, sums, recipe)) for recipe in recipes]
    refused = [Failure(associativity, sums, recipe, verdict, 0) for recipe, verdict in found if not verdict.holds]
    assert len(refused) > 3
    for failure in refused:
        assert failure.verdict.wide is not None
        assert failure.verdict.wide < 1e-8
        assert "so this is rounding, but more than the conditioning explains" in str(law_error(failure))


def test_wrong_law_persists_in_float64():
    halving = Monoid(0.0, lambda a, b: (a + b) / 2, name="Halving")
    with pytest.raises(laws.LawError, match=r"exact domain: fails too, so this is not rounding"):
        laws.assert_lawful(halving, [F32], laws="associativity")


@pytest.mark.parametrize(
    ("left", "right", "holds", "kind"),
    [
        (1.0, 1.0 + 2.0**-24, True, "exact"),
        (1.0, 1.0 + 2.0**-20, False, "conditioned"),
        (np.nan, np.nan, True, "exact"),
        (np.nan, 1.0, False, "range"),
        (np.inf, np.inf, True, "exact"),
        (np.inf, -np.inf, False, "range"),
        (np.inf, 3e38, False, "range"),
        (0.0, -0.0, True, "exact"),
    ],
)
def test_verdict_on_one_entry(left, right, holds, kind):
    found = verdict(np.float32(left) if abs(left) != 1 else left, np.float32(right) if abs(left) != 1 else right)
    assert (found.holds, found.kind) == (holds, kind)


def test_conditioning_widens_what_is_allowed():
    assert not verdict([1.0], [1.001], scale=1.0).holds
    assert verdict([1.0], [1.001], scale=1e5).holds
    assert verdict([1.0], [1.001], scale=1e3, depth=100.0).holds


def test_integers_have_no_tolerance():
    assert not verdict([100_000_000], [100_000_001], scale=1e9).holds


def test_bits_tell_zeros_apart():
    assert verdict(np.float32(0), np.float32(0), judged="bits").holds
    assert not verdict(np.float32(0), np.float32(-0.0), judged="bits").holds
    assert verdict(np.float32(np.nan), np.float32(np.nan), judged="bits").holds


def test_structure_comes_before_numbers():
    assert verdict(np.zeros(2), np.zeros(3)).kind == "structure"
    assert verdict(np.zeros(2, np.float32), np.zeros(2, np.float64)).kind == "structure"
    assert verdict(np.zeros(2, np.float32), np.zeros(2, np.float64), oracle=True).holds


def test_magnitudes_are_those_of_the_derivative():
    """|J| |x| + |f| of x * y - z at (3, -2, 5), by hand: 6 + 6 + 5 + 11."""

    def sides(x, y, z):
        return x * y - z, x * y - z

    arguments = tuple(np.float32(v) for v in (3, -2, 5))
    np.testing.assert_allclose(magnitudes(sides, arguments, [0], of=1, cache={}, key="by hand"), [28.0])
    found = wide_sides(sides, arguments, cache={}, key="by hand")
    assert found is not None
    assert found[0].dtype == np.float64


def test_sides_are_known_where_there_is_no_derivative():
    def sides(x):
        return (jax.lax.while_loop(lambda y: y < 10, lambda y: y * 2, x),)

    arguments = (np.float32(3),)
    assert magnitudes(sides, arguments, [0], of=0, cache={}, key="loop") is None
    found = wide_sides(sides, arguments, cache={}, key="loop")
    assert found is not None
    np.testing.assert_array_equal(found[0], [12.0])


def spread_of(function, *numbers):
    found = Noise(function, tuple(np.float32(x) for x in numbers), {}, "here", moved=2.0**-24).spread()
    assert found is not None
    return float(found[0])


def test_spread_finds_digits_lost_inside():
    """The slope of a saturated tanh is known to u, however small it is; a disturbed argument would move it by u * x."""
    slope = 1 - np.tanh(5.0) ** 2
    found = spread_of(lambda x: 1 - jnp.tanh(x) ** 2, 5.0)
    conditioned = 2.0**-24 * (2 * 5.0 * slope * np.tanh(5.0) + slope)
    assert 10 * conditioned < found < 4 * 2.0**-24


def test_spread_looks_into_calls_and_past_what_only_moves():
    inner = jax.jit(lambda x: jnp.exp(x) * 1)
    remat = jax.checkpoint(jnp.sin)
    assert 0 < spread_of(lambda x: jax.grad(lambda y: remat(inner(y)))(x), 1.0) < 1e-5
    assert spread_of(lambda x: jnp.reshape(x, (1,)) - x, 3.0) == 0


def test_spread_rounds_anew_what_is_used_twice():
    """A compiler may compute the origin twice: the square of its rounding is then left of a sum around the mean."""

    def squares(x):
        origin = jnp.exp(jnp.log(x))
        deviation = x - origin
        return 2 * deviation * deviation - 2 * (deviation * 2 / 2) ** 2

    rounding = (2.0**-24 * 3.3) ** 2
    assert 0.1 * rounding < spread_of(squares, 3.3) < 100 * rounding


def test_unit_roundoff_is_that_of_the_least_precise_argument():
    tree = (np.zeros(1, np.float32), jnp.zeros(1, jnp.bfloat16), np.zeros(1, np.int32))
    assert unit_roundoff(tree) == 2.0**-8
    assert unit_roundoff(np.zeros(1, np.int32)) == 0


@pytest.mark.parametrize(
    ("piece", "token"),
    [
        # The noise of two steps that follow each other once went the same way, and cancelled in their difference.
        (
            "aggregators.Sum",
            "WyJhZ2dyZWdhdG9yLnJlbW92YWwiLCAiZjMyW10iLCBbW1s4LjBdLCBbMC4wNjI1XSwgWzAuMDMxMjUwMzA1NDczODA0NDc0XSwgWzAuNV0s"
            "IFswLjVdXV1d",
        ),
        # A frame rounds a mean, and its square is left of a variance that is 0.
        (
            "monoids.Covariance",
            "WyJtb25vaWQuZnJhbWUiLCAiZjMyWzJdLCBmMzJbXSIsIFtbImlkZW50aXR5Il0sIFsiaWRlbnRpdHkiXSwgWyJsaWZ0IiwgWzAuMCwgMC4w"
            "NjI1XSwgMi45Mzc1XSwgbnVsbF1d",
        ),
    ],
)
def test_alarm_that_was_false_stays_silent(piece, token):
    laws.replay(token, pieces()[piece])


@pytest.mark.parametrize(("unit", "holds"), [(2.0**-24, False), (2.0**-8, True)], ids=["float32", "bfloat16"])
def test_short_numbers_are_those_that_no_rounding_of_their_precision_leaves(unit, holds):
    # A program that casts to bfloat16 inside gives the same in float64; that is no sign that it rounds nothing.
    one, other = -32.75, -33.5

    def measure(picks):
        return np.full(len(picks), 1e6)

    def sides():
        return np.array([one]), np.array([other])

    terms = Terms("rounding", 1.0, 2.0**-24, True, False, measure, sides, lambda: None, inside=lambda: unit)
    found = compare(np.asarray([one]), np.asarray([other]), terms)
    assert found.holds is holds
