"""Parts of a schedule that do the same, such as the layers of a model: lowering traces them once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from combinators.frozen import dataclass
from combinators.operations.shaped import Shaped
from tapestry_jax.planning.scheduling.schedule import Convert, Run, Schedule, Step, Unit

_WORTHWHILE = 3


@dataclass(frozen=True)
class Part:
    """Consecutive steps of one scope.

    Attributes:
      steps: in order.
      scope: the scope they share; empty for steps that stand alone.
      operands: slots that come from outside, by first use.
      results: slots that are used outside, in the order of the steps.
      kind: parts of one kind do the same to their operands; None for steps that have no equal.
      unit: whether the backward pass computes them again together, and what it keeps.
    """

    steps: tuple[Step, ...]
    scope: str = ""
    operands: tuple[int, ...] = ()
    results: tuple[int, ...] = ()
    kind: int | None = None
    unit: Unit | None = None


def repeated_parts(schedule: Schedule) -> tuple[Part, ...]:
    """Divide a schedule into parts, so that scopes which do the same are parts of one kind.

    Two parts are of one kind when their steps run equal operations on equal blocks with the same wiring, whatever their
    paths, names and slots. The outermost scopes that have an equal are taken. What the backward pass computes again
    together is one part, equal to others or not.

    Args:
      schedule: of a graph, or of the body of a loop.

    Returns:
      Parts that hold all steps in order.
    """
    # Equal operations on equal types are shaped once: one object, whose identity is cheaper to compare than its fields.
    shaped = {step.node: schedule.graph.shaped(step.node) for step in schedule.steps if isinstance(step, Run)}
    kinds: dict[Hashable, int] = {}
    parts = _matched(schedule, shaped, _around_units(schedule), kinds)
    depth = 1
    while any(part.kind is None and _deepest(part.steps) > depth for part in parts):
        parts = [piece for part in parts for piece in (_split(part, depth) if part.kind is None else [part])]
        parts = _matched(schedule, shaped, parts, kinds)
        depth += 1
    return tuple(parts)


def _around_units(schedule: Schedule) -> list[Part]:
    """The units of a schedule as parts, and what stands between them."""
    parts: list[Part] = []
    end = 0
    for unit in schedule.again:
        parts.append(Part(schedule.steps[end : unit.first]))
        parts.append(Part(schedule.steps[unit.first : unit.end], unit.path, unit=unit))
        end = unit.end
    return [part for part in (*parts, Part(schedule.steps[end:])) if part.steps]


def _deepest(steps: Sequence[Step]) -> int:
    return max((step.path.count("/") + 1 for step in steps), default=0)


def _split(part: Part, depth: int) -> list[Part]:
    """One part for each run of steps below one scope of `depth` names."""
    if part.unit is not None:
        return [part]
    runs = groupby(part.steps, key=lambda step: _scope(step.path, depth))
    return [Part(tuple(steps), scope) for scope, steps in runs]


def _scope(path: str, depth: int) -> str:
    names = path.split("/")
    return "/".join(names[:depth]) if len(names) > depth else ""


def _matched(
    schedule: Schedule, shaped: Mapping[int, Shaped], parts: list[Part], kinds: dict[Hashable, int]
) -> list[Part]:
    """Give a kind to every part that has an equal."""
    later = _used_later(schedule, parts)
    described = [
        _described(schedule, shaped, part, used) if _is_candidate(part) else (_with_ends(part, used), None)
        for part, used in zip(parts, later, strict=True)
    ]
    count = Counter(key for _, key in described if key is not None)
    found: list[Part] = []
    for part, key in described:
        if key is not None and count[key] > 1:
            kind = kinds.setdefault(key, len(kinds))
            part = replace(part, kind=kind)
        found.append(part)
    return found


def _is_candidate(part: Part) -> bool:
    known = all(isinstance(step, Run | Convert) for step in part.steps)
    worthwhile = part.unit is not None or len(part.steps) >= _WORTHWHILE
    return part.kind is None and part.scope != "" and known and worthwhile


def _with_ends(part: Part, used_later: frozenset[int]) -> Part:
    """A unit that has no equal, with its operands and results; other parts as they are."""
    if part.unit is None or part.kind is not None:
        return part
    made = [slot for step in part.steps for slot in step.results]
    own = set(made)
    read = dict.fromkeys(slot for step in part.steps for slot in step.operands if slot not in own)
    return replace(part, operands=tuple(read), results=tuple(slot for slot in made if slot in used_later))


def _used_later(schedule: Schedule, parts: Sequence[Part]) -> list[frozenset[int]]:
    """For each part the slots that steps behind it, or the outputs, use."""
    used = set(schedule.outputs)
    behind: list[frozenset[int]] = []
    for part in reversed(parts):
        behind.append(frozenset(used))
        for step in part.steps:
            used.update(step.operands)
    return behind[::-1]


def _described(
    schedule: Schedule, shaped: Mapping[int, Shaped], part: Part, used_later: frozenset[int]
) -> tuple[Part, Hashable]:
    """The part with its operands and results, and a description that equal parts share."""
    place: dict[int, int] = {}
    operands: list[int] = []
    results: list[int] = []
    # What is computed again is never equal to what is not.
    lines: list[Hashable] = [part.unit is not None and (part.unit.keeps,)]
    for step in part.steps:
        assert isinstance(step, Run | Convert)
        for slot in step.operands:
            if slot not in place:
                place[slot] = len(place)
                operands.append(slot)
                lines.append(_slot(schedule, slot))
        for slot in step.results:
            place[slot] = len(place)
            if slot in used_later:
                results.append(slot)
        lines.append(
            (
                step.path.removeprefix(part.scope),
                tuple(place[slot] for slot in (*step.operands, *step.results)),
                tuple(_slot(schedule, slot) for slot in step.results),
                (step.changes, step.again) if isinstance(step, Convert) else _work(shaped[step.node], step),
            )
        )
    lines.append(tuple(place[slot] for slot in results))
    return replace(part, operands=tuple(operands), results=tuple(results)), tuple(lines)


def _slot(schedule: Schedule, number: int) -> Hashable:
    slot = schedule.slots[number]
    return slot.type.shape, slot.type.dtype, slot.layout, slot.varying


def _work(shaped: Shaped, step: Run) -> Hashable:
    return id(shaped), step.cuts, step.axes, step.scatter, step.gathers, step.carried, step.kept
