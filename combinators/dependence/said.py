"""What expressions in the signature of a program say that is read, held against what is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

from combinators.dependence.followed import readings, source_of
from combinators.dependence.reading import Digit, Reading, lies_so, places, position, read_by, spelt_reading
from combinators.dependence.sampled import WAYS, Cells
from combinators.graphs.nodes import Ref
from combinators.index_space.axis import Axis
from combinators.index_space.signature import Signature
from combinators.recording.current import trace_of
from combinators.recording.pending import Pending
from combinators.recording.value import Value

_MOST_GUESSED = 64
"""Cells of a window of which nothing tells the size, where there are several in one axis."""


@dataclass(frozen=True)
class Program:
    """What is held against its signature.

    Attributes:
      name: of the program.
      signature: without `...`.
      values: what comes in.
      results: what it returns.
      known: the sizes of dimensions that are known.
    """

    name: str
    signature: Signature
    values: Sequence[Value]
    results: Sequence[Value]
    known: Mapping[str, int]


def false_reads(
    program: Program, wrong_size: Callable[[Axis, int, Mapping[str, int]], str | None]
) -> Iterator[tuple[tuple[int, int], str, str]]:
    """Look at the axes of operands that are expressions.

    Args:
      program: and its signature.
      wrong_size: what is wrong with the size of the dimension that a window of so many cells becomes, by some sizes.

    Returns:
      The place of each that is false, or of which nobody can tell; what is wrong with it, and how a way out begins.
    """
    trace = trace_of([*program.values, *program.results], program.name)
    values = trace.own(program.name, program.values)
    results = [value.ref for value in trace.own(program.name, program.results)]
    sources = [source_of(trace.nodes, value.ref) for value in values]
    for number, (operand, source) in enumerate(zip(program.signature.operands, sources, strict=True)):
        others = ({value.ref for value in values} | {*sources}) - {source}
        for at, axis in enumerate(operand.axes):
            if not (axis.is_window or _is_composed(axis, program.signature)) or not values[number].shape[at]:
                continue
            beside = [program.signature.operands[i].axes[at] for i, other in enumerate(sources) if other == source]
            asked = _Asked(program, trace.nodes, source, (number, at), others, beside)
            for result, found in enumerate(
                zip(*(asked.readings(results, each) for each in asked.without), strict=True)
            ):
                if (problem := asked.false_read(result, results[result], found, wrong_size)) is not None:
                    yield (number, at), *problem


@dataclass(frozen=True)
class _Asked:
    """An axis of an operand, of which it is asked what is read.

    Attributes:
      program: and its signature.
      nodes: of its recording.
      source: the operand, as it was before any renaming.
      place: of the axis: which operand, and which of its axes.
      others: the other operands.
      beside: what is said of the axis by all operands that are the same tensor.
    """

    program: Program
    nodes: Sequence[Pending]
    source: Ref
    place: tuple[int, int]
    others: Collection[Ref]
    beside: Sequence[Axis]

    @property
    def without(self) -> tuple[Collection[Ref], Collection[Ref]]:
        """Through what nothing is followed: what others are made of may be recorded as read through these, or not."""
        return self.others, ()

    def readings(self, results: Sequence[Ref], without: Collection[Ref]) -> list[Reading | str]:
        return readings(self.nodes, self.source, self.place[1], results, without)

    def false_read(
        self,
        number: int,
        ref: Ref,
        found: Sequence[Reading | str],
        wrong_size: Callable[[Axis, int, Mapping[str, int]], str | None],
    ) -> tuple[str, str] | None:
        """What is wrong with what the axis says of one result, and how the way out begins."""
        program, (operand, axis) = self.program, self.place
        result, expected = program.results[number], program.signature.results[number].axes
        bare = {own.names[0]: size for own, size in zip(expected, result.shape, strict=True) if own.is_bare}
        sizes = {**program.known, **bare}
        if not result.size or frozenset() in found:
            return None
        said, at = program.signature.operands[operand].axes[axis], places(expected, sizes)
        if said.is_window:
            cells = program.values[operand].shape[axis]
            return _false_window(said, self.beside, at, sizes, found, (number, cells), wrong_size)
        if not all(name in sizes for name in said.names) or self._may_lie_so(said, ref, found, at, sizes):
            return None
        told = next((each for each in found if not isinstance(each, str)), None)
        read = "other cells" if told is None else spelt_reading(told, at)
        what = f"result {number} reads {read} of this axis, which is not {_said(said, expected)}"
        return what, "Write the dimensions of a composition in the order in which they lie, or"

    def _may_lie_so(
        self, axis: Axis, result: Ref, found: Sequence[Reading | str], at: Mapping[str, Digit], sizes: Mapping[str, int]
    ) -> bool:
        """Whether cells may lie as a composition says: by one of the forms, or by single cells where some are not."""
        # What a result alone has (of a tile) may be beside an index as well.
        own = [name for each in self.program.signature.operands[self.place[0]].axes for name in each.names]
        dims = [*dict.fromkeys([*own, *at])]
        forms = [form for each in found if not isinstance(each, str) for form in each]
        if any(lies_so(partial(position, form, at), axis, dims, at, sizes) for form in forms):
            return True
        if not any(isinstance(each, str) for each in found):
            return False
        ways = (Cells(self.nodes, self.source, without, at, way) for without in self.without for way in range(WAYS))
        reads = (partial(cells.read, result, self.place[1]) for cells in ways)
        return any(lies_so(read, axis, dims, at, sizes, seed) is not False for seed, read in enumerate(reads))


def _false_window(
    axis: Axis,
    beside: Sequence[Axis],
    at: Mapping[str, Digit],
    sizes: Mapping[str, int],
    found: Sequence[Reading | str],
    of: tuple[int, int],
    wrong_size: Callable[[Axis, int, Mapping[str, int]], str | None],
) -> tuple[str, str] | None:
    """The same of a window; `of` is the number of the result, and how many cells the axis has."""
    fitting = [fits for each in found for fits in sizes_that_say(axis, beside, at, sizes, each)]
    wrong = [problem for fits in fitting if (problem := wrong_size(axis, of[1], fits)) is not None]
    if fitting:
        return (wrong[0], "Mend what the function returns, or write") if len(wrong) == len(fitting) else None
    if isinstance(found[0], str):
        return f"which cells of `{axis}` are read cannot be told: {found[0]}", "Write"
    read = spelt_reading(found[0], at)
    return f"result {of[0]} reads {read} of this axis, and not `{axis}`", "Write what is read, or"


def _is_composed(axis: Axis, signature: Signature) -> bool:
    """Whether an axis is put together of dimensions, or one of a result of its own and others."""
    composite = [own for result in signature.results for own in result.axes if own.kind == "composite"]
    return axis.kind == "composite" or (axis.is_bare and any(axis.names[0] in own.names for own in composite))


def _said(axis: Axis, expected: Sequence[Axis]) -> str:
    """An axis as it is said to be read: composed, or put into a composition of the result."""
    into = [f"`{own}`" for own in expected if own.kind == "composite" and not {*own.names}.isdisjoint(axis.names)]
    return f"`{axis}`" + (f" in {into[0]}" if into and axis.is_bare else "")


def sizes_that_say(
    axis: Axis, beside: Sequence[Axis], at: Mapping[str, Digit], sizes: Mapping[str, int], read: Reading | str
) -> Iterator[Mapping[str, int]]:
    """The sizes by which an axis says of itself what is read of it.

    A window is a box, of which the first cell is read and the last; those between may be passed over, as by a kernel.

    Args:
      axis: of an operand.
      beside: of all operands that are the same tensor.
      at: where the dimensions stand in the result.
      sizes: of those that are known.
      read: by the result; or why it cannot be told, which no sizes say.
    """
    if isinstance(read, str) or not read:
        return
    for fitting in _fitting(axis, at, sizes, read):
        own = read_by(axis, at, fitting)
        if own is not None and (_is_box_of(own, read) or _shares(own, axis, beside, at, sizes, read)):
            yield fitting


def _fitting(
    axis: Axis, at: Mapping[str, Digit], sizes: Mapping[str, int], read: Reading
) -> Iterator[Mapping[str, int]]:
    """The sizes, with those that nothing tells as they fit what is read: two or more, as a window of one is a name."""
    steps = {term.name: abs(term.coefficient) for term in axis.terms if term.name not in at}
    unknown = [name for name in steps if name not in sizes]
    if not unknown:
        yield sizes
        return
    offsets = [offset for _, offset in read]
    span = max(offsets) - min(offsets) - sum(step * (sizes[name] - 1) for name, step in steps.items() if name in sizes)
    for counts in product(range(2, _MOST_GUESSED), repeat=len(unknown) - 1):
        left = span - sum(steps[name] * (count - 1) for name, count in zip(unknown, counts, strict=False))
        if left > 0 and left % steps[unknown[-1]] == 0:
            yield {**sizes, **dict(zip(unknown, (*counts, left // steps[unknown[-1]] + 1), strict=True))}


def _is_box_of(own: Reading, read: Reading) -> bool:
    # Of one axis all forms have the same digits.
    return bool(own) and {min(own), max(own)} <= read <= own


def _shares(
    own: Reading, axis: Axis, beside: Sequence[Axis], at: Mapping[str, Digit], sizes: Mapping[str, int], read: Reading
) -> bool:
    """Whether the other operands that are the same tensor explain what is read beside what this one says."""
    others = [other for other in beside if other != axis]
    if not others or not own & read:
        return False
    if not all(other.is_window and all(name in sizes for name in other.names) for other in others):
        return True  # a plain name leaves open what is read, and nobody can tell through which operand that is
    return read <= own.union(*(read_by(other, at, sizes) or own for other in others))
