"""Flax modules made of arrows: their parameters carry dimension names, and any plan may place them.

Modules   Module ModuleArrow
Layers    Linear LinearGeneral Einsum Conv ConvTranspose Embed PositionEmbed MLP GLU SwiGLU
          LoRA Dropout MultiHeadAttention RotaryScaling MoE Auxiliary
Norms     LayerNorm RMSNorm GroupNorm InstanceNorm BatchNorm
Sequences LSTMCell GRUCell RNN Bidirectional DiagonalSSM Mamba
Pooling   max_pool min_pool avg_pool
Blocks    Sequential Residual Block Stack with_cache
Models    LanguageModel Transformer TransformerConfig, and in `tp.nnx.models`, loaded on request, GPT, Llama
Losses    cross_entropy cross_entropy_with mean_squared_error contrastive
Training  Trainer TrainingError, loaded on first use

Read `modules`, what a module is, with `parameter`; then the layers: `projections`, `norms`, `images`, `recurrent`,
`dropout`, `attention`, `experts`; and what is made of them: `blocks`, with their `loss`, and `models`, loaded on
request. `rows` are kernels, `options` reads what constructors are given. `training` is the trainer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from combinators.lazy import lazily
from tapestry_jax.nnx.attention.multi_head import MultiHeadAttention as MultiHeadAttention
from tapestry_jax.nnx.attention.positions import RotaryScaling as RotaryScaling
from tapestry_jax.nnx.blocks.language_model import LanguageModel as LanguageModel
from tapestry_jax.nnx.blocks.residual import Residual as Residual
from tapestry_jax.nnx.blocks.stack import Stack as Stack
from tapestry_jax.nnx.blocks.transformer import Block as Block
from tapestry_jax.nnx.blocks.transformer import Transformer as Transformer
from tapestry_jax.nnx.blocks.transformer import TransformerConfig as TransformerConfig
from tapestry_jax.nnx.blocks.with_cache import with_cache as with_cache
from tapestry_jax.nnx.dropout import Dropout as Dropout
from tapestry_jax.nnx.experts.mixture import MoE as MoE
from tapestry_jax.nnx.images.conv import Conv as Conv
from tapestry_jax.nnx.images.conv_transpose import ConvTranspose as ConvTranspose
from tapestry_jax.nnx.images.pooling import avg_pool as avg_pool
from tapestry_jax.nnx.images.pooling import max_pool as max_pool
from tapestry_jax.nnx.images.pooling import min_pool as min_pool
from tapestry_jax.nnx.loss import contrastive as contrastive
from tapestry_jax.nnx.loss import cross_entropy as cross_entropy
from tapestry_jax.nnx.loss import cross_entropy_with as cross_entropy_with
from tapestry_jax.nnx.loss import mean_squared_error as mean_squared_error
from tapestry_jax.nnx.modules.arrow import ModuleArrow as ModuleArrow
from tapestry_jax.nnx.modules.mattering import Auxiliary as Auxiliary
from tapestry_jax.nnx.modules.module import Module as Module
from tapestry_jax.nnx.modules.sequential import Sequential as Sequential
from tapestry_jax.nnx.norms.batch import BatchNorm as BatchNorm
from tapestry_jax.nnx.norms.group import GroupNorm as GroupNorm
from tapestry_jax.nnx.norms.group import InstanceNorm as InstanceNorm
from tapestry_jax.nnx.norms.layer import LayerNorm as LayerNorm
from tapestry_jax.nnx.norms.layer import RMSNorm as RMSNorm
from tapestry_jax.nnx.projections.einsum import Einsum as Einsum
from tapestry_jax.nnx.projections.embed import Embed as Embed
from tapestry_jax.nnx.projections.embed import PositionEmbed as PositionEmbed
from tapestry_jax.nnx.projections.gated import GLU as GLU
from tapestry_jax.nnx.projections.gated import SwiGLU as SwiGLU
from tapestry_jax.nnx.projections.linear import Linear as Linear
from tapestry_jax.nnx.projections.linear import LinearGeneral as LinearGeneral
from tapestry_jax.nnx.projections.lora import LoRA as LoRA
from tapestry_jax.nnx.projections.mlp import MLP as MLP
from tapestry_jax.nnx.recurrent.cells import GRUCell as GRUCell
from tapestry_jax.nnx.recurrent.cells import LSTMCell as LSTMCell
from tapestry_jax.nnx.recurrent.mamba import Mamba as Mamba
from tapestry_jax.nnx.recurrent.rnn import RNN as RNN
from tapestry_jax.nnx.recurrent.rnn import Bidirectional as Bidirectional
from tapestry_jax.nnx.recurrent.state_space import DiagonalSSM as DiagonalSSM

if TYPE_CHECKING:
    from tapestry_jax.nnx import models as models
    from tapestry_jax.nnx.training.errors import TrainingError as TrainingError
    from tapestry_jax.nnx.training.trainer import Trainer as Trainer
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "Trainer": "tapestry_jax.nnx.training.trainer:Trainer",
            "TrainingError": "tapestry_jax.nnx.training.errors:TrainingError",
            "models": "tapestry_jax.nnx.models",
        },
    )
