"""Transposed convolutions: every cell that comes in makes `stride` cells, so the image is a map with windows again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import jax.numpy as jnp
from flax import nnx

from combinators.frozen import dataclass
from combinators.leaves.rearrange import rearrange
from combinators.leaves.reduce import Reduce
from combinators.monoids import Sum
from combinators.operations.outside import Widths
from combinators.recording.value import Value
from tapestry_jax.nnx.images.conv import _Convolution, convolve  # pyright: ignore[reportPrivateUsage]
from tapestry_jax.nnx.parameter import cast, lecun_normal, zeros


@dataclass(frozen=True)
class Phases:
    """Along one axis: what the cells from `stride * y` to `stride * y + stride - 1` that go out read of the image.

    Attributes:
      stride: cells that go out for each one that comes in.
      dilation: between cells of the kernel.
      first: the first cell that is read, relative to `y`.
      reach: how many cells are read.
      low: where in the dilated block the first cell that goes out begins.
    """

    stride: int
    dilation: int
    first: int
    reach: int
    low: int

    @classmethod
    def of(cls, size: int, stride: int, dilation: int, low: int) -> Phases:
        """Those of a kernel of `size` cells with `low` zeros before the dilated image."""
        reach = (size - 1) * dilation + 1
        first = -(low // stride)
        last = (stride + reach - 2 - low) // stride
        return cls(stride, dilation, first, last - first + 1, low + stride * first)

    def around(self, size: int, length: int, zeros: tuple[int, int]) -> tuple[int, int]:
        """The same of a block that is longer by `zeros` before and behind it."""
        before, behind = self.ends(size, length + sum(zeros))
        return before + self.stride * zeros[0], behind + self.stride * zeros[1]

    def ends(self, size: int, length: int) -> tuple[int, int]:
        """Zeros around a block of `length` cells when it is dilated, below none where it holds more than is read."""
        reach = (size - 1) * self.dilation + 1
        out = self.stride * max(length - self.reach + 1, 0)
        return self.low, out + reach - 1 - _dilated(length, self.stride) - self.low


@dataclass(frozen=True)
class Spread:
    """A transposed convolution of blocks whose windows hold all that they read.

    Attributes:
      phases: of every axis of the image.
    """

    phases: tuple[Phases, ...]
    answers: ClassVar[tuple[str, ...]] = ("zero",)

    def __call__(self, x: Any, kernel: Any, *, preferred_element_type: Any = None, around: Widths | None = None) -> Any:
        """Shape `(..., *windows, features)`; behind a window that makes several cells an axis of these.

        What is `around` the image are zeros that it does not hold.
        """
        lengths = x.shape[-len(self.phases) - 1 :]
        zeros = around or ((0, 0),) * len(self.phases)
        padding = tuple(
            phase.around(size, length, each)
            for phase, size, length, each in zip(self.phases, kernel.shape, lengths, zeros, strict=False)
        )
        dilations, dilated = (tuple(getattr(p, name) for p in self.phases) for name in ("dilation", "stride"))
        ones = (1,) * len(self.phases)
        y = convolve(x, kernel, ones, dilations, padding=padding, dilated=dilated, preferred=preferred_element_type)
        image = y.shape[-len(ones) - 1 : -1]
        apart = [(n // s, s) if s > 1 else (n,) for n, s in zip(image, dilated, strict=True)]
        return jnp.reshape(y, (*y.shape[: -len(ones) - 1], *(n for pair in apart for n in pair), y.shape[-1]))

    def beyond(self, modes: tuple[str, ...], widths: Widths) -> Any:
        """The same of an image that its boundary does not extend."""
        around = widths[-len(self.phases) - 1 : -1]
        return partial(self, around=around) if min(min(each) for each in around) >= 0 else None


class ConvTranspose(_Convolution):
    """A transposed convolution over one to three axes of an image, channels last, as `flax.nnx.ConvTranspose`.

    The kernel is not turned around, as in Flax. An axis with a stride above 1 comes out as a new dimension: `x` as
    `x_out`.

    Args:
      in_features: channels that come in.
      out_features: channels that go out.
      kernel_size: cells of the kernel along each axis; its number of axes is that of the image.
      strides: cells that go out for each one that comes in.
      padding: `SAME` (the image grows by the strides), `VALID`, or zeros before and behind the dilated image.
      kernel_dilation: cells from one cell of the kernel to the next.
      use_bias: whether a bias is added.
      dims: names of the channels that come in and go out.
      spatial: names of the axes of the image, by default the last ones of `z`, `y`, `x`.
      dtype: of the computation; by default what JAX promotes inputs and parameters to.
      param_dtype: of the parameters.
      kernel_init: initializer of the kernel.
      bias_init: initializer of the bias.
      rngs: whose stream `params` initialises.

    Raises:
      GraphError: when an argument is not what it should be.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        kernel_size: int | Sequence[int],
        strides: int | Sequence[int] = 1,
        *,
        padding: Any = "SAME",
        kernel_dilation: int | Sequence[int] = 1,
        use_bias: bool = True,
        dims: tuple[str, str] = ("channels", "features"),
        spatial: Sequence[str] | None = None,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        kernel_init: Any = lecun_normal,
        bias_init: Any = zeros,
        rngs: nnx.Rngs,
    ) -> None:
        super().__init__(
            in_features,
            out_features,
            kernel_size,
            strides,
            padding=padding,
            paddings=("SAME", "VALID"),
            kernel_dilation=kernel_dilation,
            groups=1,
            use_bias=use_bias,
            dims=dims,
            spatial=spatial,
            dtype=dtype,
            param_dtype=param_dtype,
            kernel_init=kernel_init,
            bias_init=bias_init,
            rngs=rngs,
        )

    @property
    def signature(self) -> str:
        """The image comes behind any leading dimensions, then its channels."""
        out = [name if stride == 1 else f"{name}_out" for name, stride in zip(self.spatial, self.strides, strict=True)]
        return f"... {' '.join(self.spatial)} {self.dims[0]} -> ... {' '.join(out)} {self.dims[1]}"

    def forward(self, x: Value) -> Value:
        """Dilate the image by the strides, correlate it with the kernel, and add the bias.

        Returns:
          `(..., *image, out_features)` of an `x` of `(..., *image, in_features)`; how many cells an axis then has,
          perhaps none, is said by `jax.lax.conv_transpose`.

        Raises:
          CompositionError: when the channels have another name.
          SignatureError: when they have another size.
        """
        axes = zip(self._read(x), self.kernel_size, self.strides, self.kernel_dilation, strict=True)
        image, out, inside = list[str](), list[str](), list[str]()
        sizes, phases, lengths = dict[str, int](), list[Phases](), list[int]()
        for at, (length, size, stride, dilation) in enumerate(axes):
            low, many = _extent(length, size, stride, dilation, self.padding, at)
            phase = Phases.of(size, stride, dilation, low)
            image.append(f"(y{at}+[v{at}]{phase.first:+d})")
            inside.append(f"[w{at}]")
            out.append(f"y{at}" if stride == 1 else f"y{at} [r{at}]")
            sizes |= {f"v{at}": phase.reach, f"y{at}": math.ceil(many / stride)}
            sizes |= {} if stride == 1 else {f"r{at}": stride}
            phases.append(phase)
            lengths.append(many)
        text = f"... {' '.join(image)} c, {' '.join(inside)} c o -> ... {' '.join(out)} o"
        options: dict[str, Any] = {"sizes": sizes, "boundary": "zero", "pad": (0, 0), "name": "conv_transpose"}
        leaf = Reduce(Spread(tuple(phases)), text, Sum, **options)
        y = leaf(cast(x, self.dtype), cast(self.kernel[...], self.dtype))
        if any(stride > 1 for stride in self.strides):
            apart = [axis.translate({ord("["): None, ord("]"): None}) for axis in out]
            together = [f"({axis})" if " " in axis else axis for axis in apart]
            y = rearrange(f"... {' '.join(apart)} o -> ... {' '.join(together)} o")(y)
        if any(y.shape[at - len(lengths) - 1] != many for at, many in enumerate(lengths)):
            y = y[(..., *(slice(0, many) for many in lengths), slice(None))]
        return self._biased(y)


def _extent(length: int, size: int, stride: int, dilation: int, padding: Any, at: int) -> tuple[int, int]:
    """Zeros before the dilated image, and how many cells go out; the rules of `lax.conv_transpose`."""
    reach = (size - 1) * dilation + 1
    if isinstance(padding, str):
        total = reach + stride - 2 + (max(reach - stride, 0) if padding == "VALID" else 0)
        low = reach - 1 if padding == "VALID" or stride > reach - 1 else math.ceil(total / 2)
    else:
        low, total = padding[at][0], sum(padding[at])
    return low, max(_dilated(length, stride) + total - reach + 1, 0)


def _dilated(length: int, stride: int) -> int:
    """Cells of an axis with zeros between them."""
    return (length - 1) * stride + 1 if length else 0
