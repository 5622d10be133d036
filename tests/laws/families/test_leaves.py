"""Maps, folds and scans have their laws, and every law refuses a planted mutant.

Thorough: more lawful leaves, whose kinds are among the others.
"""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import laws
from combinators import (
    Dense,
    Map,
    Monoid,
    Reduce,
    Scan,
    TensorType,
    aggregators,
    attention,
    einsum,
    fold,
    monoids,
    program,
    rearrange,
    trace,
)
from combinators.leaves import random as draws
from tests.laws.unseen import unseen


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def valid_conv(image, kernel):
    return lax.conv_general_dilated(image, kernel, (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def three(x):
    return x[:-2] + 2 * x[1:-1] + 3 * x[2:]


def small_in_both(x):
    """Right where one dimension is cut, wrong where both are."""
    return x + 1 if max(x.shape) < 4 else x


def decayed(state):
    return state[1]


def weighted(x):
    return x, jnp.ones_like(x)


def add_rows(x):
    return jnp.sum(x, axis=0)


def scaled_rows(x):
    top = jnp.max(x, axis=0)
    return top, jnp.sum(jnp.exp(x - top), axis=0)


def unscaled_rows(x):
    return jnp.zeros_like(x[0]), jnp.sum(jnp.exp(x), axis=0)


def causal(q, k, v):
    return attention(q, k, v, causal=True)


def dropped(x, key):
    return x * Map(lambda keep: keep.astype(jnp.float32))(draws.bernoulli(key, 0.5, like=x))


HEADS = [
    TensorType({"b": 2, "q": 3, "h": 1, "d": 2}),
    TensorType({"b": 2, "keys": 4, "h": 1, "d": 2}),
    TensorType({"b": 2, "keys": 4, "h": 1, "d": 3}),
]
LAWFUL = {
    "elementwise": (Map(jax.nn.gelu), [f32(4, 3)]),
    "softmax": (Map(jax.nn.softmax, "... [c] -> ... [c]"), [f32(4, 3)]),
    "matmul": (Reduce(jnp.matmul, "i k, k n -> i n", monoids.Sum, pad=(0, 0)), [f32(4, 5), f32(5, 3)]),
    "strided conv": (
        Reduce(valid_conv, "b (2*y+[dy]) (2*x+[dx]) c, [dy] [dx] c o -> b y x o", monoids.Sum),
        [f32(2, 7, 5, 2), f32(3, 3, 2, 2)],
    ),
    "einsum": (einsum("s k, k h d -> s h d"), [f32(3, 4), f32(4, 2, 3)]),
    "join heads": (rearrange("b s h d -> s b (h d)"), [f32(2, 3, 2, 2)]),
    "window": (Map(three, "(y+[dy]-1) -> y", boundary="periodic", sizes={"dy": 3}), [f32(7)]),
    "two dense kernels and a state": (
        Reduce(
            scaled_rows,
            "k n -> n",
            monoids.LogSumExp,
            present=monoids.logsumexp_value,
            dense=[
                Dense(jnp.sum, platforms=("rocm",)),
                Dense(unscaled_rows, dtypes=(jnp.float32,), gives="state"),
                Dense(lambda x: jax.nn.logsumexp(x, axis=0), whole=("n",)),
            ],
            name="rows",
        ),
        [f32(4, 3)],
    ),
    # Of the second order: kurtosis is a difference that loses digits of its own, which laws of aggregators allow for.
    "moments": (fold(aggregators.Moments(2), "row col -> col"), [f32(6, 3)]),
    "causal attention": (program(causal), HEADS),
    "dropout": (program(dropped), [TensorType({"a": 3, "b": 4}), jax.ShapeDtypeStruct((2,), jnp.uint32)]),
    "cumsum": (Scan(monoids.Sum, "... t -> ... t", over="t"), [f32(2, 5)]),
    "recurrence": (
        Scan(monoids.AffineRecurrence, "t d, t d -> t d", over="t", present=decayed),
        [f32(5, 2), f32(5, 2)],
    ),
    "exclusive from the end": (
        Scan(
            monoids.LogSumExp,
            "t -> t",
            over="t",
            kernel=weighted,
            present=monoids.logsumexp_value,
            reverse=True,
            exclusive=True,
        ),
        [f32(6)],
    ),
}
DIFFERENCE = Monoid(0.0, lambda a, b: a - b, name="Difference")

MUTANTS = {
    "map.split": [
        Map(unseen(lambda x: x - jnp.sum(x)), "n -> n", name="mixing"),
        Map(unseen(lambda x, at: x * at[::-1]), "n, @n -> n", name="wrong coordinates"),
    ],
    "map.footprint": [
        Map(unseen(lambda x: x + jnp.roll(x, 1)), "n -> n", name="neighbour"),
        # Right would be x[:-1] + x[1:]: each cell reads one to the right of its window.
        Map(lambda x: jnp.roll(x, -1)[:-1] + jnp.roll(x, -1)[1:], "(y+[dy]) -> y", sizes={"dy": 2}, name="off by one"),
        Map(lambda x: x[::2] + jnp.roll(x, -2)[::2], "(2*y) -> y", name="wider than its stride"),
    ],
    "map.blocks": [Map(small_in_both, "n m -> n m", name="small in both")],
    "map.edges": [
        # The first coordinate is no offset: before the first cell of a deep halo it is repeated.
        Map(unseen(lambda x, at: x * (at[0] + jnp.arange(len(at)))), "n, @n -> n", name="an offset"),
        Map(
            unseen(lambda x, at: x * (at[-1] - jnp.arange(len(at))[::-1])), "n, @n -> n", name="an offset from the end"
        ),
        Map(
            lambda x, at: (x[:-2] + x[1:-1] + x[2:]) * (at[0] + jnp.arange(len(at))),
            "(y+[dy]-1), @y -> y",
            boundary="zero",
            sizes={"dy": 3},
            name="an offset of windows",
        ),
        Reduce(
            unseen(lambda x, at: jnp.sum(x, axis=0) * (at[0] + jnp.arange(len(at)))),
            "k n, @n -> n",
            monoids.Sum,
            name="a sum",
        ),
    ],
    "map.marginal": [
        Map(
            unseen(lambda x: jnp.mean(x[:, None] - x[None, :] * 0, 1, where=x[:, None] == x[:, None])),
            "n -> n",
            name="all pairs",
        ),
    ],
    "map.dense": [
        Map(jnp.sin, "n -> n", dense=lambda x: x - x**3 / 6, name="series"),
        # Right where rows are whole, as a bare function may be, and wrong on their pieces.
        Map(lambda x: x * 1, "r c -> r c", dense=Dense(lambda x: x + (len(x) < 4), whole=("c",)), name="whole rows"),
        Reduce(add_rows, "k n -> n", monoids.Sum, dense=Dense(lambda x: jnp.mean(x, axis=0)), name="mean"),
        Reduce(
            scaled_rows,
            "k n -> n",
            monoids.LogSumExp,
            present=monoids.logsumexp_value,
            dense=Dense(lambda x: (x[0] * 0, jnp.exp(x).sum(0) * (1 + (len(x) < 4))), gives="state"),
            name="a wrong state of pieces",
        ),
    ],
    "reduce.fold": [
        Reduce(lambda x: jnp.mean(x, 0, where=x == x), "k n -> n", monoids.Sum, name="mean for a sum"),
        Reduce(lambda x: x[0] - jnp.sum(x[1:], axis=0), "k n -> n", DIFFERENCE, name="not associative"),
    ],
    "reduce.empty": [
        Reduce(lambda x: jnp.max(x, axis=0), "k n -> n", Monoid(0.0, jnp.maximum, name="Max from 0"), name="maximum"),
    ],
    "reduce.permutation": [
        Reduce(lambda x: x[-1], "k n -> n", Monoid(0.0, lambda a, b: b, commutative=True, name="Last"), name="last"),
    ],
    "reduce.pad": [
        Reduce(lambda x: jnp.max(x, axis=0), "k n -> n", monoids.Max, pad=(0,), name="zero for a maximum"),
        # Of padding the coordinate is the last one's again.
        Reduce(lambda x, at: x.sum(0) + (at[-1] == at[-2]), "k n, @k -> n", monoids.Sum, pad=(0,), name="repeated"),
    ],
    "scan.prefix": [Scan(DIFFERENCE, "t -> t", over="t", name="not associative")],
    "scan.last": [Scan(DIFFERENCE, "t -> t", over="t", name="not associative")],
    "scan.exclusive": [Scan(Monoid(1.0, jnp.add, name="Sum from 1"), "t -> t", over="t", name="one too many")],
    "scan.segments": [Scan(DIFFERENCE, "t -> t", over="t", name="not associative")],
    "scan.continuation": [Scan(monoids.Sum, "t -> t", over="t", kernel=jnp.cumsum, name="scanned twice")],
}


# States of several arrays are those of Moments and AttentionState, whose laws the tests of monoids and aggregators ask.
STATES = ("causal attention", "moments")
# Scans and products of several are among the others; that random numbers are those of their cells is asked of dropout
# in shipped_pieces/test_footprint.py.
# Softmax is asked below, at types of its own.
ALIKE = ("einsum", "exclusive from the end", "dropout", "cumsum", "softmax")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.thorough) if name in (*STATES, *ALIKE) else name for name in LAWFUL]
)
def test_leaves_are_lawful(name):
    arrow, types = LAWFUL[name]
    report = laws.assert_lawful(arrow, types, laws=["map", "reduce", "scan"], examples=4, name=name)
    operation = trace(arrow, *types)
    expected = {"map.split", "map.footprint"} if name != "window" else {"map.split"}
    assert expected <= set(report.held), f"{report}\n{operation}"


