"""Parallel scan: the recurrence of a state-space model, with `time` over a mesh axis.

`h[t] = decay[t] h[t - 1] + drive[t]` is a scan with the monoid of affine maps. Each device scans its own steps; what
the devices before it come to arrives in a logarithmic number of exchanges of a few bytes.
"""

from __future__ import annotations

import jax
from gallery import Example, Planned, normal, show

import tapestry_jax as tp


def hidden(state):
    """What `h = a h + b` has come to, from 0."""
    return state[1]


@tp.program("time feature, time feature -> time feature")
def recurrence(decay, drive):
    scan = tp.Scan(tp.monoids.AffineRecurrence, "t d, t d -> t d", over="t", present=hidden)
    return scan(tp.Map(jax.nn.sigmoid)(decay), drive)


def compose(first, then):
    return then[0] * first[0], then[0] * first[1] + then[1]


def automatic(decay, drive):
    return jax.lax.associative_scan(compose, (jax.nn.sigmoid(decay), drive))[1]


def example(time: int = 1 << 14, feature: int = 8) -> Example:
    plans = [
        Planned("parallel scan", {"time": "data"}),
        Planned("parallel scan of many features", {"time": "time", "feature": "model"}, {"time": 4, "model": 2}),
    ]
    return Example(recurrence, (normal(time, feature), normal(time, feature, seed=1)), plans, automatic)


if __name__ == "__main__":
    show(example)
