"""Models of Equinox and of packages made with it; each takes one example, so `jax.vmap` makes a batch."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.lifted.entry import Entry, Lifted, normal


def mlp() -> Lifted:
    import equinox as eqx

    model = eqx.nn.MLP(8, 4, 16, 2, key=jax.random.key(0))
    return _batched(model, normal(8, 8), names={"x": "batch feature"})


def gru() -> Lifted:
    import equinox as eqx

    cell = eqx.nn.GRUCell(3, 8, key=jax.random.key(0))

    def last(cell: Any, frames: Any) -> Any:
        return jax.lax.scan(lambda state, frame: (cell(frame, state), None), jnp.zeros(8), frames)[0]

    return _batched(cell, normal(8, 5, 3), last, {"x": "batch time _"})


def attention() -> Lifted:
    import equinox as eqx

    model = eqx.nn.MultiheadAttention(4, 16, key=jax.random.key(0))
    return _batched(model, normal(4, 6, 16), lambda model, x: model(x, x, x), {"x": "batch seq _"})


def vision_transformer() -> Lifted:
    from equimo.models.vit import VisionTransformer

    model = VisionTransformer(16, 3, 32, 4, 4, [2], num_classes=8, reg_tokens=2, key=jax.random.key(0))
    return _image(model)


def convnext() -> Lifted:
    from equimo.models.convnext import ConvNeXt

    return _image(ConvNeXt(depths=[1, 1, 1, 1], dims=[8, 8, 16, 16], num_classes=8, key=jax.random.key(0)), 32)


def linear_attention() -> Lifted:
    from equimo.models.mlla import Mlla

    return _image(Mlla(16, 3, dim=16, depths=[1, 1], num_heads=[2, 4], num_classes=8, key=jax.random.key(0)))


def vision_mamba() -> Lifted:
    from equimo.models.vssd import Vssd

    sizes = {"dim": 16, "d_state": 8, "depths": [1, 1], "num_heads": [2, 4]}
    mixers = ("mamba2mixer", "attention")
    return _image(Vssd(16, 3, **sizes, attentions_layers=mixers, num_classes=8, key=jax.random.key(0)))


def fourier() -> Lifted:
    from foundax.architectures import FNO2D

    model = FNO2D(2, 8, 4, n_layers=2, d_model=(16, 16), key=jax.random.key(0))
    return _batched(model, normal(4, 16, 16, 2), names={"x": "batch y x _"})


def unet() -> Lifted:
    from foundax.architectures import UNet2D

    model = UNet2D(2, 1, depth=2, wf=3, norm="layer", key=jax.random.key(0))
    return _batched(model, normal(4, 16, 16, 2), names={"x": "batch y x _"})


def deeponet() -> Lifted:
    from foundax.architectures import DeepONet

    sizes = {"n_sensors": 12, "basis_functions": 8, "branch_hidden_dims": (16,), "trunk_hidden_dims": (16,)}
    model = DeepONet(coord_dim=2, **sizes, key=jax.random.key(0))
    args = (model, normal(4, 12), normal(10, 2, seed=1))

    def field(model: Any, sensors: Any, points: Any) -> Any:
        return jax.vmap(model, (0, None))(sensors, points)

    return Lifted(field, args, {"sensors": "batch sensor", "points": "point _"}, {"batch": "data", "point": "model"})


def operator_experts() -> Lifted:
    from foundax.architectures import MoEGPTNO

    model = MoEGPTNO(3, 2, n_layers=1, n_hidden=16, n_head=2, n_experts=2, key=jax.random.key(0))
    args = (model, normal(4, 10, 3), normal(4, 6, 2))

    def field(model: Any, points: Any, data: Any) -> Any:
        return model(points, data)

    return Lifted(field, args, {"points": "batch point _", "data": "batch cell _"}, {"batch": "data"})


def points() -> Lifted:
    from foundax.architectures import PointNet

    model = PointNet(3, 2, [8, 16, 16, 8], key=jax.random.key(0))
    return Lifted(model, (normal(4, 12, 3),), None, {})


def flow() -> Lifted:
    from flowjax.distributions import Normal
    from flowjax.flows import masked_autoregressive_flow

    flow = masked_autoregressive_flow(
        jax.random.key(0), base_dist=Normal(jnp.zeros(4)), flow_layers=2, nn_width=8, nn_depth=1
    )

    def density(flow: Any, x: Any) -> Any:
        return flow.log_prob(x)

    return Lifted(density, (flow, normal(8, 4)), {"x": "batch feature"}, {"batch": "data"})


def _image(model: Any, size: int = 16) -> Lifted:
    key = jax.random.key_data(jax.random.key(1))

    def logits(model: Any, x: Any) -> Any:
        return jax.vmap(lambda x: model(x, key=jax.random.wrap_key_data(key), inference=True))(x)

    return Lifted(logits, (model, normal(4, 3, size, size)), {"x": "batch rgb y x"}, {"batch": "data"})


def _batched(model: Any, x: Any, call: Any = None, names: Any = None) -> Lifted:
    def every(model: Any, x: Any) -> Any:
        return jax.vmap((lambda x: call(model, x)) if call is not None else model)(x)

    return Lifted(every, (model, x), names, {"batch": "data"})


ENTRIES = (
    Entry("MLP", "perceptron", "equinox", mlp),
    Entry("GRU", "recurrent", "equinox", gru),
    Entry("Attention", "attention", "equinox", attention),
    Entry("ViT with registers", "vision transformer", "equimo", vision_transformer),
    Entry("ConvNeXt", "convolutions", "equimo", convnext),
    Entry("MLLA", "linear attention, rotary", "equimo", linear_attention),
    Entry("VSSD", "vision Mamba", "equimo", vision_mamba),
    Entry("FNO", "Fourier neural operator", "foundax", fourier),
    Entry("U-Net", "U-Net", "foundax", unet),
    Entry("DeepONet", "operator network", "foundax", deeponet),
    Entry("MoE-GPT-NO", "mixture of experts, operator network", "foundax", operator_experts),
    Entry("PointNet", "point clouds", "foundax", points),
    Entry("Masked autoregressive flow", "normalizing flow", "flowjax", flow),
)
