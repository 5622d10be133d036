"""Layers one after the other."""

from __future__ import annotations

from typing import Any

from flax import nnx

from combinators.errors import GraphError, message, spelt
from tapestry_jax.nnx.modules.module import Module


class Sequential(Module):
    """Apply layers one after the other, as `flax.nnx.Sequential`.

    A tuple of results becomes the operands of the next layer.

    Args:
      layers: modules, arrows such as `tp.Map(jax.nn.gelu)`, or functions of values such as
        `functools.partial(tp.nnx.max_pool, window_shape=(2, 2))`.

    Raises:
      GraphError: when one of them cannot be called.
    """

    def __init__(self, *layers: Any) -> None:
        for at, layer in enumerate(layers):
            if not callable(layer) or isinstance(layer, type):
                details = (f"got {type(layer).__name__}: {spelt(layer)}",)
                remedy = "Pass modules, arrows or functions."
                raise GraphError(message(f"layer {at} of Sequential cannot be called", *details, remedy=remedy))
        self.layers = nnx.List(layers)

    def forward(self, *args: Any) -> Any:
        """The result of the last layer; of no layers what came in."""
        given: Any = args if len(args) != 1 else args[0]
        for layer in self.layers:
            given = layer(*given) if isinstance(given, tuple) else layer(given)
        return given
