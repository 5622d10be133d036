"""Linear maps from the last dimensions of a tensor to new ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from combinators.arguments import read_flag, read_function, read_list
from combinators.errors import CompositionError, GraphError, SignatureError, message
from combinators.leaves.einsum import einsum
from combinators.recording.value import Value
from tapestry_jax.nnx.modules.module import Module
from tapestry_jax.nnx.options import read_dims, read_dtypes, read_rngs, read_sizes
from tapestry_jax.nnx.parameter import cast, lecun_normal, parameter, zeros

Dims = tuple[str, ...]


class LinearGeneral(Module):
    """`y = x . kernel + bias`, contracting the last dimensions of `x`, under any leading ones.

    Args:
      in_features: sizes of the contracted dimensions.
      out_features: sizes of the new dimensions.
      use_bias: whether a bias with the new dimensions is added.
      dims: names of the contracted and of the new dimensions.
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
        dims: tuple[str | Dims, str | Dims],
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
        pair = read_list(dims, f"dims= {own}")
        if len(pair) != 2:
            details = ("expected those of the contracted and of the new dimensions", f"got {dims!r:.80}")
            raise GraphError(message(f"dims= {own} are not two", *details, remedy='Pass dims=("embed", "mlp").'))
        self.in_dims = read_dims(pair[0], len(self.in_features), f"dims= {own}")
        self.out_dims = read_dims(pair[1], len(self.out_features), f"dims= {own}")
        self.dtype, param_dtype = read_dtypes(dtype, param_dtype, own)
        kernel_init = read_function(kernel_init, f"kernel_init= {own}")
        bias_init = read_function(bias_init, f"bias_init= {own}")
        rngs = read_rngs(rngs, own)
        shape, names = self.in_features + self.out_features, self.in_dims + self.out_dims
        flat = (math.prod(self.in_features), math.prod(self.out_features))
        self.kernel = parameter(kernel_init, shape, names, flat=flat, rngs=rngs, dtype=param_dtype)
        self.bias: nnx.Param[jax.Array] | None = nnx.data(None)
        if read_flag(use_bias, f"use_bias= {own}"):
            self.bias = parameter(bias_init, self.out_features, self.out_dims, rngs=rngs, dtype=param_dtype)

    @property
    def signature(self) -> str:
        """The last dimensions are contracted."""
        return f"... {' '.join(self.in_dims)} -> ... {' '.join(self.out_dims)}"

    @property
    def sizes(self) -> Mapping[str, int]:
        """Of the contracted and of the new dimensions."""
        return dict(zip(self.in_dims + self.out_dims, self.in_features + self.out_features, strict=True))

    def forward(self, x: Value) -> Value:
        """Contract with the kernel and add the bias.

        Raises:
          CompositionError: when the last dimensions of `x` have other names than the kernel's.
          SignatureError: when they have other sizes.
        """
        self._check_input(x)
        ins = " ".join(f"i{n}" for n in range(len(self.in_dims)))
        outs = " ".join(f"o{n}" for n in range(len(self.out_dims)))
        y = einsum(f"... {ins}, {ins} {outs} -> ... {outs}")(cast(x, self.dtype), cast(self.kernel[...], self.dtype))
        return y if self.bias is None else y + cast(self.bias[...], self.dtype)

    def _check_input(self, x: Value) -> None:
        got = list(zip(x.names, x.shape, strict=True))[-len(self.in_dims) :]
        wanted = list(zip(self.in_dims, self.in_features, strict=True))
        shown = ", ".join(f"{name}={size}" if name else str(size) for name, size in got)
        headline = f"a {type(self).__name__} contracts ({_shown(wanted)}), its input ends in ({shown})"
        for (name, size), (own, expected) in zip(got, wanted, strict=True):
            # A name that nobody wrote gives way, where the kernel is applied.
            if name is not None and name != own and x.trace.wrote(name):
                rename = f'x.rename({name}="{own}")'
                remedy = f"Name the module's dimensions with dims=, or rename the input: {rename}."
                raise CompositionError(message(headline, f"got {x!r}", remedy=remedy))
            if size != expected:
                remedy = "Change the module's in_features, or what comes in."
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


def _shown(pairs: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{name}={size}" for name, size in pairs)
