"""Kernels that answer what lies outside of a tensor: nothing is put around it, and results stay what they were."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp

DRAW = np.random.default_rng(0)
IMAGE: Any = np.float32(DRAW.standard_normal((4, 6, 5, 3)))
TYPE = tp.TensorType({"batch": 4, "y": 6, "x": 5, "channels": 3})


def layers(name: str) -> tuple[Any, Any]:
    def made(library: Any) -> Any:
        if name == "max_pool":
            return library.Sequential(lambda x: library.max_pool(x, (3, 3), (2, 2), "SAME"))
        if name == "Conv, VALID":
            return library.Conv(3, 4, (2, 3), (2, 2), padding="VALID", rngs=nnx.Rngs(0))
        return getattr(library, name)(3, 4, (3, 3), 2, rngs=nnx.Rngs(0))

    return made(tp.nnx), made(nnx)


def scored(call: Any) -> Any:
    def run(x: Any) -> Any:
        y = call(x)
        return jnp.sum(y * jnp.cos(jnp.arange(y.size).reshape(y.shape)))

    return jax.jit(jax.value_and_grad(run))


@pytest.mark.parametrize("name", ["Conv", "Conv, VALID", "ConvTranspose", "max_pool"])
def test_nothing_is_put_around_what_a_kernel_pads(name: str) -> None:
    ours, _ = layers(name)
    graph, state = tp.trace(ours, TYPE), nnx.state(ours)
    plans = {"nothing": {}, "batch": {"batch": "data"}, "channels": {"channels": "data"}}
    runs = {"unplanned": graph} | {
        cut: tp.plan(graph, tp.mesh(data=2), entries).compile() for cut, entries in plans.items()
    }
    for cut, run in runs.items():
        shown = str(jax.make_jaxpr(lambda x, run=run: run(state, x))(IMAGE))
        # Channels that do not divide are padded themselves.
        assert cut == "channels" or (" pad[" not in shown and "optimization_barrier" not in shown), cut


# All kernels cut along what they read around, one of them along the other dimensions and uncut.
@pytest.mark.parametrize(
    ("entries", "name"),
    [
        pytest.param(entries, name, marks=[pytest.mark.thorough] * (name != alone and "y" not in entries))
        for entries, alone in (
            *(({}, "Conv"), ({"channels": "data"}, "Conv, VALID"), ({"y": "data"}, "")),
            ({"x": "model", "batch": "data"}, "max_pool"),
        )
        for name in ("Conv", "Conv, VALID", "ConvTranspose", "max_pool")
    ],
    ids=str,
)
def test_plans_beside_kernels_that_pad_equal_flax(name: str, entries: dict[str, Any]) -> None:
    ours, theirs = layers(name)
    state = nnx.state(ours)
    run = tp.plan(tp.trace(ours, TYPE), tp.mesh(data=2, model=2), entries).compile()
    expected = scored(theirs)(IMAGE)
    for call in (lambda x: run(state, x), ours):
        for a, b in zip(scored(call)(IMAGE), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_what_its_kernel_does_not_know_is_put_around() -> None:
    ours = tp.nnx.Conv(3, 4, (3, 3), padding="CIRCULAR", rngs=nnx.Rngs(0))
    theirs = nnx.Conv(3, 4, (3, 3), padding="CIRCULAR", rngs=nnx.Rngs(0))
    np.testing.assert_allclose(ours(IMAGE), theirs(IMAGE), rtol=1e-4, atol=1e-5)


def test_a_lifted_convolution_pads_by_itself() -> None:
    theirs = nnx.Conv(3, 4, (3, 3), 2, rngs=nnx.Rngs(0))
    graph, state = tp.lift(theirs, IMAGE), nnx.state(theirs)
    shown = str(jax.make_jaxpr(lambda x: graph(state, x))(IMAGE))
    assert " pad[" not in shown and "optimization_barrier" not in shown
    np.testing.assert_allclose(graph(state, IMAGE), theirs(IMAGE), rtol=1e-4, atol=1e-5)
