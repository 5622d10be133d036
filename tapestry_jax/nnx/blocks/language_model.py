"""Language models: tokens to logits of the next token, whatever the blocks in between are."""

from __future__ import annotations

from typing import Any

from flax import nnx

from combinators.recording.value import Value
from tapestry_jax.nnx.blocks.repeated import run_blocks
from tapestry_jax.nnx.blocks.stack import Stack
from tapestry_jax.nnx.modules.module import Module
from tapestry_jax.nnx.projections.embed import Embed, PositionEmbed
from tapestry_jax.nnx.projections.linear import Linear


class LanguageModel(Module):
    """Token vectors, blocks, a norm, and a head.

    A subclass makes the parts.

    Attributes:
      embed: a vector for every token.
      positions: learned vectors of positions, or None.
      decoder: the blocks, one by one or as one `Stack`.
      norm: before the head.
      head: logits; None where the token vectors are the head, too.
    """

    embed: Embed
    positions: PositionEmbed | None
    decoder: nnx.List[Any] | Stack
    norm: Any
    head: Linear | None

    @property
    def signature(self) -> str:
        """Token numbers to logits."""
        return "... seq -> ... seq vocab"

    @property
    def sizes(self) -> dict[str, int]:
        """Of `vocab`."""
        return {"vocab": self.embed.num_embeddings}

    def forward(self, tokens: Value) -> Value:
        """Logits of the next token at every position.

        Raises:
          SignatureError: when tokens are not integers, or there are more of them than positions.
        """
        return self.logits(self.features(tokens))

    def features(self, tokens: Value) -> Value:
        """What the head reads, at every position."""
        x = self.embed(tokens)
        if self.positions is not None:
            x = x + self.positions(tokens)
        return self.norm(run_blocks(self.decoder, x))

    def logits(self, features: Value) -> Value:
        """The head alone."""
        return self.embed.attend(features) if self.head is None else self.head(features)
