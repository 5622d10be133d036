"""A kernel's program, counted: FLOP, and the bytes that go to memory and back.

FLOP are counted as XLA's own cost analysis does (tests hold the two together), but for loops, whose turns XLA does not
count (`arithmetic.py`). Bytes follow from how XLA fuses (`fused.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax

from combinators.kernels.jaxprs import is_literal
from tapestry_jax.planning.folding.sent import nbytes
from tapestry_jax.planning.pricing.counting.arithmetic import arithmetic
from tapestry_jax.planning.pricing.counting.counts import Counts, added
from tapestry_jax.planning.pricing.counting.fused import heads, kernels, moved
from tapestry_jax.planning.pricing.counting.kept import kept, stacked
from tapestry_jax.planning.pricing.counting.opened import Program, Step, needed, opened
from tapestry_jax.planning.pricing.counting.passes import beside
from tapestry_jax.planning.pricing.counting.primitives import is_root
from tapestry_jax.planning.pricing.counting.traced import Traced, trace, trace_backward

Struct = jax.ShapeDtypeStruct


def count(function: Callable[..., Sequence[Any]], structs: Sequence[Struct], platform: str = "") -> Counts:
    """The counts of a function of arrays of these types, which gives a list of arrays. Nothing is compiled.

    Args:
      function: from arrays to a list of arrays.
      structs: their types.
      platform: whose compiler fuses it, as lowering names it; `tpu` writes what others compute on the way.
    """
    return counted(trace(function, structs), platform)


def count_backward(
    function: Callable[..., Sequence[Any]], structs: Sequence[Struct], by: Sequence[int], platform: str = ""
) -> Counts:
    """What the backward pass of a function computes, given all that the forward pass has made.

    Args:
      function: from arrays to a list of arrays.
      structs: their types.
      by: the positions of the arrays whose gradients are wanted.
      platform: as for `count`.

    Returns:
      The counts of what depends on the cotangents of the results; what it reads that the forward pass has made, and
      the gradients that it writes, are `outer`, `reads` is empty.
    """
    return counted(trace_backward(trace(function, structs), structs, by), platform)


def counted(traced: Traced | None, platform: str = "") -> Counts:
    """The counts of a program: all of it; or of a backward pass, as `count_backward` has them; or of none."""
    if traced is None:
        return Counts()
    program = opened(traced.jaxpr, platform)
    return _counted(program) if traced.cotangents is None else _counted_backward(program, traced.cotangents)


def _counted(program: Program) -> Counts:
    total = Counts()
    for step in program.steps:
        total = added(total, _of(step, program.platform))
    together = kernels(program)
    memory = moved(program, together)
    return replace(
        total,
        inner=total.inner + memory.inner,
        largest=max(total.largest, memory.largest),
        repeated=total.repeated + memory.repeated,
        beside=total.beside + beside(program, together),
        reads=memory.reads,
        heads=heads(program),
        kernels=total.kernels + len(together),
    )


def _counted_backward(whole: Program, cotangents: int) -> Counts:
    gradients, results = whole.outputs[:-cotangents], frozenset(whole.outputs[-cotangents:])
    program = replace(whole, steps=needed(whole.steps, gradients), outputs=gradients)
    reached = set(program.inputs[:cotangents])
    steps: list[Step] = []
    for step in program.steps:
        if not reached.isdisjoint(step.reads):
            reached.update(step.makes)
            steps.append(step)
        elif not is_root(step.name):
            # Elementwise work of the forward pass is done again where it is read: XLA fuses it there.
            steps.append(step)
    steps = needed(steps, program.outputs)
    made = {key for step in steps for key in step.makes}
    given = list(dict.fromkeys(key for step in steps for key in step.reads if key not in made))
    found = _counted(Program(steps, given, program.outputs, program.types, program.platform))
    read = sum(times * program.types[key] for key, times in zip(given, found.reads, strict=True))
    wrote = sum(program.types[key] for key in dict.fromkeys(program.outputs) if key in made)
    stays, stacks = kept(program, cotangents, results), stacked(program, cotangents)
    return replace(found, outer=read + wrote, kept=stays, stacked=stacks, reads=())


def _of(step: Step, platform: str) -> Counts:
    """The counts of one equation, with all turns of a loop, and what is inside of it."""
    params = step.equation.params
    if step.name == "scan":
        return _loop(params["jaxpr"], float(params["length"]), platform)
    if step.name == "while":
        # How often it turns, no type says: once.
        return _loop(params["body_jaxpr"], 1.0, platform)
    if step.name == "cond":
        branches = [_counted(opened(branch.jaxpr, platform)) for branch in params["branches"]]
        return _inside(max(branches, key=lambda counts: (counts.flops, counts.inner)), 1.0)
    return arithmetic(step, platform)


def _loop(body: Any, turns: float, platform: str) -> Counts:
    return _inside(_counted(opened(body.jaxpr, platform)), turns, body.jaxpr)


def _inside(counts: Counts, times: float, body: Any = None) -> Counts:
    """The counts of a program inside: what its turns read and write is not fused with anything outside."""
    between = 0.0
    if body is not None:
        between = sum(times * nbytes(variable.aval) for variable, times in zip(body.invars, counts.reads, strict=True))
        between += sum(nbytes(atom.aval) for atom in body.outvars if not is_literal(atom))
    return added(Counts(), replace(counts, inner=counts.inner + between, kernels=max(counts.kernels, 1)), times)
