"""Models of images: equal to plain Flax models with the same weights, in value and gradient."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import tapestry_jax as tp
from tapestry_jax.nnx.models import Mixer, MixerConfig, ResNet, ResNetConfig, ViT, ViTConfig
from tests.simulated.sampled import computed

IMAGES = np.random.default_rng(0).normal(size=(4, 16, 16, 3)).astype(np.float32)
LABELS = np.arange(4, dtype=np.int32)
AROUND = ((1, 1), (1, 1))


class FlaxPatches(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(3, 8, (4, 4), (4, 4), padding="VALID", rngs=rngs)

    def __call__(self, images):
        return self.conv(images).reshape(len(images), 16, 8)


class FlaxMLP(nnx.Module):
    def __init__(self, hidden, rngs):
        self.up, self.down = nnx.Linear(8, hidden, rngs=rngs), nnx.Linear(hidden, 8, rngs=rngs)

    def __call__(self, x):
        return self.down(nnx.gelu(self.up(x)))


class FlaxEncoderBlock(nnx.Module):
    def __init__(self, rngs):
        self.attention_norm, self.mlp_norm = nnx.LayerNorm(8, rngs=rngs), nnx.LayerNorm(8, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(2, 8, decode=False, rngs=rngs)
        self.mlp = FlaxMLP(32, rngs)

    def __call__(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class FlaxViT(nnx.Module):
    def __init__(self, rngs):
        self.patches, self.positions = FlaxPatches(rngs), nnx.Embed(16, 8, rngs=rngs)
        self.encoder = nnx.List([FlaxEncoderBlock(rngs) for _ in range(1)])
        self.norm, self.head = nnx.LayerNorm(8, rngs=rngs), nnx.Linear(8, 5, rngs=rngs)

    def __call__(self, images):
        x = self.patches(images) + self.positions.embedding[...]
        for block in self.encoder:
            x = block(x)
        return self.head(self.norm(x).mean(1))


class FlaxMixerBlock(nnx.Module):
    def __init__(self, rngs):
        self.token_norm, self.mlp_norm = nnx.LayerNorm(8, rngs=rngs), nnx.LayerNorm(8, rngs=rngs)
        self.token_up, self.token_down = nnx.Linear(16, 4, rngs=rngs), nnx.Linear(4, 16, rngs=rngs)
        self.mlp = FlaxMLP(12, rngs)

    def __call__(self, x):
        across = self.token_down(nnx.gelu(self.token_up(self.token_norm(x).swapaxes(1, 2))))
        x = x + across.swapaxes(1, 2)
        return x + self.mlp(self.mlp_norm(x))


class FlaxMixer(nnx.Module):
    def __init__(self, rngs):
        self.patches, self.blocks = FlaxPatches(rngs), nnx.List([FlaxMixerBlock(rngs) for _ in range(1)])
        self.norm, self.head = nnx.LayerNorm(8, rngs=rngs), nnx.Linear(8, 5, rngs=rngs)

    def __call__(self, images):
        x = self.patches(images)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


class FlaxResidual(nnx.Module):
    def __init__(self, inside, width, out, stride, rngs):
        conv = partial(nnx.Conv, use_bias=False, rngs=rngs)
        norm = partial(nnx.BatchNorm, momentum=0.9, rngs=rngs)
        self.is_narrow, before = out != width, inside
        if self.is_narrow:
            self.narrow, self.narrow_norm, before = conv(inside, width, (1, 1)), norm(width), width
        self.windows, self.windows_norm = conv(before, width, (3, 3), stride, padding=AROUND), norm(width)
        last = {"kernel_size": (1, 1)} if self.is_narrow else {"kernel_size": (3, 3), "padding": AROUND}
        self.last, self.last_norm = conv(width, out, **last), norm(out)
        self.changes = stride != 1 or inside != out
        if self.changes:
            self.shortcut, self.shortcut_norm = conv(inside, out, (1, 1), stride, padding="VALID"), norm(out)

    def __call__(self, x):
        y = nnx.relu(self.narrow_norm(self.narrow(x))) if self.is_narrow else x
        y = self.last_norm(self.last(nnx.relu(self.windows_norm(self.windows(y)))))
        return nnx.relu((self.shortcut_norm(self.shortcut(x)) if self.changes else x) + y)


class FlaxResNet(nnx.Module):
    def __init__(self, times, small, rngs):
        conv = partial(nnx.Conv, use_bias=False, rngs=rngs)
        begin = ((3, 3), 1, AROUND) if small else ((7, 7), 2, ((3, 3), (3, 3)))
        self.begin, self.small = conv(3, 4, begin[0], begin[1], padding=begin[2]), small
        self.begin_norm = nnx.BatchNorm(4, momentum=0.9, rngs=rngs)
        one = FlaxResidual(4, 4, 4 * times, 1, rngs)
        self.stages = nnx.List([nnx.List([one]), nnx.List([FlaxResidual(4 * times, 8, 8 * times, 2, rngs)])])
        self.head = nnx.Linear(8 * times, 5, rngs=rngs)

    def __call__(self, images):
        x = nnx.relu(self.begin_norm(self.begin(images)))
        x = x if self.small else nnx.max_pool(x, (3, 3), (2, 2), AROUND)
        for blocks in self.stages:
            x = blocks[0](x)
        return self.head(x.mean((1, 2)))


def of_images(kind, config, **sizes):
    return kind(config(**sizes, image=16, patch=4, classes=5, stacked=False), rngs=nnx.Rngs(0))


PAIRS = {
    "vit": lambda: (of_images(ViT, ViTConfig, layers=1, embed=8, heads=2), FlaxViT(nnx.Rngs(1))),
    "mixer": lambda: (of_images(Mixer, MixerConfig, layers=1, embed=8, tokens=4, mlp=12), FlaxMixer(nnx.Rngs(1))),
    "resnet": lambda: (
        ResNet(ResNetConfig(5, (1, 1), 4, small=True), rngs=nnx.Rngs(0)),
        FlaxResNet(1, True, nnx.Rngs(1)),
    ),
    "resnet, bottlenecks": lambda: (
        ResNet(ResNetConfig(5, (1, 1), 4, bottleneck=True), rngs=nnx.Rngs(0)),
        FlaxResNet(4, False, nnx.Rngs(1)),
    ),
}


def loss(model, images, labels):
    return tp.nnx.cross_entropy(model(images), labels)


def slopes(function, model):
    """What a model that writes nothing gives, and its gradient, run in NumPy."""
    graphdef, state = nnx.split(model)
    return computed(jax.value_and_grad(lambda state: function(nnx.merge(graphdef, state))), state)


@pytest.mark.parametrize(
    "pair", [pytest.param(name, marks=[pytest.mark.thorough] if name.endswith("bottlenecks") else []) for name in PAIRS]
)
def test_models_of_images_equal_flax_with_gradients(pair):
    ours, theirs = PAIRS[pair]()
    nnx.update(theirs, nnx.state(ours))

    def of_flax(model):
        return optax.softmax_cross_entropy_with_integer_labels(model(IMAGES), LABELS).mean()

    def of_ours(model):
        return loss(model, IMAGES, LABELS)

    if jax.tree.leaves(nnx.state(ours, nnx.BatchStat)):
        expected, wanted = nnx.jit(nnx.value_and_grad(of_flax))(theirs)
        value, found = nnx.value_and_grad(of_ours)(ours)
    else:
        (expected, wanted), (value, found) = slopes(of_flax, theirs), slopes(of_ours, ours)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    leaves = zip(jax.tree.leaves_with_path(found), jax.tree.leaves(nnx.to_pure_dict(wanted)), strict=True)
    for (path, a), b in leaves:
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5, err_msg=jax.tree_util.keystr(path))
    # What runs along was written, too.
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6),
        nnx.to_pure_dict(nnx.state(ours, nnx.BatchStat)),
        nnx.to_pure_dict(nnx.state(theirs, nnx.BatchStat)),
    )


@pytest.mark.thorough
def test_resnet_has_the_parameters_of_resnet50():
    model = nnx.eval_shape(lambda: ResNet(ResNetConfig(1000, (3, 4, 6, 3), bottleneck=True), rngs=nnx.Rngs(0)))
    assert sum(leaf.size for leaf in jax.tree.leaves(nnx.state(model, nnx.Param))) == 25_557_032


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: ViTConfig(0, 8, 3, 5), "layers is 0, expected at least 1"),
        (lambda: ViTConfig(1, 8, 3, 5), "heads is 3, which does not divide embed, 8"),
        (lambda: MixerConfig(1, 8, 4, 12, 5, image=16, patch=5), "patch is 5, which does not divide image, 16"),
        (lambda: ResNetConfig(5, ()), "blocks is (), expected one stage or more"),
        (lambda: ResNetConfig(5, momentum=1.5), "momentum is 1.5, expected a share up to 1"),
        (lambda: ResNet(ResNetConfig(5), train=3, rngs=nnx.Rngs(0)), "train= of ResNet"),
        (lambda: ResNetConfig(5, (1, 0)), "blocks= of ResNetConfig"),
        (lambda: ViT(ResNetConfig(5), rngs=nnx.Rngs(0)), "config= of ViT is not what it should be"),
        (lambda: ResNet(ResNetConfig(5), rngs=0), "rngs= of ResNet"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(make, expected):
    with pytest.raises(tp.GraphError) as error:
        make()
    assert expected in str(error.value)


def test_images_of_another_size_are_refused():
    model = of_images(ViT, ViTConfig, layers=1, embed=8, heads=2)
    with pytest.raises(tp.SignatureError, match="Patches: the images have another size"):
        model(jnp.ones((1, 16, 12, 3)))
