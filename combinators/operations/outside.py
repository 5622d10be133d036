"""Kernels that answer by themselves what windows read outside of a tensor, so that nothing is put around it.

A convolution with padding is one kernel of XLA's, also backwards; a padded array that is convolved is written, read,
and cut again for its gradient. Such a kernel has `answers`, the modes of boundaries that it knows, and
`beyond(modes, widths)`: the same kernel for an operand as it is stored, by axes of the operand.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

from combinators.index_space.boundary import OWN
from combinators.index_space.extent import axis_extent
from combinators.operations.execute import axis_modes
from combinators.operations.shaped import Shaped

Widths = tuple[tuple[int, int], ...]


class Answering(Protocol):
    """A kernel whose one operand with windows may be given as it is.

    Attributes:
      answers: the boundary modes that it knows, `valid` among them where it leaves a remainder unread.
    """

    answers: tuple[str, ...]

    def beyond(self, modes: tuple[str, ...], widths: Widths) -> Any:
        """The kernel for an operand that its boundary does not extend, or None where there is none.

        Args:
          modes: of the boundary, by axes of the operand.
          widths: cells that windows read before and behind each axis; below none where cells there are not read.
        """
        ...


def answering(shaped: Shaped, arrays: Sequence[Any], cut: Collection[str] = ()) -> Shaped:
    """The operation whose kernel answers what lies outside, where it can and no window is cut.

    Args:
      shaped: the operation.
      arrays: its operands without coordinates, or their types, as they are stored.
      cut: dimensions that are cut.
    """
    operation = shaped.operation
    if not hasattr(operation.kernel, "beyond") or operation.dense:
        return shaped
    kernel = cast("Answering", operation.kernel)
    modes, remaining = axis_modes(shaped), iter(arrays)
    given: list[Any] = [None if each.coordinate is not None else next(remaining) for each in shaped.signature.operands]
    windowed = [at for at, each in enumerate(shaped.signature.operands) if any(axis.is_window for axis in each.axes)]
    if len(windowed) != 1 or 0 in given[windowed[0]].shape:
        return shaped
    (number,) = windowed
    widths, own = list[tuple[int, int]](), list[bool]()
    for axis, mode, length in zip(
        shaped.signature.operands[number].axes, modes[number], given[number].shape, strict=True
    ):
        low, high = axis_extent(axis, shaped.sizes) if axis.is_window else (0, length)
        is_own = axis.is_window and low < high and mode in kernel.answers and not {*axis.names} & {*cut}
        own.append(is_own)
        widths.append((-low, high - length) if is_own else (0, 0))
    found = kernel.beyond(tuple(modes[number]), tuple(widths)) if any(own) else None
    if found is None:
        return shaped
    windows = [
        OWN if is_own else mode
        for axis, mode, is_own in zip(shaped.signature.operands[number].axes, modes[number], own, strict=True)
        if axis.is_window
    ]
    return replace(shaped, operation=replace(operation, kernel=found, boundary=tuple(windows)))


def zeros_around(widths: Widths, strides: Sequence[int]) -> Widths | None:
    """The padding of XLA for windows that read so far beyond a tensor; None where they begin behind its first cell.

    Windows leave a remainder that is shorter than a stride unread by themselves.
    """
    if any(low < 0 or high <= -stride for (low, high), stride in zip(widths, strides, strict=True)):
        return None
    return tuple((low, max(high, 0)) for low, high in widths)
