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


def whole(v):
    return tp.Map(lambda v: v * 2.0, "[a] b -> [a] b")(v)


ONES = tp.Map(jnp.ones_like, "a b -> a b")


@pytest.mark.parametrize(
    ("program", "cells"),
    [
        (lambda x: tp.fold(agg.Mean(), "a b -> b")(x), 0),
        (lambda x: tp.Map(jnp.tanh)(tp.fold(agg.Sum(), "a b -> b")(x)), 0),
        (lambda x: whole(ONES(x)), 4),
        (lambda x: tp.iterate(lambda c, w: c * w, 0)(ONES(x), x), 4),
        (lambda x: tp.iterate(lambda c, w: (tp.Map(jnp.tanh)(c), w * 2.0), 3)(ONES(x), x)[0], 4),
    ],
    ids=["folded over nothing", "made of that", "made of no value", "handed through", "carried beside what differs"],
)
def test_what_no_input_decides_is_a_bound(program, cells):
    """Once 32 and 396 predicted and 0 compiled: XLA knows what it is, and sends some of it and some not."""
    x = tp.TensorType({"a": cells, "b": 7}, jnp.float32)
    plan = tp.plan(tp.trace(program, x), tp.mesh(m=3), {"b": "m"})
    sent = [each.bound for each in plan.collectives(True) if each.kind == "all-gather"]
    assert sent and all(sent)
    assert verdict(differences(plan, True)) in ("equal", "bound")


def test_what_differs_between_devices_is_sent_though_no_input_decides_it(mesh8):
    """Coordinates along a cut dimension, and how many rows each device has: XLA knows neither."""
    x = tp.TensorType({"a": 3, "b": 12}, jnp.float32)
    plan = tp.plan(tp.trace(lambda x: tp.index("b", like=x), x), mesh8, {"b": "data"})
    counted = tp.plan(tp.trace(lambda x: tp.fold(agg.Mean(), "a b -> a")(ONES(x)), x), mesh8, {"b": "data"})
    for each in (plan, counted):
        assert [found.bound for found in each.collectives()] in ([False], [False, False])
        assert verdict(differences(each, False)) == "equal"


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_of_one_step_without_it_has_no_gradient(reverse):
    """Once 56 predicted and 40 compiled: what comes before the one step is the identity."""
    recurrence = tp.Scan(tp.monoids.AffineRecurrence, "a b, a b -> a b, a b", over="a", exclusive=True, reverse=reverse)
    x = tp.TensorType({"a": 1, "b": 7}, jnp.float32)
    plan = tp.plan(tp.trace(lambda x: recurrence(tp.Map(jnp.cos)(x), x), x), tp.mesh(m=2), {"b": "m"})
    assert not [each for each in plan.collectives(True) if each.backward]
    assert verdict(differences(plan, True)) in ("equal", "bound")


def test_gradients_that_a_loop_inside_adds_up_are_the_same_in_every_turn_around(mesh2x4):
    """Once 64 predicted and 16 compiled: the chunks inside are padded, so that they differ, but alike in all turns."""
    x = tp.TensorType({"c": 4, "b": 3}, jnp.float32)
    spread = tp.Map(lambda x, y: x * y[:, None], "c b, c -> c b")
    plan = tp.plan(
        tp.trace(lambda x, y: tp.fold(agg.Sum(), "c b ->")(spread(x, y)), x, tp.TensorType({"c": 4}, jnp.float32)),
        mesh2x4,
        {"c": tp.chunks(size=1), "b": tp.chunks(size=2)},
        ops={"Sum": {"b": ("data", tp.chunks(2))}},
    )
    assert [each.bound for each in plan.collectives(True) if each.backward] == [True]
    assert verdict(differences(plan, True)) == "bound"


def test_totals_of_labels_are_the_same_in_every_turn_around(mesh8):
    """Once 156 predicted and 126 compiled: of a scan by runs the labels differ in no chunk of the columns."""
    x, labels = tp.TensorType({"b": 7, "c": 6}, jnp.float32), tp.TensorType({"b": 7}, jnp.int32)
    scan = tp.scan(agg.Sum().by_run(), "b c, b -> b c", over="b")
    plan = tp.plan(tp.trace(scan, x, labels), tp.mesh(m=3), {"c": tp.chunks(size=3), "b": ("m", tp.chunks(2))})
    sent = [each.bound for each in plan.collectives() if each.kind == "collective-permute"]
    assert True in sent and False in sent
    assert verdict(differences(plan, True)) in ("equal", "bound")


def test_what_is_changed_before_a_loop_is_the_same_in_every_chunk_around(mesh2x4):
    """Once 160 predicted and 96 compiled: the loop knows its chunk by what it carries, not by what it captures."""
    x = tp.TensorType({"a": 4, "b": 8}, jnp.float32)
    graph = tp.trace(lambda s, u: tp.iterate(lambda c, u: tp.Map(jnp.tanh)(c) + whole(u), 3)(s, u), x, x)
    plan = tp.plan(graph, mesh2x4, {"b": "model", "a": tp.chunks(2)}, inputs={"u": {"a": "model"}})
    assert [each.bound for each in plan.collectives() if each.kind == "all-to-all"] == [True]
    assert verdict(differences(plan, False)) == "bound"


def test_the_place_of_what_is_found_among_one_cell_is_the_same_in_every_turn():
    """Once 384 predicted and 240 compiled: each device has one cell to choose from."""
    graph = tp.trace(tp.fold(agg.TopK(2), "a c, @c -> a"), tp.TensorType({"a": 7, "c": 3}, jnp.float32))
    plan = tp.plan(graph, tp.mesh(m=3), {"a": tp.chunks(4), "c": "m"})
    assert sorted(each.bound for each in plan.collectives()) == [False, True]
    assert verdict(differences(plan, False)) == "bound"
