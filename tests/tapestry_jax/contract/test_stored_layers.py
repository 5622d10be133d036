"""Layers whose parameters are stored in pieces, in chunks and computed again: what is sent is what is predicted."""

from __future__ import annotations

import random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tests.contract import assert_contract, assert_same
from tests.tapestry_jax.draw import normal
from tests.thoroughly import some

UP = tp.einsum("batch embed, embed mlp -> batch mlp")
DOWN = tp.einsum("batch mlp, mlp embed -> batch embed")
NORM = tp.Map(lambda x: x / (1 + jnp.abs(x).max(-1, keepdims=True)), "batch [embed] -> batch [embed]")
MEAN = tp.fold(tp.aggregators.Mean(), "batch embed -> ")
ACTIVATIONS = (jax.nn.gelu, jnp.tanh, jax.nn.relu)
CHUNKS = ("data", tp.chunks(4))


def layer(kind: str, activation: Any) -> Any:
    act = tp.Map(activation)

    def run(x: Any, up: Any, down: Any) -> Any:
        y = DOWN(act(UP(NORM(x) if kind == "norm" else x, up)), down)
        if kind == "gate":
            y = DOWN(act(UP(x, up)) * UP(x, up), down)
        if kind == "twice":
            y = DOWN(act(UP(act(y), up)), down)
        return x + y if kind in ("norm", "residual") else y

    return run


def program(kind: str, activation: Any, layers: int, loss: bool) -> Any:
    one = layer(kind, activation)

    def run(x: Any, ups: Any, downs: Any) -> Any:
        y = tp.stack(one, layers, "layer")(x, ups, downs)
        return MEAN(tp.Map(jnp.square)(y)) if loss else y

    return run


def planned(run: Any, layers: int, mesh: Any, entries: dict[str, Any], remat: Any, embed: int = 8) -> tp.Plan:
    sizes = {"batch": 16, "embed": embed, "mlp": 16, "layer": layers}
    kinds = ("batch", "embed"), ("layer", "embed", "mlp"), ("layer", "mlp", "embed")
    types = [tp.TensorType({name: sizes[name] for name in names}, jnp.float32) for names in kinds]
    return tp.fsdp(tp.plan(tp.trace(run, *types), mesh, entries, remat=remat), "data", smallest=1)


@pytest.mark.parametrize("remat", ["dots", None])
@pytest.mark.parametrize("loss", [False, True], ids=["layers", "a loss"])
def test_gathers_of_layers_in_chunks_are_predicted_to_the_byte(loss: bool, remat: Any, mesh2x4: Any) -> None:
    run = program("plain", jax.nn.gelu, 2, loss)
    assert_contract(planned(run, 2, mesh2x4, {"batch": CHUNKS, "mlp": "model"}, remat), bounded=remat is not None)


def test_what_layers_keep_is_gathered_for_again_by_the_loop_around(mesh2x4: Any) -> None:
    plans = [
        planned(program("plain", jax.nn.gelu, 2, False), 2, mesh2x4, {"batch": CHUNKS, "mlp": "model"}, remat)
        for remat in (True, "dots")
    ]
    fewer, more = (
        sum(each.bytes * each.times for each in plan.collectives(True) if each.kind == "all-gather") for plan in plans
    )
    assert more == fewer * 5 // 4


def test_a_loss_whose_floats_are_narrow_inside_may_run_its_turns_twice(mesh2x4: Any) -> None:
    narrow = tp.Map(lambda v: v.astype(jnp.float16).astype(jnp.float32))

    def run(x: Any, ups: Any, downs: Any) -> Any:
        one = layer("plain", jnp.tanh)
        return MEAN(narrow(tp.stack(lambda x, up, down: one(x, up, down), 2, "layer")(x, ups, downs)))

    plan = planned(run, 2, mesh2x4, {"batch": CHUNKS, "mlp": "model"}, None)
    assert any(each.bound for each in plan.collectives(True) if each.kind == "all-gather")
    assert_contract(plan, bounded=True)


def test_in_a_loop_of_one_turn_gathers_are_bounds(mesh2x4: Any) -> None:
    plan = planned(program("gate", jnp.tanh, 1, True), 1, mesh2x4, {"batch": CHUNKS}, None)
    assert all(each.bound for each in plan.collectives(True) if each.kind == "all-gather")
    assert_contract(plan, bounded=True)


def test_random_layers_send_what_is_predicted_at_most(mesh2x4: Any) -> None:
    rng = random.Random(7)
    for _ in range(some(18)):
        layers, remat = rng.choice([1, 2, 3]), rng.choice([None, True, "dots", "dots_with_no_batch_dims"])
        entries: dict[str, Any] = {"batch": rng.choice(["data", CHUNKS, tp.chunks(2), CHUNKS])}
        if rng.random() < 0.6:
            entries["mlp"] = "model"
        kind = rng.choice(["plain", "norm", "residual", "gate", "twice"])
        run = program(kind, rng.choice(ACTIVATIONS), layers, rng.random() < 0.5)
        assert_contract(planned(run, layers, mesh2x4, entries, remat, rng.choice([8, 16])), bounded=True)


