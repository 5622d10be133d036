"""Flax modules made of arrows: their parameters carry dimension names, and any plan may place them.

Modules   Module ModuleArrow
Layers    Linear LinearGeneral Embed PositionEmbed LayerNorm RMSNorm MLP MultiHeadAttention Block Stack
Models    Transformer TransformerConfig cross_entropy

Read `modules`, what a module is, with `parameter`; then the layers, from `linear` to `attention`: `embed`, `norm`,
`mlp`, `stack`, and `transformer` with its `loss`. `rows` are kernels, `options` reads what constructors are given.
"""

from __future__ import annotations

from tapestry_jax.nnx.attention import MultiHeadAttention as MultiHeadAttention
from tapestry_jax.nnx.embed import Embed as Embed
from tapestry_jax.nnx.embed import PositionEmbed as PositionEmbed
from tapestry_jax.nnx.linear import Linear as Linear
from tapestry_jax.nnx.linear import LinearGeneral as LinearGeneral
from tapestry_jax.nnx.loss import cross_entropy as cross_entropy
from tapestry_jax.nnx.mlp import MLP as MLP
from tapestry_jax.nnx.modules.arrow import ModuleArrow as ModuleArrow
from tapestry_jax.nnx.modules.module import Module as Module
from tapestry_jax.nnx.norm import LayerNorm as LayerNorm
from tapestry_jax.nnx.norm import RMSNorm as RMSNorm
from tapestry_jax.nnx.stack import Stack as Stack
from tapestry_jax.nnx.transformer import Block as Block
from tapestry_jax.nnx.transformer import Transformer as Transformer
from tapestry_jax.nnx.transformer import TransformerConfig as TransformerConfig
