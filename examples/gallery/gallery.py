"""What every script here does with its program: plan it, check it, and measure it beside plain JAX.

A script says what its row is (an `Example`) and calls `show`. Eight CPU devices are simulated where there are fewer.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tapestry_jax as tp
from tapestry_jax.hlo.collectives import compiled_collectives

DEVICES = 8


@dataclass(frozen=True)
class Planned:
    """One plan of a row.

    Attributes:
      known_as: what people call the program under this plan.
      entries: dimension to mesh axis, as `tp.plan` takes them.
      mesh: name and size of the mesh axes.
      options: what else `tp.plan` takes: `ops`, `inputs`, `outputs`.
    """

    known_as: str
    entries: Mapping[str, Any]
    mesh: Mapping[str, int] = field(default_factory=lambda: {"data": DEVICES})
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Example:
    """A row: one program, its plans, and what a JAX user would write without them.

    Attributes:
      program: a `tp.program`, or any arrow.
      arguments: arrays, of the true sizes.
      plans: the plans of the row.
      automatic: the same mathematics in plain JAX; it runs under `jax.jit` with the shardings of the plan.
      tolerance: the largest difference from the unplanned program, relative to the largest entry of each result.
    """

    program: Any
    arguments: tuple[Any, ...]
    plans: Sequence[Planned]
    automatic: Callable[..., Any]
    tolerance: float = 2e-5


@dataclass(frozen=True)
class Checked:
    """How far a plan is from the unplanned program: differences relative to the largest entry of each result."""

    value: float
    gradients: float


@dataclass(frozen=True)
class Measured:
    """Value and gradients of a plan beside plain JAX, ours first.

    Attributes:
      sent: bytes per device of all collectives.
      temporaries: bytes that XLA allots on one device.
      time: ratio of times, the median over turns.
    """

    sent: tuple[int, int]
    temporaries: tuple[int, int]
    time: float


def show(make: Callable[[], Example], rounds: int = 20) -> list[Checked]:
    """Print every plan, its check and its ratios.

    Args:
      make: makes the row; called once there are devices.
      rounds: turns of the timing; 0 leaves out what is measured.

    Raises:
      AssertionError: when a planned program, or the plain one, differs from the unplanned program.
    """
    simulate()
    example = make()
    graph = tp.trace(example.program, *example.arguments)
    expected = jax.jit(value_and_gradients(example.program))(*example.arguments)
    plain = _difference(jax.jit(example.automatic)(*example.arguments), expected[0])
    assert plain <= example.tolerance, f"plain JAX differs from the unplanned program by {plain:.1e}"
    return [_show(example, graph, planned, expected, rounds) for planned in example.plans]


def simulate() -> None:
    """Simulate devices, where JAX has not counted its own yet."""
    if jax.config.jax_num_cpu_devices != DEVICES:
        jax.config.update("jax_num_cpu_devices", DEVICES)


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> Any:
    """Normal random numbers."""
    return jnp.asarray(np.random.default_rng(seed).normal(scale=scale, size=shape).astype(np.float32))


def value_and_gradients(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function together with its gradients by all floating arguments: those of `sum(value**3) / 3`.

    A plain sum would be a poor test: it is constant under a softmax, and so is the sum of squares under a batch norm.
    """

    def run(*args: Any) -> tuple[Any, list[Any]]:
        smooth = [at for at, arg in enumerate(args) if _is_smooth(arg)]

        def of_smooth(*chosen: Any) -> Any:
            filled = list(args)
            for at, arg in zip(smooth, chosen, strict=True):
                filled[at] = arg
            return function(*filled)

        value, pull = jax.vjp(of_smooth, *(args[at] for at in smooth))
        return value, list(pull(jax.tree.map(jnp.square, value)))

    return run


def _show(example: Example, graph: Any, planned: Planned, expected: Any, rounds: int) -> Checked:
    plan = tp.plan(graph, tp.mesh(jax.devices("cpu"), **planned.mesh), planned.entries, **planned.options)
    plan.verify()
    print(f"\n# {planned.known_as}: {_listed(planned.entries)}\n\n{plan.explain(grad=True)}\n")
    args = plan.put(*example.arguments)
    run = _compile(plan.compile(), plan, args)
    checked = Checked(*map(_difference, run(*args), expected))
    print(
        "equal to the unplanned program up to rounding: "
        f"value {checked.value:.0e}, gradients {checked.gradients:.0e} of the largest entry"
    )
    worst = max(checked.value, checked.gradients)
    assert worst <= example.tolerance, f"{planned.known_as}: differs from the unplanned program by {worst:.1e}"
    if rounds:
        print(_report(_measure(plan, run, _compile(example.automatic, plan, args), args, rounds)), flush=True)
    return checked


def _measure(plan: Any, ours: Any, theirs: Any, args: tuple[Any, ...], rounds: int) -> Measured:
    return Measured(
        (_sent(ours, plan.mesh), _sent(theirs, plan.mesh)),
        (ours.memory_analysis().temp_size_in_bytes, theirs.memory_analysis().temp_size_in_bytes),
        # Turn by turn, so that a slow moment of the machine counts for both.
        statistics.median(_seconds(ours, args) / _seconds(theirs, args) for _ in range(rounds)),
    )


def _compile(function: Callable[..., Any], plan: Any, args: tuple[Any, ...]) -> Any:
    """Value and gradients as one program, arguments, values and gradients where the plan has them."""
    made = [where for where, arg in zip(plan.in_shardings, args, strict=True) if _is_smooth(arg)]
    step = value_and_gradients(function)
    return (
        jax.jit(step, in_shardings=plan.in_shardings, out_shardings=(plan.out_shardings, made)).lower(*args).compile()
    )


def _sent(compiled: Any, mesh: Any) -> int:
    return sum(each.bytes * each.times for each in compiled_collectives(compiled.as_text(), mesh))


def _seconds(compiled: Any, args: tuple[Any, ...]) -> float:
    begun = time.perf_counter()
    jax.block_until_ready(compiled(*args))
    return time.perf_counter() - begun


def _difference(found: Any, wanted: Any) -> float:
    """The largest difference of two trees, relative to the largest entry of each array."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
    arrays = [(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in pairs]
    return max((float(np.max(np.abs(a - b)) / max(np.max(np.abs(b)), 1e-30)) for a, b in arrays), default=0.0)


def _is_smooth(arg: Any) -> bool:
    return all(jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in jax.tree.leaves(arg))


def _report(measured: Measured) -> str:
    sent, held = measured.sent, measured.temporaries
    return "\n".join(
        [
            "value and gradients beside plain JAX with the same shardings:",
            f"  collective bytes per device {sent[0]:,} : {sent[1]:,}{_ratio(*sent)}",
            f"  temporary bytes per device {held[0]:,} : {held[1]:,}{_ratio(*held)}",
            f"  time ratio {measured.time:.2f}",
        ]
    )


def _listed(entries: Mapping[str, Any]) -> str:
    """The entries as a plan is written."""
    items = {dim: item if isinstance(item, tuple) else (item,) for dim, item in entries.items()}
    return ", ".join(f"{dim} -> {', '.join(map(str, item))}" for dim, item in items.items())


def _ratio(ours: int, theirs: int) -> str:
    return f", ratio {ours / theirs:.2f}" if theirs else ""
