"""Linear maps from dimensions of a tensor, by default the last ones, to new ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from combinators.arguments import read_count, read_flag, read_function, read_integer, read_list, read_mapping
from combinators.errors import CompositionError, GraphError, SignatureError, message, spelt
from combinators.frozen import dataclass
from combinators.leaves.einsum import einsum
from combinators.leaves.map import Map
from combinators.recording.value import Value
from tapestry_jax.nnx.modules.module import Module
from tapestry_jax.nnx.options import read_dims, read_dtypes, read_rngs, read_sizes
from tapestry_jax.nnx.parameter import cast, lecun_normal, parameter, zeros

Dims = tuple[str, ...]


@dataclass(frozen=True)
class Added:
    """The sum of a tensor and one whose first `leading` axes are its first ones, and whose others are its last ones."""

    leading: int

    def __call__(self, x: Any, bias: Any) -> Any:
        """The sum, on blocks."""
        return x + jnp.expand_dims(bias, range(self.leading, self.leading + x.ndim - bias.ndim))


class LinearGeneral(Module):
    """`y = x . kernel + bias`, contracting dimensions of `x`, as `flax.nnx.LinearGeneral`; the new ones come last.

    Args:
      in_features: sizes of the contracted dimensions.
      out_features: sizes of the new dimensions.
      axis: which axes of `x` are contracted, in the order in which they stand; by default the last ones.
      batch_axis: sizes of leading axes, `{0: 4}`, for each of whose cells there is a kernel and a bias of its own.
      use_bias: whether a bias with the new dimensions is added.
      dims: names of the contracted and of the new dimensions; before them those of `batch_axis`, where there are some.
      dtype: of the computation; by default what JAX promotes inputs and parameters to.
      param_dtype: of the parameters.
      kernel_init: initializer of the kernel; it sees a matrix.
      bias_init: initializer of the bias.
      rngs: whose stream `params` initialises.

    Raises:
      GraphError: when a dimension name stands twice, or an argument is not what it should be.
    """

    def __init__(
        self,
        in_features: int | Sequence[int],
        out_features: int | Sequence[int],
        *,
        dims: tuple[str | Dims, str | Dims] | tuple[str | Dims, str | Dims, str | Dims],
        axis: int | Sequence[int] | None = None,
        batch_axis: Mapping[int, int] | None = None,
        use_bias: bool = True,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        kernel_init: Any = lecun_normal,
        bias_init: Any = zeros,
        rngs: nnx.Rngs,
    ) -> None:
        own = f"of {type(self).__name__}"
        self.in_features = read_sizes(in_features, f"in_features= {own}")
        self.out_features = read_sizes(out_features, f"out_features= {own}")
        self.axis, self.batch = _read_axis(axis, len(self.in_features), own), _read_batch(batch_axis, own)
        of_batch, *pair = _read_parts(dims, bool(self.batch), own)
        self.batch_dims = read_dims(of_batch, len(self.batch), f"dims= {own}")
        self.in_dims = read_dims(pair[0], len(self.in_features), f"dims= {own}")
        self.out_dims = read_dims(pair[1], len(self.out_features), f"dims= {own}")
        self.dtype, param_dtype = read_dtypes(dtype, param_dtype, own)
        kernel_init = read_function(kernel_init, f"kernel_init= {own}")
        bias_init = read_function(bias_init, f"bias_init= {own}")
        rngs = read_rngs(rngs, own)
        made = partial(parameter, rngs=rngs, dtype=param_dtype)
        names, comes_in = self.batch_dims + self.in_dims + self.out_dims, self.batch + self.in_features
        flat = (math.prod(comes_in), math.prod(self.out_features))
        self.kernel = made(kernel_init, comes_in + self.out_features, names, flat=flat)
        self.bias: nnx.Param[jax.Array] | None = nnx.data(None)
        if read_flag(use_bias, f"use_bias= {own}"):
            self.bias = made(bias_init, self.batch + self.out_features, self.batch_dims + self.out_dims)

    @property
    def signature(self) -> str | None:
        """The last dimensions are contracted; where others are, how many stand between is not known before."""
        if self.axis is not None:
            return None
        operand, result = (" ".join((*self.batch_dims, "...", *dims)) for dims in (self.in_dims, self.out_dims))
        return f"{operand} -> {result}"

    @property
    def sizes(self) -> Mapping[str, int]:
        """Of the contracted and of the new dimensions, and of those that have kernels of their own."""
        names = self.batch_dims + self.in_dims + self.out_dims
        return dict(zip(names, self.batch + self.in_features + self.out_features, strict=True))

    def forward(self, x: Value) -> Value:
        """Contract with the kernel and add the bias.

        Raises:
          CompositionError: when the dimensions of `x` have other names than the kernel's.
          SignatureError: when they have other sizes, or `x` has no such axes.
        """
        places = self._places(x)
        self._check_input(x, places)
        parts = {"b": self.batch_dims, "i": self.in_dims, "o": self.out_dims}
        batch, ins, outs = ([f"{letter}{n}" for n in range(len(dims))] for letter, dims in parts.items())
        if self.axis is None:
            rest = ["..."]
            operand = [*batch, *rest, *ins]
        else:
            known = dict(zip(places, (*batch, *ins), strict=True))
            operand = [known.get(n, f"x{n}") for n in range(x.ndim)]
            rest = [name for name in operand if name not in known.values()]
        kernel, result = (" ".join(part) for part in ((*batch, *ins, *outs), (*batch, *rest, *outs)))
        product = einsum(f"{' '.join(operand)}, {kernel} -> {result}")
        y = product(cast(x, self.dtype), cast(self.kernel[...], self.dtype))
        if self.bias is None:
            return y
        bias = cast(self.bias[...], self.dtype)
        if not batch:
            return y + bias
        # By places, since what stands between the two may have no names.
        return Map(Added(len(batch)), f"{result}, {' '.join((*batch, *outs))} -> {result}")(y, bias)

    def _places(self, x: Value) -> list[int]:
        """Where the operand has the dimensions of `batch_axis` and those that are contracted."""
        contracted = [n - len(self.in_dims) for n in range(len(self.in_dims))] if self.axis is None else self.axis
        places = sorted(n + x.ndim if n < 0 else n for n in contracted)
        batch = [*range(len(self.batch_dims))]
        if self.axis is None and x.ndim < len(batch) + len(places):
            return [n for n in (*batch, *places) if 0 <= n < x.ndim]  # what is missing is told by the kernel
        if len({*batch, *places}) < len(batch) + len(places) or places[0] < 0 or places[-1] >= x.ndim:
            headline = f"a {type(self).__name__} with axis={self.axis!r} finds no such axes in its input"
            details = (f"got {x!r}", *([f"batch_axis= takes its first {len(batch)}"] if batch else []))
            raise SignatureError(message(headline, *details, remedy="Name other axes, each once, or reshape."))
        return [*batch, *places]

    def _check_input(self, x: Value, places: Sequence[int]) -> None:
        got = [(x.names[n], x.shape[n]) for n in places]
        sizes = self.sizes
        wanted = [(name, sizes[name]) for name in (*self.batch_dims, *self.in_dims)]
        shown = ", ".join(f"{name}={size}" if name else str(size) for name, size in got)
        takes, has = ("takes", "has") if self.axis or self.batch_dims else ("contracts", "ends in")
        headline = f"a {type(self).__name__} {takes} ({_shown(wanted)}), its input {has} ({shown})"
        for (name, size), (own, expected) in zip(got, wanted, strict=True):
            # A name that nobody wrote gives way, where the kernel is applied.
            if name is not None and name != own and x.trace.wrote(name):
                rename = f'x.rename({name}="{own}")'
                remedy = f"Name the module's dimensions with dims=, or rename the input: {rename}."
                raise CompositionError(message(headline, f"got {x!r}", remedy=remedy))
            if size != expected:
                option = "batch_axis" if own in self.batch_dims else "in_features"
                remedy = f"Change the module's {option}, or what comes in."
                raise SignatureError(message(headline, f"got {x!r}", f"they differ at `{own}`", remedy=remedy))


class Linear(LinearGeneral):
    """`y = x . kernel + bias` along the last dimension of `x`, as `flax.nnx.Linear`.

    Args:
      in_features: size of the contracted dimension.
      out_features: size of the new one.
      use_bias: whether a bias is added.
      dims: names of the contracted and of the new dimension.
      dtype: of the computation; by default what JAX promotes inputs and parameters to.
      param_dtype: of the parameters.
      kernel_init: initializer of the kernel.
      bias_init: initializer of the bias.
      rngs: whose stream `params` initialises.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        use_bias: bool = True,
        dims: tuple[str, str] = ("embed", "mlp"),
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        kernel_init: Any = lecun_normal,
        bias_init: Any = zeros,
        rngs: nnx.Rngs,
    ) -> None:
        super().__init__(
            in_features,
            out_features,
            dims=dims,
            use_bias=use_bias,
            dtype=dtype,
            param_dtype=param_dtype,
            kernel_init=kernel_init,
            bias_init=bias_init,
            rngs=rngs,
        )


