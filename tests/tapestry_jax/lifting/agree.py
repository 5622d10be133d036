"""A lifted function against the function itself: unplanned, and under plans that cut each of its dimensions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tapestry_jax as tp
from combinators.errors import PlanError
from combinators.graphs.walk import operations
from tests.thoroughly import thoroughly

_NOTHING_TO_CUT = ("cuts nothing", "more than it has cells")


@functools.cache
def mesh() -> Any:
    return tp.mesh(a=2, b=4)


def dims(graph: tp.Graph) -> list[str]:
    """The dimensions that some operation can cut."""
    found: dict[str, None] = {}
    for _, node in operations(graph):
        found |= {name: None for dim, name in node.names if node.operation.signature.role(dim) != "whole"}
    return list(found)


def weighed(function: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any]:
    """A scalar of the results in which every cell counts differently, and its gradients."""
    moving = [at for at, leaf in enumerate(args) if jnp.issubdtype(jnp.asarray(leaf).dtype, jnp.floating)]

    def scalar(*given: Any) -> Any:
        full = list(args)
        for at, leaf in zip(moving, given, strict=True):
            full[at] = leaf
        leaves = [leaf for leaf in jax.tree.leaves(function(*full)) if jnp.issubdtype(leaf.dtype, jnp.floating)]
        weights = [jnp.arange(leaf.size).reshape(leaf.shape) % 7 - 2.5 for leaf in leaves]
        return sum(((w * leaf).sum() for w, leaf in zip(weights, leaves, strict=True)), jnp.float32(0))

    kinds = [leaf.dtype for leaf in jax.tree.leaves(jax.eval_shape(function, *args))]
    if not any(jnp.issubdtype(kind, jnp.floating) for kind in kinds):
        moving = []
    gradient = jax.grad(scalar, argnums=tuple(range(len(moving))))
    return lambda: (function(*args), gradient(*(args[at] for at in moving)) if moving else ())


def agrees(
    function: Callable[..., Any],
    *args: Any,
    plans: Iterable[dict[str, Any]] | None = None,
    names: Any = None,
    rtol: float = 2e-5,
    grads: bool = True,
) -> tp.Graph:
    """Lift a function; hold the graph, and its gradients under plans, against the function's.

    Without `plans` one that cuts its first dimensions over two mesh axes and in time; with `make thorough` every plan
    that cuts one dimension.
    """
    # JAX 0.10 refuses NumPy's arrays where a mapped function with a derivative of its own meets them as constants.
    args = jax.tree.map(jnp.asarray, args)
    graph = tp.lift(function, *args, names=names)
    probe = (lambda f: weighed(f, args)) if grads else (lambda f: lambda: (f(*args), ()))
    want = jax.jit(probe(function))()
    close(graph(*args), want[0], rtol, "unplanned")
    for entries in plans if plans is not None else _plans(graph):
        try:
            run = tp.plan(graph, mesh(), entries).compile()
        except PlanError as error:
            if plans is not None or not any(text in str(error) for text in _NOTHING_TO_CUT):
                raise
            continue
        close(jax.jit(probe(run))(), want, rtol, str(entries))
    return graph


def _plans(graph: tp.Graph) -> list[dict[str, Any]]:
    cuts: list[Any] = ["a", "b", tp.chunks(2)]
    alone = [{dim: item} for dim in dims(graph) for item in ("a", tp.chunks(2))]
    if thoroughly():
        return alone
    for count in (3, 2):
        together = dict(zip(dims(graph), cuts[:count], strict=False))
        try:
            tp.plan(graph, mesh(), together)
        except PlanError:
            continue
        return [together]
    return alone


def close(got: Any, want: Any, rtol: float, what: str) -> None:
    for left, right in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert left.dtype == right.dtype, what
        scale = max(float(np.max(np.abs(np.asarray(right, np.float64)), initial=0)), 1) if right.size else 1
        np.testing.assert_allclose(
            np.asarray(left),
            np.asarray(right),
            rtol=rtol,
            atol=rtol * scale if np.isfinite(scale) else rtol,
            err_msg=what,
        )
