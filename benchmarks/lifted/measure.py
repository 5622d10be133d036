"""One model: lifted, planned by hand and by search, and held against itself in values and gradients."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

import tapestry_jax as tp
from benchmarks.costs import collective_bytes
from benchmarks.lifted.entry import Entry, plain
from benchmarks.lifted.measured import LARGER, LIMIT
from benchmarks.loom import executions
from combinators.graphs.walk import operations

Answer = dict[str, Any]
Found = TypeVar("Found")


def measure(entry: Entry, limit: float | None = LIMIT) -> Answer:
    """Lift a model, plan it, and compare.

    Args:
      entry: the model.
      limit: seconds of the search; None searches nothing.

    Returns:
      What the page shows of it; `why` where it cannot be lifted, and where a plan cannot be run.
    """
    answer: Answer = {"package": entry.package, "name": entry.name}
    made = entry.make()
    function, args = plain(made)
    args = jax.tree.map(jnp.asarray, args)
    before = time.process_time()
    graph = _tried(lambda: tp.lift(made.function, *made.args, names=made.names))
    if isinstance(graph, dict):
        return answer | graph
    answer["seconds"] = round(time.process_time() - before, 2)
    answer["operations"] = sum(1 for _ in operations(graph))
    answer["opaque"] = dict(sorted(Counter(found.primitive for found in graph.opaque()).items()))
    want = jax.jit(with_gradients(function, args))(*args)
    answer["unplanned"] = _errors(jax.jit(with_gradients(graph, args))(*args), want)
    mesh = tp.mesh(data=2, model=4)
    for label, plan in _plans(graph, mesh, made.entries, limit):
        answer[label] = plan if isinstance(plan, dict) else _planned(plan, function, args, want, mesh)
    return answer


def machine() -> Any:
    """A H100 on which a model weighs what it would, were every dimension `LARGER` times as long.

    Products take the cube of that, all else that is computed, read or sent its square; what a kernel and a hop take
    stays. On the machine itself no model of this size is worth cutting.
    """
    h100 = tp.machines.H100
    square, cube = LARGER**2, LARGER**3

    def slow(figure: Any, by: int) -> Any:
        return replace(figure, value=figure.value / by)

    def link(found: Any) -> Any:
        return replace(found, bandwidth=slow(found.bandwidth, square))

    return replace(
        h100,
        name=f"H100, as if dimensions were {LARGER} times as long",
        matmul=tuple((dtype, slow(figure, cube)) for dtype, figure in h100.matmul),
        vector=slow(h100.vector, square),
        bandwidth=slow(h100.bandwidth, square),
        cache=slow(h100.cache, square),
        inside=link(h100.inside),
        between=link(h100.between),
        tables=(),
    )


def with_gradients(function: Callable[..., Any], args: Sequence[Any]) -> Callable[..., Any]:
    """A function with its gradients by all floating arguments; every cell of its results weighs differently."""
    tree = jax.tree.structure(tuple(args))
    moving = [jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in jax.tree.leaves(tuple(args))]

    def run(*given: Any) -> tuple[Any, list[Any]]:
        leaves = jax.tree.leaves(given)

        def scalar(floating: Sequence[Any]) -> tuple[Any, Any]:
            told = iter(floating)
            full = [next(told) if moves else leaf for leaf, moves in zip(leaves, moving, strict=True)]
            result = function(*jax.tree.unflatten(tree, full))
            return _weighed(result), result

        floating = [leaf for leaf, moves in zip(leaves, moving, strict=True) if moves]
        gradients, result = jax.grad(scalar, has_aux=True)(floating)
        return result, gradients

    return run


def _weighed(result: Any) -> Any:
    total = jnp.float32(0)
    for leaf in jax.tree.leaves(result):
        if jnp.issubdtype(jnp.asarray(leaf).dtype, jnp.inexact):
            weights = (jnp.arange(leaf.size) % 7 - 2.5).reshape(leaf.shape) / leaf.size
            both = leaf.real + 0.5 * leaf.imag if jnp.iscomplexobj(leaf) else leaf
            total += (weights * both).sum().astype(jnp.float32)
    return total


def _plans(graph: Any, mesh: Any, entries: Mapping[str, Any], limit: float | None) -> Iterator[tuple[str, Any]]:
    by_hand = _tried(lambda: _verified(tp.plan(graph, mesh, entries)))
    yield "by hand", by_hand
    if limit is not None:
        # What has no time left gives the plan that it began with.
        start = None if isinstance(by_hand, dict) else by_hand
        yield (
            "found",
            _tried(lambda: _verified(tp.search(graph, mesh, machine(), grad=True, time_limit=limit, start=start))),
        )


def _verified(plan: tp.Plan) -> tp.Plan:
    plan.verify()
    return plan


def _planned(plan: Any, function: Any, args: Sequence[Any], want: Any, mesh: Any) -> Answer:
    """A plan beside automatic JAX, which gets the same places of arguments and of results."""
    answer: Answer = {"entries": {dim: _shown(item) for dim, item in dict(plan.entries).items()}}
    places = plan.in_shardings
    leaves = zip(jax.tree.leaves(places), jax.tree.leaves(tuple(args)), strict=True)
    made = (plan.out_shardings, [place for place, leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact)])

    def sent(of: Callable[..., Any]) -> Answer:
        run = _compiled(of, args, places, made)
        told = _errors(run(*jax.device_put(tuple(args), places)), want)
        return told | {"collectives": sum(executions(run, mesh).values()), "bytes": collective_bytes(run, mesh).total()}

    answer |= _tried(lambda: sent(plan.compile()))
    if "why" in answer:
        return answer
    automatic = _tried(lambda: sent(function))
    return answer | {"automatic": automatic.get("why", automatic)}


def _tried(run: Callable[[], Found]) -> Found | Answer:
    """What a run gives, or `why` where it raises.

    Models are of others: what they meet raises errors of their packages, of JAX and of ours, and each is what the page
    shows.
    """
    try:
        return run()
    except Exception as error:  # noqa: BLE001 - see above
        return {"why": _first(error)}


def _compiled(function: Any, args: Sequence[Any], places: Any, made: Any) -> Any:
    run = with_gradients(function, args)
    return jax.jit(run, in_shardings=places, out_shardings=made).lower(*args).compile()


def _errors(got: Any, want: Any) -> Answer:
    """The largest difference of values and of gradients, of the largest cell of their tensor."""
    return {label: _difference(g, w) for label, g, w in zip(("value", "gradient"), got, want, strict=True)}


def _difference(got: Any, want: Any) -> float:
    pairs = [(_array(a), _array(b)) for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True) if b.size]
    largest = max((float(np.abs(b[np.isfinite(b)]).max(initial=0)) for _, b in pairs), default=0.0)
    worst = 0.0
    for a, b in pairs:
        finite = np.isfinite(b)
        if a.shape != b.shape or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
            return float("inf")
        own = np.abs(b[finite]).max(initial=0)
        scale = max(float(own), 1e-3 * largest, 1e-30)
        worst = max(worst, float(np.abs(a[finite] - b[finite]).max(initial=0)) / scale)
    return float(f"{worst:.1e}")


def _array(leaf: Any) -> Any:
    array = np.asarray(jax.device_get(leaf))
    return array.astype(np.complex128 if np.iscomplexobj(array) else np.float64)


def _shown(item: Any) -> Any:
    return list(item) if isinstance(item, tuple) and all(isinstance(part, str) for part in item) else str(item)


def _first(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {(lines or ['no reason'])[0][:200]}"