def _read_axis(value: Any, count: int, own: str) -> tuple[int, ...] | None:
    """Which axes are contracted; None where these are the last ones, as many as there are sizes."""
    if value is None:
        return None
    listed = read_list(value, f"axis= {own}") if isinstance(value, tuple | list) else (value,)
    axes = tuple(read_integer(n, f"axis= {own}") for n in listed)
    if len(axes) != count:
        details = (f"expected {count}, as many as in_features= has", f"got {spelt(value)}")
        raise GraphError(message(f"axis= {own} is not what it should be", *details, remedy="Pass one for each size."))
    return None if sorted(axes) == list(range(-count, 0)) else axes


def _read_batch(value: Any, own: str) -> tuple[int, ...]:
    """The sizes of leading axes."""
    sizes = read_mapping(value, f"batch_axis= {own}")
    if {*sizes} != {*range(len(sizes))}:
        details = ("expected leading axes, counted from 0", f"got {spelt(value)}")
        raise GraphError(message(f"batch_axis= {own} is not what it should be", *details, remedy="Pass {0: 4}."))
    return tuple(read_count(sizes[n], f"batch_axis= {own}") for n in range(len(sizes)))


def _read_parts(value: Any, has_batch: bool, own: str) -> tuple[Any, ...]:
    """The names of leading axes, of contracted dimensions and of new ones."""
    parts = read_list(value, f"dims= {own}")
    if len(parts) == 2 + has_batch:
        return parts if has_batch else ((), *parts)
    before = "those of batch_axis=, " if has_batch else "those "
    details = (f"expected {before}of the contracted and of the new dimensions", f"got {spelt(value)}")
    example = 'dims=("group", "embed", "mlp")' if has_batch else 'dims=("embed", "mlp")'
    raise GraphError(
        message(f"dims= {own} are not {'three' if has_batch else 'two'}", *details, remedy=f"Pass {example}.")
    )


def _shown(pairs: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{name}={size}" for name, size in pairs)
