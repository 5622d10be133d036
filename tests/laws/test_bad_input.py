"""Bad input to the laws is told by a typed error, with what, where and a remedy; it never passes."""

from __future__ import annotations

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

import laws
import tapestry_jax as tp
from laws.draws.cells import plain, show_cell
from laws.pieces import Asked

F32 = jax.ShapeDtypeStruct((), jnp.float32)
PLUS = tp.Monoid(0.0, jnp.add, commutative=True, name="Plus")
QUICK = hypothesis.settings(max_examples=30, database=None, deadline=None, derandomize=True)


def refused(text, *args, **options):
    """Examine, and expect a typed error with this text."""
    with pytest.raises(laws.LawError, match=text):
        laws.examine(*args, examples=2, **options)


def drawn(strategy):
    """All entries that a strategy of arrays yields."""
    found = []

    @QUICK
    @hypothesis.given(strategy)
    def draw(array):
        found.extend(np.ravel(array).tolist())

    draw()
    return found


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([{"a": 1.0, "b": "q"}], r"values\[0\]\['b'\] is str: 'q'"),
        ([1.0, "q"], r"values\[1\] is str"),
        ([object()], r"values\[0\] is object"),
        ([1.0, 1j], r"complex numbers are not drawn"),
        ([np.array(["q"])], r"values\[0\] is ndarray"),
        (3, r"values= holds no values.*got +int: 3"),
        ("abc", r"values= holds no values.*got +str"),
        ([1.0, jnp.ones(3)], r"not of one type.*values\[0\] is f32\[\].*values\[1\] is f32\[3\]"),
        ([1.0, (1, 2)], r"not of one type.*values\[1\] is \(i32\[\], i32\[\]\)"),
        ([np.array([2**53 + 1])], r"int32 does not hold a value.*got 9007199254740993"),
        (st.sampled_from([1, 2.5]).filter(lambda x: x == 1).map(lambda _: "q"), r"the value is str"),
    ],
)
def test_values_that_are_no_states(values, text):
    refused("(?s)`Plus`: .*" + text, PLUS, values=values)
    refused("(?s)`Total`: .*" + text, tp.Aggregator(lambda x: x, PLUS, lambda s: s, name="Total"), values=values)


def test_values_drawn_of_another_type_are_told():
    mixed = st.sampled_from([np.float32(1), np.ones(2, np.float32)])
    refused(r"(?s)not of the types that are checked.*expected f32\[\].*got +f32\[2\]", PLUS, values=mixed)
    refused(r"(?s)int32 does not hold a value.*got 2.5", PLUS, values=st.sampled_from([1, 2.5]))


def test_listed_values_take_the_dtype_of_all():
    [subject] = Asked.of(PLUS, values=[1, 2.5]).subjects()
    assert subject.types == "f32[]"
    assert laws.examine(PLUS, values=np.arange(3), laws="associativity", examples=2).held


def test_integers_stay_integers():
    assert plain(np.array([2**53 + 1])) == [2**53 + 1]
    assert plain(np.array([2**64 - 1], np.uint64)) == [2**64 - 1]
    assert show_cell(plain(np.array([2**32 - 1], np.uint32))) == "[4294967295]"
    with jax.enable_x64(True):
        [subject] = Asked.of(PLUS, values=[np.array([2**53 + 1])]).subjects()
        found = hypothesis.find(subject.strategy("state", "normal"), lambda recipe: recipe[0] == "value")
        assert subject.build("state", found).tolist() == [2**53 + 1]


def test_operands_drawn_of_another_type_are_told():
    rows = st.tuples(st.just(np.ones(4, np.float32)))
    types = [tp.TensorType((3,))]
    refused(r"(?s)not of the types.*expected f32\[3\].*got +f32\[4\]", tp.Map(jnp.sin), types, values=rows)
    words = st.tuples(st.just("word"))
    refused(r"(?s)the value\[0\] is str", tp.Map(jnp.sin), types, values=words)


