"""Windows over the axes of an image: which cells each of them reads, under every way of padding."""

from __future__ import annotations

from typing import Any

from combinators.arguments import read_count, read_list
from combinators.errors import CompositionError, GraphError, SignatureError, message, spelt
from combinators.frozen import dataclass
from combinators.recording.value import Value
from tapestry_jax.nnx.options import read_sizes

PADDINGS = ("SAME", "VALID", "CAUSAL", "CIRCULAR", "REFLECT")
Padding = str | tuple[tuple[int, int], ...]
SPATIAL = ("z", "y", "x")
"""Names of the axes of an image, the last ones of which are those of a line and of a plane."""


@dataclass(frozen=True)
class Window:
    """A window along one axis: the cell `y` reads `stride * y + dilation * w - low` for every `w` below `size`.

    Attributes:
      size: cells of a window.
      stride: between two windows.
      dilation: between two cells of a window.
      low: cells before the first one that the first window reads.
      out: how many windows there are.
      boundary: what answers outside of the tensor.
    """

    size: int
    stride: int
    dilation: int
    low: int
    out: int
    boundary: str

    @property
    def is_bare(self) -> bool:
        """Whether every window is the cell itself."""
        return (self.size, self.stride, self.low, self.boundary) == (1, 1, 0, "valid")

    def axis(self, at: int) -> str:
        """The axis of the operand; windows are counted by `y<at>`, cells of a window by `w<at>`."""
        if self.is_bare:
            return f"y{at}"
        return f"({self.stride}*y{at}+{self.dilation}*[w{at}]-{self.low})"


def read_per_axis(value: Any, rank: int, what: str) -> tuple[int, ...]:
    """A positive number for every axis of an image, one number standing for all.

    Raises:
      GraphError: for anything else.
    """
    listed = read_list(value, what) if isinstance(value, tuple | list) else (value,) * rank
    if len(listed) != rank or any(isinstance(number, int) and number >= 2**31 for number in listed):
        details = (f"expected {rank}, one for each axis of the image, below 2**31", f"got {spelt(value)}")
        raise GraphError(message(f"{what} are not what they should be", *details, remedy="Pass one number for all."))
    return tuple(read_count(number, what) for number in listed)


def read_window(value: Any, what: str) -> tuple[int, ...]:
    """The sizes of a window, along one to three axes.

    Raises:
      GraphError: for anything else.
    """
    sizes = read_sizes(value, what)
    if not 1 <= len(sizes) <= len(SPATIAL):
        details = ("expected a size for each of one to three axes", f"got {spelt(value)}")
        raise GraphError(message(f"{what} is that of no image", *details, remedy="Pass one such as (3, 3)."))
    return sizes


def read_padding(value: Any, rank: int, allowed: tuple[str, ...], what: str) -> Padding:
    """One of the `allowed` words, a number, or for every axis a number or two.

    Raises:
      GraphError: for anything else.
    """
    if isinstance(value, str) and str(value) in allowed:
        if value == "CAUSAL" and rank != 1:
            remedy = "Pass pairs: padding=((2, 0), (1, 1))."
            raise GraphError(message(f"{what} is CAUSAL for an image of {rank} axes", remedy=remedy))
        return str(value)
    listed = list(value) if isinstance(value, tuple | list) else [value] * rank
    pairs = [list(pair) if isinstance(pair, tuple | list) else [pair, pair] for pair in listed]
    if len(pairs) != rank or any(len(pair) != 2 or not all(map(_is_count, pair)) for pair in pairs):
        details = (
            f"expected one of {', '.join(allowed)}, or a pair for each of {rank} axes",
            f"got {spelt(value)}",
        )
        remedy = 'Pass padding="SAME", or numbers of cells from 0 on.'
        raise GraphError(message(f"{what} is not what it should be", *details, remedy=remedy))
    return tuple((int(low), int(high)) for low, high in pairs)


def windows_of(
    lengths: tuple[int, ...],
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    padding: Padding,
    where: str,
) -> tuple[Window, ...]:
    """The windows along all axes of an image of these lengths.

    Raises:
      SignatureError: when a window is longer than its axis with the padding.
    """
    found = list[Window]()
    for at, (length, size, stride, dilation) in enumerate(zip(lengths, sizes, strides, dilations, strict=True)):
        reach = (size - 1) * dilation + 1
        low, high, boundary = _ends(length, reach, stride, padding if isinstance(padding, str) else padding[at])
        out = (length + low + high - reach) // stride + 1
        if out < 1:
            details = (f"axis {at} of the image has {length} cells", f"windows reach over {reach}")
            raise SignatureError(
                message(f"{where}: no window fits", *details, remedy="Pass a larger image, or pad it.")
            )
        found.append(Window(size, stride, dilation, low, out, boundary))
    return tuple(found)


def check_image(x: Any, rank: int, channels: bool, where: str) -> None:
    """Refuse what has fewer axes than an image.

    Raises:
      SignatureError: then.
    """
    if x.ndim < rank + channels:
        details = (f"expected {rank} axes of an image, then the channels", f"got {spelt(x, 120)}")
        remedy = "Pass channels last, behind any leading axes."
        raise SignatureError(message(f"{where}: the input is no image", *details, remedy=remedy))


def check_channels(x: Value, name: str, size: int, where: str, *, folded: bool = True) -> None:
    """Refuse an image of other channels than the kernel's.

    Args:
      x: the image, channels last.
      name: of the channels of the kernel.
      size: how many there are.
      where: the module.
      folded: whether they are one dimension of both, and not cells of groups.

    Raises:
      CompositionError: when somebody has given the last axis another name.
      SignatureError: when it has another size.
    """
    if x.shape[-1] != size:
        details = (f"expected {name}={size} last", f"got {x!r}")
        remedy = "Change the module's in_features, or what comes in."
        raise SignatureError(message(f"{where}: the input has other channels", *details, remedy=remedy))
    own = x.names[-1]
    # A name that nobody wrote gives way, where the kernel is applied.
    if folded and own is not None and own != name and x.trace.wrote(own):
        details = (f"expected {name}={size} last", f"got {x!r}")
        remedy = f'Name what comes in and goes out, dims=("{own}", ...), or rename the input: x.rename({own}="{name}").'
        raise CompositionError(
            message(f"{where}: the channels of the input have another name", *details, remedy=remedy)
        )


def _ends(length: int, reach: int, stride: int, padding: str | tuple[int, int]) -> tuple[int, int, str]:
    """Cells before and behind the tensor, and what answers there."""
    if isinstance(padding, tuple):
        return *padding, "zero" if any(padding) else "valid"
    total = max((-(-length // stride) - 1) * stride + reach - length, 0)
    ends = {
        "VALID": (0, 0, "valid"),
        "SAME": (total // 2, total - total // 2, "zero" if total else "valid"),
        "CAUSAL": (reach - 1, 0, "zero" if reach > 1 else "valid"),
        "CIRCULAR": ((reach - 1) // 2, reach // 2, "periodic"),
        "REFLECT": ((reach - 1) // 2, reach // 2, "reflect"),
    }
    return ends[padding]


def _is_count(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 2**31
