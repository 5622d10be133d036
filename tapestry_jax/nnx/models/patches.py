"""Images as sequences of patches, for models that mix positions."""

from __future__ import annotations

from typing import Any

from flax import nnx

from combinators import aggregators
from combinators.errors import SignatureError, message
from combinators.leaves.fold import fold
from combinators.leaves.rearrange import rearrange
from combinators.recording.value import Value
from tapestry_jax.nnx.images.conv import Conv
from tapestry_jax.nnx.modules.module import Module


class Patches(Module):
    """`(..., y, x, channels)` to `(..., seq, embed)`: square patches that do not overlap, each mapped to a vector.

    Args:
      image: cells of an image along both axes.
      patch: cells of a patch along both; it divides them.
      channels: of an image.
      embed: size of a vector.
      dtype: of the computation; by default what JAX promotes inputs and parameters to.
      param_dtype: of the parameters.
      rngs: whose stream `params` initialises.
    """

    def __init__(
        self, image: int, patch: int, channels: int, embed: int, *, dtype: Any, param_dtype: Any, rngs: nnx.Rngs
    ) -> None:
        self.image, self.features = image, embed
        size = (patch, patch)
        dtypes: dict[str, Any] = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        self.conv = Conv(channels, embed, size, size, padding="VALID", dims=("channels", "embed"), **dtypes)

    @property
    def signature(self) -> str:
        """Images with channels last."""
        return "... y x channels -> ... seq embed"

    @property
    def sizes(self) -> dict[str, int]:
        """Of `embed`."""
        return {"embed": self.features}

    def forward(self, images: Value) -> Value:
        """A vector for every patch, row by row.

        Raises:
          SignatureError: when images have another size.
        """
        if images.ndim < 3 or images.shape[-3:-1] != (self.image, self.image):
            details = (f"expected (..., {self.image}, {self.image}, channels)", f"got {images!r}")
            remedy = "Resize the images, or make the model for them."
            raise SignatureError(message("Patches: the images have another size", *details, remedy=remedy))
        names = " ".join(f"d{axis}" for axis in range(images.ndim - 3))
        return rearrange(f"{names} y x e -> {names} (y x) e")(self.conv(images))


def mean_of_positions(x: Value) -> Value:
    """The mean of all positions of `(..., seq, embed)`."""
    names = " ".join(f"d{axis}" for axis in range(x.ndim - 2))
    return fold(aggregators.Mean(), f"{names} s e -> {names} e", name="mean")(x)
