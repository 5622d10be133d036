"""Parameters draw the keys that Flax's streams give, and draw many in a time in proportion to their number."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from flax.errors import TraceContextError

from tapestry_jax.nnx.parameter import parameter


def uniform(key: Any, shape: Any, dtype: Any) -> Any:
    return jax.random.uniform(key, shape, dtype)


def drawn(rngs: nnx.Rngs, count: int = 3) -> list[Any]:
    return [parameter(uniform, (4,), ("k",), rngs=rngs)[...] for _ in range(count)]


def by_flax(rngs: nnx.Rngs, count: int = 3) -> list[Any]:
    return [uniform(rngs.params(), (4,), jnp.float32) for _ in range(count)]


@pytest.mark.parametrize("streams", [lambda: nnx.Rngs(3), lambda: nnx.Rngs(params=5, dropout=1)])
@pytest.mark.parametrize("run", [lambda made: made(), lambda made: jax.jit(made)()], ids=["as it is", "traced"])
def test_keys_are_those_of_the_stream(streams: Callable[[], nnx.Rngs], run: Callable[[Any], Any]) -> None:
    """So is what the stream gives next."""

    def after(draw: Callable[[nnx.Rngs], list[Any]]) -> Callable[[], list[Any]]:
        def made() -> list[Any]:
            rngs = streams()
            return [*draw(rngs), uniform(rngs.params(), (4,), jnp.float32), rngs.params.count[...]]

        return made

    for own, theirs in zip(run(after(drawn)), run(after(by_flax)), strict=True):
        np.testing.assert_array_equal(own, theirs)
        assert own.dtype == theirs.dtype


def readings(draw: Callable[[nnx.Rngs, int], list[Any]]) -> int:
    """How often JAX looks, among all equations, for where a value comes from, to say it in an error nobody reads."""
    found: list[str] = []

    def called(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name == "find_progenitors":
            found.append(event)

    sys.setprofile(called)
    try:
        nnx.eval_shape(lambda: nnx.List([nnx.Param(each) for each in draw(nnx.Rngs(0), 8)]))
    finally:
        sys.setprofile(None)
    return len(found)


def test_tracing_many_parameters_reads_through_no_equations() -> None:
    assert readings(drawn) == 0
    # As long as Flax asks, which it does up to this: parameters may draw from streams as they are when no JAX is older.
    assert readings(by_flax) >= 8 or jax.__version_info__ >= (0, 11)


def test_a_stream_of_another_trace_is_refused() -> None:
    rngs = nnx.Rngs(0)
    with pytest.raises(TraceContextError, match="different trace level"):
        jax.jit(lambda: drawn(rngs))()


def test_parameters_draw_from_streams_that_count_in_references() -> None:
    rngs = nnx.Rngs(2)
    rngs.params.count.set_raw_value(jax.new_ref(rngs.params.count.get_raw_value()))
    for own, theirs in zip(drawn(rngs), by_flax(nnx.Rngs(2)), strict=True):
        np.testing.assert_array_equal(own, theirs)
