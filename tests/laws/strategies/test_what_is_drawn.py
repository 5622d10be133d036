"""What is drawn: values in their range, states by operations, exact partitions, programs that are what they say."""

from __future__ import annotations

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import laws
import tapestry_jax as tp
from tests.thoroughly import some

F32, I32 = jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((), jnp.int32)
FEW = settings(max_examples=25, suppress_health_check=list(hypothesis.HealthCheck), derandomize=True, database=None)


@given(laws.values({"weight": F32, "token": tp.TensorType({"seq": 3}, jnp.int32)}, min=0, max=9))
@FEW
def test_values_lie_in_their_range(drawn):
    assert (drawn["weight"].dtype, drawn["weight"].shape) == (np.float32, ())
    assert (drawn["token"].dtype, drawn["token"].shape) == (np.int32, (3,))
    assert all(np.all((leaf >= 0) & (leaf <= 9)) for leaf in drawn.values())


def test_values_reach_what_they_should():
    def found(condition, **options):
        return hypothesis.find(laws.values(F32, **options), condition, settings=settings(FEW, max_examples=1000))

    assert found(lambda x: x == -np.inf, special=[-np.inf]) == -np.inf
    assert found(lambda x: abs(x) > 100) > 1
    assert found(lambda x: 0 < abs(x) < 1e-2) < 1
    assert found(lambda x: x == 0.25, min=0.0, max=0.25) == 0.25
    assert found(lambda x: x == 7, elements=[7.0, 8.0]) == 7


@given(laws.values(jax.ShapeDtypeStruct((20, 30), jnp.bfloat16), max=-1))
@FEW
def test_large_arrays_are_filled(drawn):
    assert drawn.shape == (20, 30)
    assert drawn.dtype == jnp.bfloat16
    assert np.all(drawn.astype(np.float32) <= -1)


def test_values_without_sense_are_refused():
    with pytest.raises(laws.LawError, match="no number lies between 2 and 1"):
        laws.values(F32, min=2, max=1)
    with pytest.raises(laws.LawError, match="no type of arrays"):
        laws.values("float32")


def root(x):
    return jnp.sqrt(x)


def test_constraint_makes_a_piece_lawful():
    """The root of a sum of squares adds no negative numbers."""
    norm = tp.Monoid(0.0, lambda a, b: jnp.sqrt(a * a + b * b), commutative=True, name="Norm")
    with pytest.raises(laws.LawError, match="identity"):
        laws.assert_lawful(norm, types=[F32], laws=["left_identity"])
    positive = laws.values(F32, min=0, max=100)
    asked = ["left_identity", "commutativity"]
    assert laws.assert_lawful(norm, values=positive, laws=asked, examples=some(50)).held


def test_values_are_lifted_where_there_is_a_lift():
    aggregator = tp.Aggregator(lambda x: jnp.log(x), tp.monoids.Sum, jnp.exp, name="Product by logarithms")
    between, asked = laws.values(F32, min=1, max=4), ["chunks", "associativity"]
    report = laws.assert_lawful(aggregator, values=between, laws=asked, examples=some(50))
    assert set(report.held) == {"aggregator.chunks", "monoid.associativity"}
    broken = tp.Monoid(0.0, lambda a, b: a - b, name="Difference")
    with pytest.raises(laws.LawError, match=r"a = lift\("):
        laws.assert_lawful(broken, lift=root, values=laws.values(F32, min=1), laws="associativity")


def test_operands_of_arrows_are_drawn_from_values():
    lookup = tp.Map(lambda table, row: table[row], "[v] e, b -> b e", name="lookup")
    table = jax.ShapeDtypeStruct((6, 2), jnp.float32)
    rows = jax.ShapeDtypeStruct((3,), jnp.int32)
    drawn = st.tuples(laws.values(table), laws.values(rows, min=0, max=5))
    assert "map.footprint" in laws.assert_lawful(lookup, [table, rows], values=drawn, examples=some(9)).held
    wrong = tp.Map(lambda table, row: table[row] + jnp.max(row), "[v] e, b -> b e", name="looks aside")
    with pytest.raises(laws.LawError, match=r"operands = \[\[") as caught:
        laws.assert_lawful(wrong, [table, rows], values=drawn, laws="map.split", shrink=False)
    with pytest.raises(laws.LawError, match=r"LAW map.split FAILED"):
        laws.replay(str(caught.value.token), wrong, [table, rows], values=drawn)


@given(laws.states(tp.monoids.Moments, lift=tp.aggregators.Moments().lift))
@FEW
def test_states_are_reached_by_operations(state):
    count, _, squares, *_ = state
    assert squares >= 0
    assert 0 <= count <= 4


def test_states_of_aggregators_and_of_nothing():
    hypothesis.find(laws.states(tp.aggregators.Mean()), lambda state: state[1] == 3)
    with pytest.raises(laws.LawError, match="has no states"):
        laws.states(tp.Map(jnp.sin))


