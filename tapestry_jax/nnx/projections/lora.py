"""Low-rank adaptation: a narrow product beside a layer that stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from combinators.arguments import read_count, read_function
from combinators.errors import GraphError, message, spelt
from combinators.leaves.einsum import einsum
from combinators.recording.value import Value
from tapestry_jax.nnx.modules.module import Module
from tapestry_jax.nnx.options import read_dims, read_dtypes, read_rngs
from tapestry_jax.nnx.parameter import cast, he_uniform, parameter, zeros


class LoRA(Module):
    """`y = base(x) + x . lora_a . lora_b`, as `flax.nnx.LoRA`; its parameters are `nnx.LoRAParam`s.

    Args:
      in_features: size of the contracted dimension.
      lora_rank: size of the narrow one, `rank`.
      out_features: size of the new one.
      base_module: what stands beside the product: a module of the same dimensions, or None.
      dims: names of the contracted and of the new dimension.
      dtype: of the computation; by default what JAX promotes inputs and parameters to.
      param_dtype: of the parameters.
      a_initializer: initializer of the first matrix.
      b_initializer: initializer of the second one.
      rngs: whose stream `params` initialises.

    Raises:
      GraphError: when an argument is not what it should be.
    """

    def __init__(
        self,
        in_features: int,
        lora_rank: int,
        out_features: int,
        *,
        base_module: Any = None,
        dims: tuple[str, str] = ("embed", "mlp"),
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        a_initializer: Any = he_uniform,
        b_initializer: Any = zeros,
        rngs: nnx.Rngs,
    ) -> None:
        self.in_features = read_count(in_features, "in_features= of LoRA")
        self.out_features = read_count(out_features, "out_features= of LoRA")
        rank = read_count(lora_rank, "lora_rank= of LoRA")
        self.dims = read_dims(dims, 2, "dims= of LoRA")
        self.dtype, param_dtype = read_dtypes(dtype, param_dtype, "of LoRA")
        a_initializer = read_function(a_initializer, "a_initializer= of LoRA")
        b_initializer = read_function(b_initializer, "b_initializer= of LoRA")
        rngs = read_rngs(rngs, "of LoRA")
        if base_module is not None and not isinstance(base_module, Module):
            details = (
                "expected a module of tp.nnx, or None",
                f"got {type(base_module).__name__}: {spelt(base_module)}",
            )
            remedy = "Pass one, such as tp.nnx.Linear(8, 4, rngs=rngs)."
            raise GraphError(message("base_module= of LoRA is no module", *details, remedy=remedy))
        self.base_module: Module | None = nnx.data(base_module)
        pairs = (a_initializer, (self.in_features, rank), (self.dims[0], "rank"))
        narrow = parameter(*pairs, rngs=rngs, dtype=param_dtype)
        wide = parameter(b_initializer, (rank, self.out_features), ("rank", self.dims[1]), rngs=rngs, dtype=param_dtype)
        self.lora_a: nnx.LoRAParam[jax.Array] = nnx.LoRAParam(narrow[...], dims=(self.dims[0], "rank"))
        self.lora_b: nnx.LoRAParam[jax.Array] = nnx.LoRAParam(wide[...], dims=("rank", self.dims[1]))

    @property
    def signature(self) -> str:
        """The last dimension is contracted."""
        return f"... {self.dims[0]} -> ... {self.dims[1]}"

    @property
    def sizes(self) -> Mapping[str, int]:
        """Of the contracted and of the new dimension."""
        return dict(zip(self.dims, (self.in_features, self.out_features), strict=True))

    def forward(self, x: Value) -> Value:
        """Narrow, widen, and add what the base makes of `x`: `(..., in_features)` to `(..., out_features)`."""
        product = einsum("... i, i o -> ... o")
        narrow = product(cast(x, self.dtype), cast(self.lora_a[...], self.dtype))
        y = product(narrow, cast(self.lora_b[...], self.dtype))
        return y if self.base_module is None else y + self.base_module(x)
