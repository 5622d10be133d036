"""Failures that are known, and pieces that are not what they should be: never a pass."""

from __future__ import annotations

from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

import laws
from combinators import Aggregator, Map, Monoid, monoids
from tests.thoroughly import some

F32 = jax.ShapeDtypeStruct((), jnp.float32)
LAST = Monoid(0.0, lambda a, b: b, name="Last")
RIGHT = "monoid.right_identity"


def token_of(piece, law, **options):
    with pytest.raises(laws.LawError) as caught:
        laws.assert_lawful(piece, laws=law, **options)
    assert caught.value.token is not None
    return caught.value.token


def test_known_failure_is_no_failure():
    known = laws.known_failing(RIGHT, "no flag", counterexample=token_of(LAST, RIGHT))
    report = laws.assert_lawful(LAST, laws=["right_identity", "associativity"], examples=some(50), known=[known])
    assert report.known == {RIGHT: "no flag"}
    assert report.held == ("monoid.associativity",)
    assert f"failing as known: 1\n  {RIGHT} (no flag)" in report.summary


def test_known_failure_that_is_given_with_a_piece_waits_until_its_law_is_asked_for():
    piece = laws.given(LAST, known=[laws.known_failing(RIGHT, "no flag")])
    assert laws.assert_lawful(piece, laws="associativity", examples=some(50)).held == ("monoid.associativity",)
    assert laws.assert_lawful(piece, laws=["right_identity", "associativity"], examples=some(50)).known == {
        RIGHT: "no flag"
    }
    with pytest.raises(laws.LawError, match="which is not checked here"):
        laws.assert_lawful(LAST, laws="associativity", known=[laws.known_failing(RIGHT, "no flag")])


def test_known_failure_is_searched_for_without_a_counterexample():
    known = laws.known_failing(RIGHT, "no flag")
    assert laws.assert_lawful(LAST, laws=RIGHT, known=[known]).known == {RIGHT: "no flag"}


@pytest.mark.parametrize("token", [True, False])
def test_known_failure_that_holds_fails(token):
    counterexample = token_of(LAST, RIGHT) if token else None
    known = laws.known_failing(RIGHT, "no flag", counterexample=counterexample)
    with pytest.raises(laws.LawError, match=r"(?s)declared as known to fail, and does not fail.*no flag.*Remove"):
        laws.assert_lawful(monoids.Max, types=[F32], laws=RIGHT, known=[known])


def test_known_failure_has_a_reason_and_the_right_law():
    with pytest.raises(laws.LawError, match="the reason is empty"):
        laws.known_failing(RIGHT, " ")
    with pytest.raises(laws.LawError, match="of another law"):
        laws.known_failing("monoid.associativity", "no flag", counterexample=token_of(LAST, RIGHT))
    with pytest.raises(laws.LawError, match="not checked here"):
        laws.assert_lawful(LAST, laws="associativity", known=[laws.known_failing(RIGHT, "no flag")])


def test_examine_goes_on_after_a_failure():
    report = laws.examine(LAST, laws=["right_identity", "left_identity", "commutativity"])
    assert (report.held, list(report.failed)) == (("monoid.left_identity",), [RIGHT])
    assert list(report.not_checked) == ["monoid.commutativity"]
    assert report.failed[RIGHT].token


def test_pieces_carry_their_options():
    first = laws.given(Monoid(0, lambda a, b: a, name="First"), lift=lambda x: (x, x), laws="associativity")
    assert laws.assert_lawful(first, examples=5).held == ("monoid.associativity",)
    assert laws.assert_lawful(
        first, laws="left_identity", known=[laws.known_failing("monoid.left_identity", "no flag")]
    )
    with pytest.raises(laws.LawError, match=r"no option size"):
        laws.given(LAST, size=3)


def test_class_stands_for_its_instance():
    from combinators import Arrow, Map

    class Sine(Arrow):
        name, arity = "sine", 1
        __laws__ = MappingProxyType({"types": [jax.ShapeDtypeStruct((3,), jnp.float32)], "laws": "arrow.first"})

        def apply(self, *values):
            return Map(jnp.sin).apply(*values)

    assert laws.assert_lawful(Sine, examples=3).held == ("arrow.first",)


