"""Two substances that react and spread, after Gray and Scott, with a solution that was chosen first.

    u_t = a (u_xx + u_yy) - u v^2 + f (1 - u)
    v_t = b (v_xx + v_yy) + u v^2 - (f + k) v

The equations have no solution in closed form. So one is chosen, `u = 1 + c(x, y) exp(-t) / 2` and
`v = (1 + s(x, y) exp(-t)) / 2`, and what it lacks is added to the right side. `pattern` runs the equations themselves:
the spots that they are known for.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from equation import Problem, grid, show, single

import tapestry_jax as tp

SPREAD_U, SPREAD_V, FEED, KILL, TIME, SHARE = 0.16, 0.08, 0.06, 0.062, 0.2, 0.2
REACH = {"y": (-1, 1), "x": (-1, 1)}


def bend(u: Any) -> Any:
    """The Laplacian, times the square of the width."""
    return u[-1, 0] + u[1, 0] + u[0, -1] + u[0, 1] - 4 * u.here


def rates(u: Any, v: Any) -> tuple[Any, Any]:
    """What the reaction makes of both."""
    used = u * v * v
    return FEED * (1 - u) - used, used - (FEED + KILL) * v


def pattern(steps: int) -> Any:
    """The equations themselves on a grid of width 1, with steps of 1."""

    def react(u: Any, v: Any) -> Any:
        made, left = rates(u.here, v.here)
        return u.here + SPREAD_U * bend(u) + made, v.here + SPREAD_V * bend(v) + left

    step = tp.stencil(react, REACH)

    @tp.program("y x, y x -> y x, y x")
    def run(u: Any, v: Any) -> Any:
        return tp.iterate(step, steps)(u, v)

    return run


def problem(size: int) -> Problem:
    """A periodic square with `size` cells along each side, with sources."""
    width = 1 / size
    time = SHARE * width**2 / SPREAD_U
    steps = round(TIME / time)
    wave = -8 * np.pi**2  # the Laplacian of both modes

    def react(u: Any, v: Any, c: Any, s: Any, clock: Any) -> Any:
        fade = jnp.exp(-clock)
        chosen_u, chosen_v = 1 + c.here * fade / 2, (1 + s.here * fade) / 2
        made, left = rates(u.here, v.here)
        wanted, gone = rates(chosen_u, chosen_v)
        source_u = -c.here * fade / 2 - SPREAD_U * wave * c.here * fade / 2 - wanted
        source_v = -s.here * fade / 2 - SPREAD_V * wave * s.here * fade / 2 - gone
        return (
            u.here + time * (SPREAD_U * bend(u) / width**2 + made + source_u),
            v.here + time * (SPREAD_V * bend(v) / width**2 + left + source_v),
        )

    stencil = tp.stencil(react, REACH)

    @tp.program("y x, y x, , y x, y x -> y x, y x, ")
    def run(u: Any, v: Any, clock: Any, c: Any, s: Any) -> Any:
        def step(u: Any, v: Any, clock: Any, c: Any, s: Any) -> Any:
            return (*stencil(u, v, c, s, clock), clock + time)

        return tp.iterate(step, steps)(u, v, clock, c, s)

    y, x = grid(np.arange(size) * width)
    c, s = np.cos(2 * np.pi * x) * np.cos(2 * np.pi * y), np.sin(2 * np.pi * x) * np.sin(2 * np.pi * y)
    arguments = single(1 + c / 2, (1 + s) / 2, 0.0, c, s)
    exact = 1 + c * np.exp(-steps * time) / 2
    entries = {"y": ("row", tp.halo(depth=4))}
    return Problem(run, arguments, exact, {"row": 2}, entries)


if __name__ == "__main__":
    show("Gray-Scott", problem, (16, 32, 64))
