"""Whose error it is: of what a program raises nothing is known, and a fault of the question is told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from combinators.claims import boxed
from combinators.claims.boxed import differs
from combinators.claims.cut import Boxed
from combinators.claims.running import Run, told
from combinators.index_space.signature import Signature

X = np.arange(3.0, dtype=np.float32)


def raises(x: Any) -> Any:
    raise ValueError("not here")


def called_back(x: Any) -> Any:
    return jax.pure_callback(raises, jax.ShapeDtypeStruct((3,), jnp.float32), x)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", [called_back, lambda x: jax.jit(called_back)(x) + 1], ids=["alone", "inside"])
def test_of_a_program_that_raises_nothing_is_known(function: Any) -> None:
    runs: list[Run] = []

    def asked(given: Sequence[Run]) -> Iterator[bool]:
        runs.extend(given)
        yield bool(given[0]([X])[0].any())

    assert not told([jax.make_jaxpr(function)(X)], asked)
    assert runs


def test_an_error_of_the_question_is_told() -> None:
    def asked(_: Sequence[Run]) -> Iterator[bool]:
        yield bool({}["what is asked"])

    with pytest.raises(KeyError, match="what is asked"):
        told([jax.make_jaxpr(jnp.sin)(X)], asked)


def test_an_error_of_the_question_of_boxes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def at(sizes: dict[str, int]) -> Any:
        rows = sizes["a"]
        return jax.make_jaxpr(lambda x: x * 2 if rows > 2 else x)(jax.ShapeDtypeStruct((rows,), jnp.float32))

    kernel = Boxed(Signature.parse("a -> a"), {"a": 4}, [("a",)], None, list, at)

    def asked() -> bool:
        return differs(kernel, {"a": 2}, counts=True, settled=lambda *_: False)

    assert asked()

    def compared(*_: Any, **__: Any) -> bool:
        raise TypeError("what is compared")

    monkeypatch.setattr(boxed, "differ", compared)
    with pytest.raises(TypeError, match="what is compared"):
        asked()
