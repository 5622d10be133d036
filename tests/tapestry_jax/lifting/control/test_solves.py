"""Linear solves with a derivative by a solve: cut along what all of their programs map."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from jax import lax

import tapestry_jax as tp
from tapestry_jax.hlo.collectives import compiled_collectives
from tests.contract import table
from tests.tapestry_jax.lifting.agree import agrees, mesh

SOURCE = np.random.default_rng(0)


def definite(*batch: int) -> Any:
    made = SOURCE.standard_normal((*batch, 4, 4)).astype("f4")
    return made @ np.swapaxes(made, -1, -2) + 4 * np.eye(4, dtype="f4")


A, B = definite(7), SOURCE.standard_normal((7, 4, 2)).astype("f4")


def conjugate(a: Any, b: Any) -> Any:
    return jax.scipy.sparse.linalg.cg(lambda v: a @ v, b, tol=1e-7)[0]


def own(scale: Any, x: Any) -> Any:
    """A solve of two parts that somebody wrote, of a map that is not symmetric."""
    solve = lambda _, y: {"p": y["p"] / scale, "q": (y["q"] - y["p"] / scale) / 2}  # noqa: E731
    back = lambda _, y: {"p": (y["p"] - y["q"] / 2) / scale, "q": y["q"] / 2}  # noqa: E731
    apply = lambda x: {"p": scale * x["p"], "q": 2 * x["q"] + x["p"]}  # noqa: E731
    out = lax.custom_linear_solve(apply, {"p": x, "q": x * 3}, solve, back)
    return out["p"], out["q"]


# The function, its arguments, and what a plan cuts.
CASES: dict[str, Any] = {
    "many matrices": (jnp.linalg.solve, (A, B), {"a_0": "a"}),
    "inverses": (jnp.linalg.inv, (A,), {"a_0": "b"}),
    "conjugate gradients of a batch": (jax.vmap(conjugate), (A, B[..., 0]), {"a_0": "a"}),
    "two parts": (own, (np.abs(A[0]) + 1, A[0]), {"scale_0": "a", "scale_1": "b"}),
}


# Directly as by iterations, and of one matrix as of many.
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.thorough] * (name in ("many matrices", "inverses"))) for name in CASES],
)
def test_a_solve_is_cut_along_what_its_programs_map(name: str) -> None:
    function, arguments, entries = CASES[name]
    assert agrees(function, *arguments, plans=[entries], rtol=1e-4).opaque() == ()


def test_it_agrees_with_scipy() -> None:
    run = tp.plan(tp.lift(jnp.linalg.solve, A, B), mesh(), {"a_0": "a"}).compile()
    want = [scipy.linalg.solve(a, b) for a, b in zip(A, B, strict=True)]
    np.testing.assert_allclose(run(A, B), want, rtol=1e-4, atol=1e-5)


def test_what_its_gradient_sends_is_predicted() -> None:
    def against_its_own_square(x: Any) -> Any:
        own = jnp.swapaxes(x, -1, -2)
        return jnp.linalg.solve(own @ x / 10 + 3 * jnp.eye(x.shape[-1]), own)

    x = SOURCE.standard_normal((2, 3, 4)).astype("f4")
    plan = tp.plan(tp.lift(against_its_own_square, x), mesh(), {"x_2_1": "a"})
    told, run = table(plan.collectives(grad=True)), plan.compile()
    compiled = jax.jit(lambda x: jax.vjp(run, x)[1](jnp.ones((2, 4, 3)))).lower(x).compile()
    sent = table(compiled_collectives(compiled.as_text() or "", plan.mesh))
    assert sent and all(size <= told[key] for key, size in sent.items())


def test_a_second_derivative_is_that_of_the_solve() -> None:
    run = tp.plan(tp.lift(jnp.linalg.solve, A, B), mesh(), {"a_0": "a"}).compile()

    def second(function: Any) -> Any:
        slope = jax.grad(lambda a: jnp.sum(jnp.sin(function(a, B))))
        return jax.jit(jax.grad(lambda a: jnp.sum(slope(a) ** 2)))(A)

    np.testing.assert_allclose(second(run), second(jnp.linalg.solve), rtol=1e-4, atol=1e-6)


def test_one_that_nothing_of_can_be_cut_is_opaque() -> None:
    graph = tp.lift(conjugate, A[0], B[0, :, 0])
    assert [found.primitive for found in graph.opaque()] == ["custom_linear_solve"]
    np.testing.assert_allclose(graph(A[0], B[0, :, 0]), conjugate(A[0], B[0, :, 0]), rtol=1e-5)
