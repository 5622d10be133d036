"""Linear maps from the last dimensions of a tensor to new ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from combinators.einsum import einsum
from combinators.errors import CompositionError, message
from combinators.value import Value
from tapestry_jax.nnx.cast import cast
from tapestry_jax.nnx.module import Module

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
      GraphError: when a dimension name stands twice.
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
        kernel_init: Any = jax.nn.initializers.lecun_normal(),
        bias_init: Any = jax.nn.initializers.zeros,
        rngs: nnx.Rngs,
    ) -> None:
        self.in_features, self.out_features = _tuple(in_features), _tuple(out_features)
        self.in_dims, self.out_dims = _tuple(dims[0]), _tuple(dims[1])
        self.dtype = dtype
        options = {"rngs": rngs, "dtype": param_dtype}
        shape, names = self.in_features + self.out_features, self.in_dims + self.out_dims
        flat = (math.prod(self.in_features), math.prod(self.out_features))
        self.parameter("kernel", kernel_init, shape, names, flat=flat, **options)
        self.bias: nnx.Param[jax.Array] | None = nnx.data(None)
        if use_bias:
            self.parameter("bias", bias_init, self.out_features, self.out_dims, **options)

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
        self._check_names(x)
        ins = " ".join(f"i{n}" for n in range(len(self.in_dims)))
        outs = " ".join(f"o{n}" for n in range(len(self.out_dims)))
        y = einsum(f"... {ins}, {ins} {outs} -> ... {outs}")(cast(x, self.dtype), cast(self.kernel[...], self.dtype))
        return y if self.bias is None else y + cast(self.bias[...], self.dtype)

    def _check_names(self, x: Value) -> None:
        got = x.names[-len(self.in_dims) :]
        if any(name is not None and name != own for name, own in zip(got, self.in_dims, strict=False)):
            shown = ", ".join(name or "an unnamed axis" for name in got)
            raise CompositionError(
                message(
                    f"a {type(self).__name__} contracts ({', '.join(self.in_dims)}), its input ends in ({shown})",
                    f"got {x!r}",
                    remedy="Name the module's dimensions with dims=, or rename the input: "
                    f'x.rename({got[-1]}="{self.in_dims[-1]}").',
                )
            )


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
        kernel_init: Any = jax.nn.initializers.lecun_normal(),
        bias_init: Any = jax.nn.initializers.zeros,
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


def _tuple(value: Any) -> Any:
    return (value,) if isinstance(value, int | str) else tuple(value)
