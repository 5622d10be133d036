"""Loops until a condition holds, against loops in Python, SciPy and NumPy."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import bisect

import combinators as tp
from combinators import CompositionError, GraphError, TensorType
from combinators.graphs.difference import first_difference
from combinators.graphs.nodes import Loop
from tests.simulated.sampled import in_numpy

RNG = np.random.default_rng(0)
MATVEC = tp.einsum("i j, j -> i")
A = (0.1 * RNG.normal(size=(6, 6))).astype(np.float32)
B = RNG.normal(size=6).astype(np.float32)


def affine(**options: Any) -> Any:
    """`x = A x + b`, by iteration."""

    @tp.program("i j, i -> i, , ")
    def solve(a: Any, b: Any) -> Any:
        def step(x: Any) -> Any:
            return MATVEC(a, x.rename(i="j")) + b

        return tuple(tp.iterate(step, until=tp.unchanged(atol=1e-6), at_most=40, **options)(0 * b))

    return solve


def turns(a: Any, b: Any, count: int) -> Any:
    x = 0 * b
    for _ in range(count):
        x = a @ x + b
    return x


def test_until_takes_the_steps_of_a_python_loop() -> None:
    x, steps, converged = affine()(A, B)
    expected, count = 0 * B, 0
    while count < 40:
        before, expected, count = expected, A @ expected + B, count + 1
        if np.abs(expected - before).max() <= 1e-6:
            break
    assert (int(steps), bool(converged)) == (count, True)
    np.testing.assert_allclose(x, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(x, np.linalg.solve(np.eye(6) - A, B), rtol=1e-4, atol=1e-5)


def test_until_bisects_as_scipy_does() -> None:
    def step(low: Any, high: Any) -> Any:
        middle = (low + high) / 2
        is_left = middle * middle * middle > 5.0
        where = tp.Map(jnp.where)
        return where(is_left, low, middle), where(is_left, middle, high)

    found = tp.iterate(step, until=lambda low, high: high - low < 1e-4, at_most=60)(jnp.float32(0), jnp.float32(4))
    low, high = found.state
    assert float(low) <= bisect(lambda x: x**3 - 5, 0, 4) <= float(high)
    assert (int(found.steps), bool(found.converged)) == (16, True)


@pytest.mark.parametrize(
    ("start", "most", "steps", "converged"), [(0.5, 9, 0, True), (9.0, 0, 0, False), (9.0, 3, 3, False)]
)
def test_until_asks_before_the_first_turn_and_ends_at_most(
    start: float, most: int, steps: int, converged: bool
) -> None:
    found = tp.iterate(lambda x: x / 2, until=lambda x: x < 1.0, at_most=most)(jnp.float32(start))
    assert (float(found.state), int(found.steps), bool(found.converged)) == (start / 2**steps, steps, converged)


def test_until_ends_where_nothing_is_a_number() -> None:
    found = tp.iterate(lambda x: x / 2, until=lambda x: x < 1.0, at_most=7)(jnp.float32(jnp.nan))
    assert (int(found.steps), bool(found.converged)) == (7, False)


def test_until_unchanged_compares_trees_and_integers_exactly() -> None:
    half, all_ = tp.Map(lambda n: n // 2), tp.unchanged()

    def step(state: Any) -> Any:
        return {"n": half(state["n"]), "x": state["x"] * 0.0}

    state = {"n": jnp.array([8, 1, 0], jnp.int32), "x": jnp.array([1.0, jnp.inf])}
    found = tp.iterate(step, until=all_, at_most=9)(state | {"x": jnp.ones(2)})
    assert found.state["n"].tolist() == [0, 0, 0] and int(found.steps) == 5
    # 0 * inf is no number, and never equals itself.
    assert int(tp.iterate(step, until=all_, at_most=9)(state).steps) == 9


def test_until_unchanged_is_never_said_of_a_step_to_infinity() -> None:
    """Its distance is infinite, and so is every share of it: NumPy's `isclose` says no."""
    found = tp.iterate(lambda x: x * 1e30, until=tp.unchanged(rtol=0.1), at_most=2)(jnp.ones(2))
    assert np.isinf(found.state).all() and (int(found.steps), bool(found.converged)) == (2, False)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.int8, jnp.uint8])
def test_until_unchanged_keeps_types(dtype: Any) -> None:
    found = tp.iterate(lambda x: tp.Map(jnp.minimum)(x, x * 0 + 3), until=tp.unchanged(rtol=0.1), at_most=5)
    state, steps, converged = found(jnp.arange(5, dtype=dtype))
    assert state.dtype == dtype and state.tolist() == [0, 1, 2, 3, 3]
    assert (int(steps), bool(converged)) == (2, True)


