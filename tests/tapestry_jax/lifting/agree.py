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
from tests.simulated.sampled import Call, held
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


def weighed(function: Callable[..., Any], args: tuple[Any, ...], apart: bool = False) -> Callable[..., Any]:
    """The results, and the gradients of a scalar of them in which every cell counts differently."""
    moving = [at for at, leaf in enumerate(args) if _is_floating(leaf)]

    def of_moving(*given: Any) -> Any:
        full = list(args)
        for at, leaf in zip(moving, given, strict=True):
            full[at] = leaf
        return function(*full)

    def both() -> Any:
        results, pull = jax.vjp(of_moving, *(args[at] for at in moving))
        if not moving or not any(map(_is_floating, jax.tree.leaves(results))):
            return results, ()
        return function(*args) if apart else results, pull(jax.tree.map(_weights, results))

    return both


def _is_floating(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def _weights(leaf: Any) -> Any:
    if not jnp.issubdtype(leaf.dtype, jnp.inexact):
        return np.zeros(leaf.shape, jax.dtypes.float0)
    cells = np.arange(leaf.size).reshape(leaf.shape) % 7 - 2.5
    return (cells if _is_floating(leaf) else 0 * cells).astype(leaf.dtype)


def agrees(
    function: Callable[..., Any],
    *args: Any,
    plans: Iterable[dict[str, Any]] | None = None,
    names: Any = None,
    rtol: float = 2e-5,
    grads: bool = True,
    apart: bool = False,
    maps: bool = False,
) -> tp.Graph:
    """Lift a function; hold the graph, and its gradients under plans, against the function's.

    Without `plans` one that cuts its first dimensions over two mesh axes and in time; with `make thorough` every plan
    that cuts one dimension. `apart` computes values and gradients each by itself; `maps` as `tp.lift` has it.
    """
    # JAX 0.10 refuses NumPy's arrays where a mapped function with a derivative of its own meets them as constants.
    args = jax.tree.map(jnp.asarray, args)
    graph = tp.lift(function, *args, names=names, maps=maps)
    probe = (lambda f: weighed(f, args, apart)) if grads else (lambda f: lambda: (f(*args), ()))
    runs: dict[str, Any] = {}
    for entries in plans if plans is not None else _plans(graph):
        try:
            runs[str(entries)] = tp.plan(graph, mesh(), entries).compile()
        except PlanError as error:
            if plans is not None or not any(text in str(error) for text in _NOTHING_TO_CUT):
                raise

    def check(plain: Call, planned: Call) -> None:
        want = plain(probe(function))
        close(plain(graph, *args), want[0], rtol, "unplanned")
        for entries, run in runs.items():
            close(planned(probe(run)), want, rtol, entries)

    held(check)
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
