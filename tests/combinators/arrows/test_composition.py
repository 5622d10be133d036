"""Composition of arrows: what it computes, its laws on arrays, and what does not compose."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import combinators as tp
from combinators import CompositionError, Either
from combinators.arrows.arrow import Arrow

SIN, COS, EXP = (tp.Map(function) for function in (jnp.sin, jnp.cos, jnp.exp))
SUB = tp.Map(jnp.subtract)
MATMUL = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)
X, Y, Z = (jnp.asarray(np.float32(np.random.default_rng(number).normal(size=(3, 3)))) for number in range(3))

AnyArrow = Arrow[Any, Any]


def same(left: Any, right: Any) -> None:
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("arrow", "args", "expected"),
    [
        (SIN >> COS, (X,), np.cos(np.sin(X))),
        (SIN * COS, (X, Y), (np.sin(X), np.cos(Y))),
        (SIN & COS, (X,), (np.sin(X), np.cos(X))),
        ((SIN & COS) >> SUB, (X,), np.sin(X) - np.cos(X)),
        ((SUB * SIN) >> SUB, (X, Y, Z), X - Y - np.sin(Z)),
        (SIN.first(), (X, Y), (np.sin(X), Y)),
        (SIN.second(), (X, Y), (X, np.sin(Y))),
        (SUB.first(), (X, Y, Z), (X - Y, Z)),
        (tp.identity, (X,), X),
        (SIN >> tp.identity, (X,), np.sin(X)),
        (tp.identity >> SIN, (X,), np.sin(X)),
        (MATMUL.bind(Y), (X,), X @ Y),
        (SIN | COS, (Either(jnp.array(True), X, Y),), np.sin(X)),
        (SIN | COS, (Either(jnp.array(False), X, Y),), np.cos(Y)),
        (SIN | COS, (Either(X > 0, X, Y),), np.where(X > 0, np.sin(X), np.cos(Y))),
        (SIN.left() >> (COS | EXP), (Either(jnp.array(True), X, Y),), np.cos(np.sin(X))),
        (SIN.right() >> (COS | EXP), (Either(jnp.array(False), X, Y),), np.exp(np.sin(Y))),
    ],
)  # fmt: skip
def test_arrows_compute(arrow: AnyArrow, args: tuple[Any, ...], expected: Any) -> None:
    same(arrow(*args), expected)


@pytest.mark.parametrize(
    ("left", "right", "args"),
    [
        ((SIN >> COS) >> EXP, SIN >> (COS >> EXP), (X,)),
        ((SIN * COS) * EXP, SIN * (COS * EXP), (X, Y, Z)),
        ((SIN & COS) & EXP, SIN & (COS & EXP), (X,)),
        ((SIN * COS) >> (EXP * SIN), (SIN >> EXP) * (COS >> SIN), (X, Y)),
        ((SIN >> COS).first(), SIN.first() >> COS.first(), (X, Y)),
        ((SIN & COS).first(), (SIN & COS) * tp.identity, (X, Y)),
        (SIN * COS, SIN.first() >> COS.second(), (X, Y)),
        (tp.identity.first(), tp.identity * tp.identity, (X, Y)),
        (tp.identity & tp.identity, tp.Map(lambda x: x, name="copy") & tp.identity, (X,)),
    ],
)
def test_laws_of_arrows(left: AnyArrow, right: AnyArrow, args: tuple[Any, ...]) -> None:
    same(left(*args), right(*args))


def test_compositions_of_one_meaning_have_one_key() -> None:
    kind = tp.TensorType({"a": 2})
    assert tp.trace((SIN >> COS) >> EXP, kind).key == tp.trace(SIN >> (COS >> EXP), kind).key


def test_composition_binds_tighter_than_fan_out() -> None:
    same((SIN & COS >> EXP)(X), (np.sin(X), np.exp(np.cos(X))))


def test_the_dead_payload_of_a_choice_is_never_seen() -> None:
    poison = jnp.full((3, 3), jnp.nan)
    assert not np.isnan((SIN | COS)(Either(jnp.array(True), X, poison))).any()


def test_feedback_runs_along_a_dimension() -> None:
    step = tp.program(lambda x, total: (x - total, total + x))
    xs = jnp.arange(1.0, 6.0)
    outputs, final = step.feedback("t")(xs, jnp.float32(0))
    np.testing.assert_array_equal(outputs, [1, 1, 0, -2, -5])
    assert final == 15


def test_feedback_takes_the_dimension_wherever_it_stands() -> None:
    step = tp.program(lambda x, total: (x + total, x + total))
    program = tp.program("row t, row -> t row, row")(step.feedback("t"))
    xs = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    outputs, final = program(xs, np.zeros(2, np.float32))
    np.testing.assert_array_equal(outputs, np.cumsum(xs, 1).T)
    np.testing.assert_array_equal(final, xs.sum(1))


def test_gradients_flow_through_every_combinator() -> None:
    arrow = (((SIN & COS) >> SUB) * EXP) >> MATMUL.bind(Y).first() >> SUB

    def reference(x: Any, z: Any, y: Any) -> Any:
        return (jnp.sin(x) - jnp.cos(x)) @ y - jnp.exp(z)

    for argument in (0, 1):
        ours = jax.jit(jax.grad(lambda *args: arrow(*args).sum(), argnums=argument))(X, Z)
        theirs = jax.jit(jax.grad(lambda *args: reference(*args, Y).sum(), argnums=argument))(X, Z)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_bound_types_stand_for_arrays_that_do_not_exist_yet() -> None:
    arrow = MATMUL.bind(tp.TensorType({"e": 3, "m": 5}))
    graph = tp.trace(arrow, tp.TensorType({"b": 2, "e": 3}))
    assert graph.type_of(graph.outputs[0][1]) == tp.TensorType({"b": 2, "m": 5})


TWO = tp.Map(jnp.sin, "a b -> a b")
ONE = tp.Map(jnp.cos, "a -> a")
SPLIT = tp.Map(lambda x: x.reshape(4, -1), "[x] -> h x2", sizes={"h": 4, "x2": 2}, name="split")
EIGHT = tp.Map(lambda x: x, "h x2 -> h x2", sizes={"h": 8}, name="eight")


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (
            lambda: TWO >> ONE,
            "cannot compose `cos` after `sin`.\n"
            "  `sin` gives (a, b)\n"
            "  `cos` takes (a); they differ in rank, 2 and 1\n"
            "  Change the sizes or put a tp.rearrange between them.",
        ),
        (
            lambda: SPLIT >> EIGHT,
            "cannot compose `eight` after `split`.\n"
            "  `split` gives (h=4, x2=2)\n"
            "  `eight` takes (h=8, x2); they differ at `h`\n"
            "  Change the sizes or put a tp.rearrange between them.",
        ),
        (
            lambda: TWO >> MATMUL,
            "cannot compose `matmul` after `sin`.\n"
            "  `sin` gives 1 result\n"
            "  `matmul` takes 2 operands\n"
            "  Fan out with `&`, or fix operands of `matmul` with bind.",
        ),
        (
            lambda: TWO & MATMUL,
            "cannot fan out to `sin` and `matmul`.\n"
            "  they take 1 and 2 operands\n"
            "  Make them take the same operands, or use `*`.",
        ),
        (
            lambda: tp.program(lambda *xs: xs) * tp.program(lambda *xs: xs),
            "`lambda * lambda` cannot tell whose operands are whose\n"
            "  neither arrow says how many operands it takes\n"
            "  Give one of them a signature.",
        ),
        (
            lambda: SIN >> 3,  # pyright: ignore[reportOperatorIssue]
            "only arrows compose\n"
            "  got int: 3\n"
            "  Wrap a function of arrays in tp.Map, or a function of values in tp.program.",
        ),
        (
            lambda: MATMUL.bind(X, Y, Z),
            "cannot bind 3 operands of `matmul`, which takes 2\n"
            "  Bind at most as many as it takes; the last ones are bound.",
        ),
        (
            lambda: (SIN * COS)(X),
            "`sin * cos` takes 2 operands, got 1\n  Pass the operands of both arrows one after the other.",
        ),
        (
            lambda: (SIN | COS)(X),
            "`sin | cos` takes one tp.Either\n  got Value\n  Pass tp.Either(is_left, left, right).",
        ),
        (
            lambda: ((SIN & COS) | SIN)(Either(jnp.array(True), X, Y)),
            "`sin & cos | sin` cannot choose between results of different structures\n"
            "  left  PyTreeDef((*, *))\n"
            "  right PyTreeDef(*)\n"
            "  Make both arrows return the same structure.",
        ),
    ],
)  # fmt: skip
def test_what_does_not_compose_is_refused(build: Any, text: str) -> None:
    with pytest.raises(CompositionError) as caught:
        build()
    assert str(caught.value) == text


def test_a_step_without_a_next_state_is_refused() -> None:
    with pytest.raises(CompositionError) as caught:
        tp.program(lambda x, s: x + s).feedback("t")(jnp.ones(3), jnp.float32(0))
    assert str(caught.value) == (
        "`lambda.feedback` feeds the second result of its step back\n"
        "  the step gives 1 result\n"
        "  Return the output and the next state."
    )


def test_an_arrow_without_operands_needs_a_program() -> None:
    np.testing.assert_array_equal(MATMUL.bind(X, Y)(), MATMUL(X, Y))
    with pytest.raises(tp.GraphError) as caught:
        MATMUL.apply()
    assert str(caught.value) == (
        "`matmul` has no operand to find its program by\n  Pass at least one value of the program."
    )
