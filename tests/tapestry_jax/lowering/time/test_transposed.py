"""Derivatives that are false of parts: refused where a plan cuts the dimension that they sum over, and there alone."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from tests.simulated.evaluate import simulated
from tests.tapestry_jax.draw import normal


@jax.custom_vjp
def clipping(x: Any, w: Any) -> Any:
    return x * w


clipping.defvjp(lambda x, w: (x * w, (x, w)), lambda kept, g: (g * kept[1], jnp.clip((g * kept[0]).sum(0), -0.5, 0.5)))


PROGRAMS: list[Any] = [
    tp.Map(clipping, "batch embed, embed -> batch embed"),
    tp.Reduce(lambda x, w: clipping(x, w).sum(0), "batch embed, embed -> embed", tp.monoids.Sum),
]
ARGS = normal(8, 4), normal(4, seed=1)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("entries", [{"batch": "a"}, {"batch": tp.chunks(2)}])
def test_to_take_one_of_parts_is_refused(program: Any, entries: Any) -> None:
    run = tp.plan(tp.trace(program, *ARGS), tp.mesh(a=2), entries).compile()
    with pytest.raises(tp.PlanError, match="false of parts"):
        jax.eval_shape(jax.grad(lambda *args: run(*args).sum(), 1), *ARGS)
    jax.eval_shape(run, *ARGS)


def test_where_rows_are_whole_it_is_taken() -> None:
    graph = tp.trace(PROGRAMS[0], *ARGS)
    run = tp.plan(graph, tp.mesh(a=2), {"embed": "a"}).compile()
    got, want = (simulated(jax.grad(lambda *args, of=of: of(*args).sum(), 1), *ARGS) for of in (run, graph))
    assert jnp.allclose(got, want, rtol=1e-5)