def test_what_does_not_apply_is_reported():
    report = laws.assert_lawful(LAWFUL["matmul"][0], LAWFUL["matmul"][1], examples=3)
    maps = {"map.split", "map.footprint", "map.blocks", "map.marginal"}
    assert set(report.held) == maps | {"reduce.fold", "reduce.empty", "reduce.permutation", "reduce.pad"}
    assert report.not_checked == {
        "map.edges": "`matmul` is told no coordinates of a map dimension of two cells or more",
        "map.dense": "`matmul` has no dense kernel",
    }


def test_leaf_is_checked_at_types_that_fit_its_signature():
    window = Map(lambda x: x[0:-2:2] + x[2::2], "(2*y+[dy]) c -> y c", sizes={"dy": 3}, name="window")
    assert {"map.split", "map.footprint", "map.blocks"} <= set(laws.assert_lawful(window, examples=3).held)
    assert "map.split" in laws.assert_lawful(LAWFUL["softmax"][0], examples=3).held


@pytest.mark.parametrize(("law", "arrow"), [(law, arrow) for law, arrows in MUTANTS.items() for arrow in arrows])
def test_law_rejects_its_mutant(law, arrow):
    with pytest.raises(laws.LawError, match=f"LAW {law} FAILED"):
        laws.assert_lawful(arrow, laws=law, shrink=False)


