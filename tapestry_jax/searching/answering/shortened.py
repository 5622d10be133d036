"""A plan without what it says to no effect: entries, items of entries, exceptions, layouts of inputs, and remat."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace

from combinators.graphs import walk
from tapestry_jax.planning.asked import Asked
from tapestry_jax.planning.entries.items import Item, Striped
from tapestry_jax.searching.answering.beside import LONG
from tapestry_jax.searching.evaluated import Evaluated, evaluate, held, weigh
from tapestry_jax.searching.problem import Problem

Part = tuple[str, str, str, Item | None]
"""What may be dropped: a field of `Asked`, a path or a name, a dimension, and an item of its entry."""
_SAME = 1e-12
"""What rounding may make of a price. What is dearer by more is another plan, and not weighed to see what it needs."""
_ORDER = ("inputs", "ops", "entries", "items", "remat")
WORK = 10_000
"""So many operations are planned at most, those of all candidates together: of layers that are written out by the
hundred, few candidates, of which the first say most."""


def shortened(
    problem: Problem, found: Evaluated, is_proved: Callable[[Evaluated], bool]
) -> Generator[Evaluated, None, Evaluated]:
    """Candidates that say ever less, and have the same schedule, or the same price and no more memory.

    Methods pick up what has no effect: exceptions that held before something else was dropped, dimensions that are told
    to stay whole. What is the same but for numbers in its path goes together. All that cuts nothing is tried at once,
    then the dimensions of that, arguments that lie so by themselves, and all else; then one after the other what is
    left: until each was tried since anything changed that says with it where its dimension goes, or `WORK` is done.
    What is fixed stays.

    Args:
      problem: what was searched.
      found: a candidate that fits and is proved.
      is_proved: whether another schedule is.

    Returns:
      The last of them.
    """
    began = _planned(problem)
    whole, cut = _by_likelihood(problem, found.asked)
    named = [parts for parts in whole if parts[0][0] == "entries"]
    for groups in (whole, named, _by_itself(problem, found, [*whole, *cut]), cut):
        shorter = _without_any(problem, found, groups, is_proved) if len(groups) > 1 else None
        if shorter is not None:
            yield (found := shorter)
    waiting = [parts for groups in _by_likelihood(problem, found.asked) for parts in groups]
    kept: list[list[Part]] = []
    operations = max(sum(1 for _ in walk.operations(problem.graph)), 1)
    while waiting and operations * (_planned(problem) - began) < WORK:
        parts = waiting.pop(0)
        shorter = _without_any(problem, found, [parts], is_proved)
        if shorter is None:
            kept.append(parts)
            continue
        # What was needed may be so no longer: of the same dimension, and of any where the schedule is another.
        again = [each for each in kept if shorter.schedule != found.schedule or _says_of(each) & _says_of(parts)]
        kept = [each for each in kept if each not in again]
        waiting += again
        yield (found := shorter)
    return found


def _planned(problem: Problem) -> int:
    """How many candidates were planned so far; what planning refuses costs next to nothing."""
    return sum(isinstance(each, Evaluated) for each in problem.evaluated.values())


def _by_itself(problem: Problem, found: Evaluated, groups: Sequence[list[Part]]) -> list[list[Part]]:
    """Arguments, and whatever else is said, that lie as they would if no layout of any were asked for."""
    asked = replace(found.asked, inputs=problem.fixed.inputs)
    other = evaluate(problem, asked, found)
    if asked == found.asked or not isinstance(other, Evaluated):
        return []
    pairs = zip(problem.graph.inputs, found.schedule.inputs, other.schedule.inputs, strict=True)
    alike = {
        node.name for node, own, free in pairs if found.schedule.slots[own].layout == other.schedule.slots[free].layout
    }
    return [parts for parts in groups if all(kind == "inputs" and name in alike for kind, name, _, _ in parts)]


def _says_of(parts: Sequence[Part]) -> set[str]:
    """The dimensions, or arguments, that parts are about."""
    return {name or path for _, path, name, _ in parts}


def _by_likelihood(problem: Problem, asked: Asked) -> tuple[list[list[Part]], list[list[Part]]]:
    """Groups of parts that cut nothing, and those that do: the first are of no use more often."""
    groups: dict[tuple[object, ...], tuple[bool, list[Part]]] = {}
    for part, is_whole in _parts(asked, problem.fixed):
        kind, path, name, item = part
        key = is_whole, _ORDER.index(kind), re.sub(r"\d+", "0", path) if kind in ("ops", "inputs") else path, name, item
        groups.setdefault(key, (is_whole, []))[1].append(part)
    found = list(groups.values())
    whole = [parts for is_whole, parts in found if is_whole]
    return whole, sorted(
        (parts for is_whole, parts in found if not is_whole), key=lambda parts: parts[0][0] != "inputs"
    )


def _parts(asked: Asked, fixed: Asked) -> list[tuple[Part, bool]]:
    """All that is said beside what is fixed, and whether it says that something stays whole."""
    found: list[tuple[Part, bool]] = []
    for name, items in asked.entries:
        if (name, items) not in fixed.entries:
            found.append((("entries", name, "", None), not items))
            found += [(("items", name, "", item), False) for item in items if not isinstance(item, str)]
    own = dict(fixed.ops)
    for path, entries in asked.ops:
        extra = (pair for pair in entries if pair not in own.get(path, ()))
        found += [(("ops", path, name, None), not items) for name, items in extra]
    for pair in asked.inputs:
        if pair not in fixed.inputs:
            found.append((("inputs", pair[0], "", None), not pair[1]))
    found += [(("remat", name, "", None), False) for name, how in asked.remat if (name, how) not in fixed.remat]
    return found


def _without_any(
    problem: Problem, found: Evaluated, groups: Sequence[list[Part]], is_proved: Callable[[Evaluated], bool]
) -> Evaluated | None:
    """The candidate without any of these, if it is no worse."""
    asked = _without(found.asked, {part for parts in groups for part in parts}, problem.fixed)
    return _alike(problem, found, asked, is_proved) if groups else None


def _without(asked: Asked, parts: set[Part], fixed: Asked) -> Asked:
    """The same without those parts."""
    own = {path for path, _ in fixed.ops}
    ops = (
        (path, tuple(pair for pair in rows if ("ops", path, pair[0], None) not in parts)) for path, rows in asked.ops
    )
    entries = (
        (name, _items(name, items, parts)) for name, items in asked.entries if ("entries", name, "", None) not in parts
    )
    return replace(
        asked,
        entries=tuple((name, items) for name, items in entries),
        ops=tuple((path, rows) for path, rows in ops if rows or path in own),
        inputs=tuple(pair for pair in asked.inputs if ("inputs", pair[0], "", None) not in parts),
        remat=tuple(pair for pair in asked.remat if ("remat", pair[0], "", None) not in parts),
    )


def _items(name: str, items: tuple[Item, ...], parts: set[Part]) -> tuple[Item, ...]:
    """An entry without some of its items; stripes leave their mesh axes behind."""
    kept: list[Item] = []
    for item in items:
        if ("items", name, "", item) not in parts:
            kept.append(item)
        elif isinstance(item, Striped):
            kept += item.axes
    return tuple(kept)


def _alike(
    problem: Problem, found: Evaluated, asked: Asked, is_proved: Callable[[Evaluated], bool]
) -> Evaluated | None:
    """The candidate, if it is no worse in time or memory, and proved."""
    other = evaluate(problem, asked, found)
    if not isinstance(other, Evaluated) or other is found:
        return None
    if other.schedule is found.schedule or other.schedule == found.schedule:
        if found.asked in problem.weighed:
            problem.weighed.setdefault(asked, problem.weighed[found.asked])
        return other
    # What is long is priced for this alone, and to guess takes a fraction of that.
    is_long = len(other.schedule.steps) >= LONG
    if is_long and problem.memory is not None and _seems_larger(problem, other, found):
        return None
    if other.seconds > found.seconds * (1 + _SAME):
        return None
    if problem.memory is not None and (_seems_larger(problem, other, found) or not _is_as_light(problem, other, found)):
        return None
    return other if is_proved(other) else None


def _seems_larger(problem: Problem, other: Evaluated, found: Evaluated) -> bool:
    """Whether it needs more memory by the guess: weighing traces a program, and most that is tried here needs more."""
    return max(other.guessed, held(problem, other)) > max(found.guessed, held(problem, found))


def _is_as_light(problem: Problem, other: Evaluated, found: Evaluated) -> bool:
    return weigh(problem, other).total <= weigh(problem, found).total
