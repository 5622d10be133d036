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


def pulled(forward: Any, pull: Any) -> Any:
    """A function whose author wrote what its one operand gets."""

    @jax.custom_vjp
    def function(x: Any) -> Any:
        return forward(x)

    function.defvjp(lambda x: (forward(x), x), lambda x, g: (pull(x, g),))
    return function


@jax.custom_jvp
def pushed(x: Any) -> Any:
    return x


pushed.defjvp(lambda primals, tangents: (primals[0], tangents[0] * (2 if len(primals[0]) > 4 else 1)))

MAPPED, FOLDED = "batch embed -> batch embed", "batch embed -> embed"
# What each does with cells is right; how many there are, or which, it finds in ways that its program does not tell.
BY_SIZES: dict[str, Any] = {
    "a branch": tp.Map(pulled(lambda x: x, lambda x, g: g * 2 if g.shape[0] > 4 else g), MAPPED),
    "a branch, pushed": tp.Map(pushed, MAPPED),
    "counted by a loop": tp.Map(pulled(lambda x: x, lambda x, g: sum([g for _ in g], 0 * g)), MAPPED),
    "places in a loop": tp.Map(
        pulled(lambda x: x, lambda x, g: jax.lax.scan(lambda at, row: (at + 1, row * at), 0.0, g)[1]), MAPPED
    ),
    "of a sum": tp.Reduce(
        pulled(lambda x: x.sum(0), lambda x, g: jnp.broadcast_to(g, x.shape) * (2 if len(x) > 4 else 1)),
        FOLDED,
        tp.monoids.Sum,
    ),
    # States have cells beside those of the signature.
    "of powers": tp.Reduce(
        pulled(
            lambda x: jnp.stack([x.sum(0), (x * x).sum(0)], -1),
            lambda x, g: (g[:, 0] + 2 * x * g[:, 1]) * (2 if len(x) > 4 else 1),
        ),
        FOLDED,
        tp.monoids.Sum,
    ),
    "the first alone": tp.Reduce(
        pulled(lambda x: x.sum(0), lambda x, g: jnp.zeros(x.shape).at[0].set(g)), FOLDED, tp.monoids.Sum
    ),
}
# Nobody wrote a derivative: what has one is chosen.
STOPPED: dict[str, Any] = {
    "by sizes": tp.Map(lambda x: x if len(x) > 4 else jax.lax.stop_gradient(x), MAPPED),
    "the first": tp.Map(lambda x: x.at[0].set(jax.lax.stop_gradient(x[0])), MAPPED),
    "of a sum": tp.Reduce(
        lambda x: x.sum(0) if len(x) > 4 else jax.lax.stop_gradient(x).sum(0), FOLDED, tp.monoids.Sum
    ),
}
TRUE: dict[str, Any] = {
    "straight through": tp.Map(lambda x: x + jax.lax.stop_gradient(jnp.round(x) - x), MAPPED),
    "clipped": tp.Map(pulled(lambda x: x, lambda x, g: jnp.clip(g, -0.5, 0.5)), MAPPED),
    "two ways by sizes": tp.Map(lambda x: jnp.sin(x) if len(x) > 4 else jnp.cos(x - jnp.pi / 2), MAPPED),
    "a loop for each row": tp.Map(
        jax.vmap(lambda row: jax.lax.scan(lambda c, v: (jax.lax.stop_gradient(c) / 2 + v, c + v), 0.0, row)[1]),
        "batch [embed] -> batch [embed]",
    ),
    "powers": tp.Reduce(
        pulled(
            lambda x: jnp.stack([x.sum(0), (x * x).sum(0)], -1),
            lambda x, g: g[:, 0] + 2 * x * g[:, 1],
        ),
        FOLDED,
        tp.monoids.Sum,
    ),
    "a maximum": tp.Reduce(
        pulled(lambda x: x.max(0), lambda x, g: jnp.where(x == x.max(0), g, 0)), FOLDED, tp.monoids.Max
    ),
}


def slope(of: Any) -> Any:
    return jax.grad(lambda x: (of(x).reshape(-1, 4) * (1 + jnp.arange(4))).sum())


@pytest.mark.parametrize("name", BY_SIZES)
def test_one_that_chooses_by_how_many_cells_there_are_is_refused(name: str) -> None:
    run = tp.plan(tp.trace(BY_SIZES[name], ARGS[0]), tp.mesh(a=2), {"batch": "a"}).compile()
    with pytest.raises(tp.PlanError, match="batch=4 pull back other numbers than all of it"):
        jax.eval_shape(slope(run), ARGS[0])
    jax.eval_shape(run, ARGS[0])


@pytest.mark.parametrize("name", STOPPED)
def test_a_choice_of_what_has_a_derivative_is_refused(name: str) -> None:
    run = tp.plan(tp.trace(STOPPED[name], ARGS[0]), tp.mesh(a=2), {"batch": "a"}).compile()
    with pytest.raises(tp.KernelError, match="such boxes do not come to what it pulls back for batch=8"):
        jax.eval_shape(run, ARGS[0])


@pytest.mark.parametrize("name", TRUE)
def test_one_that_is_true_of_parts_is_taken(name: str) -> None:
    graph = tp.trace(TRUE[name], ARGS[0])
    run = tp.plan(graph, tp.mesh(a=2), {"batch": "a"}).compile()
    got, want = (simulated(slope(of), ARGS[0]) for of in (run, graph))
    assert jnp.allclose(got, want, rtol=1e-5)


def test_where_rows_are_whole_it_is_taken() -> None:
    graph = tp.trace(PROGRAMS[0], *ARGS)
    run = tp.plan(graph, tp.mesh(a=2), {"embed": "a"}).compile()
    got, want = (simulated(jax.grad(lambda *args, of=of: of(*args).sum(), 1), *ARGS) for of in (run, graph))
    assert jnp.allclose(got, want, rtol=1e-5)
