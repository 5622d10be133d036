"""Processes of a run over four CPU devices, which tell their losses: `one_of_several.py COUNT PORT FOLDER`.

They are forked, before JAX has looked at a device, from one that has imported everything.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import tapestry_jax as tp
from tapestry_jax.nnx.training.saving import folder as saving
from tapestry_jax.nnx.training.saving.checkpoints import Checkpoints
from tests.children import child
from tests.thoroughly import thoroughly


class Model(tp.nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.up = tp.nnx.Linear(6, 8, dims=("embed", "mlp"), rngs=rngs)
        self.norm = tp.nnx.BatchNorm(8, dims=("mlp",), rngs=rngs)
        self.down = tp.nnx.Linear(8, 5, dims=("mlp", "classes"), rngs=rngs)

    def forward(self, x):
        return self.down(self.norm(self.up(x)))


def loss(model, x, labels):
    return tp.nnx.cross_entropy(model(x), labels)


def batch(step):
    """Every process makes the whole batch, and gives its devices their part.

    Thorough: that of step 2 does not divide, which is one more program for each process.
    """
    random, rows = np.random.default_rng(step), 5 if step == 2 and thoroughly() else 8
    made = random.normal(size=(rows, 6)).astype("float32"), random.integers(0, 5, rows).astype("int32")
    return made if step != 3 else _of_processes(made)


def _of_processes(made):
    """The same batch where every process has made its own rows alone."""
    at = jax.sharding.NamedSharding(mesh(), jax.sharding.PartitionSpec("data"))
    count, number = jax.process_count(), jax.process_index()
    own = [array[8 * number // count : 8 * (number + 1) // count] for array in made]
    return tuple(jax.make_array_from_process_local_data(at, array) for array in own)


def mesh():
    return tp.mesh(jax.devices()[:4], data=2, model=2)


def trainer_of(folder):
    types = tp.TensorType({"batch": 8, "embed": 6}), tp.TensorType({"batch": 8}, jnp.int32)
    plan = tp.plan(tp.trace(loss, Model(), *types), mesh(), {"batch": "data", "mlp": "model"})
    return tp.nnx.Trainer(loss, Model(), optax.adamw(1e-2), plan, clip=0.5, ema=0.9, checkpoint=folder)


def losses(folder):
    """Of four steps; of a fifth, taken from the checkpoint of the fourth; and of a batch that is not trained on."""
    found = []
    trainer = trainer_of(folder)
    trainer.fit(batch, steps=4, every=1, report=lambda step, told: found.append(told["loss"]))
    trainer.step(*batch(9))
    trainer.restore()
    found.append(float(trainer.step(*batch(4))["loss"]))
    return [*found, trainer.evaluate([batch(5)])["loss"]]


def slowly(written):
    """Process 0 is slow with the last file of a checkpoint: no other one may read it before."""

    def run(folder):
        time.sleep(0.5)
        written(folder)

    return run


def run(count, number, port, folder):
    """One of the processes."""
    jax.config.update("jax_num_cpu_devices", 4 // count)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", count, number)
    saving.write_sums = slowly(saving.write_sums)
    told = {
        "losses": losses(folder),
        "refused": refused(folder),
        "devices": len(jax.devices()),
        "local": len(jax.local_devices()),
    }
    Path(f"{folder}-{number}.json").write_text(json.dumps(told))


def refused(folder):
    """What a run that knows nothing of the checkpoints is told: every process, though the first one alone looks."""
    try:
        Checkpoints(Path(folder), 2).save(9, {"a": np.zeros(2)}, {"history": [], "record": {}, "batches": None})
    except tp.nnx.TrainingError as error:
        return str(error)
    return ""


def forked(*given):
    def work():
        run(*given)
        jax.distributed.shutdown()

    # No device was looked at here: JAX has no thread yet.
    return child(work)


if __name__ == "__main__":
    count, port, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    running = [forked(count, number, port, folder) for number in range(count)]
    sys.exit(max(abs(os.waitstatus_to_exitcode(os.waitpid(each, 0)[1])) for each in running))
