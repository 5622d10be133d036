"""What differs from turn to turn of a loop: all else is sent at most as often as is predicted."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from tests.pairs.contract import differences, verdict

X = tp.TensorType({"c": 4, "a": 8}, jnp.float32)
ENTRIES = {"a": "data", "c": tp.chunks(2)}
agg = tp.aggregators


def centred(x):
    return x - tp.fold(agg.Mean(), "c a -> c")(x)


def summed(x):
    return tp.fold(agg.Sum(), "c a ->")(x)


def kernel(function, signature="c a, @c -> c a", **options):
    return tp.Map(function, signature, **options)


BLURRED = kernel(lambda x, z: x[1:] + x[:-1] + z, "(c+[dc]) a, c a -> c a", sizes={"dc": 2}, boundary="zero")
SCALED = kernel(lambda z, c: z * (c[:, None] + 1).astype(z.dtype))
MASKED = kernel(lambda z, c: jnp.where(c[:, None] > 1, z, 0))
SHIFTED = kernel(lambda z, c: z + c[:, None].astype(z.dtype))


@pytest.mark.parametrize(
    ("program", "found"),
    [
        (lambda x: summed(BLURRED(x, centred(x))), "bound"),
        (lambda x: summed(SHIFTED(centred(x))), "bound"),
        (lambda x: summed(SCALED(centred(x))), "equal"),
        (lambda x: summed(MASKED(centred(x))), "equal"),
        (lambda x: tp.fold(agg.First(), "c a -> a")(centred(x)), "equal"),
    ],
    ids=["beside a window", "coordinates added", "coordinates multiplied", "coordinates that mask", "the first row"],
)
def test_gradients_that_differ_from_turn_to_turn(mesh8, program, found):
    """Once 36 predicted and 20 compiled: what is beside a window, or has a coordinate added, knows no turn by that."""
    plan = tp.plan(tp.trace(program, X), mesh8, ENTRIES)
    sent = [each for each in plan.collectives(True) if each.backward]
    assert [(each.times, each.bound) for each in sent] == [(2, found == "bound")]
    assert verdict(differences(plan, True)) == found


def test_what_a_kernel_makes_of_coordinates_differs_from_turn_to_turn(mesh8):
    counted = kernel(lambda x, c: jnp.broadcast_to((c[:, None] + 1).astype(x.dtype), x.shape))
    share = tp.Map(lambda x, s: x / s[:, None], "c a, c -> c a")
    plan = tp.plan(tp.trace(lambda x: share(x, tp.fold(agg.Sum(), "c a -> c")(counted(x))), X), mesh8, ENTRIES)
    assert [(each.times, each.bound) for each in plan.collectives()] == [(2, False)]
    assert verdict(differences(plan, False)) == "equal"
