"""The integer program of a model: one option for each pick, and layouts that flow from makers to readers.

For every pick a 0/1 variable for each option. For every reader of a value a flow from the layouts in which it lies to
those in which it is read; edges are indexed by layouts and not by pairs of options, so that there are thousands of them
and not millions. With options chosen the flow is integral by itself. What several readers pay once, and what a kernel
saves that runs with its neighbour, are continuous variables over these.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from combinators.frozen import dataclass
from tapestry_jax.searching.exact.model import Model, Pair, Value


class Rows:
    """A linear program, row by row; every variable is between 0 and a bound.

    Attributes:
      integral: variables that are 0 or 1.
      amounts: variables that may be anything in between in a solution; all others come out as 0 or 1.
    """

    def __init__(self) -> None:
        self.cost: list[float] = []
        self.most: list[float] = []
        self.integral: list[int] = []
        self.amounts: list[int] = []
        self.lower: list[float] = []
        self.upper: list[float] = []
        self.starts: list[int] = [0]
        self.indices: list[int] = []
        self.values: list[float] = []

    def variable(self, cost: float, *, is_integral: bool = False) -> int:
        """A variable of at least 0 and at most 1, and its price."""
        if is_integral:
            self.integral.append(len(self.cost))
        self.cost.append(cost)
        self.most.append(1.0)
        return len(self.cost) - 1

    def excess(self, terms: Sequence[tuple[int, float]]) -> int:
        """A variable that is paid for: by how much a sum of terms is less than none."""
        own = self.variable(1.0)
        self.most[own] = sum(max(-factor, 0.0) * self.most[variable] for variable, factor in terms)
        self.amounts.append(own)
        self.row([(own, 1.0), *terms], 0.0, math.inf)
        return own

    def row(self, terms: Iterable[tuple[int, float]], lower: float, upper: float) -> None:
        """A sum of terms between two numbers."""
        for variable, factor in terms:
            self.indices.append(variable)
            self.values.append(factor)
        self.starts.append(len(self.indices))
        self.lower.append(lower)
        self.upper.append(upper)


@dataclass(frozen=True, eq=False)
class Program:
    """A model as a program.

    Attributes:
      rows: of it.
      options: for each pick the variables of its options.
      scale: seconds of one unit of price.
    """

    rows: Rows
    options: list[list[int]]
    scale: float


def program_of(model: Model, memory: float = math.inf, without: Sequence[Sequence[int]] = ()) -> Program:
    """The program of a model.

    Args:
      model: the choices and their prices.
      memory: bytes that what stays on a device may take.
      without: choices that may not be given again.
    """
    rows, scale = Rows(), _scale(model)
    options = [[rows.variable(seconds / scale, is_integral=True) for seconds in pick.seconds] for pick in model.picks]
    for own in options:
        rows.row(((each, 1.0) for each in own), 1.0, 1.0)
    saved: list[list[tuple[int, float]]] = [[] for _ in model.picks]
    held: list[tuple[int, float]] = []
    late: dict[int, list[tuple[int, float]]] = {}
    used = {each for value in model.values for own in value.together.values() for each in own}
    begun = {each: rows.variable(seconds / scale) for each, seconds in model.together.items() if each in used}
    for value in model.values:
        _flows(rows, value, options, scale, saved, held if memory < math.inf else None, late, begun)
    for pick, own, less in zip(model.picks, options, saved, strict=True):
        if any(pick.excess):
            terms = [(each, -excess / scale) for each, excess in zip(own, pick.excess, strict=True) if excess]
            more = rows.excess([*terms, *less])
            rows.most[more] = max(pick.excess) / scale
            for number, _, share in pick.rooms:
                late.setdefault(number, []).append((more, share))
        for number, rooms, _ in pick.rooms:
            late.setdefault(number, []).extend((each, room / scale) for each, room in zip(own, rooms, strict=True))
    for terms in late.values():
        rows.excess(terms)
    if memory < math.inf:
        _within(rows, model, options, memory, held)
    for choice in without:
        rows.row([(own[at], 1.0) for own, at in zip(options, choice, strict=True)], 0.0, len(choice) - 1.0)
    return Program(rows, options, scale)


def _scale(model: Model) -> float:
    return max(sum(min(pick.seconds) for pick in model.picks), 1e-9)


def _flows(
    rows: Rows,
    value: Value,
    options: list[list[int]],
    scale: float,
    saved: list[list[tuple[int, float]]],
    held: list[tuple[int, float]] | None,
    late: dict[int, list[tuple[int, float]]],
    begun: Mapping[Any, int],
) -> None:
    """Flows from the layouts in which a value lies to those in which it is read."""
    alone = len(value.readers) == 1
    paid: dict[Pair, int] = {}
    if not alone:
        paid = {pair: rows.variable(seconds / scale) for pair, seconds in value.seconds.items() if seconds}
    for pair, variable in paid.items():
        for number, seconds in value.behind.get(pair, ()):
            late.setdefault(number, []).append((variable, -seconds / scale))
    common = [rows.variable(seconds / scale) for seconds in value.common]
    several = held is not None and sum(reader.keeps for reader in value.readers) > 1
    kept = [rows.variable(0.0) for _ in value.sizes] if several else []
    if several and held is not None:
        held += zip(kept, value.sizes, strict=True)
    for reader in value.readers:
        wanted = set(reader.labels)
        flows = {
            pair: rows.variable(seconds / scale if alone else 0.0)
            for pair, seconds in value.seconds.items()
            if pair[1] in wanted
        }
        _balanced(rows, flows, 0, value.labels, options[value.maker])
        _balanced(rows, flows, 1, reader.labels, options[reader.pick])
        shared: dict[int, list[int]] = {}
        for pair, flow in flows.items():
            for number, seconds in value.behind.get(pair, ()) if alone else ():
                late.setdefault(number, []).append((flow, -seconds / scale))
            if pair in paid:
                rows.row([(paid[pair], 1.0), (flow, -1.0)], 0.0, math.inf)
            for each in value.shares.get(pair, ()):
                shared.setdefault(each, []).append(flow)
            for pick, seconds in zip((value.maker, reader.pick), value.saved.get(pair, (0.0, 0.0)), strict=True):
                if seconds:
                    saved[pick].append((flow, seconds / scale))
        if reader.keeps and held is not None:
            keys: dict[int, list[int]] = {}
            for pair, flow in flows.items():
                if pair in value.kept:
                    keys.setdefault(value.kept[pair], []).append(flow)
            for each, own in keys.items():
                if several:
                    rows.row([(kept[each], 1.0), *((flow, -1.0) for flow in own)], 0.0, math.inf)
                else:
                    held += ((flow, value.sizes[each]) for flow in own)
        for each, own in shared.items():
            rows.row([(common[each], 1.0), *((flow, -1.0) for flow in own)], 0.0, math.inf)
        together: dict[Any, list[int]] = {}
        for pair, flow in flows.items():
            for each in dict.fromkeys(value.together.get(pair, ())):
                together.setdefault(each, []).append(flow)
        for each, own in together.items():
            rows.row([(begun[each], 1.0), *((flow, -1.0) for flow in own)], 0.0, math.inf)


def _balanced(rows: Rows, flows: dict[Pair, int], end: int, labels: Sequence[int], options: Sequence[int]) -> None:
    """What flows from, or to, a layout is what lies, or is read, in it."""
    terms: dict[int, list[tuple[int, float]]] = {}
    for pair, flow in flows.items():
        terms.setdefault(pair[end], []).append((flow, 1.0))
    for label, option in zip(labels, options, strict=True):
        terms.setdefault(label, []).append((option, -1.0))
    for own in terms.values():
        rows.row(own, 0.0, 0.0)


def _within(rows: Rows, model: Model, options: list[list[int]], memory: float, kept: list[tuple[int, float]]) -> None:
    """What stays on a device fits, and what is there in the end."""
    picks = list(zip(model.picks, options, strict=True))
    _fit(rows, [(own, pick.held) for pick, own in picks], memory, kept)
    if any(pick.after != pick.held for pick in model.picks if pick.after):
        _fit(rows, [(own, pick.after) for pick, own in picks if pick.after], memory, ())


def _fit(
    rows: Rows,
    listed: Sequence[tuple[list[int], Sequence[float]]],
    memory: float,
    kept: Sequence[tuple[int, float]],
) -> None:
    least = sum(min(sizes) for _, sizes in listed)
    unit = max(memory, 1.0)
    terms = [
        (each, (size - min(sizes)) / unit)
        for own, sizes in listed
        for each, size in zip(own, sizes, strict=True)
        if size > min(sizes)
    ]
    terms += ((each, size / unit) for each, size in kept)
    rows.row(terms, -math.inf, (memory - least) / unit)
