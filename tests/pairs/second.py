"""Second derivatives of drawn pairs: `python -m tests.pairs --second`. Gradients are moved along a drawn direction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np

import tapestry_jax as tp
from tests.pairs.pair import (
    TOLERANCES,
    cotangents_of,
    difference,
    floating_inputs,
    in_true_sizes,
    unplanned,
    with_gradients,
)
from tests.pairs.programs import Program
from tests.simulated.evaluate import simulated


def compare_second(program: Program, plan: tp.Plan) -> tuple[str, str] | None:
    """What differs between the second derivatives of planned and unplanned; None for nothing."""
    expected, found = _unplanned(program), _moved(program, in_true_sizes(program, plan))
    tolerance = 100 * TOLERANCES[str(next(iter(program.types.values())).dtype)]
    for name, got, want in zip(floating_inputs(program), found, expected, strict=True):
        if (text := difference(got, want, tolerance)) is not None:
            return "gradient", f"second derivative by {name}: {text}"
    return None


@lru_cache(maxsize=4)
def _unplanned(program: Program) -> list[Any]:
    return _moved(program, lambda *args: jax.tree.leaves(program.graph(*args)))


def _moved(program: Program, run: Callable[..., list[Any]]) -> list[Any]:
    """How the gradients change where all floating inputs move along a direction."""
    both, args, rng = with_gradients(run, program.graph), program.args(), np.random.default_rng(11)
    names = floating_inputs(program)
    moving = [at for at, name in enumerate(program.types) if name in names]
    directions = [rng.normal(size=args[at].shape).astype(args[at].dtype) for at in moving]

    def second(args: Sequence[Any], cotangents: Sequence[Any], directions: Sequence[Any]) -> Any:
        def gradients(chosen: Sequence[Any]) -> Any:
            filled = list(args)
            for at, value in zip(moving, chosen, strict=True):
                filled[at] = value
            return both(filled, cotangents)[1]

        return jax.jvp(gradients, ([args[at] for at in moving],), (list(directions),))[1]

    return simulated(second, args, cotangents_of(unplanned(program)[0]), directions)
