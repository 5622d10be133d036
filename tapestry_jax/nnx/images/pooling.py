"""Pooling: windows of an image that are maps, and what is largest or average in each of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from combinators.arguments import read_flag
from combinators.errors import GraphError, SignatureError, message, spelt
from combinators.frozen import dataclass
from combinators.index_space.tensor_type import type_of
from combinators.leaves.map import Map
from combinators.operations.outside import Widths, zeros_around
from combinators.recording.value import Value
from tapestry_jax.nnx.images.windows import Window, check_image, read_padding, read_per_axis, read_window, windows_of


@dataclass(frozen=True)
class Pool:
    """Merge the cells of every window of a block that holds all that they read.

    Attributes:
      kind: `max`, `min` or `sum`.
      sizes: of a window, along every axis of the image.
      strides: between windows.
    """

    kind: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def answers(self) -> tuple[str, ...]:
        """The boundaries that leave a window with what it holds: zeros in sums, or copies of a cell that it holds."""
        return ("valid", "zero" if self.kind == "sum" else "edge")

    def __call__(self, x: Any, padding: Any = "VALID") -> Any:
        """Shape `(..., *windows, channels)`."""
        merge = {"max": lax.max, "min": lax.min, "sum": lax.add}[self.kind]
        lead = (1,) * (x.ndim - len(self.sizes) - 1)
        window, strides = (*lead, *self.sizes, 1), (*lead, *self.strides, 1)
        return lax.reduce_window(x, _least(self.kind, x.dtype), merge, window, strides, padding)

    def beyond(self, modes: tuple[str, ...], widths: Widths) -> Any:
        """The same of an image that its boundary does not extend."""
        padding = zeros_around(widths, (*(1,) * (len(widths) - len(self.sizes) - 1), *self.strides, 1))
        return None if padding is None else partial(self, padding=padding)


@dataclass(frozen=True)
class Averages:
    """Divide sums of windows by how many cells of the tensor each of them holds.

    Attributes:
      windows: along every axis of the image.
      lengths: of the tensor along these axes.
    """

    windows: tuple[Window, ...]
    lengths: tuple[int, ...]

    def __call__(self, sums: Any, *coordinates: Any) -> Any:
        """The shape of `sums`."""
        count = jnp.ones((), sums.dtype)
        for window, length, at in zip(self.windows, self.lengths, coordinates, strict=True):
            first = window.stride * at - window.low
            cells = jnp.minimum(first + window.size, length) - jnp.maximum(first, 0)
            count = count[..., None] * cells.astype(sums.dtype)
        return sums / count[..., None]


def max_pool(x: Any, window_shape: Sequence[int], strides: Sequence[int] | None = None, padding: Any = "VALID") -> Any:
    """The largest cell of every window, as `flax.nnx.max_pool`.

    Args:
      x: `(..., *image, channels)`; an array, or a value of a program.
      window_shape: cells of a window along each axis of the image.
      strides: from one window to the next, by default 1.
      padding: `SAME`, `VALID`, or cells before and behind each axis, which are passed over.

    Raises:
      GraphError: when an argument is not what it should be, or a window may hold padding alone.
      SignatureError: when `x` is no image, or no window fits.
    """
    return _extreme("max", x, window_shape, strides, padding)


def min_pool(x: Any, window_shape: Sequence[int], strides: Sequence[int] | None = None, padding: Any = "VALID") -> Any:
    """The smallest cell of every window, as `flax.nnx.min_pool`.

    Args:
      x: `(..., *image, channels)`; an array, or a value of a program.
      window_shape: cells of a window along each axis of the image.
      strides: from one window to the next, by default 1.
      padding: `SAME`, `VALID`, or cells before and behind each axis, which are passed over.

    Raises:
      GraphError: when an argument is not what it should be, or a window may hold padding alone.
      SignatureError: when `x` is no image, or no window fits.
    """
    return _extreme("min", x, window_shape, strides, padding)


def avg_pool(
    x: Any,
    window_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Any = "VALID",
    count_include_pad: bool = True,
) -> Any:
    """The average of every window, as `flax.nnx.avg_pool`.

    Args:
      x: `(..., *image, channels)` of floats; an array, or a value of a program.
      window_shape: cells of a window along each axis of the image.
      strides: from one window to the next, by default 1.
      padding: `SAME`, `VALID`, or zeros before and behind each axis.
      count_include_pad: whether these zeros count.

    Raises:
      GraphError: when an argument is not what it should be, or a window may hold padding alone.
      SignatureError: when `x` is no image of floats, or no window fits.
    """
    own = "avg_pool"
    counted = read_flag(count_include_pad, f"count_include_pad= of {own}")
    windows, lengths = _windows(own, x, window_shape, strides, padding)
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        remedy = "Convert it: x.astype(jnp.float32)."
        raise SignatureError(message("avg_pool averages floats", f"got {spelt(x, 120)}", remedy=remedy))
    sums = _leaf("sum", windows, tuple("zero" if w.low or w.boundary == "zero" else "valid" for w in windows))(x)
    if counted:
        return sums / float(np.prod([window.size for window in windows]))
    axes = [f"y{at}" for at in range(len(windows))]
    text = f"... {' '.join(axes)} c, {', '.join(f'@{axis}' for axis in axes)} -> ... {' '.join(axes)} c"
    return Map(Averages(windows, lengths), text, name="average")(sums)


def _extreme(kind: str, x: Any, window_shape: Any, strides: Any, padding: Any) -> Any:
    windows, _ = _windows(f"{kind}_pool", x, window_shape, strides, padding)
    # A copy of the cell at the edge: every window that reads one holds the cell itself as well.
    return _leaf(kind, windows, tuple("edge" if w.boundary == "zero" else "valid" for w in windows))(x)


def _leaf(kind: str, windows: tuple[Window, ...], modes: tuple[str, ...]) -> Map:
    image = " ".join(window.axis(at) for at, window in enumerate(windows))
    out = " ".join(f"y{at}" for at in range(len(windows)))
    read = [at for at, window in enumerate(windows) if not window.is_bare]
    sizes = {f"y{at}": windows[at].out for at in read} | {f"w{at}": windows[at].size for at in read}
    kernel = Pool(kind, tuple(window.size for window in windows), tuple(window.stride for window in windows))
    boundary = tuple(modes[at] for at in read) or "valid"
    return Map(kernel, f"... {image} c -> ... {out} c", sizes=sizes, boundary=boundary, name=f"{kind}_pool")


def _windows(own: str, x: Any, window_shape: Any, strides: Any, padding: Any) -> tuple[tuple[Window, ...], Any]:
    sizes = read_window(window_shape, f"window_shape= of {own}")
    rank = len(sizes)
    steps = read_per_axis(1 if strides is None else strides, rank, f"strides= of {own}")
    pad = read_padding(padding, rank, ("SAME", "VALID"), f"padding= of {own}")
    if not isinstance(pad, str) and any(max(pair) >= size for pair, size in zip(pad, sizes, strict=True)):
        details = (f"windows of {sizes}", f"got {spelt(padding)}")
        remedy = "Pad by less than a window has cells."
        raise GraphError(message(f"windows of {own} may hold padding alone", *details, remedy=remedy))
    image = x if isinstance(x, Value) else type_of(x, f"the input of {own}")
    check_image(image, rank, True, own)
    lengths = image.shape[-rank - 1 : -1]
    return windows_of(lengths, sizes, steps, (1,) * rank, pad, own), lengths


def _least(kind: str, dtype: Any) -> Any:
    """What changes nothing."""
    if kind == "sum":
        return np.zeros((), dtype)[()]
    if jnp.issubdtype(dtype, jnp.floating):
        return np.asarray(-np.inf if kind == "max" else np.inf, dtype)[()]
    limits = jnp.iinfo(dtype)
    return np.asarray(limits.min if kind == "max" else limits.max, dtype)[()]
