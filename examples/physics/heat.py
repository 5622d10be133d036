"""The heat equation on a square whose rim is kept at 0, by explicit steps.

    u_t = u_xx + u_yy,    u = sin(pi x) sin(pi y) exp(-2 pi^2 t)

The step is as short as `h^2 / 5`, so that the whole scheme is of second order in the width `h` of a cell. Devices
exchange rims of eight rows at once, every eight steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from equation import Problem, grid, show, single

import tapestry_jax as tp

TIME, SHARE = 0.025, 0.2


def spread(u: Any) -> Any:
    """A step of the five-point Laplacian."""
    return u.here + SHARE * (u[-1, 0] + u[1, 0] + u[0, -1] + u[0, 1] - 4 * u.here)


def problem(size: int) -> Problem:
    """The inner points of a square with `size` cells along each side."""
    steps = round(TIME * size**2 / SHARE)
    step = tp.stencil(spread, {"y": (-1, 1), "x": (-1, 1)}, boundary="zero")

    @tp.program("y x -> y x")
    def heat(u: Any) -> Any:
        return tp.iterate(step, steps)(u)

    y, x = grid(np.arange(1, size) / size)
    mode = np.sin(np.pi * x) * np.sin(np.pi * y)
    exact = mode * np.exp(-2 * np.pi**2 * steps * SHARE / size**2)
    return Problem(heat, single(mode), exact, {"row": 2}, {"y": ("row", tp.halo(depth=min(8, size // 4)))})


if __name__ == "__main__":
    show("heat", problem, (16, 32, 64))
