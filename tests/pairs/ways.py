"""Other derivatives of drawn pairs than gradients, and batches: `python -m tests.pairs --way second`, say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tapestry_jax as tp
from tests.pairs.pair import (
    TOLERANCES,
    Compare,
    cotangents_of,
    difference,
    floating_inputs,
    in_true_sizes,
    unplanned,
    with_gradients,
)
from tests.pairs.programs import Program
from tests.simulated.evaluate import simulated

Run = Callable[..., list[Any]]
_NO_FORWARD = "forward-mode"
"""What JAX says of `jax.custom_vjp`, which has no derivative forwards."""


def second(program: Program, run: Run) -> list[Any]:
    """How the gradients change where all floating inputs move along a direction."""
    gradients, moving = _gradients(program, run), _moving(program)
    return _simulated(
        lambda args, moved: jax.jvp(lambda x: gradients(args, x), ([args[at] for at in moving],), (moved,))[1],
        program.args(),
        _directions(program),
    )


def forward(program: Program, run: Run) -> list[Any]:
    """How the results change there; nothing where a derivative is written backwards alone."""
    moving = _moving(program)

    def tangents(args: Sequence[Any], moved: list[Any]) -> Any:
        def of(chosen: Sequence[Any]) -> list[Any]:
            return [leaf for leaf in run(*_filled(args, moving, chosen)) if jnp.issubdtype(leaf.dtype, jnp.floating)]

        return jax.jvp(of, ([args[at] for at in moving],), (moved,))[1]

    try:
        return _simulated(tangents, program.args(), _directions(program))
    except TypeError as error:
        if _NO_FORWARD in str(error):
            return []
        raise


def twice(program: Program, run: Run) -> list[Any]:
    """The gradients of how much the gradients lie along a direction: backwards twice."""
    gradients, moving = _gradients(program, run), _moving(program)

    def along(args: Sequence[Any], moved: list[Any]) -> Any:
        def total(chosen: Sequence[Any]) -> Any:
            each = [jnp.vdot(slope, way) for slope, way in zip(gradients(args, chosen), moved, strict=True)]
            return sum(each, start=jnp.zeros(()))

        return jax.grad(total)([args[at] for at in moving])

    return _simulated(along, program.args(), _directions(program))


def mapped(program: Program, run: Run) -> list[Any]:
    """The gradients at three places at once, by `jax.vmap`."""
    gradients, moving = _gradients(program, run), _moving(program)

    def batch(args: Sequence[Any], moved: list[Any]) -> Any:
        starts = [args[at] for at in moving]
        places = [jnp.stack([x, x + way, x - 2 * way]) for x, way in zip(starts, moved, strict=True)]
        return jax.vmap(lambda x: gradients(args, x))(places)

    return _simulated(batch, program.args(), _directions(program))


WAYS: dict[str, Callable[[Program, Run], list[Any]]] = {
    each.__name__: each for each in (second, forward, twice, mapped)
}


def compare_by(way: str) -> Compare:
    """What differs between planned and unplanned in one of `WAYS`; None for nothing."""

    def compare(program: Program, plan: tp.Plan) -> tuple[str, str] | None:
        expected, found = _unplanned(way, program), WAYS[way](program, in_true_sizes(program, plan))
        tolerance = 100 * TOLERANCES[str(next(iter(program.types.values())).dtype)]
        for number, (got, want) in enumerate(zip(found, expected, strict=True)):
            if (text := difference(got, want, tolerance)) is not None:
                return "gradient", f"{way} {number}: {text}"
        return None

    return compare


@lru_cache(maxsize=4)
def _unplanned(way: str, program: Program) -> list[Any]:
    return WAYS[way](program, lambda *args: jax.tree.leaves(program.graph(*args)))


def _simulated(function: Callable[..., Any], *args: Any) -> list[Any]:
    return list(simulated(function, *args))


def _gradients(program: Program, run: Run) -> Callable[..., list[Any]]:
    """Of all arguments and the moving ones to the gradients by these."""
    both, moving = with_gradients(run, program.graph), _moving(program)
    cotangents = cotangents_of(unplanned(program)[0])
    return lambda args, chosen: list(both(_filled(args, moving, chosen), cotangents)[1])


def _moving(program: Program) -> list[int]:
    names = floating_inputs(program)
    return [at for at, name in enumerate(program.types) if name in names]


def _directions(program: Program) -> list[Any]:
    rng, args = np.random.default_rng(11), program.args()
    return [rng.normal(size=args[at].shape).astype(args[at].dtype) for at in _moving(program)]


def _filled(args: Sequence[Any], moving: Sequence[int], chosen: Sequence[Any]) -> list[Any]:
    given = dict(zip(moving, chosen, strict=True))
    return [given.get(at, value) for at, value in enumerate(args)]
