"""Dimensions that are folded or scanned: which monoid merges the results of two pieces."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from combinators import monoids
from combinators.errors import KernelError
from combinators.merging.monoid import Monoid
from tapestry_jax.inference.findings import Findings
from tapestry_jax.inference.follow import Direction
from tapestry_jax.inference.probe import Place, is_close, say, sliced

_MONOIDS = (monoids.Sum, monoids.Max, monoids.Min, monoids.Prod, monoids.Any, monoids.All)
_NAMES = ", ".join(str(monoid.name) for monoid in _MONOIDS)
Fits = list[tuple[Monoid, ...]]
"""For each result the monoids that merge it."""


def find_scan(findings: Findings, running: Mapping[Place, Direction]) -> None:
    """Compare with the running totals of each monoid, where one axis is read up to each cell of a result."""
    probe = findings.probe
    if len(running) == len(probe.types) == len(probe.shapes) == 1:
        ((place, direction),) = running.items()
        for monoid in _MONOIDS:
            totals = [_totals(monoid, o[0], place[1], direction == "behind") for o in (*probe.operands, *probe.exact)]
            wanted = [results[0] for results in (*probe.results, *probe.exact_results)]
            if all(
                t is not None and t.dtype == w.dtype and is_close(t, w) for t, w in zip(totals, wanted, strict=True)
            ):
                findings.monoid, findings.over, findings.reverse = monoid, place, direction == "behind"
                return
    for place in running:
        findings.why[place] = (
            f"{say(place)} is read up to each cell of a result: perhaps a scan, of a monoid that was not found"
        )


def find_folds(findings: Findings) -> None:
    """Slice what nothing follows in two, alone or with axes of the same size, and merge the results."""
    if findings.over is not None:
        return
    agreed: Fits = [_MONOIDS for _ in findings.probe.shapes]
    for place in findings.whole():
        if findings.size(place) < 2 or not findings.probe.types[place[0]].size:
            continue
        for group in findings.groups(place):
            fits = _fits(findings, group)
            if fits is None or not all(fits):
                continue
            both = [tuple(m for m in old if m in new) for old, new in zip(agreed, fits, strict=True)]
            if _one_monoid(findings, both) is None:
                findings.why[place] = f"{say(place)} folds, but {_rivalry(fits, both)}"
                continue
            agreed = both
            findings.folds.append(group)
            break
        else:
            if place in findings.whole():
                findings.why.setdefault(place, f"{say(place)} is whole, as far as {_NAMES} can tell")
    if findings.folds:
        findings.monoid = _one_monoid(findings, agreed)
        _tell_rivals(findings, agreed)


def _one_monoid(findings: Findings, fits: Fits) -> Monoid | None:
    """One monoid for all results; a product of theirs where the results are a tuple."""
    for monoid in _MONOIDS:
        if all(monoid in fitting for fitting in fits):
            return monoid
    if all(fits) and findings.probe.is_tuple:
        return monoids.product(*(fitting[0] for fitting in fits))
    return None


def _rivalry(fits: Fits, both: Fits) -> str:
    if not all(both):
        return "no monoid merges it and other axes alike"
    names = " and ".join(dict.fromkeys(str(fitting[0].name) for fitting in fits))
    return f"its results do with {names}: return them as a tuple"


def _tell_rivals(findings: Findings, fits: Fits) -> None:
    assert findings.monoid is not None
    parts = findings.monoid.parts or (findings.monoid,) * len(fits)
    for number, (fitting, part) in enumerate(zip(fits, parts, strict=True)):
        for rival in fitting:
            if rival != part:
                findings.notes.append(f"{rival.name} merges what was seen of result {number} as well as {part.name}")


def _fits(findings: Findings, group: Sequence[Place]) -> Fits | None:
    """The monoids that merge the results of two pieces to the result of the whole; None where no piece can be made."""
    probe, size = findings.probe, findings.size(group[0])
    fits: Fits = [_MONOIDS for _ in probe.shapes]
    is_finite, is_same = [False for _ in probe.shapes], True
    for operands, whole in zip(probe.exact, probe.exact_results, strict=True):
        for middle in sorted({size - size // 2, 1}):
            try:
                halves = [probe.run(_cut(operands, group, *span)) for span in ((0, middle), (middle, size))]
            except KernelError:
                return None
            for number, (left, right, want) in enumerate(zip(*halves, whole, strict=True)):
                is_same = is_same and is_close(left, want) and is_close(right, want)
                is_finite[number] = is_finite[number] or bool(np.isfinite(want).any())
                fits[number] = tuple(monoid for monoid in fits[number] if _merges(monoid, left, right, want))
        if not all(fits):
            break
    if group[0] in findings.unread:
        if is_same:
            return None
        findings.why[group[0]] = f"only the size of {say(group[0])} is read, as far as can be told"
    return [fitting if finite else () for fitting, finite in zip(fits, is_finite, strict=True)]


def _cut(operands: Sequence[Any], group: Sequence[Place], low: int, high: int) -> list[Any]:
    cut = list(operands)
    for operand, axis in group:
        cut[operand] = sliced(cut[operand], axis, low, high)
    return cut


def _merges(monoid: Monoid, left: Any, right: Any, want: Any) -> bool:
    merged = _merged(monoid, left, right)
    return merged is not None and is_close(merged, want)


def _merged(monoid: Monoid, left: Any, right: Any) -> Any:
    if left is None:
        return None
    is_logical = monoid in (monoids.Any, monoids.All)
    is_complex = jnp.issubdtype(left.dtype, jnp.complexfloating) and monoid in (monoids.Max, monoids.Min)
    if np.shape(left) != np.shape(right) or (left.dtype == bool) != is_logical or is_complex:
        return None
    return np.asarray(monoid.merge(jnp.asarray(left), jnp.asarray(right)))


def _totals(monoid: Monoid, steps: Any, axis: int, reverse: bool) -> Any:
    """Merge the cells of an axis one after the other; None where the monoid has no such cells."""
    cells = list(np.moveaxis(steps, axis, 0))
    steps = reversed(cells) if reverse else cells
    totals = list(itertools.accumulate(steps, lambda total, step: _merged(monoid, total, step)))
    if totals[-1] is None:
        return None
    return np.stack(totals[::-1] if reverse else totals, axis)
