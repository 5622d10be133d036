"""Loops that keep derivatives which somebody wrote; plans are held to it in `tapestry_jax/lowering/time`."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from combinators.equations.scanned import keeping_rules, scan
from tests.ruled import odd

XS = jnp.linspace(-1.0, 2.0, 5)


def turn(carry: Any, x: Any) -> Any:
    after = {"sum": carry["sum"] + odd(x) * carry["last"], "last": odd(x)}
    return after, (x, odd(2 * x), 1.0)


START = {"sum": jnp.float32(0), "last": jnp.float32(1)}


def of_all(loop: Any, xs: Any) -> Any:
    last, (same, other, _) = loop(turn, START, xs)
    return last["sum"] ** 2 + (same * other).sum()


def by_hand(turn: Any, carry: Any, xs: Any) -> Any:
    stacked: list[Any] = []
    for x in xs:
        carry, made = turn(carry, x)
        stacked.append(made)
    return carry, jax.tree.map(lambda *each: jnp.stack(each), *stacked)


def test_values_and_derivatives_of_every_order_are_those_without_a_loop() -> None:
    loop, plain = (partial(of_all, each) for each in (scan, by_hand))
    np.testing.assert_allclose(loop(XS), plain(XS), rtol=1e-6)
    for derivative in (
        jax.grad,
        jax.hessian,
        lambda f: jax.jacrev(jax.hessian(f)),
        lambda f: jax.jacrev(jax.jacrev(f)),
    ):
        np.testing.assert_allclose(derivative(loop)(XS), derivative(plain)(XS), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_loop_without_slices_and_one_from_the_end(reverse: bool) -> None:
    found = scan(lambda carry, _: (odd(carry), carry), jnp.float32(2), length=3, reverse=reverse)
    expected = jax.lax.scan(lambda carry, _: (odd(carry), carry), jnp.float32(2), length=3, reverse=reverse)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_what_is_computed_again_stays_so() -> None:
    policy = jax.checkpoint_policies.save_only_these_names("kept")
    function = jax.checkpoint(lambda x: odd(odd(x)), policy=policy, prevent_cse=False)
    (equation,) = jax.make_jaxpr(keeping_rules(function))(XS).jaxpr.eqns
    (own,) = jax.make_jaxpr(function)(XS).jaxpr.eqns
    assert equation.primitive is own.primitive
    assert (equation.params["policy"], equation.params["prevent_cse"]) == (policy, False)


def test_what_calls_none_is_the_same_program() -> None:
    def plain(x: Any, flag: Any) -> Any:
        return jax.lax.cond(flag, jnp.cos, jnp.sin, x), jnp.cumsum(x)

    assert str(jax.make_jaxpr(keeping_rules(plain))(XS, True)) == str(jax.make_jaxpr(plain)(XS, True))


def test_zeros_of_other_operands_stay_unknown_to_rules() -> None:
    seen: list[Any] = []

    @jax.custom_jvp
    def both(x: Any, y: Any) -> Any:
        return x * y

    def rule(primals: Any, tangents: Any) -> Any:
        seen.append([type(each) for each in tangents])
        return both(*primals), tangents[0] * primals[1]

    both.defjvp(rule, symbolic_zeros=True)
    for function in (keeping_rules(both), both):
        jax.jvp(lambda x, f=function: f(x, XS), (XS,), (XS,))
    (_, kept), (_, plain) = seen
    assert kept is plain


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("place", ["inside", "beside", "in a choice", "again", "unread"])
def test_what_calls_print_is_printed(place: str, ordered: bool) -> None:
    seen: list[float] = []

    def tell(x: Any) -> Any:
        jax.debug.callback(lambda value: seen.append(float(value)), x, ordered=ordered)
        return x

    @jax.custom_jvp
    def telling(x: Any) -> Any:
        return odd(tell(x))

    telling.defjvp(lambda primals, tangents: (telling(*primals), *tangents))
    kernels: dict[str, Any] = {
        "inside": telling,
        "beside": jax.jit(lambda x: odd(tell(x))),
        "in a choice": lambda x: jax.lax.cond(x > -9, lambda x: odd(tell(x)), odd, x),
        "again": lambda x: jax.checkpoint(odd)(tell(x)),
        "unread": lambda x: (telling(x), x)[1],
    }
    jax.jit(lambda xs: scan(lambda carry, x: (carry, kernels[place](x)), 0.0, xs)[1])(XS)
    jax.effects_barrier()
    assert sorted(seen) == XS.tolist()
