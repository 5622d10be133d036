"""Arguments that a program cannot run on."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import combinators as tp
import tapestry_jax
from combinators.errors import GraphError
from combinators.index_space.usable import check_usable
from combinators.kernels import fingerprint

SUMS = tp.fold(tp.aggregators.Sum(), "r c -> c")
X = np.ones((2, 3), np.float32)


def deleted() -> Any:
    array = jnp.ones((2, 3))
    array.delete()
    return array


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        (deleted, "was deleted: it was donated to another function\n  Keep the result"),
        (lambda: jax.ShapeDtypeStruct((2, 3), jnp.float32), "has a type and no numbers\n  Pass an array"),
        (lambda: tp.TensorType({"r": 2, "c": 3}), "has a type and no numbers\n  Pass an array"),
        (lambda: np.ma.masked_array(X, mask=X > 0), "has a mask, which would be dropped\n  Fill it in"),
    ],
    ids=["deleted", "struct", "type", "mask"],
)
def test_what_has_no_numbers_is_refused_where_it_would_run(argument: Any, text: str) -> None:
    graph = tp.trace(SUMS, X)
    fresh, warm = (tapestry_jax.plan(graph, tapestry_jax.mesh(m=2), {"r": "m"}).compile() for _ in range(2))
    warm(X)
    calls = ((SUMS, "operand 0"), (graph, "x"), (tp.aggregators.Sum().run, "input 0"), (fresh, "x"), (warm, "x"))
    for call, name in calls:
        with pytest.raises(GraphError) as caught:
            call(argument())
        assert f"`{name}` {text}" in str(caught.value)


def test_arrays_that_lie_on_different_devices_are_told() -> None:
    first, second = jax.devices()[:2]
    add = tp.Map(jnp.add, "r c, r c -> r c")
    graph, here, there = tp.trace(add, X, X), jax.device_put(X, first), jax.device_put(X, second)
    pairs = tp.aggregators.SoftmaxMean().run
    for call in (add, graph, pairs):
        with pytest.raises(GraphError, match=rf"lies on {first}, `.*` on {second}\n.*jax.device_put"):
            call(here, there)
        call(here, X)


def test_bytes_in_the_other_order_are_refused_in_words() -> None:
    array = np.arange(3, dtype=np.float32)
    check_usable(["x"], [array], "f")
    turned = array.astype(array.dtype.newbyteorder())
    with pytest.raises(GraphError, match="`x` has its bytes in an order that JAX does not take"):
        check_usable(["x"], [turned], "f")
    check_usable(["x"], [turned.astype(turned.dtype.newbyteorder("="))], "f")


def test_one_traced_argument_of_a_kind_is_asked_and_no_more(monkeypatch: pytest.MonkeyPatch):
    # JAX's answer is an error, for whose text it walks through all that was traced so far.
    asked: list[type] = []
    plain = fingerprint._is_nowhere  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(fingerprint, "_TRACED", {})
    monkeypatch.setattr(fingerprint, "_is_nowhere", lambda array: (asked.append(type(array)), plain(array))[1])

    def program(*leaves: Any) -> Any:
        check_usable("abc", leaves, "program")
        return leaves

    jax.make_jaxpr(program)(X, X, X)
    jax.vmap(jax.jit(program))(X, X, X)
    assert len(asked) == len(set(asked)) <= 2
