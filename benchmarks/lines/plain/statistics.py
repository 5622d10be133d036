"""Mean and variance of every column for each of eight groups of rows, with the rows over a mesh."""

import jax
import jax.numpy as jnp
from jax.ops import segment_sum

from benchmarks.lines.given import normal, whole


@jax.jit
def moments(x, keys):
    count = segment_sum(jnp.ones(x.shape), keys, 8)
    mean = segment_sum(x, keys, 8) / count
    return mean, segment_sum((x - mean[keys]) ** 2, keys, 8) / count


def run():
    with jax.set_mesh(jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))):
        return moments(*jax.device_put((normal(64, 4), whole(64, below=8)), jax.P("data")))
