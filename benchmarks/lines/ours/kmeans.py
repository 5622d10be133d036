"""k-means until no centre moves, with the points over a mesh."""

import jax.numpy as jnp
from jax import lax
from jax.ops import segment_sum

import tapestry_jax as tp
from benchmarks.lines.given import normal


def kmeans(points, centers):
    def moved(state):
        return (jnp.abs(state[0] - state[1]) > 1e-6).any()

    def step(state):
        centers, _ = state
        nearest = jnp.argmin(((points[:, None] - centers) ** 2).sum(-1), axis=1)
        count = segment_sum(jnp.ones(len(points)), nearest, len(centers))
        return segment_sum(points, nearest, len(centers)) / count[:, None], centers

    return lax.while_loop(moved, step, (centers, centers + 1))[0]


def run():
    points = normal(256, 2)
    graph = tp.lift(kmeans, points, points[:4], names="point axis, center axis")
    return tp.plan(graph, tp.mesh(data=8), {"point": "data"}).compile()(points, points[:4])
