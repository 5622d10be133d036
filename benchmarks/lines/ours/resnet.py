"""A residual network, trained with the batch over one axis of a mesh and rows of images over the other."""

import optax
from flax import nnx

import tapestry_jax as tp
from benchmarks.lines.given import filled, normal, whole

relu = tp.Map(nnx.relu)


class Block(tp.nnx.Module):
    def __init__(self, rngs):
        self.first = tp.nnx.Conv(8, 8, (3, 3), rngs=rngs)
        self.last = tp.nnx.Conv(8, 8, (3, 3), dims=("features", "channels"), rngs=rngs)
        self.first_norm, self.last_norm = (tp.nnx.BatchNorm(8, rngs=rngs) for _ in range(2))

    def forward(self, x):
        return relu(x + self.last_norm(self.last(relu(self.first_norm(self.first(x))))))


class ResNet(tp.nnx.Module):
    def __init__(self, rngs):
        self.begin = tp.nnx.Conv(3, 8, (3, 3), dims=("colors", "channels"), rngs=rngs)
        self.norm = tp.nnx.BatchNorm(8, rngs=rngs)
        self.blocks, self.head = (
            nnx.List([Block(rngs) for _ in range(2)]),
            tp.nnx.Linear(8, 5, dims=("channels", "classes"), rngs=rngs),
        )

    def forward(self, images):
        x = relu(self.norm(self.begin(images)))
        for block in self.blocks:
            x = block(x)
        return self.head(tp.fold(tp.aggregators.Mean(), "b y x c -> b c")(x))


def loss(model, images, labels):
    return tp.nnx.cross_entropy(model(images), labels)


def run():
    model, images, labels = filled(ResNet(nnx.Rngs(0))), normal(4, 8, 8, 3), whole(4, below=5)
    types = tp.TensorType({"batch": 4, "y": 8, "x": 8, "colors": 3}), labels
    plan = tp.plan(tp.trace(loss, model, *types), tp.mesh(data=2, model=4), {"batch": "data", "y": "model"})
    trainer = tp.nnx.Trainer(loss, model, optax.sgd(0.1), plan)
    return [trainer.step(images, labels)["loss"] for _ in range(3)]
