"""The shallow water equations: depth and momentum, by central differences and three stages of Runge and Kutta.

    h_t + (hu)_x + (hv)_y = 0
    (hu)_t + (h u^2 + g h^2 / 2)_x + (h u v)_y = 0,   and the same for hv

The exact solution is a simple wave along `y`: `v = 2 (sqrt(g h) - sqrt(g))`, and what is at a point travels along with
the speed `v + sqrt(g h)`. It holds until the wave breaks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from equation import Problem, show, single

import tapestry_jax as tp

GRAVITY, TIME, COURANT, HEIGHT = 1.0, 0.25, 0.4, 0.1
STAGES = ((0.0, 1.0), (0.75, 0.25), (1 / 3, 2 / 3))


def flux(h: Any, along: Any, across: Any) -> tuple[Any, Any, Any]:
    """What flows along a direction: of depth, of the momentum along it, and of the one across."""
    return along, along * along / h + GRAVITY * h * h / 2, along * across / h


def tendency(h: Any, p: Any, q: Any, width: float) -> tuple[Any, Any, Any]:
    """The rates of depth and of the momenta along `x` and `y`."""
    # Of what is at the neighbours before and behind: depth, momentum along, momentum across.
    east, west = (flux(h.at(x=o), p.at(x=o), q.at(x=o)) for o in (1, -1))
    north, south = (flux(h.at(y=o), q.at(y=o), p.at(y=o)) for o in (1, -1))
    rates = [(a - b) / (2 * width) for a, b in zip(east, west, strict=True)]
    other = [(a - b) / (2 * width) for a, b in zip(north, south, strict=True)]
    return -rates[0] - other[0], -rates[1] - other[2], -rates[2] - other[1]


def stage(share: float, weight: float, width: float) -> Any:
    """A stage: `share` of the state at the beginning, `weight` of an Euler step from the state now."""
    time = COURANT * width

    def cell(h: Any, p: Any, q: Any, h0: Any, p0: Any, q0: Any) -> Any:
        pairs = zip((h, p, q), tendency(h, p, q, width), (h0, p0, q0), strict=True)
        return tuple(share * first.here + weight * (now.here + time * rate) for now, rate, first in pairs)

    return tp.stencil(cell, {"y": (-1, 1), "x": (-1, 1)}, name="stage")


def simple_wave(y: Any, time: float) -> tuple[Any, Any]:
    """Depth and speed: where what is at `y` came from is found by bisection."""

    def began(origin: Any) -> tuple[Any, Any]:
        depth = 1 + HEIGHT * np.sin(2 * np.pi * origin)
        return depth, 3 * np.sqrt(GRAVITY * depth) - 2 * np.sqrt(GRAVITY)

    low, high = y - 2 * time - 1, y + 1
    for _ in range(60):
        middle = (low + high) / 2
        is_short = middle + began(middle)[1] * time < y
        low, high = np.where(is_short, middle, low), np.where(is_short, high, middle)
    depth = began(low)[0]
    return depth, 2 * (np.sqrt(GRAVITY * depth) - np.sqrt(GRAVITY))


def problem(size: int) -> Problem:
    """A periodic square with `size` cells along `y` and 4 along `x`."""
    width = 1 / size
    steps = round(TIME / (COURANT * width))
    stages = [stage(*numbers, width) for numbers in STAGES]

    def step(h: Any, p: Any, q: Any) -> Any:
        now = h, p, q
        for each in stages:
            now = each(*now, h, p, q)
        return now

    @tp.program("y x, y x, y x -> y x, y x, y x")
    def flow(h: Any, p: Any, q: Any) -> Any:
        return tp.iterate(step, steps)(h, p, q)

    def at(time: float) -> tuple[Any, Any, Any]:
        depth, speed = (np.repeat(each[:, None], 4, 1) for each in simple_wave(np.arange(size) * width, time))
        return depth, 0 * depth, depth * speed

    entries = {"y": ("row", tp.halo(depth=2))}
    return Problem(flow, single(*at(0)), at(steps * COURANT * width)[0], {"row": 2}, entries)


if __name__ == "__main__":
    show("shallow water", problem, (32, 64, 128))