def test_until_nests_and_sees_values_around_it() -> None:
    @tp.program("i -> , ")
    def program(x: Any) -> Any:
        limit = tp.fold(tp.aggregators.Max(), "i -> ")(x)

        def outer(total: Any) -> Any:
            inner = tp.iterate(lambda y: y * 2, until=lambda y: y > limit, at_most=20)(total * 0 + 1)
            return total + inner.state

        found = tp.iterate(outer, until=lambda total: total >= 3 * limit, at_most=20)(limit * 0)
        return found.state, found.steps

    assert [float(each) for each in program(jnp.array([1.0, 5.0, 3.0]))] == [16.0, 2.0]


def test_until_every_cell_of_a_vmap_ends_by_itself() -> None:
    loop = tp.iterate(lambda x: x / 2, until=lambda x: x < 1.0, at_most=20)
    found = jax.vmap(lambda x: tuple(loop(x)))(jnp.array([0.5, 3.0, 100.0]))
    assert found[1].tolist() == [0, 2, 7]


def test_until_is_stored_and_keyed() -> None:
    kinds = TensorType({"i": 6, "j": 6}), TensorType({"i": 6})
    graph = tp.trace(affine(), *kinds)
    again = tp.Graph.from_json(graph.to_json())
    assert again.key == graph.key
    np.testing.assert_array_equal(again(A, B)[0], graph(A, B)[0])
    (loop,) = (node for node in graph.nodes if isinstance(node, Loop))
    plain = type(graph)(
        tuple(Loop(**{**vars_of(node), "until": False}) if node is loop else node for node in graph.nodes),
        *(graph.outputs, graph.named, graph.in_tree, graph.out_tree, graph.name, graph.suggested),
    )
    assert plain.key != graph.key
    told = ["`iterate` ends otherwise", "by a condition, expected after all turns"]
    assert first_difference(graph, plain, ("it", "the other")) == told
    assert "at most 40 times" in graph.show()


def vars_of(loop: Loop) -> dict[str, Any]:
    return {name: getattr(loop, name) for name in Loop.__dataclass_fields__}


# Derivatives


def test_until_derivative_forwards_is_that_of_the_turns_taken() -> None:
    steps = int(affine()(A, B)[1])
    ours = in_numpy(lambda *tangents: jax.jvp(lambda a, b: affine()(a, b)[0], (A, B), tangents)[1])(A, B)
    theirs = in_numpy(lambda *tangents: jax.jvp(lambda a, b: turns(a, b, steps), (A, B), tangents)[1])(A, B)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_until_has_no_gradient_unless_asked_for() -> None:
    with pytest.raises(GraphError) as caught:
        jax.grad(lambda b: affine()(A, b)[0].sum())(B)
    assert str(caught.value) == (
        "`iterate` has no gradient: how many turns it takes depends on data\n"
        "  derivatives forwards (jax.jvp) are those of the turns that it takes\n"
        '  Write tp.iterate with derivative="unrolled" (all turns, masked), derivative="implicit" with terms= '
        "(a fixed point), or put jax.lax.stop_gradient behind it."
    )


def test_until_gradients_pass_a_loop_that_the_loss_does_not_need() -> None:
    def loss(b: Any) -> Any:
        x, steps, _ = affine()(A, b)
        return (b * b).sum() * steps + jax.lax.stop_gradient(x).sum()

    steps = int(affine()(A, B)[1])
    np.testing.assert_allclose(in_numpy(jax.grad(loss))(B), 2 * steps * B, rtol=1e-6)


@pytest.mark.parametrize("options", [{"derivative": "unrolled"}, {"derivative": "implicit", "terms": 30}])
def test_until_gradients_are_those_of_the_equation(options: dict[str, Any]) -> None:
    def solution(a: Any, b: Any) -> Any:
        return (jnp.linalg.solve(jnp.eye(6) - a, b) ** 2).sum()

    program = affine(**options)
    ours = in_numpy(jax.grad(lambda a, b: (program(a, b)[0] ** 2).sum(), (0, 1)))(A, B)
    for left, right in zip(ours, in_numpy(jax.grad(solution, (0, 1)))(A, B), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)
    assert int(program(A, B)[1]) == int(affine()(A, B)[1])


def test_until_what_a_step_hands_on_is_a_parameter_of_its_fixed_point() -> None:
    """Once its derivative was 0, since it is carried: as the first state has none."""

    def step(x: Any, a: Any, b: Any) -> Any:
        return MATVEC(a, x.rename(i="j")) + b, a, b

    @tp.program("i j, i -> i")
    def carrying(a: Any, b: Any) -> Any:
        loop = tp.iterate(step, until=tp.unchanged(atol=1e-6), at_most=40, derivative="implicit", terms=30)
        return loop(0 * b, a, b).state[0]

    def solution(a: Any, b: Any) -> Any:
        return (jnp.linalg.solve(jnp.eye(6) - a, b) ** 2).sum()

    ours = in_numpy(jax.grad(lambda a, b: (carrying(a, b) ** 2).sum(), (0, 1)))(A, B)
    for left, right in zip(ours, in_numpy(jax.grad(solution, (0, 1)))(A, B), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)


