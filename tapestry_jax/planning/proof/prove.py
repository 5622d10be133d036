"""The proof, step by step: every slot holds what its layout says, and every operation finds what it reads.

What lowering reads is read here: slots, layouts, changes, cuts, loops. What must hold is worked out anew from the graph
and the cuts of its operations, and compared. So a schedule is right whoever made it, or this says where it is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from combinators.errors import GraphError
from combinators.graphs.nodes import Input
from tapestry_jax.planning.geometry.changes import Share
from tapestry_jax.planning.geometry.layout import Layout
from tapestry_jax.planning.geometry.time_axis import in_space, in_time
from tapestry_jax.planning.proof.holdings import OfLastStage, Value
from tapestry_jax.planning.proof.ledger import Ledger
from tapestry_jax.planning.proof.loops import prove_region
from tapestry_jax.planning.proof.operations import prove_finish, prove_run
from tapestry_jax.planning.proof.repeats import prove_repeat
from tapestry_jax.planning.proof.site import Site, refuse
from tapestry_jax.planning.scheduling.schedule import Convert, Finish, Region, Repeat, Run, Schedule, Slot, Step


def prove(schedule: Schedule) -> None:
    """Prove that a schedule computes its graph, for every device, turn and stage.

    Every index of every operation is computed exactly once. Every operation reads the value that the graph says, and of
    it the cells that its piece needs. States are merged once, of the same piece of all else, in an order that their
    monoid allows. Scans go on from what lies before. Every change leads from the one layout to the other.

    Args:
      schedule: of a whole program.

    Raises:
      PlanError: naming an operation and boxes, where one of these does not hold.
    """
    try:
        _prove_program(Ledger(schedule, Site(schedule.mesh)))
    except _MISFITS as error:
        refuse("program", "is scheduled in parts that do not fit", f"{type(error).__name__}: {error}")


def prove_boundary(schedule: Schedule, inputs: Mapping[int, Layout], outputs: Mapping[int, Layout]) -> None:
    """Prove that arguments and results lie as they were asked for, and have their true shapes where nobody asked.

    Args:
      schedule: of a whole program.
      inputs: the layouts asked for, by position.
      outputs: those of results.

    Raises:
      PlanError: naming the first that does not.
    """
    given = [(node.name, node.results[0].shape) for node in schedule.graph.inputs]
    made = [(name, schedule.graph.type_of(ref).shape) for name, ref in schedule.graph.outputs]
    for kinds, slots, asked in ((given, schedule.inputs, inputs), (made, schedule.outputs, outputs)):
        for at, ((name, shape), slot) in enumerate(zip(kinds, slots, strict=True)):
            layout = schedule.slots[slot].layout
            wanted, stored = asked.get(at), layout.padded_shape(shape, schedule.mesh)
            axes = Counter(axis for cut in layout.cuts if cut is not None for axis in in_space(cut.axes))
            if twice := [axis for axis, count in axes.items() if count > 1]:
                refuse(name, f"lies on the mesh axis `{twice[0]}` more than once", f"got {layout}")
            if wanted is not None and layout != wanted:
                refuse(name, "does not lie as it was asked for", f"expected {wanted}, got {layout}")
            if wanted is None and stored != shape:
                refuse(name, "is padded, which nobody asked for", f"shape {shape}, stored as {stored}")


# A slot, a node or an axis that is not there, lists of different lengths, a block or a step of nothing.
_MISFITS = (GraphError, ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)


def _prove_program(ledger: Ledger) -> None:
    schedule = ledger.schedule
    inputs = [index for index, node in enumerate(schedule.graph.nodes) if isinstance(node, Input)]
    for place, slot in zip(inputs, schedule.inputs, strict=True):
        value = ledger.value(place)
        ledger.give(slot, value, value.path)
        _check_stored(schedule.slots[slot], value.path)
    _follow(ledger)
    for (name, ref), slot in zip(schedule.graph.outputs, schedule.outputs, strict=True):
        ledger.check_value(slot, ref, f"output {name}")
        _check_stored(schedule.slots[slot], f"output {name}")


def _follow(ledger: Ledger) -> None:
    """Follow all steps of one schedule."""
    for step in ledger.schedule.steps:
        try:
            _prove_step(ledger, step)
        except _MISFITS as error:
            refuse(step.path, "does not fit its program", f"{type(error).__name__}: {error}")


def _prove_step(ledger: Ledger, step: Step) -> None:
    match step:
        case Convert():
            _prove_convert(ledger, step)
        case Run():
            prove_run(ledger, step)
        case Finish():
            prove_finish(ledger, step)
        case Region():
            prove_region(ledger, step, _follow)
        case Repeat():
            prove_repeat(ledger, step, _prove_convert, _follow)


def _prove_convert(ledger: Ledger, step: Convert) -> None:
    """A change of layout leads from one layout to the other, and changes no value."""
    slots, path = ledger.schedule.slots, step.path
    held, before, after = ledger.holding(step.source, path), slots[step.source], slots[step.result]
    if before.type.struct != after.type.struct:
        refuse(path, "converts a value into another type", f"{before.type}, then {after.type}")
    made = ledger.changed(step.source, step.changes, path)
    ledger.check_made(step.result, made, path, "converts an operand into another layout than it says")
    for change in step.changes:
        if isinstance(change, Share):
            if not isinstance(held, OfLastStage) or held.stages != change.axes:
                refuse(path, f"shares what the last device along ({', '.join(change.axes)}) holds", f"got {held}")
            held = Value(held.ref, held.path)
    if isinstance(held, OfLastStage):
        refuse(path, "reads on all devices what the last stage alone has made", f"got {held}")
    ledger.give(step.result, held, path)


def _check_stored(slot: Slot, path: str) -> None:
    """Arguments and results lie in blocks over mesh axes, every cell once."""
    for cut in slot.layout.cuts:
        if cut is not None and (cut.striped or cut.window is not None or in_time(cut.axes)):
            refuse(path, "is stored in stripes, in chunks or with an overlap", f"layout {slot.layout}")
