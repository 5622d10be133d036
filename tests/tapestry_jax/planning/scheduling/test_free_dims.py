"""Operations that need a cut axis whole: their mesh axes go to a free dimension, and a gather becomes an all-to-all."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import AbstractMesh
from scipy import special

import tapestry_jax as tp
from tests.contract import assert_contract, assert_holds
from tests.tapestry_jax.draw import named, normal


def fft_columns(x):
    return jnp.fft.fft(x, axis=0)


def fft_planes(x):
    return jnp.fft.fft(x, axis=1)


def norm_of_rows(x):
    return jnp.sqrt(jnp.sum(x * x, axis=-1))


rows = tp.Map(jnp.fft.fft, "y [x] -> y [x]", name="rows")
columns = tp.Map(fft_columns, "[y] x -> [y] x", name="columns")
softmax = tp.Map(jax.nn.softmax, "... [c] -> ... [c]")
tanh = tp.Map(jnp.tanh)
grid = AbstractMesh((2, 4), ("data", "model"))
row = AbstractMesh((8,), ("data",))


def moved(plan):
    return [(each.kind, each.axes, each.bytes) for each in plan.collectives()]


def kinds(plan):
    return [each.kind for each in plan.collectives()]


def complex_normal(*shape):
    return normal(*shape) + 1j * normal(*shape, seed=1)


@pytest.mark.parametrize(
    ("shape", "entry"), [pytest.param((16, 8), "x", marks=pytest.mark.thorough), ((10, 12), "y")], ids=str
)
def test_pencil_fft_is_one_all_to_all(mesh8, shape, entry):
    # Complex values and gradients, even and uneven sizes; one entry is enough.
    args = (complex_normal(*shape),)
    plan = tp.plan(tp.trace(rows >> columns, *named("y x", *args)), mesh8, {entry: "data"})
    assert_holds(plan, args, reference=np.fft.fft2, rtol=1e-3, atol=1e-3)
    # What does not divide leaves whole.
    assert kinds(plan) == ["all-to-all"] + ["all-gather"] * (shape[0] % 8 > 0)


def test_pencil_fft_there_and_back_in_the_layout_it_came_in():
    graph = tp.trace(rows >> columns, tp.TensorType({"y": 16, "x": 32}, jnp.complex64))
    pinned = {"inputs": {"x": {"x": "data"}}, "outputs": {"y": {"x": "data"}}}
    plan = tp.plan(graph, row, {"x": "data"}, **pinned)
    assert moved(plan) == [("all-to-all", ("data",), 16 * 32 * 8 // 8)] * 2
    assert "all-to-all x to y over data" in plan.explain()
    # The layout alone says as much: no entry is needed.
    assert moved(tp.plan(graph, row, **pinned)) == moved(plan)


def test_pencils_of_three_dimensions(mesh2x4):
    depth = tp.Map(jnp.fft.fft, "x y [z] -> x y [z]", name="depth")
    planes = tp.Map(fft_planes, "x [y] z -> x [y] z", name="planes")
    blocks = tp.Map(fft_columns, "[x] y z -> [x] y z", name="blocks")
    args = (complex_normal(4, 8, 6),)
    graph = tp.trace(depth >> planes >> blocks, *named("x y z", *args))
    plan = tp.plan(graph, mesh2x4, {"x": "data", "y": "model"})
    assert_holds(plan, args, grad=False, reference=np.fft.fftn, rtol=1e-3, atol=1e-3)
    # The second move makes two steps: `z` leaves `model` before `x` can leave `data`.
    assert [(kind, axes) for kind, axes, _ in moved(plan)] == [
        ("all-to-all", ("model",)),
        ("all-to-all", ("model",)),
        ("all-to-all", ("data",)),
    ]


def test_a_gathered_axis_is_transformed_on_every_device_alike(mesh2x4):
    # The axis lies between others: XLA's FFT on CPUs takes it in one order in memory only.
    depth = tp.Map(jnp.fft.fft, "x y [z] -> x y [z]", name="depth")
    planes = tp.Map(fft_planes, "x [y] z -> x [y] z", name="planes")
    args = (complex_normal(16, 8, 12),)
    graph = tp.trace(depth >> planes, *named("x y z", *args))
    plan = tp.plan(graph, mesh2x4, {"x": "data", "y": "model"}, ops={"planes": {"z": None}})
    assert_holds(plan, args, reference=lambda x: np.fft.fft2(x), rtol=1e-3, atol=1e-3)
    assert kinds(plan) == ["all-gather"]


def test_softmax_along_a_cut_axis_takes_the_rows(mesh8):
    args = (normal(12, 16),)
    plan = tp.plan(tp.trace(lambda x: tanh(softmax(tanh(x))), *named("b c", *args)), mesh8, {"c": "data"})
    assert_holds(plan, args, reference=lambda x: np.tanh(special.softmax(np.tanh(x), 1)))
    assert kinds(plan) == ["all-to-all", "all-to-all"]


def test_operations_in_a_row_keep_what_the_first_one_took():
    graph = tp.trace(lambda x: tanh(softmax(softmax(tanh(x)))), tp.TensorType({"b": 16, "c": 16}))
    assert kinds(tp.plan(graph, row, {"c": "data"})) == ["all-to-all", "all-to-all"]


def test_gather_where_no_dimension_is_free():
    pairs = tp.Map(jax.nn.softmax, "[b] [c] -> [b] [c]")
    graph = tp.trace(lambda x: tanh(pairs(tanh(x))), tp.TensorType({"b": 16, "c": 16}))
    plan = tp.plan(graph, row, {"c": "data"})
    assert kinds(plan) == ["all-gather"]
    assert "all-gather c over data" in plan.explain()


def test_gather_where_an_exception_keeps_the_dimension_whole():
    graph = tp.trace(lambda x: tanh(softmax(tanh(x))), tp.TensorType({"b": 16, "c": 16}))
    assert kinds(tp.plan(graph, row, {"c": "data"}, ops={"softmax": {"b": None}})) == ["all-gather"]
    assert kinds(tp.plan(graph, row, {"c": "data"}, ops={"softmax": {"c": None}})) == ["all-gather"]
    assert kinds(tp.plan(graph, row, {"c": "data", "b": None})) == ["all-gather"]


def test_a_dimension_that_the_plan_places_stays_where_it_is():
    graph = tp.trace(lambda x: tanh(softmax(tanh(x))), tp.TensorType({"b": 16, "c": 16}))
    plan = tp.plan(graph, grid, {"c": "data", "b": "model"})
    assert kinds(plan) == ["all-gather"]
    assert "b:model" in plan.explain()


def test_a_whole_axis_that_others_take_in_chunks(mesh8):
    args = (normal(16, 16),)
    graph = tp.trace(lambda x: tanh(softmax(tanh(x))), *named("b c", *args))
    plan = tp.plan(graph, mesh8, {"c": ("data", tp.chunks(2))})
    assert kinds(plan) == ["all-to-all", "all-to-all"]
    assert_contract(plan)


def test_the_dimension_that_divides_is_preferred():
    graph = tp.trace(lambda x: tanh(softmax(tanh(x))), tp.TensorType({"a": 9, "b": 8, "c": 16}))
    plan = tp.plan(graph, row, {"c": "data"})
    assert "all-to-all c to b over data" in plan.explain()
    assert moved(plan) == [("all-to-all", ("data",), 4 * 9 * 8 * 16 // 8)] * 2


def test_uneven_pieces_are_exchanged_with_their_padding():
    graph = tp.trace(lambda x: tanh(softmax(tanh(x))), tp.TensorType({"b": 6, "c": 64}))
    assert moved(tp.plan(graph, row, {"c": "data"})) == [("all-to-all", ("data",), 4 * 8 * 8)] * 2


def test_a_small_result_may_be_gathered_instead_of_the_operand():
    norm = tp.Map(norm_of_rows, "b [c] -> b")
    total = tp.Map(norm_of_rows, "[b] -> ")
    graph = tp.trace(lambda x: total(norm(tanh(x))), tp.TensorType({"b": 16, "c": 16}))
    plan = tp.plan(graph, row, {"c": "data"})
    assert moved(plan) == [("all-to-all", ("data",), 4 * 16 * 16 // 8), ("all-gather", ("data",), 4 * 16)]


def test_a_table_that_nobody_holds_cut_stays_whole():
    # Cut along its free features the lookup would gather its result, where a whole table moves nothing.
    def look_up(tokens, table):
        return table[tokens]

    take, shift = tp.Map(look_up, "b, [v] e -> b e"), tp.Map(jnp.abs)
    first = tp.einsum("b e, e v -> b v")
    graph = tp.trace(
        lambda tokens, table, head: first(take(shift(tokens), table), head),
        tp.TensorType({"b": 4}, jnp.int32),
        tp.TensorType({"v": 64, "e": 8}),
        tp.TensorType({"e": 8, "v": 64}),
    )
    assert moved(tp.plan(graph, row, {"v": "data"})) == []


def test_layer_norms_between_cut_vectors_move_sums_alone():
    module = tp.nnx.LayerNorm(64, rngs=nnx.Rngs(0))
    graph = tp.trace(tanh >> module >> tanh, tp.TensorType({"batch": 32, "embed": 64}))
    assert moved(tp.plan(graph, row, {"embed": "data"})) == [("all-reduce", ("data",), 4 * 32)] * 3


def test_free_dimensions_inside_a_loop_are_exchanged_every_turn():
    step = tp.program("b c -> b c")(lambda x: tanh(softmax(x)))
    graph = tp.trace(tp.iterate(step, 3), tp.TensorType({"b": 16, "c": 16}))
    plan = tp.plan(graph, row, {"c": "data"})
    assert [(each.kind, each.times) for each in plan.collectives()] == [("all-to-all", 3)] * 2
