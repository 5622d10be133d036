"""Selective state spaces: recurrences whose steps depend on the input, as scans."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from combinators.aggregators.recurrence import last_state
from combinators.arguments import read_count
from combinators.frozen import dataclass
from combinators.leaves.einsum import einsum
from combinators.leaves.map import Map
from combinators.leaves.scan import Scan
from combinators.monoids import AffineRecurrence
from combinators.recording.value import Value
from tapestry_jax.nnx.modules.sequence_layer import SequenceLayer
from tapestry_jax.nnx.options import read_dtypes, read_rngs
from tapestry_jax.nnx.parameter import cast, lecun_normal, ones, parameter, zeros
from tapestry_jax.nnx.projections.linear import Linear
from tapestry_jax.nnx.recurrent.recurrence import Recurrence


@dataclass(frozen=True)
class Taps:
    """Each feature by itself along a window of positions, weighted and added up."""

    def __call__(self, x: Any, weights: Any, bias: Any) -> Any:
        """`(..., positions, features)` of `width - 1` positions more, weights `(width, features)`."""
        width = weights.shape[0]
        count = x.shape[-2] - width + 1
        return (
            sum((x[..., at : at + count, :] * weights[at] for at in range(1, width)), x[..., :count, :] * weights[0])
            + bias
        )


@dataclass(frozen=True)
class SelectiveSteps:
    """The recurrences of all positions: `h -> exp(-step exp(decay)) h + step x b`, in at least 32 bits."""

    def __call__(self, step: Any, x: Any, b: Any, decay: Any) -> tuple[Any, Any]:
        """Two arrays `(..., positions, features, state)`."""
        kind = jnp.promote_types(jnp.result_type(step, x, b, decay), jnp.float32)
        step, x, b, decay = (each.astype(kind) for each in (step, x, b, decay))
        return jnp.exp(-step[..., None] * jnp.exp(decay)), (step * x)[..., None] * b[..., None, :]


class Mamba(Recurrence, SequenceLayer):
    """A selective state space with a gate, as in Mamba: each feature has a state, whose steps depend on the position.

        h[t] = exp(-s[t] exp(decay)) h[t-1] + s[t] x[t] b[t],   y[t] = h[t] . c[t] + d x[t]

    `x` is `expand(u)` behind a causal convolution of each feature and `silu`; `s`, `b` and `c` are made of it. What
    comes out is `out(y * silu(gate(u)))`. The recurrence is a `Scan` with the monoid of affine recurrences: a plan may
    cut `seq` over a mesh axis or in chunks, `inner` and `state`.

    Args:
      features: size of `embed`, of the input and the result.
      state: cells of the state of each feature, `state`.
      expansion: how many times as wide `inner` is.
      width: of the convolution.
      rank: features that the steps are made of, `rank`; by default a sixteenth of `features`.
      dtype: of the linear maps; by default what JAX promotes inputs and parameters to. That of the states is at least
        float32.
      param_dtype: of the parameters.
      rngs: whose stream `params` initialises.

    Raises:
      GraphError: when an argument is not what it should be.

    Source: Gu and Dao 2023, algorithm 2 and section 3.4.
    """

    def __init__(
        self,
        features: int,
        state: int = 16,
        *,
        expansion: int = 2,
        width: int = 4,
        rank: int | None = None,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        own = "of Mamba"
        self.features, self.state = read_count(features, f"features= {own}"), read_count(state, f"state= {own}")
        inner = self.features * read_count(expansion, f"expansion= {own}")
        width = read_count(width, f"width= {own}")
        rank = math.ceil(self.features / 16) if rank is None else read_count(rank, f"rank= {own}")
        self.dtype, param_dtype = read_dtypes(dtype, param_dtype, own)
        rngs = read_rngs(rngs, own)
        linear: dict[str, Any] = {"use_bias": False, "dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        made: dict[str, Any] = {"rngs": rngs, "dtype": param_dtype}
        self.expand = Linear(features, inner, dims=("embed", "inner"), **linear)
        self.gate = Linear(features, inner, dims=("embed", "inner"), **linear)
        self.taps = parameter(lecun_normal, (width, inner), ("tap", "inner"), **made)
        self.taps_bias = parameter(zeros, (inner,), ("inner",), **made)
        self.step_down = Linear(inner, rank, dims=("inner", "rank"), **linear)
        steps: dict[str, Any] = linear | {"use_bias": True, "bias_init": _steps}
        self.step_up = Linear(rank, inner, dims=("rank", "inner"), **steps)
        self.b = Linear(inner, self.state, dims=("inner", "state"), **linear)
        self.c = Linear(inner, self.state, dims=("inner", "state"), **linear)
        self.decay = parameter(_decays, (inner, self.state), ("inner", "state"), **made)
        self.d = parameter(ones, (inner,), ("inner",), **made)
        self.out = Linear(inner, features, dims=("inner", "embed"), **linear)

    def forward(self, x: Value) -> Value:
        """The outputs of all positions: `(..., seq, features)`, which comes back.

        Raises:
          SignatureError: when there is no axis of positions, or the features have another size.
        """
        self._check_fits(x)
        silu = Map(jax.nn.silu)
        inner = silu(self._convolved(self.expand(x)))
        y = self._states(inner) + cast(self.d[...], self.dtype) * inner
        return self.out(y * silu(self.gate(x)))

    def _convolved(self, x: Value) -> Value:
        taps, bias = cast(self.taps[...], self.dtype), cast(self.taps_bias[...], self.dtype)
        before = self.taps.shape[0] - 1
        text = f"... (t+[w]{f'-{before}' if before else ''}) c, [w] c, c -> ... t c"
        return Map(Taps(), text, boundary="zero" if before else "valid", name="taps")(x, taps, bias)

    def _states(self, x: Value) -> Value:
        """What each position reads of the states."""
        step = Map(jax.nn.softplus)(self.step_up(self.step_down(x)))
        text = "... t c, ... t c, ... t n, c n -> ... t c n"
        along = Scan(AffineRecurrence, text, "t", kernel=SelectiveSteps(), present=last_state, name="selective_scan")
        read = einsum("... t c n, ... t n -> ... t c")(along(step, x, self.b(x), self.decay[...]), self.c(x))
        return cast(read, x.dtype)


def _decays(key: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Logarithms of `1, 2, ..., state` for each feature."""
    del key
    return jnp.broadcast_to(jnp.log(jnp.arange(1, shape[1] + 1, dtype=jnp.float32)), shape).astype(dtype)


def _steps(key: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """What softplus makes steps of, from a thousandth to a tenth, evenly by their logarithm."""
    step = jnp.exp(jax.random.uniform(key, shape, minval=math.log(1e-3), maxval=math.log(0.1)))
    return jnp.log(jnp.expm1(step)).astype(dtype)
