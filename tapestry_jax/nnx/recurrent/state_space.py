"""Linear state spaces: recurrences that are scans, so that a plan may cut the sequence."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from combinators import aggregators
from combinators.arguments import read_count
from combinators.leaves.einsum import einsum
from combinators.leaves.map import Map
from combinators.leaves.running import scan
from combinators.recording.value import Value
from tapestry_jax.nnx.modules.sequence_layer import SequenceLayer
from tapestry_jax.nnx.options import read_dtypes, read_rngs
from tapestry_jax.nnx.parameter import lecun_normal, ones, parameter
from tapestry_jax.nnx.recurrent.recurrence import Recurrence


class DiagonalSSM(Recurrence, SequenceLayer):
    """A diagonal linear state space: `h[t] = a h[t-1] + (1 - a) (x[t] . b)`, `y[t] = h[t] . c + d x[t]`.

    The decays `a = sigmoid(decay)` lie between 0 and 1. The recurrence is a `Scan` with the monoid of affine
    recurrences, so a plan may cut `seq` over a mesh axis, and `state` as well.

    Args:
      features: size of `embed`, of the input and the result.
      state: how many cells of state there are, `state`.
      param_dtype: of the parameters.
      rngs: whose stream `params` initialises.

    Raises:
      GraphError: when an argument is not what it should be.

    Source: Smith et al. 2023 (S5), with real decays; Blelloch 1990, section 1.4.1, for the scan.
    """

    def __init__(self, features: int, state: int, *, param_dtype: Any = jnp.float32, rngs: nnx.Rngs) -> None:
        own = "of DiagonalSSM"
        self.features, self.state = read_count(features, f"features= {own}"), read_count(state, f"state= {own}")
        _, param_dtype = read_dtypes(None, param_dtype, own)
        rngs = read_rngs(rngs, own)
        options: dict[str, Any] = {"rngs": rngs, "dtype": param_dtype}
        self.decay = parameter(_spread, (self.state,), ("state",), **options)
        self.b = parameter(lecun_normal, (self.features, self.state), ("embed", "state"), **options)
        self.c = parameter(lecun_normal, (self.state, self.features), ("state", "embed"), **options)
        self.d = parameter(ones, (self.features,), ("embed",), **options)

    def forward(self, x: Value) -> Value:
        """The outputs of all steps: `(..., seq, features)`, which comes back.

        Raises:
          SignatureError: when there is no axis of positions, or the features have another size.
        """
        self._check_fits(x)
        a = Map(jax.nn.sigmoid)(self.decay[...])
        driven = einsum("... e, e n -> ... n")(x, self.b[...]) * (1 - a)
        along = scan(aggregators.Recurrence(), "n, ... t n -> ... t n", over="t", name="recurrence")
        states = along(a, driven)
        return einsum("... n, n e -> ... e")(states, self.c[...]) + self.d[...] * x


def _spread(key: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Decays whose times are spread from one step to about a thousand."""
    del key
    times = jnp.logspace(0, 3, shape[0])
    decays = jnp.exp(-1 / times)
    return jnp.log(decays / (1 - decays)).astype(dtype)
