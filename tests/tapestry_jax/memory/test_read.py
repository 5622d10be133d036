"""What is called several times is read once, and belongs to whoever calls it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tapestry_jax.memory import read as subject
from tapestry_jax.memory.read import read_program

X = jax.ShapeDtypeStruct((64, 64), jnp.float32)
PATHS = ("first", "second", "third")


def _layer(x: Any) -> Any:
    return jnp.tanh(x @ x) * 2


def _deep(layer: Any) -> Any:
    def run(x: Any) -> Any:
        for path in PATHS:
            with jax.named_scope(path):
                x = layer(x)
        return x

    return jax.make_jaxpr(run)(X)


def test_equations_of_layers_that_share_a_program_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    plain = subject._said
    monkeypatch.setattr(subject, "_said", lambda equation: seen.append(equation) or plain(equation))
    shared = read_program(_deep(jax.jit(_layer)), PATHS)
    apart = read_program(_deep(_layer), PATHS)
    assert len(shared.nodes) == len(apart.nodes) == 3 * 3
    # Three calls and what they call; written out, each for itself.
    assert len(seen) == (3 + 3) + 3 * 3


def test_what_is_shared_reads_what_each_call_gives_it_and_belongs_to_it() -> None:
    shared, apart = (read_program(_deep(layer), PATHS) for layer in (jax.jit(_layer), _layer))
    assert shared == apart
    assert [node.path for node in shared.nodes] == [path for path in PATHS for _ in range(3)]
