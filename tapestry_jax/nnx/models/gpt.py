"""GPT-2: the transformer with a tied head."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any, Self

from combinators.frozen import dataclass
from tapestry_jax.nnx.blocks.transformer import Transformer, TransformerConfig
from tapestry_jax.nnx.models.published.hugging_face import read_fields_of
from tapestry_jax.nnx.models.published.model import Published
from tapestry_jax.nnx.models.published.named_gpt import GPT2, GPT_TOLD


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

    @classmethod
    def from_hugging_face(cls, config: str | PathLike[str] | Mapping[str, Any], **options: Any) -> Self:
        """The sizes that a `config.json` of GPT-2 tells, which is read as data.

        Args:
          config: the file, the folder that it lies in, or what it says. Dropout of its training is passed over.
          options: fields that the file does not tell, such as `param_dtype=jnp.bfloat16`.

        Raises:
          FormatError: where it cannot be read, or says what this model cannot do; all of it at once.
          GraphError: for an option that is no field, or sizes that no model has.
        """
        return read_fields_of(cls, GPT_TOLD, config, options)


class GPT(Published, Transformer):
    """Tokens to logits: learned positions, layer norms, gelu, and a head that is the table of tokens.

    Args:
      config: the sizes.
      rngs: whose stream `params` initialises.

    Source: Radford et al. 2019.
    """

    _naming = GPT2
    _config_kind = GPTConfig
