"""Going on with new rows from the state that older ones have left: `job.extend(new)`.

A fold of all rows is the state of the older ones, carried on through the newer ones. That holds of a program whose
operations are the same whatever the number of rows is, and of which one pass forwards leaves nothing but states. Both
are looked at: the first by tracing the program for the older rows, the newer ones and all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from combinators.arrows.tracing import trace
from combinators.errors import KernelError, PlanError, message
from combinators.frozen import dataclass
from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Apply, Loop, Node, Rename
from combinators.index_space.tensor_type import TensorType
from tapestry_jax.planning.geometry.time_axis import in_space
from tapestry_jax.planning.scheduling.schedule import Slot
from tapestry_jax.storage.protocols import Array, Stored
from tapestry_jax.streaming.moving.held import fetched
from tapestry_jax.streaming.parts import Pass, Split
from tapestry_jax.streaming.turn import spec_of


@dataclass(frozen=True, eq=False)
class Reached:
    """Where a run has ended.

    Attributes:
      rows: cells of the streamed dimension until there.
      state: what its pass carries behind the last turn; None before the first row.
      result: of the run.
    """

    rows: int
    state: tuple[Array, ...] | None
    result: Any


class Last:
    """The state behind the last turn of the one pass, once that is there.

    Attributes:
      state: its arrays, as the devices hold them; empty before that turn.
    """

    def __init__(self) -> None:
        self.state: tuple[Array, ...] = ()

    def __call__(self, state: Sequence[Any]) -> None:
        """Copy it to the host."""
        self.state = tuple(np.array(fetched(array)) for array in state)


def why_not(split: Split, dims: Sequence[str]) -> str | None:
    """Why no state is left from which new rows could go on; None where one is."""
    if len(dims) != 1:
        return f"several dimensions are streamed: {', '.join(dims)}"
    if len(split.passes) != 1:
        told = f"it takes {len(split.passes)} passes, and old rows would be read again"
        return told if split.passes else f"`{dims[0]}` is taken in one turn, which leaves no state: take smaller chunks"
    part = split.passes[0]
    if not any(part.dim in node.results[0].names for node in split.schedule.graph.inputs):
        return f"no input has `{part.dim}`, so that there are no new rows"
    given = {slot for slot in split.schedule.inputs if part.dim in split.schedule.slots[slot].type.names}
    if part.made or given & {*split.outputs}:
        return f"it gives something for every `{part.dim}`, for which new rows have no place"
    if part.region.reverse or part.region.ends:
        return f"`{part.region.path}` does not go forwards through the rows"
    return next(_torn(part, split), None)


def _torn(part: Pass, split: Split) -> Iterator[str]:
    for slot in part.region.body.slots:
        for cut in slot.layout.cuts:
            if cut is not None and part.region.axis in cut.axes:
                if cut.window is not None:
                    yield f"windows over `{part.dim}` would read old rows again"
                axes = in_space(cut.axes)
                if split.schedule.mesh.size(axes) > 1:
                    yield f"`{part.dim}` is shared out over {', '.join(axes)}, each device with its own part"


def rows_of(graph: Graph, dim: str) -> int:
    """The cells of the streamed dimension."""
    kinds = (node.results[0] for node in graph.inputs)
    return next(kind.shape[kind.names.index(dim)] for kind in kinds if dim in kind.names)


def carried_as(split: Split) -> list[tuple[Any, ...]]:
    """Shapes, dtypes and layouts of what the pass carries."""
    part = split.passes[0]
    region, body = part.region, part.region.body
    count = region.folded + region.scanned
    slots: list[Slot] = [body.slots[slot] for slot in body.outputs[:count]]
    return [(slot.type.shape, slot.type.dtype, spec_of(slot)) for slot in slots]


def traced_for(program: Any, graph: Graph, sources: Sequence[Stored], dim: str, rows: int) -> Graph:
    """The program for another number of rows."""
    specs: list[TensorType] = []
    for node, source in zip(graph.inputs, sources, strict=True):
        names = node.results[0].names
        shape = [rows if name == dim else size for name, size in zip(names, source.shape, strict=True)]
        specs.append(TensorType.make(source.names or (None,) * len(shape), shape, source.dtype))
    return trace(program, *specs)


def check_same(older: Graph, newer: Graph, dim: str, rows: tuple[int, int]) -> None:
    """Refuse a program whose operations depend on the number or the places of rows.

    Args:
      older: the program for some rows.
      newer: for others.
      dim: the streamed dimension.
      rows: how many they have.

    Raises:
      PlanError: naming the first operation that does.
    """
    if len(older.nodes) != len(newer.nodes) or [ref for _, ref in older.outputs] != [ref for _, ref in newer.outputs]:
        raise not_extended(f"for {rows[0]} and {rows[1]} rows it is made of other operations")
    for one, two in zip(older.nodes, newer.nodes, strict=True):
        why = _difference(one, two, dim, rows)
        if why is not None:
            raise not_extended(f"`{one.path}` {why}")
        if isinstance(one, Loop) and isinstance(two, Loop):
            check_same(one.body, two.body, dim, rows)


def _difference(one: Node, two: Node, dim: str, rows: tuple[int, int]) -> str | None:
    changes = f"is another one for {rows[0]} rows than for {rows[1]}"
    if type(one) is not type(two) or one.operands != two.operands or len(one.results) != len(two.results):
        return changes
    for left, right in zip(one.results, two.results, strict=True):
        if not _same_but_for(left, right, dim, rows):
            return changes
    if isinstance(one, Rename) and isinstance(two, Rename) and one.names != two.names:
        return changes
    if isinstance(one, Loop) and isinstance(two, Loop) and one != _like(one, two):
        return changes
    if isinstance(one, Apply) and isinstance(two, Apply):
        if any(o.coordinate is not None and one.bound[o.coordinate] == dim for o in one.operation.signature.operands):
            return f"reads the places of rows, `@{dim}`, which begin anew"
        try:
            same = one.operation.fingerprint == two.operation.fingerprint
        except KernelError:
            return "has a kernel that cannot be compared"
        return None if same and one.names == two.names else changes
    return None


def _like(one: Loop, two: Loop) -> Loop:
    """One loop with the body and the types of another, which are compared apart."""
    own = (two.length, two.over, two.carries, two.axes, two.until)
    return one if own == (one.length, one.over, one.carries, one.axes, one.until) else two


def _same_but_for(left: TensorType, right: TensorType, dim: str, rows: tuple[int, int]) -> bool:
    if left.names != right.names or left.dtype != right.dtype or len(left.shape) != len(right.shape):
        return False
    sizes = zip(left.names, left.shape, right.shape, strict=True)
    return all((a, b) == rows if name == dim else a == b for name, a, b in sizes)


def given_rows(new: Any, graph: Graph, sources: Sequence[Stored], dim: str) -> tuple[list[Any], list[int]]:
    """New rows in place of the sources that have the dimension, and the positions of these.

    Raises:
      PlanError: for another number of them, or other names.
    """
    places = [n for n, node in enumerate(graph.inputs) if dim in node.results[0].names]
    names = [graph.inputs[n].name for n in places]
    if isinstance(new, Mapping):
        known: Mapping[Any, Any] = new
        listed = [known[name] for name in names if name in known] if {*known} == {*names} else []
    else:
        listed = list(new) if isinstance(new, tuple | list) else [new]
    if len(listed) != len(places):
        got = ", ".join(map(repr, new)) if isinstance(new, Mapping) else str(len(listed))
        details = (f"expected {', '.join(names)}", f"got {got}")
        raise PlanError(message("new rows are given for every input that has rows", *details, remedy="Pass each once."))
    given: list[Any] = list(sources)
    for place, rows in zip(places, listed, strict=True):
        given[place] = rows
    return given, places


def not_extended(why: str) -> PlanError:
    """The refusal of new rows."""
    remedy = "Run all rows, old and new, in one job."
    return PlanError(message("this job cannot go on with new rows alone", why, remedy=remedy))
