"""What layers share that take the features of all positions, and give others in their place."""

from __future__ import annotations

from combinators.errors import SignatureError, message
from combinators.recording.value import Value
from tapestry_jax.nnx.modules.module import Module


class SequenceLayer(Module):
    """A layer from `(..., seq, embed)` to as many features of as many positions.

    Attributes:
      features: size of `embed`.
    """

    features: int

    @property
    def signature(self) -> str:
        """Positions and features come last."""
        return "... seq embed -> ... seq embed"

    @property
    def sizes(self) -> dict[str, int]:
        """Of `embed`."""
        return {"embed": self.features}

    def _check_fits(self, x: Value) -> None:
        """Hold an input against the layer.

        Raises:
          SignatureError: when there is no axis of positions, or the features have another size.
        """
        if x.ndim < 2 or x.shape[-1] != self.features:
            details = (f"expected positions, then embed={self.features}", f"got {x!r}")
            headline = f"{type(self).__name__}: the input does not fit"
            raise SignatureError(message(headline, *details, remedy="Change features=, or the input."))
