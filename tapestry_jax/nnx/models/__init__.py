"""Models made of the layers of `tp.nnx`, loaded on request: `tp.nnx.models.Llama`.

Decoders  GPT GPTConfig Llama LlamaConfig LlamaBlock RotaryDecoder Mixtral MixtralConfig
          MambaModel MambaConfig MambaBlock
Decoding  generate Generator Sampling
Images    ViT ViTConfig ResNet ResNetConfig ResidualBlock Mixer MixerConfig MixerBlock

Read `gpt`, `llama`, `mixtral` and `mamba`, and `decoding` with `sampling`; then `classifier`, `vit`, `mixer` with the
`patches` of both, and `resnet`. `fields` reads configurations; `published` makes models of published weights.
"""

from __future__ import annotations

from tapestry_jax.nnx.models.decoding import Generator as Generator
from tapestry_jax.nnx.models.decoding import generate as generate
from tapestry_jax.nnx.models.gpt import GPT as GPT
from tapestry_jax.nnx.models.gpt import GPTConfig as GPTConfig
from tapestry_jax.nnx.models.llama import Llama as Llama
from tapestry_jax.nnx.models.llama import LlamaBlock as LlamaBlock
from tapestry_jax.nnx.models.llama import LlamaConfig as LlamaConfig
from tapestry_jax.nnx.models.llama import RotaryDecoder as RotaryDecoder
from tapestry_jax.nnx.models.mamba import MambaBlock as MambaBlock
from tapestry_jax.nnx.models.mamba import MambaConfig as MambaConfig
from tapestry_jax.nnx.models.mamba import MambaModel as MambaModel
from tapestry_jax.nnx.models.mixer import Mixer as Mixer
from tapestry_jax.nnx.models.mixer import MixerBlock as MixerBlock
from tapestry_jax.nnx.models.mixer import MixerConfig as MixerConfig
from tapestry_jax.nnx.models.mixtral import Mixtral as Mixtral
from tapestry_jax.nnx.models.mixtral import MixtralConfig as MixtralConfig
from tapestry_jax.nnx.models.resnet import ResidualBlock as ResidualBlock
from tapestry_jax.nnx.models.resnet import ResNet as ResNet
from tapestry_jax.nnx.models.resnet import ResNetConfig as ResNetConfig
from tapestry_jax.nnx.models.sampling import Sampling as Sampling
from tapestry_jax.nnx.models.vit import ViT as ViT
from tapestry_jax.nnx.models.vit import ViTConfig as ViTConfig
