"""Dimensions that results carry: which axis of a result follows which axis of an operand."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

from combinators.errors import KernelError
from tapestry_jax.inference.findings import Dimension, Findings
from tapestry_jax.inference.probe import Answer, Place, is_close, say, sliced

Direction = Literal["before", "behind"]


def follow(findings: Findings) -> dict[Place, Direction]:
    """Find the dimensions that results carry, and why other axes are not.

    Args:
      findings: gets dimensions, unread axes and reasons.

    Returns:
      The axes that are read up to each cell of a result, as scans do, and from which end.
    """
    answers = {place: findings.probe.answer(*place) for place in findings.places() if _can_tell(findings, place)}
    _tell_scalars(findings)
    running: dict[Place, Direction] = {}
    for place, answer in answers.items():
        if not answer.results:
            findings.unread.add(place)
            findings.why[place] = f"nothing answers to {say(place)}: it may not be read at all"
        elif not _ends(answer):
            kinds = {relation.kind for relation in answer.relations.values()}
            for direction in ("before", "behind"):
                if direction in kinds:
                    running[place] = direction
            if "other" in kinds:
                findings.why[place] = f"{say(place)} answers in no pattern that a signature has"
    for dimension in _joined({place: answer for place, answer in answers.items() if _ends(answer)}):
        why = _conflict(dimension, answers) or _cut(findings, dimension, answers)
        if why is None:
            findings.dimensions.append(dimension)
        else:
            findings.why |= dict.fromkeys(dimension.readers, why)
    return running


def _can_tell(findings: Findings, place: Place) -> bool:
    kind, size = findings.probe.types[place[0]], findings.size(place)
    if size >= 2 and kind.size:
        return True
    what = f"{say(place)} has {size} cell{'' if size == 1 else 's'}" if size < 2 else f"operand {place[0]} has 0 cells"
    findings.why[place] = f"{what}, too few to tell"
    return False


def _tell_scalars(findings: Findings) -> None:
    for operand, kind in enumerate(findings.probe.types):
        if not kind.ndim and not findings.probe.answer(operand, None).results:
            findings.notes.append(f"nothing answers to operand {operand}: it may not be read at all")


def _ends(answer: Answer) -> frozenset[Place]:
    """The axes of results that follow, all in the same way; the nearest way where there are several."""
    followers = [(at, relation) for at, relation in answer.relations.items() if relation.kind in ("same", "window")]
    if not followers:
        return frozenset()
    _, nearest = min(followers, key=lambda pair: (pair[1].kind != "same", pair[0]))
    return frozenset(at for at, relation in followers if relation == nearest)


def _joined(followed: dict[Place, Answer]) -> list[Dimension]:
    """What a result follows together is one dimension, and so is what follows one axis."""
    found: list[Dimension] = []
    for place, answer in followed.items():
        ends = _ends(answer)
        readers = {place: answer.relations[min(ends)]}
        for other in [other for other in found if other.ends & ends]:
            found.remove(other)
            ends, readers = ends | other.ends, other.readers | readers
        found.append(Dimension(ends, readers))
    return sorted(found, key=lambda dimension: min(dimension.ends))


def _conflict(dimension: Dimension, answers: dict[Place, Answer]) -> str | None:
    """Why the axes that hang together are no dimension of a signature, if they are not."""
    readers, ends = sorted(dimension.readers), sorted(dimension.ends)
    for places, what in ((readers, "operand"), (ends, "result")):
        for one, other in pairwise(places):
            if one[0] == other[0]:
                return f"{say(one, what)} and {say(other, what)} run together, as on a diagonal"
    carrying = {number for number, _ in ends}
    for place in readers:
        for number in sorted(answers[place].results - carrying):
            return (
                f"{say(ends[0], 'result')} follows {say(place)} cell by cell, but result {number} reads it otherwise: "
                "one signature cannot say both (make it two kernels)"
            )
    return None


def _cut(findings: Findings, dimension: Dimension, answers: dict[Place, Answer]) -> str | None:
    """Cut a dimension in two: why the piece is not the piece of the whole, if it is not."""
    at = min(dimension.ends)
    size = findings.probe.shapes[at[0]][at[1]]
    headline = f"{say(at, 'result')} is read cell by cell, but"
    others = [place for place in answers if place not in dimension.readers and findings.size(place) == size]
    beside = [say(place) for place in others if answers[place].relations[at].kind == "all"]
    why = f"{beside[0]}, of its size, may belong to it and is read as a whole, or " if beside else ""
    for span in ((0, size // 2), (size // 2, size)):
        for operands, results in zip(findings.probe.operands, findings.probe.results, strict=True):
            cut = list(operands)
            for (operand, axis), relation in dimension.readers.items():
                cut[operand] = sliced(cut[operand], axis, *relation.span(*span))
            try:
                pieces = findings.probe.run(cut)
            except KernelError:
                return f"{headline} the kernel cannot run on a piece of it: {why}the kernel may know its size"
            wanted = list(results)
            for number, axis in dimension.ends:
                wanted[number] = sliced(results[number], axis, *span)
            wrong = {n for n, (p, w) in enumerate(zip(pieces, wanted, strict=True)) if not is_close(p, w)}
            if wrong - {number for number, _ in dimension.ends}:
                return f"{headline} result {min(wrong)} changes with its size"
            if wrong:
                return (
                    f"{headline} a piece of it is not the piece of the whole: {why}"
                    "the kernel may know its size or its coordinates (pass them as `@`)"
                )
    return None
