"""A residual network, trained with the batch over one axis of a mesh and rows of images over the other."""

import jax
import optax
from flax import nnx

from benchmarks.lines.given import filled, normal, whole


class Block(nnx.Module):
    def __init__(self, rngs):
        self.first, self.last = (nnx.Conv(8, 8, (3, 3), rngs=rngs) for _ in range(2))
        self.first_norm, self.last_norm = (nnx.BatchNorm(8, rngs=rngs) for _ in range(2))

    def __call__(self, x):
        return nnx.relu(x + self.last_norm(self.last(nnx.relu(self.first_norm(self.first(x))))))


class ResNet(nnx.Module):
    def __init__(self, rngs):
        self.begin, self.norm = nnx.Conv(3, 8, (3, 3), rngs=rngs), nnx.BatchNorm(8, rngs=rngs)
        self.blocks, self.head = nnx.List([Block(rngs) for _ in range(2)]), nnx.Linear(8, 5, rngs=rngs)

    def __call__(self, images):
        x = nnx.relu(self.norm(self.begin(images)))
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((1, 2)))


def loss(model, images, labels):
    return optax.softmax_cross_entropy_with_integer_labels(model(images), labels).mean()


@nnx.jit
def step(model, optimizer, images, labels):
    value, gradient = nnx.value_and_grad(loss)(model, images, labels)
    optimizer.update(model, gradient)
    return value


def run():
    with jax.set_mesh(jax.make_mesh((2, 4), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)):
        model = filled(ResNet(nnx.Rngs(0)))
        optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)
        images = jax.device_put(normal(4, 8, 8, 3), jax.P("data", "model"))
        labels = jax.device_put(whole(4, below=5), jax.P("data"))
        return [step(model, optimizer, images, labels) for _ in range(3)]
