"""What differs between two plans of one program: what was asked, where dimensions go, what is sent, what it costs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from combinators.errors import PlanError, message
from combinators.frozen import dataclass
from combinators.graphs.difference import first_difference
from combinators.graphs.graph import Graph
from tapestry_jax.machines.machine import Machine
from tapestry_jax.planning.asked import Asked
from tapestry_jax.planning.entries.items import Item
from tapestry_jax.planning.prediction.collectives import collectives
from tapestry_jax.planning.pricing.cost import Cost, duration
from tapestry_jax.planning.pricing.priced import price
from tapestry_jax.planning.scheduling.schedule import Schedule
from tapestry_jax.report.changed import Changed, changed, rows
from tapestry_jax.report.placed import placed, stored

_ROWS = 40


@dataclass(frozen=True)
class Difference:
    """One thing that two plans say otherwise.

    Attributes:
      where: what is asked, a path, an argument or a result.
      name: of a dimension; empty where there is none.
      before: in the one plan; empty where it says nothing.
      after: in the other.
    """

    where: str
    name: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.where}{f', {self.name}' * bool(self.name)}: {self.before or '-'} -> {self.after or '-'}"


@dataclass(frozen=True)
class SentOtherwise:
    """A collective that two plans run more or less often.

    Attributes:
      kind: as in `Collective`.
      axes: the mesh axes.
      path: the operation that causes it.
      bytes: per device and execution.
      backward: whether it belongs to the gradient.
      before: executions in the one plan.
      after: executions in the other.
    """

    kind: str
    axes: tuple[str, ...]
    path: str
    bytes: int
    backward: bool
    before: int
    after: int

    def __str__(self) -> str:
        told = f"{self.kind} over {'+'.join(self.axes)}, {self.bytes:,} B, {self.path}{' (gradient)' * self.backward}"
        return f"x{self.before} -> x{self.after}  {told}"


@dataclass(frozen=True)
class Priced:
    """What two plans cost on a machine.

    Attributes:
      machine: its name.
      before: seconds of the one plan.
      after: seconds of the other.
      before_bytes: of memory that a device needs, as `plan.memory` says.
      after_bytes: likewise.
      changed: what is computed, or sent and not hidden, in other times.
    """

    machine: str
    before: float
    after: float
    before_bytes: int
    after_bytes: int
    changed: tuple[Changed, ...]


@dataclass(frozen=True)
class Diff:
    """What differs between two plans. Made by `plan.diff`; empty (false) where nothing does; `print` shows it.

    Attributes:
      name: of the program.
      asked: entries, exceptions, layouts and options.
      operations: where dimensions go.
      layouts: of arguments and results, as they come out.
      sent: collectives that run more or less often.
      priced: on a machine, where one was given.
    """

    name: str
    asked: tuple[Difference, ...]
    operations: tuple[Difference, ...]
    layouts: tuple[Difference, ...]
    sent: tuple[SentOtherwise, ...]
    priced: Priced | None = None

    def __bool__(self) -> bool:
        return bool(self.asked or self.operations or self.layouts or self.sent)

    def to_json(self) -> str:
        """The differences as text."""
        return json.dumps({"diff": 1, "differs": bool(self), **dataclasses.asdict(self)}, indent=1)

    def __str__(self) -> str:
        return "\n".join(_lines(self))


@dataclass(frozen=True)
class Side:
    """One of two plans.

    Attributes:
      graph: its program.
      asked: what it was made of.
      schedule: its steps.
      needed: bytes of memory that a device needs; it is asked where a machine is given.
    """

    graph: Graph
    asked: Asked
    schedule: Schedule
    needed: Callable[[], int]


def diff(before: Side, after: Side, machine: Machine | None = None, grad: bool | int | Sequence[int] = False) -> Diff:
    """Compare two plans.

    Raises:
      PlanError: for plans of different programs, with the first operation that differs.
    """
    check_same_program(before.graph, after.graph)
    return Diff(
        before.graph.name,
        tuple(_different(_asked(before), _asked(after))),
        tuple(_different(placed(before.schedule), placed(after.schedule), "whole")),
        tuple(_different(stored(before.schedule), stored(after.schedule))),
        tuple(_sent(before.schedule, after.schedule, grad)),
        None if machine is None else _priced(before, after, machine, grad),
    )


def asked_otherwise(before: Asked, after: Asked) -> tuple[Difference, ...]:
    """What two plans on one mesh were asked otherwise."""
    return tuple(_different(_said(before), _said(after)))


def check_same_program(one: Graph, other: Graph) -> None:
    """Refuse to compare plans of different programs.

    Raises:
      PlanError: with the first operation that differs.
    """
    if one.key != other.key:
        what, *lines = first_difference(one, other, ("the one plan", "the other"))
        raise PlanError(
            message(
                f"these are plans of different programs: {what}",
                *lines,
                remedy="Compare plans of one graph.",
            )
        )


def _asked(side: Side) -> dict[tuple[str, str], str]:
    return {("the mesh", ""): str(side.schedule.mesh)} | _said(side.asked)


def _said(asked: Asked) -> dict[tuple[str, str], str]:
    found = {("the plan", dim): _items(items) for dim, items in asked.entries}
    for option, named in (("ops", asked.ops), ("inputs", asked.inputs), ("outputs", asked.outputs)):
        found |= {(f"{option}[{name!r}]", dim): _items(items) for name, entries in named for dim, items in entries}
    found |= {(f"accumulate[{scope!r}]", ""): str(dtype) for scope, dtype in asked.accumulate}
    found |= {(f"remat[{scope!r}]", ""): str(kept) for scope, kept in asked.remat}
    return found | {("platforms", ""): ", ".join(asked.platforms)}


def _items(items: tuple[Item, ...]) -> str:
    return ", ".join(map(str, items)) or "whole"


def _different(
    before: Mapping[tuple[str, str], str], after: Mapping[tuple[str, str], str], empty: str = ""
) -> Iterator[Difference]:
    for key in dict.fromkeys((*before, *after)):
        one, other = before.get(key, ""), after.get(key, "")
        if one != other:
            yield Difference(*key, one or empty, other or empty)


def _sent(before: Schedule, after: Schedule, grad: bool | int | Sequence[int]) -> Iterator[SentOtherwise]:
    one, other = (_counted(schedule, grad) for schedule in (before, after))
    for key in dict.fromkeys((*one, *other)):
        if one.get(key, 0) != other.get(key, 0):
            yield SentOtherwise(*key, one.get(key, 0), other.get(key, 0))


Sent = tuple[str, tuple[str, ...], str, int, bool]
"""Kind, mesh axes, path, bytes, and whether it belongs to the gradient."""


def _counted(schedule: Schedule, grad: bool | int | Sequence[int]) -> dict[Sent, int]:
    found: dict[Sent, int] = {}
    for each in collectives(schedule, grad):
        key = each.kind, each.axes, each.path, each.bytes, each.backward
        found[key] = found.get(key, 0) + each.times
    return found


def _priced(before: Side, after: Side, machine: Machine, grad: bool | int | Sequence[int]) -> Priced:
    costs: list[Cost] = [price(side.schedule, machine, grad) for side in (before, after)]
    seconds = costs[0].seconds, costs[1].seconds
    return Priced(machine.name, *seconds, before.needed(), after.needed(), changed(*costs))


def _lines(diff: Diff) -> Iterator[str]:
    if not diff:
        yield f"{diff.name}: the plans are the same"
        return
    yield f"{diff.name}: what the one plan says -> what the other says"
    yield from _part("asked for:", diff.asked)
    yield from _part("operations:", diff.operations)
    yield from _part("arguments and results:", diff.layouts)
    yield from _part("collectives:", diff.sent)
    if diff.priced is not None:
        found = diff.priced
        yield f"on {found.machine}: {duration(found.before)} -> {duration(found.after)}"
        yield f"memory of a device: {found.before_bytes:,} B -> {found.after_bytes:,} B"
        yield from rows(found.changed)


def _part(head: str, found: Sequence[Difference | SentOtherwise]) -> Iterator[str]:
    if found:
        yield head
        yield from (f"  {each}" for each in found[:_ROWS])
    if len(found) > _ROWS:
        yield f"  and {len(found) - _ROWS} more"