def test_every_law_of_leaves_has_a_mutant():
    families = {"map", "reduce", "scan"}
    assert set(MUTANTS) == {law.name for law in laws.catalogue if law.family in families}


def test_order_of_folds_is_kept_without_commutativity():
    """Cutting an inner fold dimension would reorder what the outer one visits."""

    def recurrence(a, b):
        steps = (a.reshape(-1), b.reshape(-1))
        return monoids.AffineRecurrence.fold_stacked(steps)

    arrow = Reduce(recurrence, "o i, o i -> ", monoids.AffineRecurrence, carrier=",", present=decayed)
    report = laws.assert_lawful(arrow, [f32(3, 2), f32(3, 2)], laws="reduce.fold", examples=5)
    assert report.held == ("reduce.fold",)


def test_types_are_asked_for_where_nothing_tells_them():
    with pytest.raises(laws.LawError, match=r"which operands `lambda` takes"):
        laws.assert_lawful(program(lambda x: Map(jnp.sin)(x)))


def test_given_operands_are_used():
    indices = Map(lambda table, row: table[row], "[v] e, b -> b e", name="lookup")
    table, rows = jnp.arange(12.0).reshape(6, 2), jnp.array([5, 0, 4], jnp.int32)
    report = laws.assert_lawful(indices, [table, rows], values=[(table, rows)])
    assert {"map.split", "map.footprint"} <= set(report.held)


SMALL = r"operands = \[\[[01, ]+\], \[[01, ]+\], \[[01, ]+\]\]"


@pytest.mark.parametrize(("rows", "shown"), [(3, SMALL), (40, r"seed=\d+\)")])
def test_counterexample_is_written_out_and_made_simple_where_it_is_small(rows, shown):
    centred = Map(Dense(unseen(lambda x: x - jnp.sum(x, axis=0))), "row col -> row col")
    kinds = [TensorType({"row": rows, "col": 2}, jnp.float32)]
    failed = laws.examine(centred, kinds, laws="map.split").failed["map.split"]
    line = next(line for line in str(failed).splitlines() if "# minimal" in line)
    assert re.search(shown, line), line
    assert rows == 40 or line.count("1") == 1
    with pytest.raises(laws.LawError, match=r"map\.split FAILED"):
        laws.replay(failed.token, centred, kinds)


def test_a_reversed_axis_says_what_is_read_and_turns_nothing_round():
    as_it_came = Map(unseen(lambda x: x), "(7-t) -> t", sizes={"t": 8}, name="as_it_came")
    turned = Map(lambda x: x[::-1], "(7-t) -> t", sizes={"t": 8})
    assert turned(jnp.arange(8.0)).tolist() == [7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0]
    assert re.search(r"map\.split +FAILED", str(laws.examine(as_it_came, examples=3)))
