"""Convolutions: windows of an image that are maps, over channels that are folded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from combinators.arguments import read_count, read_flag, read_function
from combinators.errors import GraphError, message
from combinators.frozen import dataclass
from combinators.leaves.map import Map
from combinators.leaves.reduce import Reduce
from combinators.monoids import Sum
from combinators.operations.outside import Widths, zeros_around
from combinators.recording.value import Value
from tapestry_jax.nnx.images.windows import (
    PADDINGS,
    SPATIAL,
    Window,
    check_channels,
    check_image,
    read_padding,
    read_per_axis,
    read_window,
    windows_of,
)
from tapestry_jax.nnx.modules.module import Module
from tapestry_jax.nnx.options import read_dims, read_dtypes, read_rngs
from tapestry_jax.nnx.parameter import cast, lecun_normal, parameter, zeros


@dataclass(frozen=True)
class Correlate:
    """A convolution of blocks whose windows hold all that they read.

    Attributes:
      strides: between windows.
      dilations: between cells of a window.
      neutral: what changes no sum where both operands hold it.
    """

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    answers: ClassVar[tuple[str, ...]] = ("zero", "valid")
    neutral: ClassVar[int] = 0

    def __call__(self, x: Any, kernel: Any, *, preferred_element_type: Any = None, padding: Any = "VALID") -> Any:
        """Shape `(..., *windows, features)`; channels of `x` beyond those of the kernel are further groups."""
        return convolve(x, kernel, self.strides, self.dilations, padding=padding, preferred=preferred_element_type)

    def beyond(self, modes: tuple[str, ...], widths: Widths) -> Any:
        """The same with zeros around each axis."""
        padding = zeros_around(widths[-len(self.strides) - 1 : -1], self.strides)
        return None if padding is None else partial(self, padding=padding)


class _Convolution(Module):
    """What both directions share: the parameters and their names."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        kernel_size: int | Sequence[int],
        strides: int | Sequence[int],
        *,
        padding: Any,
        paddings: tuple[str, ...],
        kernel_dilation: int | Sequence[int],
        groups: Any,
        use_bias: bool,
        dims: tuple[str, str],
        spatial: Sequence[str] | None,
        dtype: Any,
        param_dtype: Any,
        kernel_init: Any,
        bias_init: Any,
        rngs: nnx.Rngs,
    ) -> None:
        own = f"of {type(self).__name__}"
        self.in_features = read_count(in_features, f"in_features= {own}")
        self.out_features = read_count(out_features, f"out_features= {own}")
        self.kernel_size = read_window(kernel_size, f"kernel_size= {own}")
        rank = len(self.kernel_size)
        self.strides = read_per_axis(strides, rank, f"strides= {own}")
        self.kernel_dilation = read_per_axis(kernel_dilation, rank, f"kernel_dilation= {own}")
        self.padding = read_padding(padding, rank, paddings, f"padding= {own}")
        self.groups = read_count(groups, f"feature_group_count= {own}")
        if self.in_features % self.groups or self.out_features % self.groups:
            details = (f"in_features is {self.in_features}, out_features {self.out_features}",)
            remedy = "Choose a number of groups that divides both."
            raise GraphError(message(f"{self.groups} groups do not divide the features {own}", *details, remedy=remedy))
        self.dims = read_dims(dims, 2, f"dims= {own}")
        self.spatial = read_dims(SPATIAL[-rank:] if spatial is None else spatial, rank, f"spatial= {own}")
        self.dtype, param_dtype = read_dtypes(dtype, param_dtype, own)
        kernel_init = read_function(kernel_init, f"kernel_init= {own}")
        bias_init = read_function(bias_init, f"bias_init= {own}")
        rngs = read_rngs(rngs, own)
        shape = (*self.kernel_size, self.in_features // self.groups, self.out_features)
        inside = self.dims[0] if self.groups == 1 else f"{self.dims[0]}_of_group"
        names = (*(f"window_{name}" for name in self.spatial), inside, self.dims[1])
        self.kernel = parameter(kernel_init, shape, names, rngs=rngs, dtype=param_dtype)
        self.bias: nnx.Param[jax.Array] | None = nnx.data(None)
        if read_flag(use_bias, f"use_bias= {own}"):
            self.bias = parameter(bias_init, shape[-1:], names[-1:], rngs=rngs, dtype=param_dtype)

    @property
    def sizes(self) -> Mapping[str, int]:
        """Of the channels."""
        return dict(zip(self.dims, (self.in_features, self.out_features), strict=True))

    def _read(self, x: Value) -> tuple[int, ...]:
        """The lengths of the image."""
        rank, where = len(self.kernel_size), type(self).__name__
        check_image(x, rank, True, where)
        check_channels(x, self.dims[0], self.in_features, where, folded=self.groups == 1)
        return x.shape[-rank - 1 : -1]

    def _biased(self, y: Value) -> Value:
        return y if self.bias is None else y + cast(self.bias[...], self.dtype)


class Conv(_Convolution):
    """A convolution over one to three axes of an image, channels last, as `flax.nnx.Conv`.

    Windows overlap, so a plan that cuts the image exchanges its edges; channels are a fold. Groups are a
    dimension of their own, `groups`, that maps.

    Args:
      in_features: channels that come in.
      out_features: channels that go out.
      kernel_size: cells of a window along each axis; its number of axes is that of the image.
      strides: cells from one window to the next.
      padding: `SAME`, `VALID`, `CAUSAL` (of one axis), `CIRCULAR`, `REFLECT`, or zeros before and behind each axis.
      kernel_dilation: cells from one cell of a window to the next.
      feature_group_count: groups of channels that do not see each other.
      use_bias: whether a bias is added.
      dims: names of the channels that come in and go out.
      spatial: names of the axes of the image, by default the last ones of `z`, `y`, `x`.
      dtype: of the computation; by default what JAX promotes inputs and parameters to.
      param_dtype: of the parameters.
      kernel_init: initializer of the kernel.
      bias_init: initializer of the bias.
      rngs: whose stream `params` initialises.

    Raises:
      GraphError: when an argument is not what it should be, or the groups do not divide the channels.
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
        feature_group_count: int = 1,
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
            paddings=PADDINGS,
            kernel_dilation=kernel_dilation,
            groups=feature_group_count,
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
        image = " ".join(self.spatial)
        return f"... {image} {self.dims[0]} -> ... {image} {self.dims[1]}"

    def forward(self, x: Value) -> Value:
        """Correlate every window with the kernel, and add the bias.

        Returns:
          `(..., *windows, out_features)` of an `x` of `(..., *image, in_features)`.

        Raises:
          CompositionError: when the channels have another name.
          SignatureError: when they have another size, or no window fits.
        """
        windows = windows_of(self._read(x), self.kernel_size, self.strides, self.kernel_dilation, self.padding, "Conv")
        leaf = self._grouped(windows) if self.groups > 1 else self._folded(windows)
        return self._biased(leaf(cast(x, self.dtype), cast(self.kernel[...], self.dtype)))

    def _folded(self, windows: Sequence[Window]) -> Reduce:
        image, inside, out = _axes(windows)
        text = f"... {image} c, {inside} c o -> ... {out} o"
        # Zero annihilates a product, so padding needs no case distinction.
        return Reduce(Correlate(self.strides, self.kernel_dilation), text, Sum, pad=(0, 0), **_options(windows))

    def _grouped(self, windows: Sequence[Window]) -> Map:
        image, inside, out = _axes(windows)
        text = f"... {image} (groups [c]), {inside} [c] (groups [o]) -> ... {out} (groups [o])"
        options = _options(windows)
        options["sizes"] = options["sizes"] | {"groups": self.groups}
        return Map(Correlate(self.strides, self.kernel_dilation), text, **options)


def convolve(
    x: Any,
    kernel: Any,
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    *,
    padding: Any = "VALID",
    dilated: tuple[int, ...] | None = None,
    preferred: Any = None,
) -> Any:
    """`lax.conv_general_dilated` of channels last, under any leading axes, in the dtype that both promote to."""
    rank = len(strides)
    lead, image = x.shape[: -rank - 1], x.shape[-rank - 1 :]
    dtype = jnp.result_type(x, kernel)
    letters = "DHW"[-rank:]
    y = lax.conv_general_dilated(
        jnp.reshape(x, (math.prod(lead), *image)).astype(dtype),
        kernel.astype(dtype),
        strides,
        padding,
        lhs_dilation=dilated,
        rhs_dilation=dilations,
        dimension_numbers=(f"N{letters}C", f"{letters}IO", f"N{letters}C"),
        feature_group_count=max(1, image[-1] // max(1, kernel.shape[-2])),
        preferred_element_type=preferred,
    )
    return jnp.reshape(y, (*lead, *y.shape[1:]))


def _axes(windows: Sequence[Window]) -> tuple[str, str, str]:
    """The axes of the image, of the kernel and of the result, as signatures write them."""
    image = " ".join(window.axis(at) for at, window in enumerate(windows))
    inside = " ".join(f"[w{at}]" for at in range(len(windows)))
    return image, inside, " ".join(f"y{at}" for at in range(len(windows)))


def _options(windows: Sequence[Window]) -> dict[str, Any]:
    sizes = {f"y{at}": window.out for at, window in enumerate(windows) if not window.is_bare}
    modes = tuple(window.boundary for window in windows if not window.is_bare)
    return {"sizes": sizes, "boundary": modes or "valid", "name": "conv"}