def cast(dtype: Any) -> Any:
    return tp.Map(lambda w: w.astype(dtype))


def mixed(dtype: Any, layers: int) -> Any:
    one, to = layer("residual", jnp.tanh), cast(dtype)

    def run(x: Any, ups: Any, downs: Any) -> Any:
        y = tp.stack(lambda x, up, down: one(x, to(up), to(down)), layers, "layer")(to(x), ups, downs)
        return MEAN(cast(jnp.float32)(y))

    return run


BY_ROWS, IN_CHUNKS = {"batch": "data"}, {"batch": CHUNKS, "mlp": "model"}


@pytest.mark.parametrize(("entries", "embed"), [(BY_ROWS, 8), (BY_ROWS, 7), (IN_CHUNKS, 8)])
def test_parameters_of_more_bits_are_cast_where_they_are_stored(entries: Any, embed: int, mesh2x4: Any) -> None:
    plan = planned(mixed(jnp.bfloat16, 2), 2, mesh2x4, entries, None, embed)
    plan.verify()
    sent = [each for each in plan.collectives(True) if each.axes == ("data",) and each.bytes > 4]
    assert {each.kind for each in sent} == {"all-gather", "reduce-scatter"}
    # Two bytes for each cell of a matrix, of which a device of `model` has its part.
    assert {each.bytes for each in sent} == {2 * 16 * embed // (4 if "mlp" in entries else 1)}
    args = [normal(16, embed), normal(2, embed, 16), normal(2, 16, embed)]
    assert_same(plan, args, rtol=3e-2, atol=3e-2)


@jax.custom_vjp
def rounded(w: Any) -> Any:
    return w.astype(jnp.bfloat16)


# Its slopes are of all cells together.
rounded.defvjp(lambda w: (w.astype(jnp.bfloat16), None), lambda _, g: ((g / jnp.abs(g).max()).astype(jnp.float32),))
BY_THEMSELVES = {
    "a choice that no numbers tell": lambda w: jax.lax.cond(
        jnp.abs(w).max() > 1e6, jnp.zeros_like, lambda v: v, w
    ).astype(jnp.bfloat16),
    "a choice by sizes": lambda w: w.astype(jnp.bfloat16) * (2 if w.shape[1] > 8 else 1),
    "slopes of all cells": rounded,
}


@pytest.mark.parametrize("name", BY_THEMSELVES)
def test_what_may_be_refused_in_pieces_is_cast_whole_as_before(name: str, mesh2x4: Any) -> None:
    types = [tp.TensorType({"batch": 16, "embed": 8}, jnp.float32), tp.TensorType({"embed": 8, "mlp": 16}, jnp.float32)]
    to = tp.Map(BY_THEMSELVES[name], "embed mlp -> embed mlp")
    plan = tp.fsdp(tp.plan(tp.trace(lambda x, w: UP(x, to(w)), *types), mesh2x4, {"batch": "data"}), "data", smallest=1)
    (sent,) = (each for each in plan.collectives() if each.kind == "all-gather")
    assert sent.bytes == 8 * 16 * 4
    assert_same(plan, [normal(16, 8), normal(8, 16)], rtol=3e-2, atol=3e-2)


def test_names_that_differ_in_the_layer_change_nothing(mesh2x4: Any) -> None:
    one, to = layer("residual", jnp.tanh), cast(jnp.bfloat16)

    def run(x: Any, ups: Any, downs: Any) -> Any:
        renamed = ups.rename(layer="block"), downs.rename(layer="block")
        return tp.stack(lambda x, up, down: one(x, to(up), to(down)), 2, "block")(to(x), *renamed)

    plan = planned(run, 2, mesh2x4, {"batch": "data"}, None)
    assert {each.bytes for each in plan.collectives() if each.kind == "all-gather"} == {2 * 16 * 8}


def test_maps_that_widen_are_not_taken_to_where_operands_are_stored(mesh2x4: Any) -> None:
    types = [
        tp.TensorType({"batch": 16, "embed": 8}, jnp.float32),
        tp.TensorType({"embed": 8, "mlp": 16}, jnp.bfloat16),
    ]
    graph = tp.trace(lambda x, w: UP(x, cast(jnp.float32)(w)), *types)
    plan = tp.fsdp(tp.plan(graph, mesh2x4, {"batch": "data"}), "data", smallest=1)
    (sent,) = (each for each in plan.collectives() if each.kind == "all-gather")
    assert sent.bytes == 8 * 16 * np.dtype(np.float16).itemsize
