"""Compiling a planned program, for devices that may not be here, to hear what the compiler says."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax

from combinators.arguments import read_mapping
from combinators.errors import PlanError, message, spelt
from tapestry_jax.aot.missing import version
from tapestry_jax.aot.seen import Memory, Seen
from tapestry_jax.hlo.collectives import collectives_of
from tapestry_jax.hlo.cycles import costed, unestimated
from tapestry_jax.hlo.text import read
from tapestry_jax.lowering.pinned import trace_pinned
from tapestry_jax.memory.predicted import memory_of
from tapestry_jax.planning.prediction.collectives import collectives
from tapestry_jax.planning.prediction.platform import as_compiled
from tapestry_jax.planning.rewrites.platforms import Platforms, platforms_of
from tapestry_jax.planning.scheduling.schedule import Region, Repeat, Schedule

_PACKAGES = {"tpu": "libtpu", "cuda": "jax-cuda12-pjrt"}


def compile_only(
    schedule: Schedule,
    mesh: Any,
    grad: bool | int | Sequence[int] = False,
    platforms: Platforms = (),
    compiler_options: Mapping[str, Any] | None = None,
) -> Seen:
    """Compile a schedule with its arguments and results where the plan wants them, and read what comes out.

    Args:
      schedule: of a plan.
      mesh: with devices; those of `tp.topology` do.
      grad: as in `Plan.collectives`.
      platforms: what the plan was made for; empty for any.
      compiler_options: as `jax.jit` takes them.

    Raises:
      PlanError: where the plan was made for another platform, or the compiler refuses the program.
    """
    name = schedule.graph.name
    found = platforms_of(mesh)
    # What was planned for CPUs holds no kernel of other machines, and runs on all.
    if platforms and {*platforms} != {"cpu"} and not {*found} <= {*platforms}:
        raise PlanError(
            message(
                f"`{name}` was planned for {', '.join(platforms)}, and these devices are {', '.join(found)}",
                f"got {mesh.devices.flat[0].device_kind}",
                remedy="Plan for this mesh: leave platforms= out.",
            )
        )
    platform, machine = found[0] if found else "", mesh.devices.flat[0].device_kind
    predicted = tuple(
        as_compiled(each, platform, machine, math.prod(mesh.shape[axis] for axis in each.axes))
        for each in collectives(schedule, grad)
    )
    options = read_mapping(compiler_options, "compiler_options= of plan.compile_only", PlanError)
    _check_options(schedule.graph.name, options)
    traced = trace_pinned(schedule, mesh, grad)
    needed = memory_of(traced.jaxpr, schedule, found, grad, machine)
    compiled = _compiled(traced, schedule.graph.name, mesh, needed.total, options)
    text = compiled.as_text()
    module = read(text)
    costs = _costs(compiled)
    return Seen(
        name=name,
        machine=f"{mesh.devices.flat[0].device_kind} x {mesh.size}",
        compiler=_compiler(found),
        memory=_memory(compiled, found),
        needed=needed,
        predicted=predicted,
        collectives=tuple(collectives_of(module, mesh)),
        operations=costed(module, frozenset(_paths(schedule))),
        flops=costs.get("flops"),
        bytes_accessed=costs.get("bytes accessed"),
        hlo=text,
        unestimated=unestimated(module),
    )


def _compiled(traced: Any, name: str, mesh: Any, predicted: int, options: dict[str, Any]) -> Any:
    lowered = traced.lower()
    try:
        with warnings.catch_warnings():
            # What was compiled for devices that are not here can be stored, not read: JAX says so, and compiles again.
            warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")
            return lowered.compile(compiler_options=options or None)
    except jax.errors.JaxRuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        if "compile option" in str(error) or any(option and option in str(error) for option in options):
            raise _refused_options(name, str(error)) from error
        fits = re.search(r"Used ([\d.]+\w+) of ([\d.]+\w+)", str(error))
        needed = [f"it needs {fits.group(1)} on a device that has {fits.group(2)}"] if fits else []
        needed += [f"plan.memory predicts {predicted:,} B"] if fits else []
        remedy = "Cut more dimensions, or put some in chunks: plan.explain(grad=True) shows what is alive."
        if not fits:
            remedy = "Those are its own words: place what they name otherwise, or take another version of the compiler."
        raise PlanError(
            message(
                f"the compiler refuses `{name}` for {mesh.devices.flat[0].device_kind} x {mesh.size}",
                *(needed or [line[:200] for line in lines[:4]]),
                remedy=remedy,
            )
        ) from error


def _check_options(name: str, options: dict[Any, Any]) -> None:
    wrong = [
        f"{key!r}: {spelt(value, 60)}"
        for key, value in options.items()
        if not isinstance(key, str) or not isinstance(value, str | bool | int | float)
    ]
    if wrong:
        raise _refused_options(name, *wrong)


def _refused_options(name: str, *lines: str) -> PlanError:
    return PlanError(
        message(
            f"the compiler of `{name}` has no such option, or it takes no such value",
            *(line.strip()[:200] for line in lines),
            remedy="Give names and values as jax.jit(compiler_options=) takes them on this platform, in this version.",
        )
    )


def _memory(compiled: Any, platforms: Sequence[str]) -> Memory:
    said = compiled.memory_analysis()
    allotted = Memory(
        arguments=said.argument_size_in_bytes,
        results=said.output_size_in_bytes,
        temporaries=said.temp_size_in_bytes,
        reused=said.alias_size_in_bytes,
        code=said.generated_code_size_in_bytes,
        peak=said.peak_memory_in_bytes,
    )
    # The compiler for CPUs counts no temporaries in its peak.
    return replace(allotted, peak=allotted.total - allotted.code) if "cpu" in platforms else allotted


def _costs(compiled: Any) -> dict[str, float]:
    try:
        said = compiled.cost_analysis()
    except (NotImplementedError, jax.errors.JaxRuntimeError):
        return {}
    # Some versions of JAX give a list with one entry for each program.
    return dict((said[0] if isinstance(said, list) else said) or {})


def _compiler(platforms: Sequence[str]) -> str:
    package = _PACKAGES.get(platforms[0] if platforms else "", "jaxlib")
    return f"{package} {version(package)}"


def _paths(schedule: Schedule) -> Iterator[str]:
    """The paths of all steps, in loops too."""
    for step in schedule.steps:
        yield step.path
        if isinstance(step, Region | Repeat):
            yield from _paths(step.body)
