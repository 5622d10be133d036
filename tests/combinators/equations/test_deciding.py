"""What takes one of several numbers, or a piece of a function, by what it is given, and what it took."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from combinators.equations.deciding import chosen_by, compares, decides
from combinators.equations.primitives import run_primitive

X = np.asarray([-1.5, 0.5, 2.5, np.nan], np.float32)
# By name: the function, its operand, and what it chooses of it.
DECIDING: dict[str, tuple[Any, Any, Any]] = {
    "a comparison": (lambda x: x > 1, X, [False, False, True, False]),
    "the larger": (lambda x: lax.max(x, 1 + 0 * x), X, [False, False, True, False]),
    "between two": (lambda x: lax.clamp(-1.0, x, 1.0), X, [0, 1, 2, 0]),
    "a sign": (jnp.sign, X, [-1, 1, 1, 0]),
    "a magnitude": (abs, X, [True, False, False, False]),
    "the whole number below": (lax.floor, X, [-2, 0, 2, 0]),
    "a whole number": (lambda x: lax.convert_element_type(x, jnp.int32), X[:3], [-1, 0, 2]),
    "a truth": (lambda x: lax.convert_element_type(x, bool), np.asarray([0, 2]), [False, True]),
    "a quotient": (lambda x: lax.div(x, jnp.int32(4)), np.asarray([3, 9], np.int32), [0, 2]),
    "a remainder": (lambda x: lax.rem(x, jnp.float32(2)), X, [0, 0, 1, 0]),
    "a place": (lambda x: lax.argmax(x, 0, jnp.int32), X[:3], 2),
    "the largest of rows": (lambda x: lax.reduce_max(x, (0,)), X[:3, None] * np.asarray([1, -1], np.float32), [2, 0]),
    "the largest so far": (lax.cummax, np.asarray([1, 3, 2, 4], np.float32), [True, True, False, True]),
    "an order": (lax.sort, np.asarray([3, 1, 2], np.float32), [1, 2, 0]),
    "one of two plateaus": (lax.logistic, X, [False, True, True, False]),
    "one of two plateaus, of complex numbers": (lax.tanh, X.astype(np.complex64), [False, True, True, False]),
    "the first of each window": (
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2,), (1,), "VALID"),
        np.asarray([3, 1, 2, 4], np.float32),
        [True, False, False],
    ),
    "the first of a window in padding": (
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2,), (1,), [(1, 0)]),
        np.asarray([3, 1, 2], np.float32),
        [False, True, False],
    ),
    "the first, reduced": (
        lambda x: lax.reduce(x, -jnp.inf, lambda a, b: jnp.where(a > b, a, b), (0,)),
        np.asarray([[3, 1], [2, 4]], np.float32),
        [True, False],
    ),
    "the largest ones": (lambda x: lax.top_k(x, 1), np.asarray([1, 3, 2], np.float32), [1]),
}
SMOOTH: dict[str, tuple[Any, Any]] = {
    "a sum": (lambda x: lax.reduce_sum(x, (0,)), X),
    "a quotient of floats": (lambda x: x / 3, X),
    "a wider type": (lambda x: lax.convert_element_type(x, jnp.float32), np.asarray([1, 2])),
    "the magnitude of complex numbers": (abs, X.astype(np.complex64)),
    "whether it is a number": (lambda x: x != x, X),
    "the largest of one": (lambda x: lax.reduce_max(x, (0,)), X[None]),
}


def last(function: Any, operand: Any) -> Any:
    return jax.make_jaxpr(function)(operand).jaxpr.eqns[-1]


@pytest.mark.parametrize("name", DECIDING)
def test_what_is_chosen(name: str) -> None:
    function, operand, expected = DECIDING[name]
    equation = last(function, operand)
    assert decides(equation)
    others = [1 + 0 * operand if name == "the larger" else getattr(each, "val", None) for each in equation.invars]
    operands = [operand if other is None else np.asarray(other) for other in others]
    operands[name == "between two"] = operand
    with np.errstate(all="ignore"):
        found = chosen_by(equation, operands, run_primitive(equation, operands))
    np.testing.assert_array_equal(found, expected)


def chosen(function: Any, *operands: Any) -> Any:
    equation = jax.make_jaxpr(function)(*operands).jaxpr.eqns[-1]
    assert decides(equation)
    return chosen_by(equation, operands, run_primitive(equation, list(operands)))


PLACES = np.asarray([[0], [1]], np.int32)


def test_what_stays_where_something_larger_is_written() -> None:
    numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    given = np.asarray([3, 1], np.float32), PLACES, np.asarray([2, 2], np.float32)
    found = chosen(lambda x, at, more: lax.scatter_max(x, at, more, numbers), *given)
    np.testing.assert_array_equal(found, [True, False])


@pytest.mark.parametrize("mode", ["clip", "fill", "promise_in_bounds"])
def test_what_is_looked_up_beyond_a_table(mode: str) -> None:
    numbers = lax.GatherDimensionNumbers((), (0,), (0,))
    table, places = np.asarray([3, 1], np.float32), np.asarray([[-1], [0], [5]], np.int32)

    def looked_up(x: Any, at: Any) -> Any:
        return lax.gather(x, at, numbers, (1,), mode=mode)

    if mode == "clip":
        np.testing.assert_array_equal(chosen(looked_up, table, places), [[-1], [0], [1]])
    else:
        assert not decides(jax.make_jaxpr(looked_up)(table, places).jaxpr.eqns[-1])


@pytest.mark.parametrize("name", SMOOTH)
def test_what_chooses_nothing(name: str) -> None:
    assert not decides(last(*SMOOTH[name]))


def test_what_holds_numbers_to_each_other() -> None:
    names = [name for name, (function, operand, _) in DECIDING.items() if compares(last(function, operand))]
    assert names == ["a comparison", "the larger", "between two"]
