"""A layer of experts, of which each token chooses some."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from combinators.arguments import read_count, read_flag, read_function, read_number
from combinators.errors import GraphError, message, spelt
from combinators.leaves.einsum import einsum
from combinators.leaves.map import Map
from combinators.leaves.reduce import Reduce
from combinators.monoids import Sum
from combinators.recording.reorder import astype
from combinators.recording.value import Value
from tapestry_jax.nnx.experts.capacity import collect, dispatch, places_of
from tapestry_jax.nnx.experts.dropless import ragged_product
from tapestry_jax.nnx.experts.routing import choose, load_balance, router_z
from tapestry_jax.nnx.modules.mattering import Auxiliary
from tapestry_jax.nnx.modules.sequence_layer import SequenceLayer
from tapestry_jax.nnx.options import read_dtypes, read_rngs
from tapestry_jax.nnx.parameter import cast, parameter
from tapestry_jax.nnx.projections.linear import Linear


class MoE(SequenceLayer):
    """A mixture of experts: each token is transformed by the `top_k` experts that its router finds most probable.

    An expert is `down(activation(up(x)))`, with `gated` `down(activation(gate(x)) * up(x))`. With a capacity each row
    of tokens (what lies along `seq`) has `ceil(capacity_factor * top_k * seq / num_experts)` places with each expert;
    first choices come before second ones, tokens in their order, and a choice that finds no place adds nothing. Without
    one nothing is dropped.

    The forward pass writes three scalars of the class `Auxiliary`, which a loss reads behind the call.

    Dimensions: tokens choose among `choice`, experts lie along `expert`, their kernels are `(expert, embed, mlp)` and
    `(expert, mlp, embed)`. With a capacity what is sent to experts has the leading dimensions of the tokens as
    `<name>_sent`: `{"batch": "data", "expert": "data"}` is expert parallelism, two all-to-alls.

    Args:
      num_experts: how many there are.
      features: size of `embed`.
      hidden: size of `mlp`, of each expert.
      top_k: how many a token chooses.
      capacity_factor: places for each token and choice, were they spread evenly; None drops nothing.
      normalized: whether the shares of chosen experts add up to one; by default where there are several.
      gated: whether experts have a gate, as those of Mixtral.
      activation: acts cell by cell.
      dtype: of the experts' computation; by default what JAX promotes inputs and parameters to. That of the router is
        at least float32.
      param_dtype: of the parameters.
      rngs: whose stream `params` initialises.

    Attributes:
      load_balance: `num_experts * sum(share of tokens * mean probability)` over all tokens; 0 where there are none.
      router_z: mean of the squared logsumexp of the router's logits; 0 where there are no tokens.
      dropped: how many choices found no place, int32.

    Raises:
      GraphError: when an argument is not what it should be.

    Source: Shazeer et al. 2017; Lepikhin et al. 2020 (GShard); Fedus et al. 2021 (Switch); Gale et al. 2022 (dropless).
    """

    def __init__(
        self,
        num_experts: int,
        features: int,
        hidden: int,
        *,
        top_k: int = 2,
        capacity_factor: float | None = None,
        normalized: bool | None = None,
        gated: bool = False,
        activation: Callable[..., Any] = jax.nn.gelu,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        own = "of MoE"
        self.num_experts, self.features = (
            read_count(num_experts, f"num_experts= {own}"),
            read_count(features, f"features= {own}"),
        )
        self.hidden, self.top_k = read_count(hidden, f"hidden= {own}"), read_count(top_k, f"top_k= {own}")
        if self.top_k > self.num_experts:
            told = f"top_k is {self.top_k}, and there are {self.num_experts} experts"
            raise GraphError(message("a token cannot choose an expert twice", told, remedy="Choose a smaller top_k=."))
        self.capacity_factor = _read_factor(capacity_factor)
        several = self.top_k > 1 if normalized is None else normalized
        self.normalized = read_flag(several, f"normalized= {own}")
        self.activation = read_function(activation, f"activation= {own}")
        self.dtype, param_dtype = read_dtypes(dtype, param_dtype, own)
        rngs = read_rngs(rngs, own)
        options: dict[str, Any] = {"rngs": rngs, "dtype": param_dtype}
        self.router = Linear(
            self.features,
            self.num_experts,
            use_bias=False,
            dims=("embed", "choice"),
            dtype=jnp.promote_types(param_dtype, jnp.float32),
            param_dtype=param_dtype,
            rngs=rngs,
        )
        wide, narrow = (self.num_experts, features, hidden), (self.num_experts, hidden, features)
        init = jax.nn.initializers.lecun_normal(batch_axis=0)
        self.up = parameter(init, wide, ("expert", "embed", "mlp"), **options)
        self.gate: nnx.Param[jax.Array] | None = nnx.data(None)
        if read_flag(gated, f"gated= {own}"):
            self.gate = parameter(init, wide, ("expert", "embed", "mlp"), **options)
        self.down = parameter(init, narrow, ("expert", "mlp", "embed"), **options)
        self.load_balance, self.router_z = (Auxiliary(jnp.zeros(()), dims=()) for _ in range(2))
        self.dropped = Auxiliary(jnp.zeros((), jnp.int32), dims=())

    def forward(self, x: Value) -> Value:
        """Choose, transform, add up by shares: `(..., seq, features)` comes back.

        Raises:
          SignatureError: when there is no axis of positions, or the features have another size.
        """
        self._check_fits(x)
        logits = self.router(x)
        shares, numbers = choose(logits, self.top_k, normalized=self.normalized)
        if math.prod(x.shape[:-1]):
            self.load_balance[...] = astype(load_balance(logits, numbers, self.num_experts), jnp.float32)
            self.router_z[...] = astype(router_z(logits), jnp.float32)
        else:  # means of nothing would be NaN, in every loss that they are added to
            for said in (self.load_balance, self.router_z):
                said[...] = Map(jnp.zeros_like, name="nothing")(said[...])
        return self._dropless(x, shares, numbers) if self.capacity_factor is None else self._sent(x, shares, numbers)

    def _dropless(self, x: Value, shares: Value, numbers: Value) -> Value:
        self.dropped[...] = self.dropped[...] * 0
        total: Any = None
        for at in range(self.top_k):
            expert, share = numbers[..., at], shares[..., at]
            wide = [ragged_product(cast(x, self.dtype), expert, cast(w[...], self.dtype)) for w in self._widening()]
            made = ragged_product(self._activated(*wide), expert, cast(self.down[...], self.dtype))
            part = Map(scaled, "... e, ... -> ... e", name="scaled")(made, share)
            total = part if total is None else total + part
        return total

    def _sent(self, x: Value, shares: Value, numbers: Value) -> Value:
        capacity = self.capacity(x.shape[-2])
        places = places_of(numbers, self.num_experts, capacity)
        self.dropped[...] = lost(places)
        there = dispatch(cast(x, self.dtype), places, self.num_experts, capacity)
        back = {f"{name}_sent": name for name in there.settle().names[:-3] if name} | {"expert": "choice"}
        there = there.rename(**{name: other for other, name in back.items()})
        wide = [einsum("... x c e, x e m -> ... x c m")(there, cast(w[...], self.dtype)) for w in self._widening()]
        made = einsum("... x c m, x m e -> ... x c e")(self._activated(*wide), cast(self.down[...], self.dtype))
        return collect(made.rename(**back), places, shares, capacity)

    def capacity(self, tokens: int) -> int:
        """Places of each expert for a row of as many tokens."""
        assert self.capacity_factor is not None
        wanted = math.ceil(self.capacity_factor * self.top_k * tokens / self.num_experts)
        return max(1, min(wanted, tokens))

    def _widening(self) -> list[Any]:
        return [self.up] if self.gate is None else [self.gate, self.up]

    def _activated(self, first: Value, *second: Value) -> Value:
        active = Map(self.activation)(first)
        return active * second[0] if second else active


def scaled(x: Any, share: Any) -> Any:
    """Rows by their shares, in the dtype of the rows."""
    return (x * share[..., None]).astype(x.dtype)


def count_lost(places: Any) -> Any:
    """How many choices have no place."""
    return jnp.sum(places < 0, dtype=jnp.int32)


def lost(places: Value) -> Value:
    """How many choices have no place, of all tokens."""
    dims = " ".join(f"d{axis}" for axis in range(places.ndim))
    return Reduce(count_lost, f"{dims} -> ()", Sum, name="lost")(places)


def _read_factor(factor: Any) -> float | None:
    if factor is None:
        return None
    number = read_number(factor, "capacity_factor= of MoE")
    if not 0 < number < math.inf:
        remedy = "Pass a positive number such as 1.25, or None to drop nothing."
        raise GraphError(message("capacity_factor= of MoE makes no places", f"got {spelt(factor, 40)}", remedy=remedy))
    return number
