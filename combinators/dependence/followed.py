"""Which cells of an axis of one value the cells of others read, followed through what was recorded between them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from combinators.dependence.reading import MOST_FORMS, Digit, Form, Reading, itself, places, read_through
from combinators.graphs.nodes import Ref
from combinators.operations.shaped import Shaped
from combinators.recording.pending import Pending


def source_of(nodes: Sequence[Pending], ref: Ref) -> Ref:
    """What a value was before it was renamed."""
    while nodes[ref.node].renamed is not None:
        ref = nodes[ref.node].operands[0]
    return ref


def readings(
    nodes: Sequence[Pending], source: Ref, axis: int, results: Sequence[Ref], others: Collection[Ref] = ()
) -> list[Reading | str]:
    """Follow an axis of a value to some results, by the signatures of the operations on the way.

    Args:
      nodes: of a recording.
      source: the value, as it was before any renaming.
      axis: of it.
      results: of the same recording.
      others: values through which nothing is followed.

    Returns:
      For each result what its cells read along the axis: nothing where it is not made of the value; or why this
      cannot be told.
    """
    size = nodes[source.node].results[source.output].shape[axis]
    found: dict[Ref, Reading | str] = {source: itself(axis, size)}
    for index in sorted(_between(nodes, source.node, results)):
        node = nodes[index]
        for output in range(len(node.results)):
            ref = Ref(index, output)
            if ref not in others and any(operand in found for operand in node.operands):
                found[ref] = _read_of(nodes, node, output, found, size)
    return [found.get(ref, frozenset()) for ref in results]


def _between(nodes: Sequence[Pending], first: int, results: Sequence[Ref]) -> set[int]:
    """The nodes behind one that results are made of."""
    todo, needed = [ref.node for ref in results], set[int]()
    while todo:
        if (index := todo.pop()) > first and index not in needed:
            needed.add(index)
            todo += [ref.node for ref in nodes[index].operands]
    return needed


def _read_of(
    nodes: Sequence[Pending], node: Pending, output: int, found: Mapping[Ref, Reading | str], cells: int
) -> Reading | str:
    """What one result of a node reads, from what its operands read."""
    if node.renamed is not None:
        return found[node.operands[0]]
    if node.shaped is None:
        return f"they go through the loop `{node.path}`"
    forms: set[Form] = set()
    for reading in _by_operand(nodes, node, node.shaped, output, found, cells):
        if isinstance(reading, str):
            return reading
        forms |= reading
    if len(forms) > MOST_FORMS:
        return f"`{node.path}` reads too many to list them"
    return frozenset(forms)


def _by_operand(
    nodes: Sequence[Pending],
    node: Pending,
    shaped: Shaped,
    output: int,
    found: Mapping[Ref, Reading | str],
    cells: int,
) -> Iterator[Reading | str]:
    at = _kept(shaped, output)
    arrays = [operand for operand in shaped.signature.operands if operand.coordinate is None]
    for ref, operand in zip(node.operands, arrays, strict=True):
        reading = found.get(ref, frozenset())
        if isinstance(reading, str):
            yield reading
            continue
        shape = nodes[ref.node].results[ref.output].shape
        axes = {number for digits, _ in reading for (number, _, _), _ in digits}
        over = shaped.operation.over
        if any(over in operand.axes[number].names for number in axes):
            yield f"`{node.path}` runs along `{over}`"
            continue
        through = read_through(reading, operand.axes, shape, at, shaped.sizes, cells)
        yield f"`{node.path}` {through}" if isinstance(through, str) else through


def _kept(shaped: Shaped, output: int) -> dict[str, Digit]:
    """Where the dimensions stand in a result that each of its cells has one index of."""
    found = places(shaped.result_axes[output], shaped.sizes)
    return {name: digit for name, digit in found.items() if shaped.signature.role(name) in ("map", "generated")}
