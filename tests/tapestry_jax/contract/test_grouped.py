"""The contract on grouped folds, segmented scans and windows over uneven cut dimensions."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import tapestry_jax as tp
from tests.contract import assert_contract, assert_same
from tests.tapestry_jax.draw import named, normal
from tests.thoroughly import thoroughly

agg = tp.aggregators
ROWS = 21
KEYS = np.random.default_rng(5).integers(0, 3, ROWS).astype(np.int32)
LABELS = np.repeat(np.array([2, 5, 1, 2], np.int32), [3, 9, 1, 8])


def step(x):
    return x, 1 - x


def second(state):
    return state[1]


RECURRENCE = tp.Aggregator(step, tp.monoids.AffineRecurrence, second, name="Recurrence")


def test_contract_grouped_folds(mesh8):
    # Native and framed monoids by key, with their gradients.
    args = (normal(ROWS, 2), KEYS)

    def program(x, keys):
        return {
            "max": tp.fold(agg.Max().by_key(None, 3), "row col, row -> col")(x, keys),
            "logsumexp": tp.fold(agg.LogSumExp().by_key(None, 3), "row col, row -> col")(x, keys),
        }

    def reference(x, keys):
        x, keys = np.asarray(x, np.float64), np.asarray(keys)
        groups = [x[keys == key] for key in range(3)]
        return {
            "max": np.stack([group.max(0) for group in groups], -1),
            "logsumexp": np.stack([np.log(np.exp(group).sum(0)) for group in groups], -1),
        }

    plan = tp.plan(tp.trace(program, *named("row col, row", *args)), mesh8, {"row": "data"})
    assert_contract(plan)
    assert_same(plan, args, reference=reference)


def test_contract_segmented_scan(mesh8):
    args = (normal(ROWS, 2), LABELS)
    running = tp.scan(agg.Sum().by_run(), "t col, t -> t col")
    plan = tp.plan(tp.trace(running, *named("t col, t", *args)), mesh8, {"t": "data"})

    def reference(x, labels):
        begin = np.flatnonzero(np.concatenate([[True], labels[1:] != labels[:-1]]))
        return np.concatenate([np.cumsum(part, 0) for part in np.split(np.asarray(x), begin[1:])])

    assert_contract(plan, grad=False)
    assert_same(plan, args, grad=False, reference=reference)


def test_contract_sliding_window(mesh8):
    args = (normal(ROWS, 2),)
    slide = tp.window(agg.Max(), 5, "t col -> t col")
    plan = tp.plan(tp.trace(slide, *named("t col", *args)), mesh8, {"t": "data"})

    def reference(x):
        return np.stack([np.max(x[max(0, t - 4) : t + 1], 0) for t in range(ROWS)])

    assert_contract(plan, grad=False)
    assert_same(plan, args, grad=False, reference=reference)


def test_contract_ordered_aggregators_by_key_and_in_a_row(mesh8):
    # But for the mean none is native or framed: states are exchanged in order.
    times = jnp.cumsum(jnp.abs(normal(ROWS, seed=1)))
    args = (normal(ROWS, 2), times, normal(11, 2, 2, seed=2, scale=0.7), KEYS)
    pieces = {"sum": agg.CompensatedSum(), "decayed": agg.Decayed(2.0), "product": agg.MatrixProduct("log")}

    def program(x, times, matrices, keys):
        few = {} if not thoroughly() else {"sum": tp.fold(pieces["sum"], "row col -> col")(x)}
        return few | {
            "recurrence": tp.fold(RECURRENCE.by_key(None, 3), "row col, row -> col")(x, keys),
            "masked": tp.fold(agg.Mean().masked(), "row col, row -> col")(x, keys),
            "decayed": tp.fold(pieces["decayed"], "row col, row -> col")(x, times)["mean"],
            "product": tp.Reduce(pieces["product"].lift_many, "step [i] [j] -> ", tp.monoids.LogProduct)(matrices),
        }

    def reference(x, times, matrices, keys):
        states = []
        for key in range(3):
            state = np.zeros(2)
            for row in np.asarray(x, np.float64)[keys == key]:
                state = row * state + 1 - row
            states.append(state)
        few = {} if not thoroughly() else {"sum": pieces["sum"].reference(x)}
        return few | {
            "recurrence": np.stack(states, -1),
            "masked": x[keys != 0].mean(0),
            "decayed": pieces["decayed"].reference(x, times)["mean"],
            "product": pieces["product"].reference(matrices),
        }

    types = named("row col, row, step i j, row", *args)
    plan = tp.plan(tp.trace(program, *types), mesh8, {"row": "data", "step": "data"})
    assert_contract(plan, grad=False)
    assert_same(plan, args, grad=False, reference=reference)
