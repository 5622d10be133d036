"""Models of `transformers` and `diffusers`, both in flax.linen."""

from __future__ import annotations

from typing import Any

import jax

from benchmarks.lifted.entry import Entry, Lifted, normal, tokens

_TRANSFORMERS, _DIFFUSERS = "transformers", "diffusers"
_SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}


def gpt2() -> Lifted:
    from transformers import FlaxGPT2LMHeadModel, GPT2Config

    config = GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=4)
    return _language_model(FlaxGPT2LMHeadModel(config), 64)


def llama() -> Lifted:
    from transformers import FlaxLlamaForCausalLM, LlamaConfig

    config = LlamaConfig(vocab_size=64, num_key_value_heads=2, max_position_embeddings=16, **_SMALL)
    return _language_model(FlaxLlamaForCausalLM(config), 64)


def bert() -> Lifted:
    from transformers import BertConfig, FlaxBertModel

    return _language_model(FlaxBertModel(BertConfig(vocab_size=64, **_SMALL)), 64)


def vit() -> Lifted:
    from transformers import FlaxViTForImageClassification, ViTConfig

    config = ViTConfig(image_size=16, patch_size=4, num_labels=8, **_SMALL)
    return _classifier(FlaxViTForImageClassification(config), normal(4, 3, 16, 16))


def resnet() -> Lifted:
    from transformers import FlaxResNetForImageClassification, ResNetConfig

    config = ResNetConfig(
        embedding_size=8, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic", num_labels=8, image_size=32
    )
    return _classifier(FlaxResNetForImageClassification(config, input_shape=(1, 32, 32, 3)), normal(4, 3, 32, 32))


def clip() -> Lifted:
    from transformers import CLIPConfig, FlaxCLIPModel

    text = _SMALL | {"num_hidden_layers": 1}
    vision = text | {"image_size": 16, "patch_size": 4}
    model = FlaxCLIPModel(CLIPConfig(text_config=text | {"vocab_size": 64}, vision_config=vision, projection_dim=16))

    def similarities(params: Any, words: Any, pixels: Any) -> Any:
        return model(words, pixels, params=params).logits_per_text

    args = (model.params, tokens(4, 8, vocab=64), normal(4, 3, 16, 16))
    return Lifted(similarities, args, {"words": "text seq", "pixels": "image ..."}, {"image": "data"})


def whisper() -> Lifted:
    from transformers import FlaxWhisperForConditionalGeneration, WhisperConfig

    config = WhisperConfig(
        vocab_size=64,
        num_mel_bins=8,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        d_model=32,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=16,
        max_target_positions=8,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    model = FlaxWhisperForConditionalGeneration(config, input_shape=(1, 8, 32))

    def logits(params: Any, sound: Any, words: Any) -> Any:
        return model(sound, words, params=params).logits

    args = (model.params, normal(4, 8, 32), tokens(4, 6, vocab=64))
    return Lifted(logits, args, {"sound": "batch mel time", "words": "batch seq"}, {"batch": "data"})


def unet() -> Lifted:
    from diffusers import FlaxUNet2DConditionModel

    model = FlaxUNet2DConditionModel(
        sample_size=8,
        block_out_channels=(32, 64),
        layers_per_block=1,
        attention_head_dim=4,
        cross_attention_dim=16,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )
    params = model.init_weights(jax.random.key(0))
    args = (params, normal(4, 4, 8, 8), tokens(4, vocab=1000), normal(4, 6, 16, seed=1))

    def noise(params: Any, sample: Any, time: Any, context: Any) -> Any:
        return model.apply({"params": params}, sample, time, context).sample

    names = {"sample": "batch channel y x", "time": "batch", "context": "batch words width"}
    return Lifted(noise, args, names, {"batch": "data"})


def autoencoder() -> Lifted:
    from diffusers import FlaxAutoencoderKL

    model = FlaxAutoencoderKL(
        down_block_types=("DownEncoderBlock2D",),
        up_block_types=("UpDecoderBlock2D",),
        block_out_channels=(32,),
        norm_num_groups=8,
        sample_size=16,
    )
    params = model.init_weights(jax.random.key(0))

    def restored(params: Any, pixels: Any) -> Any:
        return model.apply({"params": params}, pixels).sample

    args = (params, normal(4, 3, 16, 16))
    return Lifted(restored, args, {"pixels": "batch channel y x"}, {"batch": "data"})


def _language_model(model: Any, vocab: int) -> Lifted:
    def logits(params: Any, words: Any) -> Any:
        return model(words, params=params)[0]

    return Lifted(logits, (model.params, tokens(4, 8, vocab=vocab)), {"words": "batch seq"}, {"batch": "data"})


def _classifier(model: Any, pixels: Any) -> Lifted:
    def logits(params: Any, pixels: Any) -> Any:
        return model(pixels, params=params).logits

    return Lifted(logits, (model.params, pixels), {"pixels": "batch channel y x"}, {"batch": "data"})


ENTRIES = (
    Entry("GPT-2", "language model, linen", _TRANSFORMERS, gpt2),
    Entry("Llama", "language model, rotary, grouped heads", _TRANSFORMERS, llama),
    Entry("BERT", "encoder", _TRANSFORMERS, bert),
    Entry("Whisper", "sound to text", _TRANSFORMERS, whisper),
    Entry("CLIP", "text and images", _TRANSFORMERS, clip),
    Entry("ViT", "vision transformer", _TRANSFORMERS, vit),
    Entry("ResNet", "convolutions, batch norm", _TRANSFORMERS, resnet),
    Entry("Stable Diffusion U-Net", "U-Net, a diffusion step", _DIFFUSERS, unet),
    Entry("Autoencoder KL", "variational autoencoder", _DIFFUSERS, autoencoder),
)
