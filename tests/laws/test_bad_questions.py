"""Options, tokens and strategies that are none: each is told by a typed error before anything is checked."""

from __future__ import annotations

import base64
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import laws
import tapestry_jax as tp
from tests.laws.unseen import unseen

F32 = jax.ShapeDtypeStruct((), jnp.float32)
PLUS = tp.Monoid(0.0, jnp.add, commutative=True, name="Plus")


def refused(text, *args, **options):
    """Examine, and expect a typed error with this text."""
    with pytest.raises(laws.LawError, match=text):
        laws.examine(*args, examples=2, **options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"types": ["f32"]}, r"types: expected tp.TensorType.*got str: 'f32'"),
        ({"types": F32}, r"types: expected a list.*got ShapeDtypeStruct"),
        ({"known": ["monoid.associativity"]}, r"known: expected a list of laws.known_failing"),
        ({"lift": 3}, r"lift: expected a function; got int"),
        ({"observe": "a"}, r"observe: expected a function"),
        ({"laws": 3}, r"laws: expected names or families"),
        ({"name": 3}, r"name: expected a string"),
    ],
)
def test_options_that_are_none(options, text):
    refused(f"(?s)laws of .*: an option cannot be used.*{text}", PLUS, **options)


@pytest.mark.parametrize("options", [{"examples": 0}, {"examples": 2.5}, {"examples": True}, {"seed": "a"}])
def test_numbers_that_are_none(options):
    with pytest.raises(laws.LawError, match="is no number to count with"):
        laws.assert_lawful(PLUS, **options)


def test_one_known_failure_needs_no_list():
    last = tp.Monoid(0.0, lambda a, b: b, name="Last")
    known = laws.known_failing("monoid.right_identity", "no flag")
    assert laws.examine(last, known=known, laws="right_identity").known == {"monoid.right_identity": "no flag"}


def test_known_failure_of_a_law_that_does_not_apply_says_why():
    known = laws.known_failing("monoid.frame", "none")
    refused(r"(?s)monoid.frame .*is not checked.*declares no frame", PLUS, laws="frame", known=known)
    halving = tp.Monoid(0.0, lambda a, b: (a + b) / 2, name="Halving")
    token = laws.examine(halving, laws="associativity", examples=9).failed["monoid.associativity"].token
    known = laws.known_failing("monoid.associativity", "none", counterexample=token)
    pairs = [jax.ShapeDtypeStruct((2,), jnp.float32)]
    refused(r"(?s)counterexample is at f32\[\].*checked at f32\[2\]", halving, pairs, laws="associativity", known=known)


def token(*parts):
    return base64.urlsafe_b64encode(json.dumps(parts[0] if len(parts) == 1 else list(parts)).encode()).decode()


@pytest.mark.parametrize("text", [None, 3, b"a", "x", token(1), token([]), token("monoid.associativity", 2, [])])
def test_tokens_that_are_none(text):
    with pytest.raises(laws.LawError, match="this is no replay token"):
        laws.replay(text, PLUS)


@pytest.mark.parametrize(
    ("recipe", "text"),
    [
        ([], r"takes 3 arguments, and the token has 0"),
        ([["identity"]] * 4, r"takes 3 arguments, and the token has 4"),
        ([[], ["identity"], ["identity"]], r"a: \[\] is no state"),
        ([["identity"], ["lift"], ["identity"]], r"b: \['lift'\] is no state"),
        ([["identity"], ["lift", "q"], ["identity"]], r"b: \['lift', 'q'\] is no state"),
        ([["identity"], ["jump"], ["combine", ["identity"]]], r"b: \['jump'\] is no state"),
    ],
)
def test_tokens_of_other_arguments(recipe, text):
    with pytest.raises(laws.LawError, match=f"(?s)token holds no arguments of monoid.associativity.*{text}") as caught:
        laws.replay(token("monoid.associativity", "f32[]", recipe), PLUS)
    assert caught.value.law is None


