"""A famous algorithm as a program under a plan, beside automatic JAX and the same algorithm written by hand."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax import P
from jax.sharding import NamedSharding

import tapestry_jax as tp
from benchmarks.costs import collective_bytes
from benchmarks.row import Row
from benchmarks.timing import paired
from tapestry_jax.hlo.collectives import compiled_collectives

BY_HAND = 1.1


@dataclass(frozen=True)
class Case:
    """One algorithm and its sizes.

    Attributes:
      name: in tables.
      program: what is planned.
      arguments: its arrays.
      entries: the plan.
      automatic: the same mathematics as a JAX user would write it for one device; XLA partitions it.
      by_hand: the same algorithm for global arrays, given the mesh; usually a `shard_map`.
      mesh: name and size of its axes.
      given: where each argument lies; the same for all three.
      made: where the result lies, or each of the results.
      gradients: the number of leading arguments that gradients are taken by; 0 runs forward only.
      options: what else `tp.plan` takes.
    """

    name: str
    program: Any
    arguments: tuple[Any, ...]
    entries: Mapping[str, Any]
    automatic: Callable[..., Any]
    by_hand: Callable[[Any], Callable[..., Any]]
    mesh: Mapping[str, int]
    given: Sequence[P]
    made: Any
    gradients: int = 0
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Targets:
    """What a case is held to; None where nothing is promised.

    Attributes:
      automatic: ours to automatic JAX, time.
      by_hand: ours to hand-written, time.
      temporaries: ours to automatic JAX, bytes that XLA allots on a device.
      collectives: kind to the number of executions that are allowed.
      sent: bytes per device of all collectives together.
    """

    automatic: float | None = None
    by_hand: float | None = BY_HAND
    temporaries: float | None = None
    collectives: Mapping[str, int] = field(default_factory=dict[str, int])
    sent: int | None = None


@dataclass(frozen=True)
class Compiled:
    """The plan and the three programs of a case, compiled for the same places of arguments and results."""

    ours: Any
    automatic: Any
    by_hand: Any
    arguments: tuple[Any, ...]
    mesh: Any
    plan: tp.Plan


def compiled(case: Case) -> Compiled:
    """Plan and compile the three programs of a case."""
    mesh = tp.mesh(jax.devices()[: math.prod(case.mesh.values())], **case.mesh)
    arguments = placed(case, mesh)
    plan = tp.plan(tp.trace(case.program, *case.arguments), mesh, case.entries, **case.options)
    functions = (plan.compile(), case.automatic, case.by_hand(mesh))
    return Compiled(*(compile_for(function, case, mesh, arguments) for function in functions), arguments, mesh, plan)


def placed(case: Case, mesh: Any) -> tuple[Any, ...]:
    """The arguments of a case, where they lie."""
    places = zip(case.arguments, case.given, strict=True)
    return tuple(jax.device_put(argument, NamedSharding(mesh, spec)) for argument, spec in places)


def compile_for(function: Callable[..., Any], case: Case, mesh: Any, arguments: tuple[Any, ...]) -> Any:
    """Compile a program of a case, with gradients where the case takes them, arguments and results pinned."""
    return lowered_for(function, case, mesh, arguments).compile()


def lowered_for(function: Callable[..., Any], case: Case, mesh: Any, arguments: tuple[Any, ...]) -> Any:
    """The same before it is compiled."""
    given = [NamedSharding(mesh, spec) for spec in case.given]
    made = jax.tree.map(lambda spec: NamedSharding(mesh, spec), case.made, is_leaf=lambda leaf: isinstance(leaf, P))
    if case.gradients:
        function, made = with_gradients(function, case.gradients), (made, given[: case.gradients])
    return jax.jit(function, in_shardings=given, out_shardings=made).lower(*arguments)


def rows(case: Case, targets: Targets, rounds: int) -> list[Row]:
    """Times, collectives and temporaries of a case.

    Args:
      case: what is measured.
      targets: what it is held to.
      rounds: turns of each timing.
    """
    built = compiled(case)
    run = {
        label: lambda program=program: program(*built.arguments)
        for label, program in (("ours", built.ours), ("automatic", built.automatic), ("by hand", built.by_hand))
    }
    found: list[Row] = []
    for label, target in (("automatic", targets.automatic), ("by hand", targets.by_hand)):
        times = paired(run["ours"], run[label], rounds=rounds)
        shown = (times.ours * 1e3, times.peer * 1e3, "ms", target)
        found.append(Row(f"{case.name}: time, beside {label}", *shown, compared=times.ratio))
    held = [temporaries(program) for program in (built.ours, built.automatic, built.by_hand)]
    found.append(Row(f"{case.name}: temporaries, beside automatic", held[0], held[1], "B", targets.temporaries))
    found.append(Row(f"{case.name}: temporaries, beside by hand", held[0], held[2], "B", None))
    return [*found, *_communication(case, targets, built)]


def executions(program: Any, mesh: Any) -> Counter[str]:
    """How often a compiled program runs collectives of each kind."""
    total: Counter[str] = Counter()
    for found in compiled_collectives(program.as_text(), mesh):
        total[found.kind] += found.times
    return total


def temporaries(program: Any) -> int:
    """Bytes that XLA allots on one device beside arguments and results."""
    return program.memory_analysis().temp_size_in_bytes


def _communication(case: Case, targets: Targets, built: Compiled) -> list[Row]:
    ours, theirs = (executions(program, built.mesh) for program in (built.ours, built.automatic))
    found = [
        Row(f"{case.name}: {kind}", ours[kind], theirs[kind], "x", targets.collectives.get(kind), "value")
        for kind in sorted(ours | theirs | Counter(targets.collectives))
    ]
    sent, by_xla = (collective_bytes(program, built.mesh).total() for program in (built.ours, built.automatic))
    if sent or by_xla:
        found.append(Row(f"{case.name}: sent", sent, by_xla, "B", targets.sent, "value"))
    return found


def with_gradients(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """The function together with its gradients by the first arguments: of a loss, or with the result as cotangent."""

    def run(*arguments: Any) -> tuple[Any, list[Any]]:
        result, pull = jax.vjp(lambda *first: function(*first, *arguments[count:]), *arguments[:count])
        return result, list(pull(jnp.ones_like(result) if result.ndim == 0 else result))

    return run
