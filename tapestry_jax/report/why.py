"""Why a plan places a dimension as it does: the same plan with an exception, planned and priced beside it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from combinators.errors import MeshError, PlanError, message, spelt
from combinators.frozen import dataclass
from combinators.graphs import walk
from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Loop
from combinators.graphs.scopes import is_inside
from tapestry_jax.machines.machine import Machine
from tapestry_jax.planning.asked import Asked
from tapestry_jax.planning.entries.items import Item
from tapestry_jax.planning.entries.read import Entries, read_entries
from tapestry_jax.planning.entries.unused import check_exception_names, read_path
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.planned import planned
from tapestry_jax.planning.prediction.alive import alive_at_once
from tapestry_jax.planning.pricing.cost import duration
from tapestry_jax.planning.pricing.priced import price
from tapestry_jax.planning.proof.prove import prove
from tapestry_jax.planning.scheduling.schedule import Schedule
from tapestry_jax.report.changed import Changed, changed, is_near, rows

SAME, CHOSEN, TARGET, TIE, UNAVAILABLE = "same", "chosen cheaper", "target cheaper", "tie", "unavailable"


@dataclass(frozen=True)
class Why:
    """A plan, and the same with an exception. Made by `plan.why`; `print` shows it.

    Attributes:
      verdict: `same` (the plan is as asked), `chosen cheaper` (the plan itself), `target cheaper` (with the exception),
        `tie`, or `unavailable`.
      name: of the program.
      machine: its name.
      mesh: its shape.
      path: of an operation or scope.
      asked: the exception, as plans write it.
      reason: why it is unavailable, in the planner's words.
      chosen: seconds of the plan.
      target: seconds with the exception; None where it is unavailable.
      chosen_bytes: of values that are alive at once by the schedule.
      target_bytes: likewise.
      changed: what is computed, or sent and not hidden, in other times, the largest difference first.
    """

    verdict: str
    name: str
    machine: str
    mesh: str
    path: str
    asked: str
    reason: tuple[str, ...]
    chosen: float
    target: float | None
    chosen_bytes: int
    target_bytes: int | None
    changed: tuple[Changed, ...]

    def to_json(self) -> str:
        """The answer as text."""
        return json.dumps({"why": 1, **dataclasses.asdict(self)}, indent=1)

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def why(
    graph: Graph,
    mesh: Any,
    asked: Asked,
    schedule: Schedule,
    path: Any,
    wanted: Any,
    machine: Machine,
    grad: bool | int | Sequence[int] = False,
) -> Why:
    """Ask a plan for an exception.

    Args:
      graph: the program.
      mesh: of the plan.
      asked: what the plan was made of.
      schedule: the plan's.
      path: of an operation or scope.
      wanted: dimension and where it should go, as in `ops` of `tp.plan`.
      machine: where both are priced.
      grad: as in `plan.collectives`.

    Raises:
      PlanError: for a path that the graph does not have, a dimension that is not there, or what is no entry.
      MeshError: for a mesh axis that the mesh does not have, or a mesh that does not fill the machine.
    """
    path = read_path(graph, path, "plan.why")
    exception = read_entries(wanted, MeshShape.of(mesh), f"plan.why({path!r}, ...)")
    if not exception:
        raise PlanError(
            message(f"plan.why asks nothing of {path!r}", f"got {spelt(wanted)}", remedy='Write {"heads": "model"}.')
        )
    check_exception_names(graph, path, exception, "plan.why")
    before = price(schedule, machine, grad)
    answer = _Answer(graph.name, machine.name, str(schedule.mesh), path, _written(exception), before.seconds)
    size = alive_at_once(schedule, grad)
    if _is_so(graph, asked, schedule.mesh, path, exception):
        return answer.same(size)
    try:
        other = planned(graph, mesh, replace(asked, ops=_with(asked.ops, path, exception)))
        prove(other)
    except (PlanError, MeshError) as error:
        return answer.unavailable(size, str(error))
    if other == schedule:
        return answer.same(size)
    after = price(other, machine, grad)
    verdict = CHOSEN if before.seconds < after.seconds else TARGET
    verdict = TIE if is_near(before.seconds, after.seconds) else verdict
    sizes = size, alive_at_once(other, grad)
    return answer.made(verdict, after.seconds, sizes, changed(before, after))


@dataclass(frozen=True)
class _Answer:
    """What is known before anything is planned."""

    name: str
    machine: str
    mesh: str
    path: str
    asked: str
    chosen: float

    def same(self, size: int) -> Why:
        return self.made(SAME, self.chosen, (size, size), ())

    def unavailable(self, size: int, error: str) -> Why:
        lines = tuple(line.strip() for line in error.splitlines())
        return self.made(UNAVAILABLE, None, (size, None), (), lines)

    def made(
        self,
        verdict: str,
        target: float | None,
        sizes: tuple[int, int | None],
        found: tuple[Changed, ...],
        reason: tuple[str, ...] = (),
    ) -> Why:
        about = self.name, self.machine, self.mesh, self.path, self.asked
        return Why(verdict, *about, reason, self.chosen, target, *sizes, found)


def _with(ops: Sequence[tuple[str, Entries]], path: str, exception: Entries) -> tuple[tuple[str, Entries], ...]:
    """The exceptions of a plan and one more, which goes before what was said of that path and of what lies in it."""
    names = dict(exception)
    known = {
        other: tuple((dim, items) for dim, items in own if dim not in names) if is_inside(other, path) else own
        for other, own in ops
    }
    known = {other: own for other, own in known.items() if own or other == path}
    known[path] = tuple((dict(known.get(path, ())) | dict(exception)).items())
    return tuple(known.items())


def _is_so(graph: Graph, asked: Asked, mesh: MeshShape, path: str, exception: Entries) -> bool:
    """Whether the plan says the same of all operations and loops there; where it says nothing they follow others."""
    placer = asked.placer(mesh)
    found: list[tuple[Item, ...]] = []
    expected: list[tuple[Item, ...]] = []
    for place, node in walk.places(graph):
        if is_inside(place.path, path):
            names = [node.over] if isinstance(node, Loop) else [name for _, name in node.names]
            for dim, items in exception:
                if dim in names:
                    if placer.is_free(dim, place.path):
                        return False
                    found.append(placer.asked(dim, place.path))
                    expected.append(items)
    return found == expected


def _written(exception: Entries) -> str:
    told = [f"{dim!r}: {_items(items)}" for dim, items in exception]
    return "{" + ", ".join(told) + "}"


def _items(items: tuple[Item, ...]) -> str:
    shown = [repr(item) if isinstance(item, str) else f"tp.{item}" for item in items]
    return "None" if not shown else shown[0] if len(shown) == 1 else f"({', '.join(shown)})"


def _lines(why: Why) -> Iterator[str]:
    yield f"{why.name} on {why.machine}, {why.mesh}: `{why.path}` with {why.asked}"
    if why.target is None or why.target_bytes is None:
        yield f"{why.verdict}; the plan takes {duration(why.chosen)}"
        yield from (f"  {line}" for line in why.reason)
        return
    if why.verdict == SAME:
        yield f"the plan is as asked, and takes {duration(why.chosen)}"
        return
    yield f"{why.verdict}: the plan takes {duration(why.chosen)}, with the exception {duration(why.target)}"
    yield f"  values alive, by the schedule: {why.chosen_bytes:,} B, with the exception {why.target_bytes:,} B"
    if why.changed:
        yield "what takes another time (transfers as far as they are not hidden):"
        yield from rows(why.changed)