def test_until_unrolled_gradients_stay_numbers_where_the_end_has_none() -> None:
    def step(x: Any) -> Any:
        return x - tp.Map(jnp.sqrt)(x)  # ends at 0, where the square root has no slope

    loop = tp.iterate(step, until=lambda x: x <= 0.0, at_most=4, derivative="unrolled")
    assert float(jax.grad(lambda x: loop(x).state)(jnp.float32(1.0))) == 0.5
    assert float(loop(jnp.float32(1.0)).steps) == 1


def test_until_unrolled_carries_several_and_constants() -> None:
    def step(x: Any, y: Any, c: Any) -> Any:
        return y, c * x

    loop = tp.iterate(step, until=lambda x, y: x + y > 20.0, at_most=9, derivative="unrolled")
    (x, y), steps, _ = loop(jnp.float32(1), jnp.float32(2), jnp.float32(3))
    assert (float(x), float(y), int(steps)) == (9.0, 18.0, 4)
    slope = jax.grad(lambda c: loop(jnp.float32(1), jnp.float32(2), c).state[1])(jnp.float32(3))
    assert float(slope) == 12.0  # of 2 c^2


# Bad input


@pytest.mark.parametrize(
    ("until", "text"),
    [
        (lambda x: x > 1.0, "until= of `iterate` gives no single flag"),
        (lambda x: True, "until= of `iterate` gives no single flag"),
        (lambda *xs: True, "until= of `iterate` takes any number of operands, the step takes 1"),
        (lambda x, y: True, "until= of `iterate` takes 2 operands, the step takes 1"),
    ],
)
def test_until_refuses_what_is_no_flag(until: Any, text: str) -> None:
    with pytest.raises(CompositionError, match=text.replace("`", ".")):
        tp.iterate(lambda x: x, until=until, at_most=3)(jnp.ones(3))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"n": 3, "until": tp.unchanged(), "at_most": 3}, "a number of turns, or a condition"),
        ({"n": 3, "at_most": 3}, "takes at_most=, derivative= and terms= with until="),
        ({"until": tp.unchanged()}, r"Write at_most=: tp\.iterate\(step, until=condition, at_most=100\)\."),
        (
            {"until": tp.unchanged(), "at_most": 2**31},
            "at_most= of tp.iterate repeats more often than JAX counts\n  got 2147483648, at most 2",
        ),
        ({"until": tp.unchanged(), "at_most": -1}, "at_most= of tp.iterate repeats a whole number of times"),
        ({"until": 3, "at_most": 3}, "until= of tp.iterate is no condition"),
        ({"until": tp.unchanged(), "at_most": 3, "derivative": "reverse"}, "derivative= of tp.iterate is none"),
        ({"until": tp.unchanged(), "at_most": 3, "derivative": "implicit"}, "takes terms= with derivative="),
        ({"until": tp.unchanged(), "at_most": 3, "terms": 3}, "takes terms= with derivative="),
    ],
)
def test_until_refuses_options_that_do_not_belong_together(options: dict[str, Any], text: str) -> None:
    with pytest.raises(GraphError, match=text):
        tp.iterate(lambda x: x, **options)


@pytest.mark.parametrize("given", [-1.0, float("nan"), "1e-6", True])
def test_until_unchanged_refuses_what_is_no_tolerance(given: Any) -> None:
    with pytest.raises(GraphError, match=r"atol= of tp\.unchanged is no tolerance"):
        tp.unchanged(atol=given)


@pytest.mark.parametrize(
    "options",
    [{}, {"derivative": "unrolled"}, {"derivative": "implicit", "terms": 2}],
    ids=["forwards", "all", "terms"],
)
@pytest.mark.parametrize(
    ("step", "told"),
    [
        (lambda x, y: (x, y.astype(jnp.float16)), "carry 1 comes out as another type"),
        (lambda x, y: (y, tp.fold(tp.aggregators.Sum(), "i -> ")(x)), "carry 1 comes out as another type"),
        (lambda x, y: (tp.Map(lambda x: x[:1], "[i] -> 1")(x), y), "carry 0 comes out as another type"),
        (lambda x, y: [x, y], "the carry comes out with another structure"),
        (lambda x, y: None, "the carry comes out with another structure"),
        (lambda x, y: (x, y, x), "the carry comes out with another structure"),
        (lambda x, y: (x, 1.0), "operand 1 of `iterate/result` is not a value of the program"),
    ],
)
def test_until_refuses_a_carry_that_changes_its_type(step: Any, told: str, options: dict[str, Any]) -> None:
    """Masked turns choose between both states, which would make one type of two: numbers of cells among them."""
    loop = tp.iterate(step, until=tp.unchanged(), at_most=3, **options)
    with pytest.raises((CompositionError, GraphError), match=re.escape(told)):
        loop(jnp.ones(3), jnp.ones(3))


def test_until_refuses_to_carry_nothing() -> None:
    with pytest.raises(CompositionError, match="takes a carry, and constants"):
        tp.iterate(lambda: 1, until=tp.unchanged(), at_most=3)()
