"""Synchronised batch norm: a fold with the moments monoid, over a mesh axis.

Count, mean and variance of the whole batch come from those of the devices' shares, exactly. On one device the batch
norm is an ordinary one: nothing in the program says that it is to be synchronised.
"""

from __future__ import annotations

import jax
from gallery import Example, Planned, normal, show

import tapestry_jax as tp

moments = tp.fold(tp.aggregators.Moments(), "batch feature -> feature")
rsqrt = tp.Map(jax.lax.rsqrt)


@tp.program("batch feature, feature, feature -> batch feature")
def batch_norm(x, scale, shift):
    found = moments(x)
    return (x - found["mean"]) * rsqrt(found["variance"] + 1e-5) * scale + shift


def automatic(x, scale, shift):
    return (x - x.mean(0)) * jax.lax.rsqrt(x.var(0) + 1e-5) * scale + shift


def example(batch: int = 8192, feature: int = 256) -> Example:
    # A mean far from zero, where the textbook formula E[x^2] - E[x]^2 loses its digits.
    arguments = (normal(batch, feature) + 100, 1 + normal(feature, seed=1, scale=0.1), normal(feature, seed=2))
    plans = [
        Planned("synchronised batch norm", {"batch": "data"}),
        Planned("and features over a second axis", {"batch": "data", "feature": "model"}, {"data": 2, "model": 4}),
    ]
    return Example(batch_norm, arguments, plans, automatic, tolerance=1e-4)


if __name__ == "__main__":
    show(example)
