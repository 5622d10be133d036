"""What no rule knows: two operations of one key compute the same, and one has the same key in every process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.lifting.kernels import equations
from tests.thoroughly import thoroughly

X = np.ones((2, 3), np.float32)


def until(by: Any, primitive: Callable[..., Any] = jnp.sin) -> Callable[[Any], Any]:
    def grown(x: Any) -> Any:
        return jax.lax.while_loop(lambda x: x.sum() < 99, jax.jit(lambda x: x * by + primitive(x) ** 2), x)

    return grown


def branches(by: Any) -> Callable[[Any], Any]:
    return lambda x: jax.lax.cond(x[0, 0] > 0, lambda x: x * by, lambda x: x, x)


@jax.custom_jvp
def ordered(x: Any) -> Any:
    return jnp.sort(x) * x.sum()


ordered.defjvp(lambda primals, tangents: (ordered(*primals), 3 * tangents[0]))


@jax.custom_jvp
def ordered_as_well(x: Any) -> Any:
    return jnp.sort(x) * x.sum()


ordered_as_well.defjvp(lambda primals, tangents: (ordered_as_well(*primals), 4 * tangents[0]))

DIFFERENT: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "a number inside": (until(np.float32(2)), until(np.float32(2.5))),
    "a number in a branch": (branches(np.float32(2)), branches(np.float32(3))),
    "another primitive inside": (until(2), until(2, jnp.cos)),
    "another derivative": (ordered, ordered_as_well),
    "another operand": (
        lambda x: jax.lax.while_loop(lambda c: c[0].sum() < 9, lambda c: (c[0] + c[1], c[1]), (x, x))[0],
        lambda x: jax.lax.while_loop(lambda c: c[0].sum() < 9, lambda c: (c[0] + c[1], c[0]), (x, x))[0],
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_opaque_operations_that_differ_have_two_keys(name: str) -> None:
    left, right = (tp.lift(function, X) for function in DIFFERENT[name])
    assert left.key != right.key


def test_keys_of_two_kinds_are_split_each_in_its_own_way() -> None:
    for function in (lambda k: jax.random.split(k, 3), lambda k: jax.random.fold_in(k, 3)):
        for impl in ("unsafe_rbg", "rbg"):
            key = jax.random.key(1, impl=impl)
            told = lambda k, function=function: jax.random.key_data(function(k))  # noqa: E731
            np.testing.assert_array_equal(tp.lift(told, key)(key), told(key))


def keys() -> list[str]:
    """Those of graphs that no rule knows all of; derivatives that somebody wrote are not looked into."""
    lifted = [tp.lift(f, X) for name, pair in DIFFERENT.items() if "derivative" not in name for f in pair]
    drawn = [jax.random.key(0, impl=impl) for impl in ("threefry2x32", "rbg")]
    lifted += [tp.lift(lambda k: jax.random.key_data(jax.random.split(k)), key) for key in drawn]
    return [graph.key for graph in lifted]


def test_a_key_holds_nothing_that_is_of_this_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equations, "uuid4", lambda: pytest.fail("it was told by a number that was drawn"))
    assert keys() == keys()
    if thoroughly():
        script = f"from {keys.__module__} import keys; print(*keys())"
        found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert found.stdout.split() == keys()


def test_what_cannot_be_looked_into_is_equal_to_nothing() -> None:
    first, other = tp.lift(ordered, X), tp.lift(ordered, X)
    assert first.key == first.key != other.key
