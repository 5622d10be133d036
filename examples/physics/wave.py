"""The wave equation on a square whose rim moves freely, by leapfrog steps.

    u_tt = u_xx + u_yy,    u = cos(pi x) cos(2 pi y) cos(sqrt(5) pi t)

Points lie on the rim, which mirrors what is inside (`reflect`). Both states are carried; neighbours are read of one
alone, so that the other is exchanged only where a halo serves several steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from equation import Problem, grid, show, single

import tapestry_jax as tp

TIME, COURANT = 0.4, 0.5


def leap(u: Any, before: Any) -> Any:
    """The next state, and the one that is now."""
    bend = u[-1, 0] + u[1, 0] + u[0, -1] + u[0, 1] - 4 * u.here
    return 2 * u.here - before.here + COURANT**2 * bend, u.here


def problem(size: int) -> Problem:
    """A square with `size` cells along each side."""
    steps = round(TIME * size / COURANT)
    step = tp.stencil(leap, {"y": (-1, 1), "x": (-1, 1)}, boundary="reflect")

    @tp.program("y x, y x -> y x, y x")
    def wave(u: Any, before: Any) -> Any:
        return tp.iterate(step, steps)(u, before)

    y, x = grid(np.arange(size + 1) / size)
    mode, width = np.cos(np.pi * x) * np.cos(2 * np.pi * y), COURANT / size

    def at(time: float) -> Any:
        return mode * np.cos(np.sqrt(5) * np.pi * time)

    entries = {"y": ("row", tp.halo(depth=2)), "x": ("column", tp.halo(depth=2))}
    return Problem(wave, single(at(0), at(-width)), at(steps * width), {"row": 2, "column": 2}, entries)


if __name__ == "__main__":
    show("wave", problem, (16, 32, 64))
