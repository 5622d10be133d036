"""A linear map whose dimensions a signature names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from combinators.arguments import read_function, read_name
from combinators.errors import GraphError, SignatureError, message, spelt
from combinators.index_space.operand import Operand
from combinators.index_space.signature import read_signature
from combinators.leaves.einsum import einsum
from combinators.recording.value import Value
from tapestry_jax.nnx.modules.module import Module
from tapestry_jax.nnx.options import read_dtypes, read_rngs, read_sizes
from tapestry_jax.nnx.parameter import cast, lecun_normal, parameter, zeros


class Einsum(Module):
    """`y = einsum(x, kernel) + bias`, as `flax.nnx.Einsum`, whose signature names the dimensions.

    `Einsum("n t a, h a b -> n t h b", (8, 2, 4), (8, 4), rngs=rngs)` has the axes `h a b` of a kernel, `h b` of a bias.

    Args:
      signature: of the input, of the kernel, and of the result: bare dimensions, and `...` of leading ones.
      kernel_shape: of the kernel.
      bias_shape: sizes of those dimensions of the kernel that the result carries, in its order; None adds no bias.
      dtype: of the computation; by default what JAX promotes inputs and parameters to.
      param_dtype: of the parameters.
      kernel_init: initializer of the kernel.
      bias_init: initializer of the bias.
      rngs: whose stream `params` initialises.

    Raises:
      GraphError: when an argument is not what it should be, or a shape is not that of its dimensions.
      SignatureError: when the signature cannot be read.
    """

    def __init__(
        self,
        signature: str,
        kernel_shape: Sequence[int],
        bias_shape: Sequence[int] | None = None,
        *,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        kernel_init: Any = lecun_normal,
        bias_init: Any = zeros,
        rngs: nnx.Rngs,
    ) -> None:
        own = "of Einsum"
        self.text = str(read_name(signature, f"signature= {own}", SignatureError))
        einsum(self.text)
        parsed = read_signature(self.text)
        if len(parsed.operands) != 2 or parsed.operands[1].ellipsis:
            details = (
                "expected the input and the kernel, whose dimensions all have names",
                f"got {spelt(self.text)}",
            )
            remedy = 'Write both: "n t a, h a b -> n t h b".'
            raise SignatureError(message(f"the signature {own} is not that of a layer", *details, remedy=remedy))
        names, out = _names(parsed.operands[1]), _names(parsed.results[0])
        shape = read_sizes(kernel_shape, f"kernel_shape= {own}")
        _check_shape(shape, names, f"kernel_shape= {own}")
        self.kernel_dims = tuple(zip(names, shape, strict=True))
        self.dtype, param_dtype = read_dtypes(dtype, param_dtype, own)
        kernel_init = read_function(kernel_init, f"kernel_init= {own}")
        bias_init = read_function(bias_init, f"bias_init= {own}")
        rngs = read_rngs(rngs, own)
        self.kernel = parameter(kernel_init, shape, names, rngs=rngs, dtype=param_dtype)
        self.bias: nnx.Param[jax.Array] | None = nnx.data(None)
        if bias_shape is not None:
            added = tuple(name for name in out if name in names)
            sizes = read_sizes(bias_shape, f"bias_shape= {own}")
            _check_shape(sizes, added, f"bias_shape= {own}", tuple(dict(self.kernel_dims)[name] for name in added))
            self.bias = parameter(bias_init, sizes, added, rngs=rngs, dtype=param_dtype)

    @property
    def signature(self) -> str:
        """That of the layer without the kernel."""
        operands, result = self.text.split("->")
        return f"{operands.split(',')[0].strip()} -> {result.strip()}"

    @property
    def sizes(self) -> Mapping[str, int]:
        """Of the kernel's dimensions."""
        return dict(self.kernel_dims)

    def forward(self, x: Value) -> Value:
        """Contract with the kernel and add the bias."""
        y = einsum(self.text)(cast(x, self.dtype), cast(self.kernel[...], self.dtype))
        return y if self.bias is None else y + cast(self.bias[...], self.dtype)


def _names(operand: Operand) -> tuple[str, ...]:
    return tuple(name for axis in operand.axes for name in (axis.name or axis.whole_name,) if name is not None)


def _check_shape(shape: Sequence[int], names: Sequence[str], what: str, sizes: Sequence[int] | None = None) -> None:
    if len(shape) == len(names) and (sizes is None or tuple(shape) == tuple(sizes)):
        return
    wanted = ", ".join(names) if sizes is None else ", ".join(f"{n}={s}" for n, s in zip(names, sizes, strict=True))
    details = (f"expected ({wanted})", f"got {tuple(shape)}")
    raise GraphError(message(f"{what} is not that of its dimensions", *details, remedy="Give one size for each."))
