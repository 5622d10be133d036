"""Mean and variance of every column for each of eight groups of rows, with the rows over a mesh."""

import tapestry_jax as tp
from benchmarks.lines.given import normal, whole

moments = tp.fold(tp.aggregators.Moments().by_key(None, 8), "row column, row -> column")


def run():
    x, keys = normal(64, 4), whole(64, below=8)
    found = tp.plan(tp.trace(moments, x, keys), tp.mesh(data=8), {"row": "data"}).compile()(x, keys)
    return found["mean"].T, found["variance"].T
