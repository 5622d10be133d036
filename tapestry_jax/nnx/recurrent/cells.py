"""Cells of recurrent layers: one step of a sequence and a state to an output and the next state."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from combinators.arguments import read_count, read_function
from combinators.frozen import dataclass
from combinators.leaves.map import Map
from combinators.recording.value import Value
from tapestry_jax.nnx.modules.module import Module
from tapestry_jax.nnx.options import read_dtypes
from tapestry_jax.nnx.parameter import cast, default_orthogonal, lecun_normal, orthogonal, zeros
from tapestry_jax.nnx.projections.linear import Linear

State = Any
"""A pytree of values with the leading axes of a step, then `cell` (of an output: `hidden`)."""


class Cell(Module):
    """What all cells share: their sizes and activations.

    A subclass defines `forward(state, x) -> (next state, output)` and `begin(x)`, the first state.
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        *,
        gate_fn: Callable[..., Any],
        activation_fn: Callable[..., Any],
        param_dtype: Any = jnp.float32,
    ) -> None:
        own = f"of {type(self).__name__}"
        _, self.param_dtype = read_dtypes(None, param_dtype, own)
        self.in_features = read_count(in_features, f"in_features= {own}")
        self.hidden_features = read_count(hidden_features, f"hidden_features= {own}")
        self.gate_fn = read_function(gate_fn, f"gate_fn= {own}")
        self.activation_fn = read_function(activation_fn, f"activation_fn= {own}")

    def begin(self, x: Value) -> State:
        """The state before the first step, which `x` is."""
        raise NotImplementedError(f"{type(self).__name__} does not define begin")

    def _nothing(self, x: Value) -> Value:
        """Zeros, at least as wide as the parameters: many steps add to a state, also where they are computed narrow."""
        return Map(jnp.zeros_like)(cast(x, jnp.promote_types(x.dtype, self.param_dtype)))

    def _gate(self, x: Value) -> Value:
        return Map(self.gate_fn)(x)

    def _activated(self, x: Value) -> Value:
        return Map(self.activation_fn)(x)


class LSTMCell(Cell):
    """Long short-term memory, as `flax.nnx.LSTMCell`.

    Cells of the state, `cell`, are a map: a plan that cuts them gathers the output at every step.

    Args:
      in_features: size of the last dimension of a step, `embed`.
      hidden_features: size of the state.
      gate_fn: of the gates.
      activation_fn: of the cell and the output.
      kernel_init: initializer of the kernels of a step.
      recurrent_kernel_init: initializer of the kernels of the state.
      bias_init: initializer of the biases.
      dtype: of a step; by default what JAX promotes inputs and parameters to. States are not below `param_dtype`.
      param_dtype: of the parameters.
      rngs: whose stream `params` initialises.

    Source: Hochreiter and Schmidhuber 1997.
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        *,
        gate_fn: Callable[..., Any] = jax.nn.sigmoid,
        activation_fn: Callable[..., Any] = jnp.tanh,
        kernel_init: Any = lecun_normal,
        recurrent_kernel_init: Any = default_orthogonal,
        bias_init: Any = zeros,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        functions: dict[str, Any] = {"gate_fn": gate_fn, "activation_fn": activation_fn}
        super().__init__(in_features, hidden_features, **functions, param_dtype=param_dtype)
        options: dict[str, Any] = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        step = partial(Linear, in_features, hidden_features, use_bias=False, dims=("embed", "cell"))
        state = partial(Linear, hidden_features, hidden_features, bias_init=bias_init, dims=("hidden", "cell"))
        self.ii, self.if_, self.ig, self.io = (step(kernel_init=kernel_init, **options) for _ in range(4))
        self.hi, self.hf, self.hg, self.ho = (state(kernel_init=recurrent_kernel_init, **options) for _ in range(4))

    def begin(self, x: Value) -> State:
        """Zeros for the cell and for the output, each `(..., hidden_features)`."""
        nothing = self._nothing(self.ii(x))
        return nothing, nothing.rename(cell="hidden")

    def forward(self, state: State, x: Value) -> tuple[State, Value]:
        """One step: the state as `begin` gives it, and `(..., in_features)` to `(..., hidden_features)`."""
        c, h = state
        i, f = self._gate(self.ii(x) + self.hi(h)), self._gate(self.if_(x) + self.hf(h))
        g, o = self._activated(self.ig(x) + self.hg(h)), self._gate(self.io(x) + self.ho(h))
        c = f * c + i * g
        h = (o * self._activated(c)).rename(cell="hidden")
        return (c, h), h


class GRUCell(Cell):
    """Gated recurrent unit, as `flax.nnx.GRUCell`.

    Args:
      in_features: size of the last dimension of a step, `embed`.
      hidden_features: size of the state.
      gate_fn: of the gates.
      activation_fn: of the candidate.
      kernel_init: initializer of the kernel of a step.
      recurrent_kernel_init: initializer of the kernel of the state.
      bias_init: initializer of the bias.
      dtype: of a step; by default what JAX promotes inputs and parameters to. States are not below `param_dtype`.
      param_dtype: of the parameters.
      rngs: whose stream `params` initialises.

    Source: Cho et al. 2014.
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        *,
        gate_fn: Callable[..., Any] = jax.nn.sigmoid,
        activation_fn: Callable[..., Any] = jnp.tanh,
        kernel_init: Any = lecun_normal,
        recurrent_kernel_init: Any = orthogonal,
        bias_init: Any = zeros,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        functions: dict[str, Any] = {"gate_fn": gate_fn, "activation_fn": activation_fn}
        super().__init__(in_features, hidden_features, **functions, param_dtype=param_dtype)
        wide = 3 * self.hidden_features
        options: dict[str, Any] = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        own = {"kernel_init": kernel_init, "bias_init": bias_init} | options
        self.dense_i = Linear(in_features, wide, dims=("embed", "gates"), **own)
        own = {"kernel_init": recurrent_kernel_init} | options
        self.dense_h = Linear(hidden_features, wide, use_bias=False, dims=("hidden", "gates"), **own)

    def begin(self, x: Value) -> State:
        """Zeros `(..., hidden_features)`."""
        (nothing, *_) = _apart(self._nothing(self.dense_i(x)))
        return nothing.rename(cell="hidden")

    def forward(self, state: State, x: Value) -> tuple[State, Value]:
        """One step: the state as `begin` gives it, and `(..., in_features)` to `(..., hidden_features)`."""
        (xr, xz, xn), (hr, hz, hn) = _apart(self.dense_i(x)), _apart(self.dense_h(state))
        r, z = self._gate(xr + hr), self._gate(xz + hz)
        n = self._activated(xn + r * hn)
        h = ((1.0 - z) * n + z * state.rename(hidden="cell")).rename(cell="hidden")
        return h, h


@dataclass(frozen=True)
class Apart:
    """The parts that lie side by side along the last axis, each as wide."""

    parts: int

    def __call__(self, x: Any) -> Any:
        """`(..., parts * width)` to so many `(..., width)`."""
        return tuple(jnp.split(x, self.parts, axis=-1))


def _apart(x: Value) -> list[Value]:
    """The three gates that lie side by side.

    They are slices of them: an axis that says which gate it is would lie in memory as no tile of a TPU does.
    """
    wide = x.shape[-1] // 3
    parts = Map(Apart(3), "... [gates] -> ... [r], ... [z], ... [n]", sizes=dict.fromkeys("rzn", wide), name="apart")(x)
    return [part.rename(**{name: "cell"}) for name, part in zip("rzn", parts, strict=True)]
