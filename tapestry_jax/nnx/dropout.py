"""Dropout, whose random numbers belong to cells: the same ones on every mesh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from flax import nnx

from combinators.arguments import read_flag, read_number
from combinators.errors import GraphError, SignatureError, message
from combinators.frozen import dataclass
from combinators.index_space.tensor_type import TensorType
from combinators.leaves import random
from combinators.leaves.map import Map
from combinators.recording.value import Value
from tapestry_jax.nnx.modules.module import Module
from tapestry_jax.nnx.options import read_dims, read_rngs


def drawn_key(stream: Any) -> Value:
    """The next key of a stream of `nnx.Rngs`, whose count is written; inside of a forward pass."""
    count = stream.count.get_raw_value()
    stream.count.set_raw_value(count + 1)
    return random.fold_in(stream.key[...], count)


@dataclass(frozen=True)
class Keep:
    """What is kept, larger by what is not; zeros elsewhere.

    Attributes:
      share: of what is kept.
    """

    share: float

    def __call__(self, kept: Any, x: Any) -> Any:
        """The dtype of `x`."""
        return jnp.where(kept, x / self.share, jnp.zeros((), x.dtype)).astype(x.dtype)


class Dropout(Module):
    """Set a share of all cells to zero, and scale the others, as `flax.nnx.Dropout`.

    Which cells is a function of the key, the step and the cell alone: the same ones under every plan. The layer counts
    its calls in a variable, or takes the number of the step: `dropout(x, step)`. The bits are other ones than Flax's.

    Args:
      rate: the share of cells that become zero.
      broadcast_dims: names of dimensions along which all cells fare alike.
      deterministic: whether `x` comes out as it is; a step may go in, and says nothing.
      rngs: whose stream `dropout` gives the key.

    Raises:
      GraphError: when an argument is not what it should be.
    """

    def __init__(
        self,
        rate: float,
        *,
        broadcast_dims: Sequence[str] = (),
        deterministic: bool = False,
        rngs: nnx.Rngs,
    ) -> None:
        self.rate = read_number(rate, "rate= of Dropout")
        if not 0 <= self.rate <= 1:
            details = (f"got {rate!r}",)
            raise GraphError(message("rate= of Dropout is no share", *details, remedy="Pass a number from 0 to 1."))
        self.broadcast_dims = read_dims(broadcast_dims, None, "broadcast_dims= of Dropout")
        self.deterministic = read_flag(deterministic, "deterministic= of Dropout")
        self.rngs = read_rngs(rngs, "of Dropout")["dropout"].fork()

    def __call__(self, *args: Any) -> Any:
        """As every module; what is said of the step is left out where nothing is drawn."""
        return super().__call__(*(args[:1] if self.deterministic and len(args) == 2 else args))

    @property
    def signature(self) -> str:
        """The tensor, and the number of the step where cells are drawn, which may be left out."""
        return "... embed -> ... embed" if self.deterministic else "... embed, -> ... embed"

    def forward(self, x: Value, *step: Value) -> Value:
        """Draw for this step, an integer scalar, or for this call; the shape and dtype of `x` come back.

        Raises:
          SignatureError: when `x` lacks one of the `broadcast_dims`.
        """
        if self.deterministic or self.rate == 0:
            return x
        share = 1 - self.rate
        key = random.fold_in(self.rngs.key[...], step[0]) if step else drawn_key(self.rngs)
        kept = random.bernoulli(key, share, like=self._drawn(x))
        return Map(Keep(share or 1.0), name="dropout")(kept, x)

    def _drawn(self, x: Value) -> TensorType:
        """The cells that fare by themselves."""
        # An axis that nobody named aligns by its place.
        names = [name or f"axis_{at}" for at, name in enumerate(x.settle().names)]
        lost = [name for name in self.broadcast_dims if name not in names]
        if lost:
            details = (f"got {x!r}",)
            remedy = "Name its axes, or leave it out of broadcast_dims=."
            raise SignatureError(message(f"Dropout: the input has no `{lost[0]}`", *details, remedy=remedy))
        left = [(n, s) for n, s in zip(names, x.shape, strict=True) if n not in self.broadcast_dims]
        return TensorType(left)
