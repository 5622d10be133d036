"""What the backward pass computes again, and what it keeps."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import Primitive
from jax.interpreters import ad, mlir  # noqa: TID251 - the public place of the rules of primitives

from combinators.equations.marked import marked
from tapestry_jax.lowering.on_device.recomputed import recomputed

STEP = Primitive("step_of_others_that_is_twice")
STEP.def_abstract_eval(lambda x, **_: x)
ad.deflinear2(STEP, lambda slope, _, **__: [2 * slope])
mlir.register_lowering(STEP, mlir.lower_fun(lambda x, **_: 2 * x, multiple_results=False))


@pytest.mark.parametrize("name", ["prim", "params", "name"])
def test_primitives_of_others_have_parameters_of_any_name(name: str) -> None:
    def turn(x: Any) -> Any:
        return jnp.sin(STEP.bind(x, **{name: "kept"}))

    assert jnp.allclose(jax.jit(jax.grad(recomputed(turn, keeps=True)))(0.5), 2 * jnp.cos(1.0))


@pytest.mark.parametrize(
    ("mark", "keeps", "count"), [(marked, False, 2), (marked, True, 1), (checkpoint_name, True, 2)]
)
def test_what_is_marked_is_kept_where_that_is_asked_for_and_marks_of_others_are_theirs(
    mark: Any, keeps: bool, count: int
) -> None:
    def turn(x: Any) -> Any:
        return jnp.sin(mark(jnp.log(x), "kept"))

    assert str(jax.make_jaxpr(jax.grad(recomputed(turn, keeps=keeps)))(0.5)).count("log ") == count