@pytest.mark.parametrize(
    ("combine", "law"),
    [
        (lambda a, b: jnp.stack([a, b]), "monoid.structure"),
        (lambda a, b: (a + b).astype(jnp.bfloat16), "monoid.structure"),
        (lambda a, b: (a, b), "monoid.structure"),
        (lambda a, b: a + b + 1, "monoid.left_identity"),
    ],
    ids=["shape", "dtype", "tree", "identity"],
)
def test_combine_that_is_none(combine, law):
    with pytest.raises(laws.LawError, match=f"LAW {law} FAILED"):
        laws.assert_lawful(Monoid(0.0, combine, name="Wrong"), types=[F32], laws=["structure", "left_identity"])


def test_identity_that_does_not_fit_is_told():
    wrong = Monoid((0.0, 0.0), lambda a, b: a + b, name="Pair for a number")
    with pytest.raises(
        laws.LawError, match=r"(?s)the identity cannot be made.*identity does not fit.*Give the"
    ) as caught:
        laws.assert_lawful(wrong, types=[F32], laws="structure")
    assert caught.value.law == "monoid.structure"


def test_present_that_fails_on_the_identity():
    def present(state):
        if np.asarray(state) == 0:
            raise ZeroDivisionError("nothing was counted")
        return 1 / state

    aggregator = Aggregator(lambda x: x * 0 + 1, monoids.Sum, present, name="Inverse count")
    with pytest.raises(laws.LawError, match=r"LAW aggregator.empty FAILED"):
        laws.assert_lawful(aggregator, laws="aggregator.empty", examples=3)


def test_strings_are_no_states():
    with pytest.raises(laws.LawError, match=r"(?s)`Words`: a state is no pytree of arrays.*TypeError"):
        laws.assert_lawful(Monoid(0.0, jnp.add, name="Words"), lift=lambda x: "word")
    with pytest.raises(laws.LawError, match=r"no pytree of arrays"):
        laws.assert_lawful(Monoid(0.0, jnp.add, name="Words"), values=["a", "b"])
    with pytest.raises(laws.LawError, match=r"a state holds no array"):
        laws.assert_lawful(Monoid(0.0, jnp.add, name="Nothing"), lift=lambda x: ())


def test_strategy_that_never_yields():
    with pytest.raises(laws.LawError, match=r"there are no values"):
        laws.assert_lawful(monoids.Sum, values=st.nothing())
    with pytest.raises(laws.LawError, match=r"there are no values"):
        laws.assert_lawful(monoids.Sum, values=st.integers().filter(lambda n: False))


def test_lift_that_gives_words_is_told():
    with pytest.raises(laws.LawError, match=r"(?s)which elements `Words` takes.*lift of f32\[\]: TypeError.*str"):
        laws.assert_lawful(Aggregator(lambda x: "word", monoids.Sum, lambda s: s, name="Words"))


def test_combine_of_another_number_of_states_is_told():
    with pytest.raises(laws.LawError, match=r"(?s)states of `One` are made.*combine gives no state: TypeError"):
        laws.assert_lawful(Monoid(0.0, lambda a: a, name="One"))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([], r"values= of operands is empty"),
        (["a"], r"(?s)values\[0\] are not the operands.*expected 1 arrays of shapes \(3,\).*got      'a'"),
        ([(jnp.ones(3),), (jnp.ones(4),)], r"(?s)values\[1\].*got      \(4,\)"),
        ([()], r"(?s)values\[0\].*got      none"),
    ],
    ids=["none", "words", "shape", "number"],
)
def test_values_that_are_no_operands(values, text):
    with pytest.raises(laws.LawError, match=text):
        laws.assert_lawful(Map(jnp.sin), [jax.ShapeDtypeStruct((3,), jnp.float32)], values=values)


def test_operands_that_are_never_drawn_are_not_checked():
    sine = laws.given(Map(jnp.sin), types=[jax.ShapeDtypeStruct((3,), jnp.float32)], values=st.nothing())
    with pytest.raises(laws.LawError, match=r"(?s)no law of `sin` could be checked.*the strategy yields nothing"):
        laws.assert_lawful(sine, laws=["map.split", "map.footprint"])


def test_present_that_raises_breaks_the_laws_that_present():
    broken = Aggregator(lambda x: x, monoids.Sum, lambda state: {}["missing"], name="Broken")
    with pytest.raises(
        laws.LawError, match=r"(?s)LAW aggregator.empty FAILED.*cannot be computed.*KeyError: 'missing'"
    ):
        laws.assert_lawful(broken, laws="aggregator.empty")


def test_laws_can_be_asked_for_alone():
    """The first law that runs may be one that is compiled around the identity."""
    report = laws.assert_lawful(monoids.Mean, laws="identity_gradient", examples=3)
    assert report.held == ("monoid.identity_gradient",)