@given(laws.partitions(tp.Box((-2, 0), (5, 3))))
@FEW
def test_partitions_cover_exactly(pieces):
    assert tp.exact_cover(tp.Box((-2, 0), (5, 3)), [piece for piece in pieces if piece.size]).is_exact


def test_partitions_have_empty_pieces_at_both_ends():
    box = tp.Box((0,), (3,))
    both = lambda pieces: pieces[0].is_empty and pieces[-1].is_empty and len(pieces) > 2  # noqa: E731
    hypothesis.find(laws.partitions(box), both)
    with pytest.raises(hypothesis.errors.NoSuchExample):
        hypothesis.find(laws.partitions(box, empty=False), lambda pieces: any(p.is_empty for p in pieces), settings=FEW)


@given(laws.graphs(), st.integers(0, 99))
@settings(FEW, max_examples=8)
def test_programs_are_what_they_say(sentence, seed):
    assert laws.parse(str(sentence)) == sentence
    x = np.random.default_rng(seed).standard_normal(sentence.start.shape).astype(np.float32)
    expected = sentence.in_jnp(x)
    np.testing.assert_allclose(sentence.arrow(x), expected, rtol=1e-4, atol=1e-4, err_msg=str(sentence))
    assert sentence.end.shape == expected.shape


def test_sentences_print_and_are_read():
    text = "float32(a=4, b=3): softmax b; cumsum a; spread c=2; sum b"
    sentence = laws.parse(text)
    assert str(sentence) == text
    assert (sentence.end.names, sentence.end.shape) == (("a", "c"), (4, 2))
    assert [node.operation.name for node in sentence.graph.nodes[1:]] != []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("softmax b", "does not begin with a type"),
        ("float32(a): tanh", "are no sizes"),
        ("float32(a=2): jump", "`jump` is no step"),
        ("float32(a=2): sum", "too much or too little"),
        ("float32(a=2): sum b", "the axes here are a"),
        ("float32(a=2): spread a=2", "the axes here are a"),
    ],
)
def test_sentences_that_cannot_be_read(text, why):
    with pytest.raises(laws.LawError, match=why):
        laws.parse(text)


@given(laws.arrows(tp.TensorType({"a": 4, "b": 3}), tp.TensorType({"c": 2, "a": 4})))
@settings(FEW, max_examples=8)
def test_arrows_have_their_type(sentence):
    assert (sentence.end.names, sentence.end.shape) == (("c", "a"), (2, 4)), str(sentence)


def test_arrows_need_names():
    with pytest.raises(laws.LawError, match="no program is known between"):
        laws.arrows(tp.TensorType((3,)), tp.TensorType({"a": 3}))


PLANNED = "float32(a=5, b=8, c=3): cumsum a; mean b"


@pytest.fixture(scope="module")
def drawn_plans(mesh2x4):
    """Plans of one graph; what was planned once is not planned again."""
    return laws.plans(laws.parse(PLANNED).graph, mesh2x4)


def kinds(plan):
    return {type(item).__name__ for _, items in plan.entries for item in items}


def test_plans_are_drawn_of_every_kind(drawn_plans):
    seen, several = set(), set()

    @given(drawn_plans)
    @settings(FEW, max_examples=60)
    def draw(plan):
        plan.verify()
        seen.update(kinds(plan))
        several.add(str(plan.entries))

    draw()
    assert seen == {"str", "Striped", "Ring", "Chunks"}
    assert len(several) > 20


def test_halos_are_drawn_for_iterations(mesh2x4):
    smooth = tp.Map(
        lambda x: x[:-2] + x[2:], "(y+[dy]-1) x -> y x", boundary="periodic", sizes={"dy": 3}, name="smooth"
    )
    graph = tp.trace(tp.iterate(smooth, 4), tp.TensorType({"y": 16, "x": 2}))
    found = hypothesis.find(laws.plans(graph, mesh2x4), lambda plan: "Halo" in kinds(plan))
    assert [str(dim) for dim, _ in found.entries] == ["y"]


def test_plans_shrink_to_the_empty_one(drawn_plans):
    assert hypothesis.find(drawn_plans, lambda plan: True, settings=FEW).entries == ()
    chunked = hypothesis.find(drawn_plans, lambda plan: "Chunks" in kinds(plan), settings=FEW).entries
    assert chunked == (("a", (tp.chunks(2),)),)


AXES_ALONE = pytest.param({"str"}, marks=pytest.mark.thorough)  # They are in two of the others.


@pytest.mark.parametrize(
    "wanted",
    [
        AXES_ALONE,
        {"str", "Ring"},
        *(pytest.param(wanted, marks=pytest.mark.thorough) for wanted in ({"str", "Chunks"}, {"Striped"})),
    ],
    ids=lambda wanted: "-".join(sorted(wanted)),
)
def test_drawn_plans_are_equivalent(drawn_plans, wanted):
    plan = hypothesis.find(drawn_plans, lambda plan: kinds(plan) == wanted, settings=settings(FEW, max_examples=500))
    assert "plan.values" in laws.assert_equivalent(plan, grads=False).held