def test_tokens_of_arguments_are_replayed():
    laws.replay(token("monoid.associativity", "f32[]", [["lift", 1.0], ["identity"], ["identity"]]), PLUS)
    with pytest.raises(laws.LawError, match="no option examples"):
        laws.replay(token("monoid.associativity", "f32[]", []), PLUS, examples=3)


def test_tokens_of_listed_operands_hold_what_they_stand_for():
    wrong = tp.Map(unseen(lambda x: x - jnp.max(x)), "a -> a", name="looks aside")
    types = [tp.TensorType((3,))]
    values = [(np.zeros(3, np.float32),), (np.arange(3, dtype=np.float32),)]
    failed = laws.examine(wrong, types, values=values, laws="map.split").failed["map.split"]
    assert "operands = values[1]" in str(failed)
    with pytest.raises(laws.LawError, match=r"(?s)LAW map.split FAILED.*operands = values\[0\]"):
        laws.replay(failed.token, wrong, types, values=values[::-1])
    for others in (values[:1], None):
        with pytest.raises(laws.LawError, match="operands that are not listed in values= here") as caught:
            laws.replay(failed.token, wrong, types, values=others)
        assert caught.value.law is None


def test_tokens_of_given_arguments_of_plans(mesh8):
    graph = tp.trace(tp.Map(jnp.sin), tp.TensorType({"a": 8}))
    assert "plan.values" in laws.assert_equivalent(tp.plan(graph, mesh8, {}), grads=False, args=[np.ones(8)]).held


def test_strategies_of_nothing_that_is_known(mesh8):
    graph = tp.trace(tp.Map(jnp.sin), tp.TensorType({"a": 8}))
    with pytest.raises(laws.LawError, match=r"(?s)plans are of a graph.*got Map.*tp.trace"):
        laws.plans(tp.Map(jnp.sin), mesh8)
    with pytest.raises(tp.MeshError, match="a plan needs a mesh"):
        laws.plans(graph, "x")
    with pytest.raises(laws.LawError, match=r"(?s)only boxes are cut.*got str"):
        laws.partitions("box")
    with pytest.raises(laws.LawError, match=r"laws.partitions: most is no number"):
        laws.partitions(tp.Box((0,), (3,)), most=0)
    with pytest.raises(laws.LawError, match=r"(?s)from one tp.TensorType to another.*got int"):
        laws.arrows(3, 4)
    with pytest.raises(laws.LawError, match=r"laws.graphs: most is no number"):
        laws.graphs(most=-1)
    with pytest.raises(laws.LawError, match=r"(?s)laws.graphs: `shapes` are no sizes.*got      3"):
        laws.graphs(shapes=3)


def makes(size):
    return tp.aggregators.TopK(size)


class Needs:
    def __init__(self, size):
        self.size = size


def test_functions_are_programs():
    refused(r"(?s)cannot be traced.*taken as a program.*has no `sum`.*tp.Map", lambda x: x.sum(0), [F32])
    refused(r"(?s)which operands `makes` takes.*has to be called first.*tp.laws.given", makes)
    refused(r"(?s)no law is called 'semantic'.*`makes` is a function.*has to be called first", makes, laws="semantic")
    refused(r"(?s)`Needs`: it is a class, and cannot be made.*Needs\(\.\.\.\)", Needs)
    sine = laws.examine(lambda x: tp.Map(jnp.sin)(x), [tp.TensorType((3,))], laws="map.split", examples=2)
    assert sine.held == ("map.split",)


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        (lambda: laws.known_failing("monoid.frame", 3), r"the law and the reason are text"),
        (lambda: laws.values(F32, elements=3), r"elements= is no list.*got int"),
        (lambda: laws.values(F32, special=3), r"special= is no list"),
        (lambda: laws.parse(3), r"cannot read 3"),
        (lambda: laws.assert_equivalent(3), r"this is no plan.*got int"),
        (lambda: laws.states(PLUS, examples=3), r"there is no option examples"),
        (lambda: laws.mutants(PLUS, examples=0), r"is no number to count with"),
    ],
)
def test_arguments_that_are_none(ask, text):
    with pytest.raises(laws.LawError, match=f"(?s){text}"):
        ask()
