"""Arrows have the laws of categories, products and choice, and every law refuses a planted mutant."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import laws
from combinators import Arrow, Map, Reduce, TensorType, aggregators, fold, identity, monoids, program
from tests.laws.unseen import unseen
from tests.thoroughly import some, thoroughly


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


SIN, COS, NEGATIVE = Map(jnp.sin), Map(jnp.cos), Map(jnp.negative)
matmul = Reduce(jnp.matmul, "i k, k n -> i n", monoids.Sum)


LAWFUL = {
    "fold with two operands": (matmul, [f32(4, 5), f32(5, 3)]),
    "several results": (
        fold(aggregators.Moments(4) if thoroughly() else aggregators.MinMax(), "row col -> col"),
        [f32(6, 3)],
    ),
    "bound": (SIN >> matmul.bind(jnp.arange(9.0).reshape(3, 3)), [f32(4, 3)]),
    "names": (SIN >> Map(jax.nn.softmax, "b [c] -> b [c]"), [TensorType({"batch": 4, "class": 3})]),
}


def arrow_of(function):
    return program(function)


def negated_last(*values):
    return (*values[:-1], NEGATIVE(values[-1]))


def swapped(y, c):
    return c, y


def negated_floats(tree):
    return jax.tree.map(lambda v: v if v.dtype == jnp.bool_ else NEGATIVE(v), tree)


class Wrong(Arrow):
    """The sine, until it is combined."""

    name, arity = "wrong", 1

    def apply(self, *values):
        return SIN.apply(*values)


class Forgetful(Wrong):
    """Another function every time it is applied."""

    def __init__(self):
        self.count = 0

    def apply(self, *values):
        self.count += 1
        return (SIN if self.count % 2 else COS).apply(*values)


class Unending(Wrong):
    def __rshift__(self, other):
        return Deaf(SIN >> other) if other is not identity else NEGATIVE


class Deaf(Wrong):
    """A composition that nothing can be put behind."""

    def __init__(self, arrow):
        self.arrow = arrow

    def apply(self, *values):
        return self.arrow.apply(*values)

    def __rshift__(self, other):
        del other
        return self

    def first(self):
        return self * NEGATIVE


class OnlySecond(Wrong):
    def __rshift__(self, other):
        return other


class Swapping(Wrong):
    def first(self):
        return (SIN * identity) >> arrow_of(swapped)

    def second(self):
        return SIN * identity

    def __mul__(self, other):
        return (SIN * other) >> arrow_of(swapped)

    def __and__(self, other):
        return (SIN & other) >> arrow_of(swapped)


class Touching(Wrong):
    """Changes what passes by."""

    def first(self):
        return SIN * NEGATIVE

    def __mul__(self, other):
        return (SIN * other) >> arrow_of(negated_last)


class Inconsistent(Wrong):
    """Lets nothing pass by unchanged, and mixes up pairs, but is right beside another arrow."""

    def first(self):
        return SIN * NEGATIVE

    def __and__(self, other):
        return (SIN & other) >> arrow_of(swapped)


def differently_compiled(x):
    """Another function where there are no numbers yet."""
    try:
        return jnp.sin(np.asarray(x))
    except jax.errors.TracerArrayConversionError:
        return jnp.cos(x)


class Restarting(Arrow):
    """A running sum, whose loop forgets the state it should start from, or gives back."""

    name, arity = "restarting", 2

    def apply(self, x, state):
        return SIN(x + state), x + state

    def feedback(self, over):
        return program(self._forgetful(arrow_of(self.apply).feedback(over)))

    def _forgetful(self, loop):
        def run(xs, state):
            ys, _ = loop.apply(xs, state)
            return ys, state

        return run


@jax.custom_batching.custom_vmap
def wrongly_mapped(x):
    return jnp.sin(x)


@wrongly_mapped.def_vmap
def _(size, batched, x):
    del size, batched
    return jnp.cos(x), True


class BothCases(Wrong):
    """Acts on a case whether it counts or not."""

    def left(self):
        return SIN.left() >> arrow_of(lambda case: case._replace(right=negated_floats(case.right)))

    def right(self):
        return SIN.right() >> arrow_of(lambda case: case._replace(left=negated_floats(case.left)))

    def __or__(self, other):
        return arrow_of(lambda case: SIN.apply(case.left))


class Negating(Wrong):
    def left(self):
        return (SIN >> NEGATIVE).left()

    def __or__(self, other):
        return (SIN | other) >> NEGATIVE


class Leaking(Wrong):
    """Adds nothing of the dead case, but a NaN times 0 is a NaN."""

    def __or__(self, other):
        def chosen(case):
            left, right = SIN.apply(case.left), other.apply(case.right)
            flag = Map(lambda f: f.astype(jnp.float32))(case.is_left)
            return flag * left + (1 - flag) * right

        return arrow_of(chosen)


MUTANTS = {
    "arrow.left_identity": Forgetful(),
    "arrow.right_identity": Unending(),
    "arrow.associativity": Unending(),
    "arrow.composition": OnlySecond(),
    "arrow.first": Swapping(),
    "arrow.first_projection": Swapping(),
    "arrow.first_composition": Unending(),
    "arrow.first_exchange": Touching(),
    "arrow.first_association": Touching(),
    "arrow.second": Swapping(),
    "arrow.parallel": Swapping(),
    "arrow.parallel_association": Touching(),
    "arrow.fanout": Swapping(),
    "arrow.interchange": Touching(),
    "arrow.first_parallel": Inconsistent(),
    "arrow.pure": Unending(),
    "arrow.fanout_parallel": Inconsistent(),
    "arrow.fanout_projection": Swapping(),
    "arrow.fanout_composition": Swapping(),
    "arrow.eager": Map(differently_compiled, "n -> n", name="differently compiled"),
    "arrow.transformations": Map(wrongly_mapped, "n -> n", name="wrongly mapped"),
    "choice.left_case": BothCases(),
    "choice.right_case": BothCases(),
    "choice.left_composition": Negating(),
    "choice.left_exchange": BothCases(),
    "choice.left_association": BothCases(),
    "choice.fanin": BothCases(),
    "choice.fanin_composition": Negating(),
    "choice.dead_payload": Leaking(),
}


FEEDBACK = [law.name for law in laws.catalogue if law.family == "feedback"]


@pytest.mark.parametrize("law", FEEDBACK)
def test_law_of_feedback_rejects_its_mutant(law):
    with pytest.raises(laws.LawError, match=f"LAW {law} FAILED"):
        laws.assert_lawful(Restarting(), [f32(3), f32(3)], laws=law, shrink=False, examples=10)


def test_step_is_lawful():
    step = program(lambda x, state: (SIN(x + state), x + state))
    assert laws.assert_lawful(step, [f32(3), f32(3)], laws="feedback", examples=3 if thoroughly() else 2).held == tuple(
        FEEDBACK
    )


def test_what_is_no_step_has_no_laws_of_feedback():
    report = laws.assert_lawful(matmul, [f32(4, 5), f32(5, 3)], laws=["arrow.first", "feedback"], examples=2)
    assert set(report.not_checked) == set(FEEDBACK)
    assert "is no step" in report.not_checked["feedback.sliding"]


# Whatever is bound is an operand that laws never see.
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] * (name == "bound")) for name in LAWFUL]
)
def test_arrows_are_lawful(name):
    arrow, types = LAWFUL[name]
    report = laws.assert_lawful(arrow, types, laws=["arrow", "choice"], examples=3, name=name)
    assert {"arrow.associativity", "arrow.first", "arrow.parallel"} <= set(report.held)
    assert ("choice.dead_payload" in report.held) == (len(types) == 1 and name != "several results"), str(report)


@pytest.mark.parametrize("law", MUTANTS)
def test_law_rejects_its_mutant(law):
    with pytest.raises(laws.LawError, match=f"LAW {law} FAILED"):
        laws.assert_lawful(MUTANTS[law], [f32(3)], laws=law, shrink=False, examples=10)


def test_every_law_of_arrows_has_a_mutant():
    assert set(MUTANTS) == {law.name for law in laws.catalogue if law.family in ("arrow", "choice")}


def test_mutants_are_the_sine_on_their_own():
    for arrow in MUTANTS.values():
        if not isinstance(arrow, Forgetful) and arrow.name != "differently compiled":
            assert jnp.allclose(arrow(jnp.arange(3.0)), jnp.sin(jnp.arange(3.0)))


def test_choice_that_looks_at_the_dead_payload_passes_every_other_law():
    others = [law.name for law in laws.catalogue if law.family == "choice" and law.name != "choice.dead_payload"]
    assert len(laws.assert_lawful(Leaking(), [f32(3)], laws=others, examples=some(9)).held) == len(others)


def test_operations_inside_a_program_are_checked():
    mixing = Map(unseen(lambda x: x - jnp.sum(x)), "n -> n", name="mixing")
    with pytest.raises(laws.LawError, match=r"LAW map.split FAILED  lambda/mixing"):
        laws.assert_lawful(program(lambda x: mixing(SIN(x))), [f32(4)], examples=5)
