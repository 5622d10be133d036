"""Renamings of values: what they do to operations that come after them, and to each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from combinators.errors import GraphError, message
from combinators.index_space.naming import AxisName, find, may_be_one
from combinators.operations.binding import local_names
from combinators.operations.shaped import Shaped
from combinators.recording.pending import Pending
from combinators.recording.value import Value


def hoist_renames(
    nodes: Sequence[Pending], shaped: Shaped, operands: Sequence[Value]
) -> tuple[list[Value], dict[str, str]] | None:
    """Renaming commutes with operations: apply to the unrenamed tensor, so that equal work is shared.

    Only where no other operand carries the old or the new name: then the renaming means the same after it.

    Args:
      nodes: of the recording.
      shaped: the operation.
      operands: its operands, in that recording.

    Returns:
      The operands without their renamings, and what is to be renamed in the result; None where it means another thing.
    """
    mapping: dict[str, str] = {}
    for value in operands:
        renamed = nodes[value.ref.node].renamed
        if renamed is not None:
            if any(mapping.get(old, new) != new for old, new in renamed.items()):
                return None
            mapping |= renamed
    if not mapping or len(set(mapping.values())) < len(mapping):
        return None
    touched = set(mapping) | set(mapping.values())
    # A name that the operation itself brings must neither meet the old names nor be renamed with them.
    if touched & local_names(shaped):
        return None
    sources: list[Value] = []
    for value in operands:
        renamed = nodes[value.ref.node].renamed
        source = value if renamed is None else _source(nodes, value)
        stays = {name for name in source.names if name not in (renamed or {})}
        if stays & touched or any(name is None for name in source.names):
            return None
        sources.append(source)
    return sources, mapping


def give_way(value: Value, wanted: Sequence[AxisName | None]) -> Value:
    """Rename axes whose names come from use where these may not be what they meet: a tensor has both.

    The kernel of a square layer has two axes of one size, and what the layer gives may be added to what it took: its
    result is renamed there. Names that somebody wrote are not touched; where two of these meet, or an axis would become
    one with an axis beside it, the value stays as it is, and what reads it says why it cannot.

    Args:
      value: any.
      wanted: for each axis what it meets; None for nothing.
    """
    program = value.trace
    giving = [
        axis
        for axis, (own, other) in enumerate(zip(value.axes, wanted, strict=True))
        if other is not None and not may_be_one(own, other) and not (program.wrote(own) and program.wrote(other))
    ]
    after = {find(wanted[axis] or own) if axis in giving else find(own) for axis, own in enumerate(value.axes)}
    if not giving or len(after) < value.ndim:
        return value
    names = {program.coin(value.axes[axis]): program.coin(wanted[axis] or "") for axis in giving}
    return program.rename(value, names, settles=False)


def give_way_together(values: Sequence[Value], meetings: Iterable[Sequence[tuple[int, int]]]) -> list[Value]:
    """The same for values that meet: what somebody wrote stays, of others the first.

    Args:
      values: any.
      meetings: for each dimension the axes that meet, as value and axis.
    """
    wanted: list[list[AxisName | None]] = [[None] * value.ndim for value in values]
    for places in meetings:
        names = [find(values[number].axes[axis]) for number, axis in places]
        written = [name for name in names if values[0].trace.wrote(name)]
        for number, axis in places:
            wanted[number][axis] = (written or names)[0]
    return [give_way(value, listed) for value, listed in zip(values, wanted, strict=True)]


def chain_renames(nodes: Sequence[Pending], value: Value, names: Mapping[str, str]) -> tuple[Value, dict[str, str]]:
    """A renaming of a value as one of what it was renamed from, where it was: old names of that to the new ones."""
    renamed = nodes[value.ref.node].renamed
    if renamed is None:
        return value, dict(names)
    chained = {old: names.get(new, new) for old, new in renamed.items()}
    return _source(nodes, value), chained | {old: new for old, new in names.items() if old not in renamed.values()}


def check_has_axes(value: Value, names: Mapping[str, str]) -> None:
    """Refuse to rename an axis that a value does not have.

    Raises:
      GraphError: naming the first one.
    """
    for old, new in names.items():
        if old not in value.names:
            unnamed = any(name is None for name in value.names)
            raise GraphError(
                message(
                    f"cannot rename `{old}` to `{new}`: the value has no axis `{old}`",
                    f"got {value!r}",
                    remedy="Name the axes first: give the program a signature, or its inputs a tp.TensorType."
                    if unnamed
                    else "Rename one of the axes it has.",
                )
            )


def _source(nodes: Sequence[Pending], renamed: Value) -> Value:
    """What a renamed value was before."""
    ref = nodes[renamed.ref.node].operands[0]
    return nodes[ref.node].results[ref.output]
