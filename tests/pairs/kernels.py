"""Kernels of the programs that are drawn: each right for a block of any size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import tapestry_jax as tp


def bump(x: Any) -> Any:
    return jnp.exp(-x * x)


def shrink(x: Any) -> Any:
    return x / (1 + x * x)


@jax.custom_jvp
def told(x: Any) -> Any:
    """Its derivative is its author's, not that of the code, and calls it."""
    return jnp.tanh(x)


@told.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (x,), (moved,) = primals, tangents
    out = told(x)
    return out, (2 - told(0.5 * x) * out) * moved


def two(x: Any) -> Any:
    return jnp.sin(x), x * 0.5


@dataclass(frozen=True)
class Whole:
    """A function of rows, mapped over all other axes.

    Attributes:
      what: softmax, reversed, unit (rows of length 1, not a number where all are zeros), turned or sorted.
      axis: of the rows.
    """

    what: str
    axis: int

    def __call__(self, x: Any) -> Any:
        if self.what == "softmax":
            return jax.nn.softmax(x, self.axis)
        if self.what == "reversed":
            return jnp.flip(x, self.axis)
        if self.what == "unit":
            return x / jnp.sqrt(jnp.sum(x * x, self.axis, keepdims=True))
        if self.what == "sorted":
            return jnp.sort(x, self.axis)
        return jnp.roll(x, 1, self.axis)


@dataclass(frozen=True)
class Row:
    """Divides every row by its norm: a map over the other axes, whose padding must not be zeros.

    Attributes:
      axis: of the rows.
    """

    axis: int

    def __call__(self, x: Any) -> Any:
        return x / jnp.linalg.norm(x, axis=self.axis, keepdims=True)


@dataclass(frozen=True)
class Smooth:
    """A weighted sum of the cells of a window of three, `stride` apart, as a map reads it: cropped to what is read.

    Attributes:
      axis: of the window.
      stride: between windows.
      dilation: between the cells of one.
    """

    axis: int
    stride: int
    dilation: int

    def __call__(self, x: Any) -> Any:
        count = (x.shape[self.axis] - 2 * self.dilation - 1) // self.stride + 1
        count = max(count, 0)
        cells = [
            jax.lax.slice_in_dim(
                x, k * self.dilation, k * self.dilation + (count - 1) * self.stride + 1, self.stride, self.axis
            )
            if count
            else jax.lax.slice_in_dim(x, 0, 0, 1, self.axis)
            for k in range(3)
        ]
        return cells[0] * 0.25 + cells[1] * 0.5 - cells[2] * 0.375


def correlate(x: Any, filters: Any) -> Any:
    """`(y+k) x, k -> y x` for blocks of any size."""
    taps = filters.shape[0]
    count = x.shape[0] - taps + 1 if taps else 0
    if taps == 0 or count <= 0:
        return jnp.zeros((max(count, 0), *x.shape[1:]), x.dtype)
    return sum(x[k : k + count] * filters[k] for k in range(taps))


@dataclass(frozen=True)
class At:
    """Cells times a function of their coordinate.

    Attributes:
      axis: whose coordinates come as the second operand.
    """

    axis: int

    def __call__(self, x: Any, at: Any) -> Any:
        weight = jnp.cos(at.astype(x.dtype) * 0.7)
        return x * weight.reshape([-1 if axis == self.axis else 1 for axis in range(x.ndim)])


def choose(table: Any, labels: Any) -> Any:
    """`[v] e, b -> b e`."""
    return jnp.take(table, labels, axis=0, mode="clip")


@dataclass(frozen=True)
class Affine:
    """Steps of `h -> a h + b` from two operands, folded over the first axis in order.

    Attributes:
      axis: the folded one.
    """

    axis: int

    def __call__(self, x: Any) -> Any:
        decay, given = jnp.cos(x), x * 0.5
        count = x.shape[self.axis]
        h = (
            jnp.zeros_like(jax.lax.index_in_dim(x, 0, self.axis, False))
            if count
            else jnp.zeros(_without(x, self.axis), x.dtype)
        )
        a = h + 1
        for t in range(count):
            step = jax.lax.index_in_dim(decay, t, self.axis, False)
            h = step * h + jax.lax.index_in_dim(given, t, self.axis, False)
            a = step * a
        return a, h


def _without(x: Any, axis: int) -> tuple[int, ...]:
    return tuple(size for other, size in enumerate(x.shape) if other != axis)


def second(state: Any) -> Any:
    return state[1]


def affine_steps(x: Any) -> Any:
    return jnp.cos(x), x * 0.5


def compose(first: Any, then: Any) -> Any:
    return then[0] * first[0], then[0] * first[1] + then[1]


ORDERED = tp.Monoid((1, 0), compose, name="Ordered")


@dataclass(frozen=True)
class Summed:
    """The sum along some axes, as a kernel that nobody knows.

    Attributes:
      axes: the folded ones.
    """

    axes: tuple[int, ...]

    def __call__(self, x: Any) -> Any:
        return jnp.sum(jnp.tanh(x) + x, self.axes)


@dataclass(frozen=True)
class Largest:
    """The largest of every row, as a kernel that nobody knows.

    Attributes:
      axes: the folded ones.
    """

    axes: tuple[int, ...]

    def __call__(self, x: Any) -> Any:
        return jnp.max(x, self.axes, initial=-jnp.inf)


def where(keep: Any, x: Any) -> Any:
    return jnp.where(keep, x * 1.5, x * 0.25)


def weighted(x: Any, at: Any) -> Any:
    return x + jnp.cos(at.astype(x.dtype) * 0.3)


@dataclass(frozen=True)
class Plane:
    """Weighted sums over windows of three by three, one axis after the other.

    Attributes:
      axes: of the windows.
    """

    axes: tuple[int, ...]

    def __call__(self, x: Any) -> Any:
        for axis in self.axes:
            x = Smooth(axis, 1, 1)(x)
        return x


@dataclass(frozen=True)
class Correlate:
    """`(s*y+d*k), k -> y` along one axis, for blocks of any size.

    Attributes:
      axis: of the window.
      stride: between windows.
      dilation: between taps.
    """

    axis: int
    stride: int
    dilation: int

    def __call__(self, x: Any, filters: Any) -> Any:
        taps = filters.shape[0]
        count = (x.shape[self.axis] - (taps - 1) * self.dilation - 1) // self.stride + 1 if taps else 0
        count = max(count, 0) if x.shape[self.axis] else 0
        shape = [count if axis == self.axis else size for axis, size in enumerate(x.shape)]
        total = jnp.zeros(shape, x.dtype)
        for k in range(taps if count else 0):
            first = k * self.dilation
            last = first + (count - 1) * self.stride + 1
            total = total + jax.lax.slice_in_dim(x, first, last, self.stride, self.axis) * filters[k]
        return total
