"""What models share that tell classes of images."""

from __future__ import annotations

from typing import Any

from tapestry_jax.nnx.modules.module import Module


class Classifier(Module):
    """Images to logits of classes.

    Attributes:
      config: the sizes, of `channels` and `classes` among them.
    """

    config: Any

    @property
    def signature(self) -> str:
        """Images with channels last to logits."""
        return "... y x channels -> ... classes"

    @property
    def sizes(self) -> dict[str, int]:
        """Of the channels and the classes."""
        return {"channels": self.config.channels, "classes": self.config.classes}
