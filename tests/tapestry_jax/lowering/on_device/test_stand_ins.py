"""Kernels in `dense=` are held to the operation's own where a plan chooses between them."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from combinators.kernels import captured
from tapestry_jax.lowering.on_device import stand_ins

X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3)
MAPPED, FOLDED = "t u -> t u", "t u -> u"


@jax.custom_vjp
def steeper(x: Any) -> Any:
    return jnp.sin(x)


steeper.defvjp(lambda x: (jnp.sin(x), x), lambda x, slope: (2 * slope * jnp.cos(x),))


@jax.custom_vjp
def softmax(x: Any) -> Any:
    return jax.nn.softmax(x, 1)


# Slopes that add up to nothing in each row, as those of a softmax do.
softmax.defvjp(lambda x: (jax.nn.softmax(x, 1), x), lambda x, slope: (2 * jax.vjp(jax.nn.softmax, x)[1](slope)[0],))


def summed(x: Any) -> Any:
    return x.sum(0)


FALSE: dict[str, Any] = {
    "another function": tp.Map(jnp.sin, MAPPED, dense=[jnp.cos]),
    "on this platform": tp.Map(jnp.sin, MAPPED, dense=[tp.Dense(jnp.cos, platforms=("cpu",), whole=("u",))]),
    "other slopes": tp.Map(jnp.sin, MAPPED, dense=[tp.Dense(steeper, whole=())]),
    "other slopes of what adds up to one": tp.Map(
        lambda x: jax.nn.softmax(x, 1), "t [u] -> t [u]", dense=[tp.Dense(softmax, whole=("u",))]
    ),
    "another state": tp.Reduce(
        summed, FOLDED, tp.monoids.Sum, dense=[tp.Dense(lambda x: 2 * summed(x), gives="state", whole=("u",))]
    ),
    "another result": tp.Reduce(
        summed, FOLDED, tp.monoids.Sum, present=jnp.abs, dense=[tp.Dense(summed, whole=("u",))]
    ),
    "of more cells than a few": tp.Map(
        jnp.sin, MAPPED, dense=[tp.Dense(lambda x: jnp.sin(x) if len(x) <= 2 else x, whole=())]
    ),
    "of all cells alone": tp.Map(
        jnp.sin, MAPPED, dense=[tp.Dense(lambda x: jnp.sin(x) if len(x) <= 4 else x, whole=())]
    ),
    "at one place": tp.Map(jnp.sin, MAPPED, dense=[tp.Dense(lambda x: jnp.sin(x).at[5].set(0), whole=())]),
    "at one place of what is whole": tp.Map(
        jnp.sin, MAPPED, dense=[tp.Dense(lambda x: jnp.sin(x).at[:, 2].set(0), whole=("u",))]
    ),
    "a fold of more cells than a few": tp.Reduce(
        summed,
        FOLDED,
        tp.monoids.Sum,
        dense=[tp.Dense(lambda x: summed(x) * (1 if x.shape[1] <= 2 else 2), whole=("t",))],
    ),
    "of blocks that are large enough": tp.Map(
        jnp.sin, MAPPED, dense=[tp.Dense(lambda x: x, whole=("u",), takes=lambda x: x.shape[0] > 1)]
    ),
}
TRUE: dict[str, Any] = {
    "another way": tp.Map(jnp.sin, MAPPED, dense=[tp.Dense(lambda x: jnp.cos(jnp.pi / 2 - x), whole=())]),
    "a result": tp.Reduce(
        summed, FOLDED, tp.monoids.Sum, present=jnp.abs, dense=[tp.Dense(lambda x: jnp.abs(summed(x)), whole=("u",))]
    ),
    "of other dtypes": tp.Map(jnp.sin, MAPPED, dense=[tp.Dense(jnp.cos, dtypes=(jnp.bfloat16,))]),
    "never taken": tp.Map(jnp.sin, MAPPED, dense=[tp.Dense(jnp.cos, takes=lambda x: False)]),
}


def planned(arrow: Any) -> Any:
    return tp.plan(tp.trace(arrow, X), tp.mesh(d=4), {"t": "d"}).compile()(X)


@pytest.mark.parametrize("name", FALSE)
def test_kernels_that_do_something_else_are_refused(name: str) -> None:
    with pytest.raises(tp.KernelError, match="does not do what the operation's own does"):
        planned(FALSE[name])


@pytest.mark.parametrize("name", TRUE)
def test_kernels_that_do_the_same_or_never_run_are_taken(name: str) -> None:
    np.testing.assert_allclose(planned(TRUE[name]), TRUE[name](X), rtol=1e-5, atol=1e-6)


def test_the_error_names_the_kernel() -> None:
    with pytest.raises(tp.KernelError) as caught:
        planned(tp.Map(jnp.sin, MAPPED, dense=[steeper], name="wave"))
    assert str(caught.value) == (
        "the kernel `steeper` in dense= of `wave` does not do what the operation's own does\n"
        "  signature t u -> t u\n"
        "  run on the same few numbers, they give others, or other slopes, and a plan chooses between them\n"
        "  Mend the kernel, or leave it out of dense=."
    )


def test_kernels_are_not_traced_at_sizes_that_are_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def program_at(function: Any, types: Any) -> Any:
        seen.append(sum(math.prod(each.shape) for each in types))
        return captured.program_at(function, types)

    monkeypatch.setattr(stand_ins, "program_at", program_at)
    arrow = tp.Map(jnp.sin, MAPPED, dense=[tp.Dense(lambda x: jnp.sin(x), whole=())])
    plan = tp.plan(tp.trace(arrow, tp.TensorType({"t": 2**22, "u": 3})), tp.mesh(d=4), {"t": "d"})
    plan.memory()
    assert seen == [4, 4]
