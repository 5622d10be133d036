"""The heat equation on a square, 32 explicit steps, with the square cut along both axes of a mesh."""

import tapestry_jax as tp
from benchmarks.lines.given import normal


def spread(u):
    return u.here + 0.2 * (u[-1, 0] + u[1, 0] + u[0, -1] + u[0, 1] - 4 * u.here)


step = tp.stencil(spread, {"y": (-1, 1), "x": (-1, 1)}, boundary="zero")


def run():
    heat, u = tp.iterate(step, 32), normal(16, 16)
    plan = tp.plan(tp.trace(heat, u), tp.mesh(row=2, column=4), {"y": "row", "x": "column"})
    return plan.compile()(u)
