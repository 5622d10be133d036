"""Halo exchange and communication-avoiding stencils: an iterated map whose projection overlaps.

A step reads the cells around each cell, so a device needs a rim of what its neighbours hold: the plan derives it,
corners included. With a halo of depth `n` the devices exchange `n` rims at once, every `n` steps, and compute some
cells twice.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from gallery import Example, Planned, normal, show

import tapestry_jax as tp


def diffuse(block):
    inner = block[1:-1, 1:-1]
    return inner + 0.1 * (block[:-2, 1:-1] + block[2:, 1:-1] + block[1:-1, :-2] + block[1:-1, 2:] - 4 * inner)


step = tp.Map(diffuse, "(y+[dy]-1) (x+[dx]-1) -> y x", sizes={"dy": 3, "dx": 3}, boundary="zero")


def automatic(steps: int):
    return lambda u: jax.lax.fori_loop(0, steps, lambda _, u: diffuse(jnp.pad(u, 1)), u)


def example(y: int = 512, x: int = 256, steps: int = 32, depth: int = 8) -> Example:
    grid = {"row": 4, "column": 2}
    plans = [
        Planned("halo exchange", {"y": "data"}),
        Planned("communication-avoiding stencil", {"y": ("data", tp.halo(depth=depth))}),
        Planned("halo exchange in two dimensions", {"y": "row", "x": "column"}, grid),
    ]

    @tp.program("y x -> y x")
    def simulate(u):
        return tp.iterate(step, steps)(u)

    return Example(simulate, (normal(y, x),), plans, automatic(steps))


if __name__ == "__main__":
    show(example)
