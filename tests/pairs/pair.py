"""One pair of a program and a plan: planned is unplanned, in values and gradients."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tapestry_jax as tp
from tapestry_jax.planning.scheduling.schedule import Region, Repeat
from tests.pairs.plans import Placing, draw_placing, repaired
from tests.pairs.programs import Program, draw_program
from tests.simulated.evaluate import simulated

TOLERANCES = {"float64": 1e-7, "float32": 2e-3, "bfloat16": 0.15}


Compare = Callable[[Program, tp.Plan], tuple[str, str] | None]
"""A planned program to a verdict with what is wrong; None for nothing."""


@dataclass(frozen=True)
class Outcome:
    """What came of a pair.

    Attributes:
      verdict: `equal`, `trivial` (equal, but nothing was cut), `refused`, `alarm` (the verifier refuses what is
        right), `wrong`, `gradient`, `names` (see `compiled`) or `error`.
      text: what is wrong.
      refusals: why plans were refused on the way.
      smooth: whether gradients were compared.
    """

    verdict: str
    text: str = ""
    refusals: tuple[str, ...] = ()
    smooth: bool = False


def draw_pair(seed: str, plans: int, **chosen: Any) -> list[tuple[Program, Placing]]:
    """A program, and several plans of it."""
    program = draw_program(seed, **chosen)
    kind, edition = next(iter(program.types.values())).dtype, program.edition
    return [(program, draw_placing(f"{seed}/plan {number}", program.graph, kind, edition)) for number in range(plans)]


def check(
    program: Program, placing: Placing, seed: str = "", repair: bool = True, by: Compare | None = None
) -> tuple[Placing, Outcome]:
    """Plan and compare (`by`, by default `compare`); the placing that was accepted in the end, and what came of it."""
    try:
        if repair:
            placing, plan, refusals = repaired(placing, program.graph, seed)
        else:
            plan, refusals = _planned(placing, program.graph)
    except Exception:  # noqa: BLE001, any error is a finding
        return placing, Outcome("error", "planning\n" + traceback.format_exc(limit=-8))
    if plan is None:
        return placing, Outcome("refused", refusals=tuple(refusals))
    alarm = _alarm(plan)
    try:
        found = (by or compare)(program, plan)
    except Exception:  # noqa: BLE001, any error is a finding
        found = "error", traceback.format_exc(limit=-8)
    refused, smooth = tuple(refusals), bool(floating_inputs(program))
    if found is None:
        equal = "equal" if _is_cut(plan) else "trivial"
        return placing, Outcome("alarm", alarm, refused) if alarm else Outcome(equal, "", refused, smooth)
    verdict, text = found
    return placing, Outcome(verdict, f"{text}\nverify(): {alarm or 'no alarm'}", refused)


def _is_cut(plan: tp.Plan) -> bool:
    """Whether there is anything to be wrong: a value in pieces, or a loop over some."""
    loops = (step for step in plan.schedule.steps if isinstance(step, Region | Repeat))
    slots = (*plan.schedule.slots, *(slot for step in loops for slot in step.body.slots))
    return any(cut is not None for slot in slots for cut in slot.layout.cuts)


def _planned(placing: Placing, graph: tp.Graph) -> tuple[tp.Plan | None, Sequence[str]]:
    try:
        return placing.plan(graph), []
    except tp.PlanError as error:
        return None, [str(error)]


def _alarm(plan: tp.Plan) -> str:
    try:
        plan.verify()
    except tp.PlanError as error:
        return str(error)
    except Exception:  # noqa: BLE001, any error is a finding
        return traceback.format_exc(limit=-8)
    return ""


def compare(program: Program, plan: tp.Plan) -> tuple[str, str] | None:
    """What differs between planned and unplanned; None for nothing."""
    both, args = value_and_gradients(program, plan)
    return judged(program, *simulated(both, *args))


def value_and_gradients(program: Program, plan: tp.Plan) -> tuple[Callable[..., Any], tuple[Any, Any]]:
    """The planned program and its pullback as one function, and what it is called with."""
    expected = unplanned(program)[0]
    run = in_true_sizes(program, plan)
    return with_gradients(run, program.graph), (program.args(), cotangents_of(expected))


def judged(program: Program, values: Sequence[Any], gradients: Sequence[Any]) -> tuple[str, str] | None:
    """What differs from the unplanned program; None for nothing."""
    expected, slopes = unplanned(program)
    tolerance = TOLERANCES[str(next(iter(program.types.values())).dtype)]
    for number, (got, want) in enumerate(zip(values, expected, strict=True)):
        if (text := difference(got, want, tolerance)) is not None:
            return "wrong", f"output {number}: {text}"
    for name, got, want in zip(floating_inputs(program), gradients, slopes, strict=True):
        if (text := difference(got, want, 10 * tolerance)) is not None:
            return "gradient", f"gradient by {name}: {text}"
    return None


def in_true_sizes(program: Program, plan: tp.Plan) -> Callable[..., list[Any]]:
    """The planned program without the padding of results that the plan stores in padded pieces."""
    run, shapes = plan.compile().jitted, [value.shape for value in unplanned(program)[0]]
    return lambda *args: [
        leaf[_box(leaf, shape)] for leaf, shape in zip(jax.tree.leaves(run(*args)), shapes, strict=True)
    ]


def _box(leaf: Any, shape: tuple[int, ...]) -> Any:
    return tuple(map(slice, shape)) if leaf.shape != shape else ...


@lru_cache(maxsize=4)
def unplanned(program: Program) -> tuple[list[Any], list[Any]]:
    """Values, and gradients by all floating inputs, without a plan."""
    graph, args = program.graph, program.args()
    values = simulated(lambda args: jax.tree.leaves(graph(*args)), args)
    return simulated(with_gradients(graph, graph), args, cotangents_of(values))


def floating_inputs(program: Program) -> list[str]:
    """The names of the inputs that have a gradient."""
    return [name for name, kind in program.types.items() if jnp.issubdtype(kind.dtype, jnp.floating)]


def cotangents_of(values: Sequence[Any]) -> list[Any]:
    """One for each floating result."""
    rng = np.random.default_rng(7)
    return [
        rng.normal(size=value.shape).astype(value.dtype)
        for value in values
        if jnp.issubdtype(value.dtype, jnp.floating)
    ]


def with_gradients(run: Callable[..., Any], graph: tp.Graph) -> Callable[..., Any]:
    """The results of `run`, and by the cotangents of its floating ones the gradients by all floating inputs."""
    smooth = [i for i, node in enumerate(graph.inputs) if jnp.issubdtype(node.results[0].dtype, jnp.floating)]

    def both(args: Sequence[Any], cotangents: Sequence[Any]) -> Any:
        def of(chosen: Sequence[Any]) -> Any:
            filled = list(args)
            for position, value in zip(smooth, chosen, strict=True):
                filled[position] = value
            leaves = jax.tree.leaves(run(*filled))
            return [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)], leaves

        _, pull, leaves = jax.vjp(of, [args[i] for i in smooth], has_aux=True)
        return leaves, pull(list(cotangents))[0]

    return both


def difference(got: Any, want: Any, tolerance: float) -> str | None:
    """What differs by more than rounding, in proportion to the largest number; None for nothing."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"got {got.dtype}{got.shape}, expected {want.dtype}{want.shape}"
    if not jnp.issubdtype(want.dtype, jnp.floating):
        return None if np.array_equal(got, want) else f"got {got.ravel()[:8]}, expected {want.ravel()[:8]}"
    got, want = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(want)
    scale = max(1.0, float(np.max(np.abs(want), initial=0.0, where=finite)))
    with np.errstate(all="ignore"):
        off = np.where(finite, ~(np.abs(got - want) <= tolerance * scale), ~_alike(got, want))
    if not off.any():
        return None
    at = tuple(int(i) for i in np.argwhere(off)[0])
    kind = "" if np.isfinite(got).all() == finite.all() and np.isfinite(got[off]).all() else " (not finite)"
    return f"{int(off.sum())} of {off.size} cells differ{kind}; at {at} got {got[at]}, expected {want[at]}"


def _alike(got: Any, want: Any) -> Any:
    return (got == want) | (np.isnan(got) & np.isnan(want))
