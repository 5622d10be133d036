"""Residual networks of convolutions."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from combinators import aggregators
from combinators.arguments import read_flag
from combinators.frozen import dataclass
from combinators.leaves.fold import fold
from combinators.leaves.map import Map
from combinators.recording.value import Value
from tapestry_jax.nnx.images.conv import Conv
from tapestry_jax.nnx.images.pooling import max_pool
from tapestry_jax.nnx.models.classifier import Classifier
from tapestry_jax.nnx.models.fields import check, read_config, read_fields
from tapestry_jax.nnx.modules.module import Module
from tapestry_jax.nnx.norms.batch import BatchNorm
from tapestry_jax.nnx.options import read_rngs, read_sizes
from tapestry_jax.nnx.projections.linear import Linear

_AROUND = ((1, 1), (1, 1))
"""One cell before and behind both axes, as torch pads windows of three: `SAME` pads a strided one otherwise."""


@dataclass(frozen=True)
class ResNetConfig:
    """The sizes of a residual network. `ResNetConfig(1000, (3, 4, 6, 3), bottleneck=True)` is ResNet-50.

    Attributes:
      classes: how many there are.
      blocks: in each stage; every stage but the first halves both axes.
      width: channels of the first stage, which every further one doubles.
      bottleneck: whether a block has three convolutions, and four times the channels outside.
      channels: of an image.
      small: whether images are small, such as 32 by 32: they begin with windows of three that keep their size, not of
        seven that halve it twice.
      momentum: how much of the running statistics is kept.
      epsilon: added to the variances of the norms.
      dtype: of the computation; by default that of the parameters.
      param_dtype: of the parameters.

    Raises:
      GraphError: when a field is not what it should be.
    """

    classes: int
    blocks: tuple[int, ...] = (2, 2, 2, 2)
    width: int = 64
    bottleneck: bool = False
    channels: int = 3
    small: bool = False
    momentum: float = 0.9
    epsilon: float = 1e-5
    dtype: Any = None
    param_dtype: Any = jnp.float32

    def __post_init__(self) -> None:
        flags = ("bottleneck", "small")
        read_fields(self, ("classes", "width", "channels"), positive=("momentum", "epsilon"), flags=flags)
        object.__setattr__(self, "blocks", read_sizes(self.blocks, "blocks= of ResNetConfig"))
        check("ResNetConfig", [f"momentum is {self.momentum}, expected a share up to 1"] * (self.momentum > 1))
        check("ResNetConfig", ["blocks is (), expected one stage or more"] * (not self.blocks))


class ResidualBlock(Module):
    """Two or three convolutions, each with a norm, on top of what comes in.

    Args:
      config: sizes of the network.
      inside: channels that come in.
      width: channels of the windows of three.
      stride: of these windows.
      train: whether norms use the statistics of the batch.
      rngs: whose stream `params` initialises.
    """

    def __init__(
        self, config: ResNetConfig, inside: int, width: int, stride: int, *, train: bool, rngs: nnx.Rngs
    ) -> None:
        read_config(config, ResNetConfig, "ResNetConfig(classes=10)")
        conv, norm = _layers(config, train, rngs)
        out = 4 * width if config.bottleneck else width
        self.narrow: Any = nnx.data(None)
        self.narrow_norm: Any = nnx.data(None)
        if config.bottleneck:
            self.narrow = conv(inside, width, (1, 1), dims=("channels", "narrow"))
            self.narrow_norm = norm(width, dims=("narrow",))
        first = ("narrow", width) if config.bottleneck else ("channels", inside)
        self.windows = conv(first[1], width, (3, 3), stride, padding=_AROUND, dims=(first[0], "features"))
        self.windows_norm = norm(width, dims=("features",))
        last: Any = {"kernel_size": (1, 1)} if config.bottleneck else {"kernel_size": (3, 3), "padding": _AROUND}
        self.last = conv(width, out, **last, dims=("features", "channels"))
        self.last_norm = norm(out, dims=("channels",))
        self.shortcut: Any = nnx.data(None)
        self.shortcut_norm: Any = nnx.data(None)
        if stride != 1 or inside != out:
            self.shortcut = conv(inside, out, (1, 1), stride, padding="VALID", dims=("channels", "features"))
            self.shortcut_norm = norm(out, dims=("features",))

    def forward(self, x: Value) -> Value:
        """`(..., y, x, channels)`, with `stride` times fewer cells."""
        relu: Any = Map(jax.nn.relu)
        y = x
        if self.narrow is not None:
            y = relu(self.narrow_norm(self.narrow(y)))
        y = relu(self.windows_norm(self.windows(y)))
        y = self.last_norm(self.last(y))
        if self.shortcut is not None:
            x = self.shortcut_norm(self.shortcut(x)).rename(features="channels")
        return relu(x + y)


class ResNet(Classifier):
    """Images to logits of classes: stages of residual blocks, each with half the cells and twice the channels.

    While it trains, norms use the statistics of the whole batch, however it is cut, and write what runs along.

    Args:
      config: the sizes.
      train: whether norms use the statistics of the batch; otherwise those that ran along.
      rngs: whose stream `params` initialises.

    Source: He et al. 2016.
    """

    def __init__(self, config: ResNetConfig, *, train: bool = True, rngs: nnx.Rngs) -> None:
        read_config(config, ResNetConfig, "ResNetConfig(classes=10)")
        read_rngs(rngs, "of ResNet")
        train = read_flag(train, "train= of ResNet")
        conv, norm = _layers(config, train, rngs)
        self.config = config
        begin: Any = {"kernel_size": (3, 3), "padding": _AROUND}
        if not config.small:
            begin = {"kernel_size": (7, 7), "strides": 2, "padding": ((3, 3), (3, 3))}
        self.begin = conv(config.channels, config.width, **begin, dims=("channels", "features"))
        self.begin_norm = norm(config.width, dims=("features",))
        stages, inside = list[Any](), config.width
        for stage, count in enumerate(config.blocks):
            width, blocks = config.width * 2**stage, list[Any]()
            for block in range(count):
                stride = 2 if stage and not block else 1
                blocks.append(ResidualBlock(config, inside, width, stride, train=train, rngs=rngs))
                inside = 4 * width if config.bottleneck else width
            stages.append(nnx.List(blocks))
        self.stages = nnx.List(stages)
        dtypes: dict[str, Any] = {"dtype": config.dtype, "param_dtype": config.param_dtype, "rngs": rngs}
        self.head = Linear(inside, config.classes, dims=("channels", "classes"), **dtypes)

    def forward(self, images: Value) -> Value:
        """Logits of every image."""
        x = Map(jax.nn.relu)(self.begin_norm(self.begin(images))).rename(features="channels")
        if not self.config.small:
            x = max_pool(x, (3, 3), (2, 2), _AROUND)
        for blocks in self.stages:
            for block in blocks:
                x = block(x)
        names = " ".join(f"d{axis}" for axis in range(x.ndim - 3))
        return self.head(fold(aggregators.Mean(), f"{names} y x c -> {names} c", name="mean")(x))


def _layers(config: ResNetConfig, train: bool, rngs: nnx.Rngs) -> tuple[Any, Any]:
    """Convolutions without bias and norms, as the configuration wants them."""
    dtypes: dict[str, Any] = {"dtype": config.dtype, "param_dtype": config.param_dtype, "rngs": rngs}
    norms: dict[str, Any] = {"momentum": config.momentum, "epsilon": config.epsilon}
    return partial(Conv, use_bias=False, **dtypes), partial(BatchNorm, use_running_average=not train, **norms, **dtypes)
