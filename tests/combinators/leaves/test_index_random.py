"""Coordinates and random numbers: pure functions of key and place."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax.extend.random import threefry_2x32

import combinators as tp
from combinators import GraphError, TensorType
from combinators.leaves.random import Draw

KEY = jax.random.key_data(jax.random.key(7))
SHAPE = (5, 6, 7)
DISTRIBUTIONS = ["bits", "uniform", "normal", "bernoulli"]


def coordinates(box: tuple[slice, ...]) -> list[jax.Array]:
    return [jnp.arange(size, dtype=jnp.int32)[part] for size, part in zip(SHAPE, box, strict=True)]


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_worked_case_9_any_box_has_the_same_bits(distribution: str) -> None:
    draw = jax.jit(Draw(SHAPE, distribution))
    whole = np.asarray(draw(KEY, *coordinates((slice(None),) * 3)))
    for box in ((slice(0, 2), slice(0, 6, 2), slice(1, 7)), (slice(4, 5), slice(5, 6), slice(3, 3))):
        np.testing.assert_array_equal(draw(KEY, *coordinates(box)), whole[box])


def test_worked_case_9_an_index_box_of_large_values_is_the_same_under_any_cut() -> None:
    values = np.asarray(tp.random.uniform(KEY, like=jnp.zeros((8, 8))))
    whole = np.argwhere(values >= 0.5)
    at = jnp.arange(8, dtype=jnp.int32)
    pieces: list[Any] = []
    for rows in (slice(0, 3), slice(3, 8)):
        block = np.asarray(jax.jit(Draw((8, 8), "uniform"))(KEY, at[rows], at))
        pieces.append(np.argwhere(block >= 0.5) + [rows.start, 0])
    merged = np.concatenate(pieces)
    np.testing.assert_array_equal(merged, whole)
    assert (merged.min(0).tolist(), merged.max(0).tolist()) == (whole.min(0).tolist(), whole.max(0).tolist())


def test_bits_are_threefry_of_the_linear_index() -> None:
    bits = tp.random.bits(KEY, like=jnp.zeros(SHAPE))
    count = int(np.prod(SHAPE))
    counter = jnp.concatenate([jnp.zeros(count, jnp.uint32), jnp.arange(count, dtype=jnp.uint32)])
    np.testing.assert_array_equal(np.ravel(bits), threefry_2x32(KEY, counter)[:count])
    assert len(np.unique(bits)) == count


@pytest.mark.parametrize("shape", [(210,), (30, 7), (1, 5, 42, 1)])
def test_numbers_depend_on_the_linear_index_alone(shape: tuple[int, ...]) -> None:
    flat = np.ravel(tp.random.normal(KEY, like=jnp.zeros(SHAPE)))
    np.testing.assert_array_equal(np.ravel(tp.random.normal(KEY, like=jnp.zeros(shape))), flat)


def test_cells_past_32_bits_have_counters_of_their_own() -> None:
    draw = Draw((2**20, 2**20), "bits")
    at = [jnp.array([0, 4096, 2**20 - 1], jnp.int32), jnp.array([0, 2**20 - 1], jnp.int32)]
    bits = np.asarray(draw(KEY, *at))
    assert len(np.unique(bits)) == bits.size
    # 4096 rows of 2**20 cells are 2**32 cells: the low word alone would repeat.
    assert bits[0, 0] != bits[1, 0]


def test_strides_at_the_edge_of_32_bits_keep_cells_apart() -> None:
    zero, both = jnp.array([0], jnp.int32), jnp.array([0, 1], jnp.int32)
    assert len(np.unique(Draw((2, 2, 2**30), "bits")(KEY, both, both, zero))) == 4
    last = jnp.array([2**16 - 1], jnp.int32)
    with_one = Draw((1, 2**16, 2**16), "bits")(KEY, zero, last, last)
    np.testing.assert_array_equal(with_one[0], Draw((2**16, 2**16), "bits")(KEY, last, last))


def test_named_tensors_and_arrays_draw_the_same() -> None:
    x = jnp.zeros((4, 3))
    program = tp.program("b e, w -> b e")(lambda x, key: tp.random.uniform(key, like=x))
    np.testing.assert_array_equal(program(x, KEY), tp.random.uniform(KEY, like=x))
    np.testing.assert_array_equal(tp.random.uniform(KEY, like=x), tp.random.uniform(jax.random.key(7), like=x))


@pytest.mark.parametrize(
    ("draw", "got"),
    [
        (lambda: tp.random.normal(KEY, (3, 4)), "got (3, 4)"),
        (lambda: tp.random.uniform(KEY, 3), "got 3"),
        (lambda: tp.random.bits(KEY), "got no `like`"),
        (lambda: tp.random.bernoulli(KEY, 0.5, (3,), like=jnp.zeros(3)), "got (3,)"),
    ],
)
def test_a_shape_is_told_what_to_pass_instead(draw: Any, got: str) -> None:
    with pytest.raises(tp.GraphError) as caught:
        draw()
    head, shown, remedy = str(caught.value).splitlines()
    assert head.endswith("draws numbers like something, and takes no shape")
    assert shown.strip() == got
    assert remedy.endswith('(key, like=tp.TensorType({"row": 3, "embed": 4})).')


def test_the_module_lists_what_it_is_for() -> None:
    assert [name for name in dir(tp.random) if not name.startswith("__")] == sorted(tp.random.__all__)
    assert {"__doc__", "__name__", "__all__"} <= {*dir(tp.random)}


LARGE = jnp.zeros((200, 500))


def test_uniform_numbers_are_uniform() -> None:
    values = np.ravel(tp.random.uniform(KEY, like=LARGE))
    assert values.min() >= 0 and values.max() < 1
    assert scipy.stats.kstest(values, "uniform").pvalue > 1e-3
    assert values.mean() == pytest.approx(0.5, abs=5 * (1 / 12) ** 0.5 / values.size**0.5)


def test_normal_numbers_are_normal() -> None:
    values = np.ravel(tp.random.normal(KEY, like=LARGE))
    assert np.isfinite(values).all()
    assert scipy.stats.kstest(values, "norm").pvalue > 1e-3
    assert values.mean() == pytest.approx(0, abs=5 / values.size**0.5)
    assert values.var() == pytest.approx(1, abs=5 * (2 / values.size) ** 0.5)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.9, 1.0])
def test_bernoulli_has_its_probability(p: float) -> None:
    values = np.asarray(tp.random.bernoulli(KEY, p, like=LARGE))
    assert values.dtype == bool
    assert values.mean() == pytest.approx(p, abs=5 * (p * (1 - p)) ** 0.5 / values.size**0.5)


def test_two_keys_are_independent() -> None:
    one, two = (np.ravel(tp.random.normal(jax.random.key(seed), like=LARGE)) for seed in (0, 1))
    assert abs(np.corrcoef(one, two)[0, 1]) < 5 / one.size**0.5


def test_neighbours_are_independent() -> None:
    values = np.asarray(tp.random.normal(KEY, like=LARGE))
    for left, right in ((values[1:], values[:-1]), (values[:, 1:], values[:, :-1])):
        assert abs(np.corrcoef(left.ravel(), right.ravel())[0, 1]) < 5 / left.size**0.5


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_short_dtypes_stay_below_one(dtype: Any) -> None:
    values = tp.random.uniform(KEY, like=LARGE, dtype=dtype)
    assert values.dtype == dtype
    assert float(values.max()) < 1
    assert float(values.astype(jnp.float32).mean()) == pytest.approx(0.5, abs=0.01)


def test_index_is_arange() -> None:
    graph = tp.trace(lambda x: tp.index("seq", like=x), TensorType({"batch": 2, "seq": 5}))
    assert graph.type_of(graph.outputs[0][1]) == TensorType({"seq": 5}, jnp.int32)
    np.testing.assert_array_equal(graph(np.zeros((2, 5), np.float32)), np.arange(5))
    np.testing.assert_array_equal(tp.index("1", like=jnp.zeros((2, 5))), np.arange(5))


def test_index_takes_the_names_of_a_signature() -> None:
    causal = tp.program("q k -> q k")(lambda x: x * tp.Map(jnp.float32)(tp.index("q", like=x) >= tp.index("k", like=x)))
    np.testing.assert_array_equal(causal(jnp.ones((3, 4))), np.tril(np.ones((3, 4))))


ROW = TensorType({"row": 3})


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (
            lambda: tp.random.uniform(3, like=LARGE),
            "tp.random.uniform needs a key of two uint32 words\n"
            "  got 3\n"
            "  Pass jax.random.key(seed), of the implementation threefry2x32; to a program as an argument.",
        ),
        (
            lambda: tp.trace(lambda x, key: tp.random.bits(key, like=x), ROW, TensorType((3,), jnp.uint32)),
            "tp.random.bits needs a key of two uint32 words\n"
            "  got Value(uint32(an unnamed axis (axis 0 of `key`)=3))\n"
            "  Pass jax.random.key(seed), of the implementation threefry2x32; to a program as an argument.",
        ),
        (
            lambda: tp.random.normal(KEY, like=LARGE, dtype=jnp.int32),
            "tp.random.normal draws floating numbers\n  got dtype int32\n  Use tp.random.bits.",
        ),
        (
            lambda: tp.trace(
                lambda x, key: tp.random.uniform(key, like=x), TensorType((3,)), TensorType((2,), jnp.uint32)
            ),
            "tp.random.uniform needs the axes of `like` to have names\n"
            "  got Value(float32(an unnamed axis (axis 0 of `x`)=3))\n"
            "  Name them by the program's signature or by a tp.TensorType.",
        ),
        (
            lambda: tp.trace(lambda x: tp.index("column", like=x), ROW),
            "the value has no axis `column`\n"
            "  got (row=3)\n"
            "  Name one of its axes, or name them by the program's signature.",
        ),
        (
            lambda: tp.index("row", like=LARGE),
            "an array has no axis named 'row'\n"
            "  got shape (200, 500)\n"
            "  Call tp.index inside a program, where axes have names.",
        ),
    ],
)
def test_what_has_no_coordinates_is_refused(build: Any, text: str) -> None:
    with pytest.raises(GraphError) as caught:
        build()
    assert str(caught.value) == text