@pytest.mark.parametrize(
    ("dtype", "low", "high", "least", "largest"),
    [
        (jnp.int8, 100, 300, 100, 127),
        (jnp.int8, 120, None, 120, 127),
        (jnp.bool_, 1, None, True, True),
        (jnp.int32, -np.inf, 5.5, -(2**31), 5),
        (jnp.uint32, 2**31, None, 2**31, 2**32 - 1),
        (jnp.float16, 60000, None, 60000, 65504),
        (jnp.float32, 0.1, 0.1, np.float32(0.1), np.float32(0.1)),
    ],
)
def test_values_keep_within_their_bounds(dtype, low, high, least, largest):
    found = drawn(laws.values(jax.ShapeDtypeStruct((3,), dtype), min=low, max=high))
    assert all(least <= x <= largest for x in found)


@pytest.mark.parametrize(
    ("dtype", "options", "text"),
    [
        (jnp.int32, {"min": 0.5, "max": 0.7}, r"no number lies between 0.5 and 0.7.*dtype int32"),
        (jnp.int8, {"min": 300}, r"no number lies between 300 and the largest"),
        (jnp.bool_, {"max": -1}, r"no number lies between the least and -1"),
        (jnp.float32, {"min": "a"}, r"min is no number.*got 'a'"),
        (jnp.float32, {"min": np.nan}, r"min is no number"),
        (jnp.float32, {"elements": [-5.0], "min": 0}, r"-5.0 does not lie between 0.0 and"),
        (jnp.int32, {"elements": [0.5]}, r"0.5 is no int32"),
        (jnp.float32, {"elements": []}, r"elements= is empty"),
        (jnp.float32, {"elements": ["a"]}, r"'a' is no number"),
        (jnp.float32, {"special": ["a"]}, r"special= cannot be drawn"),
        (jnp.int32, {"special": [-np.inf]}, r"-inf is no int32"),
        (jnp.complex64, {}, r"complex numbers are not drawn"),
        (jax.random.key(0).dtype, {}, r"keys are not drawn"),
    ],
)
def test_values_that_cannot_be_drawn(dtype, options, text):
    with pytest.raises(laws.LawError, match="(?s)laws.values: .*" + text):
        laws.values(jax.ShapeDtypeStruct((3,), dtype), **options)


def test_elements_of_a_strategy_are_taken_between_the_bounds():
    found = drawn(laws.values(F32, elements=st.sampled_from([-2.0, 3.0, 5.0]), min=0, max=4))
    assert set(found) == {3.0}


@pytest.mark.parametrize(
    ("identity", "text"),
    [
        (lambda t: jnp.zeros(3), r"shape \(3,\) does not broadcast to \(\).*Write the identity as a function"),
        (lambda t: 1 / 0, r"ZeroDivisionError.*Give numbers as identity"),
        (lambda t: "", r"ValueError.*Give numbers as identity"),
        (lambda t: None, r"identity does not fit"),
    ],
    ids=["shape", "raises", "word", "none"],
)
@pytest.mark.parametrize("options", [{}, {"lift": lambda x: x}, {"values": [1.0]}], ids=["number", "lift", "values"])
def test_identity_that_is_none_is_told_once(identity, text, options):
    refused(r"(?s)`Plus`: the identity cannot be made.*" + text, tp.Monoid(identity, jnp.add, name="Plus"), **options)


def test_identity_that_is_a_function_is_checked_on_numbers():
    zeros = tp.Monoid(lambda t: jax.tree.map(jnp.zeros_like, t), jnp.add, name="Zeros")
    assert laws.examine(zeros, laws="left_identity", examples=2).held
    assert laws.examine(tp.Monoid(lambda t: 1.0, jnp.add), laws="left_identity", examples=2).failed


def test_errors_of_the_library_keep_their_remedy():
    def combine(a, b):
        return tp.monoids.Sum.fold([])

    failed = laws.examine(tp.Monoid(0.0, combine, name="Folded"), types=[F32], laws="structure", examples=1).failed
    assert "Pass `cell_type` for an empty fold." in str(failed["monoid.structure"])


def test_types_that_are_not_drawn_are_refused():
    refused(r"(?s)a type cannot be drawn.*complex64", PLUS, types=[jax.ShapeDtypeStruct((), jnp.complex64)])
