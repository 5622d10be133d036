"""What expressions in the signature of a program say that is read, held against what is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from combinators.dependence.followed import readings, source_of
from combinators.dependence.reading import Digit, Reading, lies_so, places, read_by, spelt_reading
from combinators.dependence.sampled import lie_so
from combinators.graphs.nodes import Ref
from combinators.index_space.axis import Axis
from combinators.index_space.signature import Signature
from combinators.recording.current import trace_of
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
            # What another operand is made of may be recorded as read through that, or beside it.
            followed = [readings(trace.nodes, source, at, results, without) for without in (others, ())]
            beside = [program.signature.operands[i].axes[at] for i, other in enumerate(sources) if other == source]

            def sampled(axis: Any, result: int, *said: Any, source: Ref = source, others: Any = others) -> bool | None:
                asked = [lie_so(trace.nodes, source, axis, results[result], without, *said) for without in (others, ())]
                return None if None in asked else any(asked)

            for result, found in enumerate(zip(*followed, strict=True)):
                if (
                    problem := _false_read(program, (number, at), beside, result, found, wrong_size, sampled)
                ) is not None:
                    yield (number, at), *problem


def _false_read(
    program: Program,
    place: tuple[int, int],
    beside: Sequence[Axis],
    number: int,
    found: Sequence[Reading | str],
    wrong_size: Callable[[Axis, int, Mapping[str, int]], str | None],
    sampled: Callable[..., bool | None],
) -> tuple[str, str] | None:
    """What is wrong with what an axis says of one result, and how the way out begins."""
    result, expected = program.results[number], program.signature.results[number].axes
    operand, cells = program.signature.operands[place[0]], program.values[place[0]].shape[place[1]]
    axis = operand.axes[place[1]]
    bare = {own.names[0]: size for own, size in zip(expected, result.shape, strict=True) if own.is_bare}
    sizes = {**program.known, **bare}
    at = places(expected, sizes)
    if not result.size or frozenset() in found:
        return None
    if not axis.is_window:
        # What a result alone has (of a tile) may be beside it there as well.
        dims = dict.fromkeys([*(name for own in operand.axes for name in own.names), *at])
        told = [each for each in found if not isinstance(each, str)]
        known = all(name in sizes for name in axis.names)
        if not known or any(lies_so(each, axis, dims, at, sizes) for each in told):
            return None
        if len(told) < len(found) and sampled((place[1], axis), number, dims, at, sizes) is not False:
            return None
        read = spelt_reading(told[0], at) if told else "other cells"
        what = f"result {number} reads {read} of this axis, which is not {_said(axis, expected)}"
        return what, "Write the dimensions of a composition in the order in which they lie, or"
    fitting = [fits for each in found for fits in sizes_that_say(axis, beside, at, sizes, each)]
    wrong = [problem for fits in fitting if (problem := wrong_size(axis, cells, fits)) is not None]
    if fitting:
        return (wrong[0], "Mend what the function returns, or write") if len(wrong) == len(fitting) else None
    if isinstance(found[0], str):
        return f"which cells of `{axis}` are read cannot be told: {found[0]}", "Write"
    read = spelt_reading(found[0], at)
    return f"result {number} reads {read} of this axis, and not `{axis}`", "Write what is read, or"


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
