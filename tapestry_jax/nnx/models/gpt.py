"""GPT-2: the transformer with a tied head."""

from __future__ import annotations

from combinators.frozen import dataclass
from tapestry_jax.nnx.blocks.transformer import Transformer, TransformerConfig


@dataclass(frozen=True)
class GPTConfig(TransformerConfig):
    """The sizes of a GPT: those of a transformer, whose blocks are one stack and whose token vectors are the head.

    `GPTConfig(12, 768, 12, 50257)` are those of GPT-2.

    Raises:
      GraphError: as `TransformerConfig`.
    """

    stacked: bool = True
    epsilon: float = 1e-5
    tied: bool = True


class GPT(Transformer):
    """Tokens to logits: learned positions, layer norms, gelu, and a head that is the table of tokens.

    Args:
      config: the sizes.
      rngs: whose stream `params` initialises.

    Source: Radford et al. 2019.
    """
