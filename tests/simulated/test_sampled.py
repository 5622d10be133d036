"""Programs that are run in NumPy or compiled, whichever it is, give what JAX gives."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tapestry_jax as tp
from tests import classes
from tests.simulated import sampled as subject
from tests.simulated.sampled import computed, held, sampled
from tests.tapestry_jax.draw import normal

X = normal(4, 6)


def _until(x: Any) -> Any:
    return lax.while_loop(lambda y: y < 9, lambda y: y * 2 + 1, jnp.abs(x))


PROGRAMS: dict[str, Any] = {
    "equations": (lambda x: {"a": jnp.tanh(x) @ x.T, "b": [x.sum(), x > 0]}, True),
    "one cell": (lambda x: jnp.take(x[0], jnp.argmax(x[1])), True),
    "one that NumPy does not have": (lambda x: lax.top_k(x, 2), True),
    "many that NumPy does not have": (lambda x: [lax.top_k(x, k) for k in range(1, 7)], False),
    "a loop": (lambda x: lax.scan(lambda c, row: (c + row, c * row), x[0], x), True),
    "a long loop": (lambda x: lax.fori_loop(0, 1000, lambda i, y: y * 0.5 + i, x), False),
    "many loops": (jax.vmap(jax.vmap(_until)), False),
    "random keys": (lambda x: x + jax.random.normal(jax.random.key(3), x.shape), False),
    "solved": (lambda x: jnp.linalg.solve(x[:, :4] + 9 * jnp.eye(4), x), False),
}


@pytest.fixture
def in_numpy(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is run in NumPy, one entry each."""
    seen: list[Any] = []
    run = subject.run_traced
    monkeypatch.setattr(subject, "run_traced", lambda *args: seen.append(args) or run(*args))
    monkeypatch.setattr(subject, "thoroughly", lambda: False)
    return seen


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_computed_is_what_jax_gives(name: str, in_numpy: list[Any]) -> None:
    function, by_numpy = PROGRAMS[name]
    found, expected = computed(function, X), jax.jit(function)(X)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found, expected)
    assert len(in_numpy) == by_numpy


def test_the_first_planned_program_of_a_kind_is_compiled(monkeypatch: pytest.MonkeyPatch, in_numpy: list[Any]) -> None:
    monkeypatch.setattr(classes, "_MET", {})
    monkeypatch.setattr(classes, "thoroughly", lambda: False)
    for over, entries, so_far in (
        ("a", {"a": "data"}, 0),
        ("b", {"b": ("data", tp.chunks(3))}, 0),
        ("b", {"b": "data"}, 1),
    ):
        fold = tp.fold(tp.aggregators.Sum(), "a b -> b" if over == "a" else "a b -> a")
        planned = tp.plan(tp.trace(fold, tp.TensorType({"a": 4, "b": 6})), tp.mesh(data=2), entries).compile()
        np.testing.assert_allclose(sampled(planned, X), np.sum(X, axis="ab".index(over)), rtol=1e-5)
        assert len(in_numpy) == so_far


def test_what_does_not_hold_is_asked_for_of_compiled_programs_and_told(in_numpy: list[Any]) -> None:
    asked: list[int] = []

    def check(plain: Any, planned: Any) -> None:
        del planned
        found = plain(jnp.sin, X)
        asked.append(len(in_numpy))
        np.testing.assert_allclose(found, np.cos(X), rtol=1e-5)

    with pytest.raises(AssertionError):
        held(check)
    assert asked == [1, 1]


def test_what_is_run_in_numpy_may_be_part_of_a_program() -> None:
    cubed = subject.in_numpy(lambda x: (x**3).sum())
    assert np.allclose(cubed(X), (np.asarray(X) ** 3).sum(), rtol=1e-5)
    assert np.allclose(jax.grad(cubed)(X), 3 * np.asarray(X) ** 2, rtol=1e-5)
