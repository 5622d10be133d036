"""Models made of the layers of `tp.nnx`, loaded on request: `tp.nnx.models.Llama`.

Decoders  GPT GPTConfig Llama LlamaConfig LlamaBlock

Read `gpt` and `llama`; `fields` reads configurations, `hugging_face` names and shapes of published weights, and
`weights` the files that hold them.
"""

from __future__ import annotations

from tapestry_jax.nnx.models.gpt import GPT as GPT
from tapestry_jax.nnx.models.gpt import GPTConfig as GPTConfig
from tapestry_jax.nnx.models.llama import Llama as Llama
from tapestry_jax.nnx.models.llama import LlamaBlock as LlamaBlock
from tapestry_jax.nnx.models.llama import LlamaConfig as LlamaConfig
