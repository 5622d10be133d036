"""Applying programs to tensors by name: all outputs get their names in one moment, or none does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from combinators.arguments import read_list
from combinators.errors import message, spelt
from combinators.frozen import dataclass
from combinators.index_space.tensor_type import TensorType
from tapestry_jax.fabric.arrays import Pieces, array_of
from tapestry_jax.fabric.catalogue import reads, writes
from tapestry_jax.fabric.drafts import Draft, Origin, check_free, commit, discard, kind_of, write_draft
from tapestry_jax.fabric.errors import FabricError
from tapestry_jax.fabric.opened import Opened
from tapestry_jax.fabric.placing import layout_of
from tapestry_jax.fabric.programs.holding import hold
from tapestry_jax.fabric.programs.program import Program, plan_detail, read_plan, read_program, run
from tapestry_jax.fabric.programs.streaming import Asked, run_streamed
from tapestry_jax.fabric.streams.sources import FabricSource
from tapestry_jax.fabric.tensors.boxes import Box, slices
from tapestry_jax.fabric.tensors.names import read_tensor_name
from tapestry_jax.fabric.tensors.records import Version
from tapestry_jax.plan import Plan


@dataclass(frozen=True)
class How:
    """How a program is run.

    Attributes:
      plan: entries as `tp.plan` takes them, or a plan.
      over: entries as `tp.stream` takes them, or None.
      parameters: under which names lie the arrays that the program holds, or None.
      memory: bytes for the stream, or None.
      checkpoint: a folder for the stream, or None.
    """

    plan: Any = None
    over: Any = None
    parameters: Any = None
    memory: Any = None
    checkpoint: Any = None

    @property
    def is_streamed(self) -> bool:
        """Whether inputs are read piece by piece; which dimension is streamed may be left to `tp.stream`."""
        return not all(each is None for each in (self.over, self.memory, self.checkpoint))


def apply(opened: Opened, function: Any, inputs: Sequence[Any], out: Any, how: How, overwrite: bool) -> None:
    """Run a program on tensors, and name what it gives.

    Raises:
      FabricError: for names that are not there, taken or too few; a program that takes other tensors; lost blocks.
      TapestryError: where the program cannot be traced or planned.
    """
    names = [read_tensor_name(name, "an input") for name in inputs]
    outputs = read_outputs(out)
    where = f"apply {', '.join(map(repr, names))} -> {', '.join(map(repr, outputs))}"
    check_free(opened, outputs, overwrite, where)
    if how.parameters is not None:
        with opened.pinned(names) as versions:
            types = [version.kind.type for version in versions]
            function, held = hold(opened, function, types, how.parameters, overwrite, where)
        if {*held} & {*outputs}:
            remedy = "Give results other names."
            raise FabricError(message(f"{where}: a result has the name of a parameter", remedy=remedy))
        names = [*held, *names]
    with opened.pinned(names) as versions:
        program = read_program(function, names, [version.kind.type for version in versions], where)
        check_outputs(program, outputs, where)
        if how.is_streamed:
            _stream(opened, program, how, (names, versions), outputs, overwrite, where)
            return
        layouts = [version.kind.layout for version in versions]
        planned = read_plan(how.plan, program.graph, opened.mesh, layouts, where)
        results = compute(opened, names, versions, program, planned)
        drafts = _drafts(opened, outputs, program.under(planned), results)
        detail = {"function": program.name, **plan_detail(planned)}
        numbers = [version.number for version in versions]
        commit(opened, drafts, overwrite, Origin("apply", detail, numbers, (program.graph.key, program.text)), where)


def _stream(
    opened: Opened,
    program: Program,
    how: How,
    inputs: tuple[Sequence[str], Sequence[Version]],
    outputs: Sequence[str],
    overwrite: bool,
    where: str,
) -> None:
    """The same, piece by piece; what is made so lies in blocks already when all get their names."""
    plan = how.plan
    if plan is not None and not isinstance(plan, Plan):
        remedy = "Write all entries into over=, as tp.stream takes them."
        raise FabricError(message(f"{where}: a stream has one set of entries", f"got {spelt(plan)}", remedy=remedy))
    if plan is not None:
        read_plan(plan, program.graph, opened.mesh, (), where)  # that it is one of this program
    streamed = None
    try:
        asked = Asked(how.over, how.memory, how.checkpoint)
        streamed = run_streamed(opened, program.graph if plan is None else plan, asked, inputs, outputs)
        drafts: dict[str, Draft | int] = {}
        for name, type, result in zip(outputs, program.results, streamed.results, strict=True):
            drafts[name] = _written(opened, name, type, result)
        detail = {"function": program.name, **plan_detail(streamed.plan), "streamed": streamed.dims}
        numbers = [version.number for version in inputs[1]]
        origin = Origin("apply", detail, numbers, (program.graph.key, program.text))
        commit(opened, drafts, overwrite, origin, where)
    except BaseException:
        # What a stream with a checkpoint has written, the next attempt goes on with.
        if how.checkpoint is None:
            _give_up(opened, outputs)
        raise
    finally:
        if streamed is not None:
            streamed.close()
    _give_up(opened, outputs)


def _give_up(opened: Opened, outputs: Sequence[str]) -> None:
    """What this session was writing under these names and did not name."""
    with opened.changing():
        for name in outputs:
            found = reads.pending(opened.catalogue, name)
            if found is not None and found[0] == opened.blocks.session:
                writes.drop_pending(opened.catalogue, name)


def _written(opened: Opened, name: str, type: TensorType, result: Any) -> Draft | int:
    """A result of a stream: a version that a sink has written, or an array that fits into memory."""
    found = reads.pending(opened.catalogue, name)
    if isinstance(result, FabricSource) and found is not None:
        return found[1].number
    return write_draft(opened, name, kind_of(opened, type), lambda box: np.asarray(result)[(*slices(box), ...)])


def compute(
    opened: Opened, names: Sequence[str], versions: Sequence[Version], program: Program, plan: Plan | None
) -> list[jax.Array]:
    """The outputs of a program on versions, each read once."""
    shardings = [None] * len(names) if plan is None else jax.tree.leaves(plan.in_shardings)
    arrays = [
        array_of(opened, name, version, sharding)
        for name, version, sharding in zip(names, versions, shardings, strict=True)
    ]
    return run(program.graph, plan, arrays)


def read_outputs(out: Any) -> tuple[str, ...]:
    """The names of outputs: one, or a list of them.

    Raises:
      FabricError: for what are none, or stand twice.
    """
    found = (out,) if isinstance(out, str) else read_list(out, "out= of apply", FabricError)
    names = tuple(read_tensor_name(name, "an output") for name in found)
    if len(set(names)) != len(names) or not names:
        told = f"got {', '.join(names) or 'none'}"
        raise FabricError(message("apply: outputs need names of their own", told, remedy='Write out=("y", "z").'))
    return names


def check_outputs(program: Program, outputs: Sequence[str], where: str) -> None:
    """That there are as many names as results.

    Raises:
      FabricError: where there are not.
    """
    known = [name for name, _ in program.graph.outputs]
    if len(known) != len(outputs):
        details = f"it gives {len(known)}: {', '.join(known[:8])}", f"got {len(outputs)} names"
        remedy = 'Name each of them in order: out=("y", "z").'
        raise FabricError(message(f"{where}: the program has other results", *details, remedy=remedy))


def _drafts(
    opened: Opened, outputs: Sequence[str], program: Program, results: Sequence[jax.Array]
) -> Mapping[str, Draft]:
    made: dict[str, Draft] = {}
    try:
        for name, type, array in zip(outputs, program.results, results, strict=True):
            # A plan may give padded pieces, if that is what was asked for.
            array = array if array.shape == type.shape else array[tuple(map(slice, type.shape))]
            kind = kind_of(opened, type, layout=layout_of(type.names, array.sharding))
            made[name] = write_draft(opened, name, kind, _whole(array) if opened.blocks.keeps_whole else Pieces(array))
    except BaseException:
        discard(opened, [file for draft in made.values() for file in draft.files])
        raise
    return made


def _whole(array: jax.Array) -> Callable[[Box], jax.Array]:
    """All of an array, as it lies: it is one block."""
    return lambda box: array
