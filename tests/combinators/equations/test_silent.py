"""Functions from which nothing comes back where nothing comes to them; plans are held to it in `lowering/on_device`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from combinators.equations.scanned import scan
from combinators.equations.silent import silent
from tests.ruled import odd
from tests.simulated.sampled import computed

Function = Callable[..., Any]
XS = np.array([[1.0, -2.0, 0.5], [0.0, 3.0, 2.0], [1.5, 1.0, -1.0], [2.0, 0.25, 1.0]], np.float32)


def merge(left: Any, right: Any) -> Any:
    """A product, a sum of it and something odd, and an integer."""
    return {"p": left["p"] * right["p"], "s": odd(left["p"]) + right["s"] * left["p"], "n": left["n"] + right["n"]}


def merge_by_choice(left: Any, right: Any) -> Any:
    """The same merge, written as a choice of two ways to it."""
    swapped = {name: right[name] * 1 for name in right}
    return jax.lax.cond(left["p"] > right["p"], merge, lambda *_: merge(left, swapped), left, right)


def states(xs: Any) -> Any:
    return {"p": xs, "s": xs * xs - 1, "n": jnp.ones(jnp.shape(xs), jnp.int32)}


def in_a_tree(merge: Function, xs: Any) -> Any:
    found = jax.lax.associative_scan(jax.vmap(merge), states(xs))
    return jnp.sum(found["p"] ** 2 * found["n"] + found["s"] ** 3)


def in_a_loop(merge: Function, xs: Any) -> Any:
    first, rest = (jax.tree.map(lambda leaf, at=at: leaf[at], states(xs)) for at in (0, slice(1, None)))
    last, found = scan(lambda carry, x: (merge(carry, x), carry["s"]), first, rest)
    return jnp.sum(last["p"] ** 2 + last["s"] ** 3) + jnp.sum(found**2)


def again(merge: Function, xs: Any) -> Any:
    return in_a_loop(jax.checkpoint(merge), xs)


@pytest.mark.parametrize("outer", [0, 1])
@pytest.mark.parametrize("program", [in_a_tree, in_a_loop, again])
def test_values_and_derivatives_of_every_order_are_those_of_the_function(program: Function, outer: int) -> None:
    def plain(xs: Any) -> Any:
        return program(merge, xs)

    def quiet(xs: Any) -> Any:
        return program(silent(merge, outer), xs)

    one = XS[:, :1] if outer else XS[:, 0]
    np.testing.assert_array_equal(computed(plain, one), computed(quiet, one))
    for first in (jax.jacfwd, jax.jacrev):
        found, expected = (computed(first(each), one) for each in (quiet, plain))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        for second in (jax.jacfwd, jax.jacrev):
            found, expected = (computed(second(first(each)), one) for each in (quiet, plain))
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("second", [jax.jacfwd, jax.jacrev])
def test_a_choice_of_many_at_once_has_its_derivatives(second: Function) -> None:
    # Of many a choice is no branch: JAX computes both ways, and stops what moves in one of them.
    xs = XS[:, 0]
    for order in (jax.jacrev, lambda each: second(jax.jacrev(each))):
        found = computed(order(lambda xs: in_a_tree(silent(merge_by_choice), xs)), xs)
        np.testing.assert_allclose(found, computed(order(lambda xs: in_a_tree(merge, xs)), xs), rtol=1e-4, atol=1e-4)


def square(merge: Function) -> Function:
    return lambda x, y: merge(x, y) ** 2


def naive(function: Function) -> Function:
    """What a condition on the cotangent would be: right but for its own derivative."""

    @jax.custom_vjp
    def run(*args: Any) -> Any:
        return function(*args)

    def there(*args: Any) -> Any:
        return run(*args), args

    def back(args: Any, cotangent: Any) -> Any:
        found = jax.vjp(function, *args)[1](cotangent)
        return tuple(jnp.where(cotangent != 0, each, 0) for each in found)

    run.defvjp(there, back)
    return run


def test_where_nothing_comes_now_something_may_come_next() -> None:
    """Of the square of a product that is zero the cotangent is zero, and its own derivative is not."""
    expected = jax.hessian(square(jnp.multiply), (0, 1))(0.0, 3.0)
    for outer in (jax.jacfwd, jax.jacrev):
        assert outer(jax.jacrev(square(silent(jnp.multiply)), (0, 1)), (0, 1))(0.0, 3.0) == expected
    assert jax.jacrev(jax.jacrev(square(naive(jnp.multiply)), (0, 1)), (0, 1))(0.0, 3.0) != expected


@pytest.mark.parametrize("run", [lambda f: f, jax.jit, lambda f: lambda *args: computed(f, *args)])
def test_nothing_comes_back_of_exact_zeros(run: Function) -> None:
    def loss(merge: Function) -> Function:
        def of(x: Any, y: Any) -> Any:
            made = merge(x, y)
            fine = jnp.isfinite(made)
            return jnp.sum(jnp.where(fine, jnp.where(fine, made, 0) ** 2, 0))

        return of

    x, y = np.array([2.0, 3.0], np.float32), np.array([5.0, np.inf], np.float32)
    assert np.isnan(run(jax.grad(loss(jnp.multiply)))(x, y)[1])
    by_cells, whole = (run(jax.grad(loss(silent(jnp.multiply, outer))))(x, y) for outer in (1, 0))
    assert np.asarray(by_cells).tolist() == [100.0, 0.0]
    assert np.isnan(whole[1])  # one cell, to which something comes
    many = run(jax.vmap(jax.grad(loss(silent(jnp.multiply)))))(x, y)
    assert np.asarray(many).tolist() == [100.0, 0.0]


def test_arrays_of_a_state_that_nobody_reads_send_nothing_back() -> None:
    """Beside one that is read, and where zeros stand in the place of what is not."""

    def step(carry: Any, x: Any) -> Any:
        return carry[0] * x, carry[1] + x

    for unread in (lambda made: made[1], lambda made: made[1] + 0 * jax.lax.stop_gradient(made[1]) + made[0] * 0):
        slopes = jax.grad(lambda c, x, unread=unread: unread(silent(step)((c, c), x)), (0, 1))(2.0, jnp.inf)
        assert slopes == (1.0, 1.0)


def test_of_integers_there_is_no_derivative() -> None:
    one, other = {"a": jnp.int32(2), "b": jnp.int32(5)}, {"a": jnp.int32(3), "b": jnp.int32(1)}
    found = silent(lambda left, right: {"a": left["a"] + right["a"], "b": left["b"] * right["a"]})(one, other)
    assert jax.tree.map(int, found) == {"a": 5, "b": 15}
