"""Every dtype is judged by its own rounding: what is right holds, and what is off by a few units does not."""

from __future__ import annotations

import hypothesis
import jax
import jax.numpy as jnp
import pytest

import laws
from combinators import Monoid, monoids
from tests.thoroughly import but

FLOATS = {"bfloat16": jnp.bfloat16, "float16": jnp.float16, "float32": jnp.float32, "float64": jnp.float64}
ASKED = ["associativity", "left_identity", "eager"]


def scaled(unit):
    """A sum that is off by `unit` in its last places."""

    def combine(a, b):
        return ((a + b).astype(jnp.float64) * (1 + unit)).astype(a.dtype)

    return Monoid(0.0, combine, name="Nearly a sum")


# The other narrow one is bfloat16.
@pytest.mark.parametrize("name", but(FLOATS, "float16"))
def test_floats_are_judged_by_their_own_rounding(name):
    dtype = FLOATS[name]
    kind, unit = jax.ShapeDtypeStruct((2,), dtype), float(jnp.finfo(dtype).eps)
    with jax.enable_x64(True):
        held = laws.assert_lawful(monoids.Sum, [kind], laws=ASKED, examples=12).held
        assert held == ("monoid.associativity", "monoid.left_identity", "monoid.eager")
        with pytest.raises(laws.LawError, match=r"LAW monoid.left_identity FAILED"):
            laws.assert_lawful(scaled(16 * unit), [kind], laws="left_identity", examples=40, shrink=False)


@pytest.mark.parametrize("name", but(["int8", "uint8", "int32", "bool"], "int32"))
def test_integers_and_truth_are_judged_exactly(name):
    kind = jax.ShapeDtypeStruct((2,), name)
    right = monoids.Any if name == "bool" else monoids.Sum
    assert len(laws.assert_lawful(right, [kind], laws=ASKED, examples=12).held) == 3
    wrong = Monoid(0, lambda a, b: a if name == "bool" else a + b + (a > 90), name="Off by one")
    with pytest.raises(laws.LawError, match="have to be equal"):
        laws.assert_lawful(wrong, [kind], laws=["left_identity", "right_identity"], examples=100, shrink=False)


@pytest.mark.parametrize(
    "profile",
    [
        {"max_examples": 1},
        {"derandomize": True},
        {"phases": (hypothesis.Phase.explicit,)},
        {"verbosity": hypothesis.Verbosity.verbose},
    ],
    ids=lambda profile: next(iter(profile)),
)
def test_profiles_of_hypothesis_change_nothing(profile, capsys):
    """What is drawn depends on the seed alone."""
    halving = Monoid(0.0, lambda a, b: (a + b) / 2, name="Halving")
    before = hypothesis.settings.get_current_profile_name()
    plain = str(laws.examine(halving, laws="associativity", examples=10, shrink=False).failed["monoid.associativity"])
    try:
        hypothesis.settings.register_profile("odd", database=None, **profile)
        hypothesis.settings.load_profile("odd")
        found = str(
            laws.examine(halving, laws="associativity", examples=10, shrink=False).failed["monoid.associativity"]
        )
    finally:
        hypothesis.settings.load_profile(before)
    assert found == plain
    assert capsys.readouterr().out == ""
