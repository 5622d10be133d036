"""A residual network, trained with the batch over one axis of a mesh and rows of images over the other."""

import optax
from flax import nnx

import tapestry_jax as tp
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


def run():
    model, images, labels = filled(ResNet(nnx.Rngs(0))), normal(4, 8, 8, 3), whole(4, below=5)
    graph = tp.lift(loss, model, images, labels, names={"images": "batch y x colors"}, state=True)
    plan = tp.plan(graph, tp.mesh(data=2, model=4), {"batch": "data", "y": "model"})
    trainer = tp.nnx.Trainer(loss, model, optax.sgd(0.1), plan)
    return [trainer.step(images, labels)["loss"] for _ in range(3)]
