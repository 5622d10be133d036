"""What is predicted beyond what is compiled says that it is a bound, leaf by leaf of what folds and scans send."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from tapestry_jax.planning.prediction import operations
from tests.contract import assert_contract
from tests.pairs.contract import differences, verdict

X = tp.TensorType({"c": 4, "a": 3}, jnp.float32)
Sum, agg = tp.monoids.Sum, tp.aggregators


def centred_often(x):
    return tp.iterate(lambda value: value - tp.fold(agg.Mean(), "c a -> a")(value), 4)(x)


def decayed_often(x, decay):
    recurrence = tp.Scan(tp.monoids.AffineRecurrence, "c a, c a -> c a, c a", over="c")
    return tp.iterate(lambda value: recurrence(decay, value)[1], 4)(x)


def bounds(plan, path, grad=False):
    return [found.bound for found in plan.collectives(grad) if found.path == path]


def test_weights_that_no_turn_changes_are_a_bound(mesh8):
    # Four rows on eight devices: how many each has differs, but never from turn to turn.
    plan = tp.plan(tp.trace(centred_often, X), mesh8, {"c": "data"})
    assert sorted(bounds(plan, "iterate/Mean")) == [False, True]
    assert_contract(plan, bounded=True)


def test_more_that_no_bound_tells_is_found(mesh8, monkeypatch):
    plan = tp.plan(tp.trace(centred_often, X), mesh8, {"c": "data"})
    assert verdict(differences(plan, True)) == "bound"
    monkeypatch.setattr(operations, "sends_still", lambda schedule, step, leaves, turning: False)
    assert verdict(differences(plan, True)) == "more"
    # Bytes predicted, compiled, and predicted without bounds.
    assert verdict({"all-reduce over data": (24, 25, 0)}) == "less"
    assert verdict({}) == "equal"


def test_weights_are_no_bound_where_nothing_repeats(mesh8):
    plan = tp.plan(tp.trace(tp.fold(agg.Mean(), "c a -> a"), X), mesh8, {"c": "data"})
    assert bounds(plan, "Mean") == [False, False]


def test_decays_that_no_turn_changes_are_a_bound(mesh8):
    plan = tp.plan(tp.trace(decayed_often, X, X), mesh8, {"c": "data"})
    found = bounds(plan, "iterate/scan")
    assert any(found) and not all(found)


@pytest.mark.parametrize("steps", [3, 4], ids=["gathered", "stored in place"])
def test_equal_results_of_two_recurrences_are_moved_once(mesh8, steps):
    decays = tp.Scan(tp.monoids.AffineRecurrence, "c, c a -> c a, c a", over="c", kernel=spread)
    types = [tp.TensorType({"c": steps}), *[tp.TensorType({"c": steps, "a": 3}, jnp.float32)] * 2]
    graph = tp.trace(lambda decay, x, y: (decays(decay, x), decays(decay, y)), *types)
    plan = tp.plan(graph, tp.mesh(m=2), {"c": "m", "a": tp.chunks(3)})
    gathered = [found for found in plan.collectives() if found.kind == "all-gather"]
    assert [found.bound for found in gathered] == ([True] * 4 if steps == 3 else [])
    assert_contract(plan, False, bounded=True)


def spread(decay, x):
    return jnp.broadcast_to(decay[:, None], x.shape), x


def test_results_of_one_recurrence_are_not_taken_for_equal(mesh8):
    recurrence = tp.Scan(tp.monoids.AffineRecurrence, "c a, c a -> c a, c a", over="c")
    x = tp.TensorType({"c": 3, "a": 3}, jnp.float32)
    plan = tp.plan(tp.trace(recurrence, x, x), tp.mesh(m=2), {"c": "m"})
    assert [found.bound for found in plan.collectives() if found.kind == "all-gather"] == [False, False]


def test_what_a_block_of_one_row_does_not_tell_is_a_bound(mesh8):
    # The error of a sum of one row is zero, whatever the row is.
    x = tp.TensorType({"a": 7, "c": 7}, jnp.float32)
    plan = tp.plan(tp.trace(tp.fold(agg.CompensatedSum(), "a c -> a"), x), mesh8, {"a": tp.chunks(size=3), "c": "data"})
    assert bounds(plan, "CompensatedSum") == [False, True]
    rows = tp.TensorType({"a": 7, "c": 16}, jnp.float32)
    plan = tp.plan(tp.trace(tp.fold(agg.CompensatedSum(), "a c -> a"), rows), mesh8, {"a": tp.chunks(2), "c": "data"})
    assert bounds(plan, "CompensatedSum") == [False, False]


@pytest.mark.parametrize("chunked", [(), (tp.chunks(size=1),)])
def test_the_leaves_of_a_total_that_nobody_needs_are_not_sent(chunked):
    recurrence = tp.Scan(tp.monoids.AffineRecurrence, "c a, c a -> c a, c a", over="c")
    mesh = tp.mesh(x=2)
    first = tp.plan(tp.trace(lambda x: recurrence(x, x)[0], X), mesh, {"c": ("x", *chunked)})
    both = tp.plan(tp.trace(lambda x: recurrence(x, x), X), mesh, {"c": ("x", *chunked)})
    sent, twice = (sum(c.bytes * c.times for c in p.collectives() if "scan" in c.path) for p in (first, both))
    assert (sent, twice) == (12, 24)


def test_ends_of_scans_over_two_axes_send_what_is_predicted_in_chunks_of_stripes():
    # Once 36 predicted and 48 compiled.
    scan = tp.Scan(tp.monoids.Max, "r p q -> r p q", over="p", reverse=True, final=True)
    graph = tp.trace(scan, tp.TensorType({"r": 3, "p": 7, "q": 5}, jnp.float32))
    entries = {"p": ("a", "b"), "q": (tp.striped("c"), tp.chunks(size=1))}
    assert_contract(tp.plan(graph, tp.mesh(a=2, b=2, c=2), entries), grad=False)


def test_a_value_that_is_dealt_into_stripes_for_two_operations_is_sent_once():
    # Once 192 predicted and 128 compiled: one of both operations reads it on all of `y`.
    types = (
        tp.TensorType(dict(zip(names, sizes, strict=True)), jnp.float32)
        for names, sizes in (("be", (8, 4)), ("ef", (4, 6)), ("fe", (6, 4)))
    )
    up, down = tp.einsum("b e, e f -> b f"), tp.einsum("b f, f e -> b e")
    graph = tp.trace(lambda x, w, v: x + down(up(x, w), v), *types)
    assert_contract(tp.plan(graph, tp.mesh(x=2, y=4), {"b": tp.striped("x"), "f": "y"}))


@pytest.mark.parametrize(
    ("reads", "cells"), [("ends", 1), ("middle", 1), pytest.param("ends", 2, marks=pytest.mark.thorough)]
)
@pytest.mark.parametrize("remat", [pytest.param(None, marks=pytest.mark.thorough), "dots"])
def test_windows_that_may_pass_all_cells_by_are_bounds(reads, cells, remat):
    kernel = {"ends": lambda x: jnp.tanh(x[:, 2:] * x[:, :-2]), "middle": lambda x: jnp.tanh(x[:, 1:-1])}[reads]
    window = tp.Map(kernel, "b (y+[dy]-1) -> b y", sizes={"dy": 3}, boundary="zero")

    @tp.program("b y, b y -> b y")
    def layer(x, p):
        return tp.Map(jnp.tanh)(x + window(p))

    x = tp.TensorType({"b": 4, "y": cells}, jnp.float32)
    plan = tp.plan(tp.trace(lambda x, p, q: layer(layer(x, p), q), x, x, x), tp.mesh(data=2), {}, remat=remat)
    plan = tp.fsdp(plan, "data", smallest=1)
    for grad in (False, True):
        assert verdict(differences(plan, grad)) == ("bound" if (reads, cells) == ("ends", 1) else "equal")
        assert {found.bound for found in plan.collectives(grad) if "lambda" in found.path} == {cells == 1}


def test_bounds_of_windows_beside_coordinates() -> None:
    """Coordinates are operands of the signature and no tensors."""
    window = tp.window(tp.aggregators.Sum(), 3, "t -> t")
    plan = tp.plan(tp.trace(window, tp.TensorType({"t": 12})), tp.mesh(data=4), {"t": "data"})
    assert [(each.kind, each.bytes, each.bound) for each in plan.collectives()] == [("collective-permute", 8, False)]


EVEN = tp.TensorType({"c": 4, "a": 8}, jnp.float32)


def _centred(x):
    return tp.fold(agg.Sum(), "c a ->")(x - tp.fold(agg.Mean(), "c a -> c")(x))


def test_a_gradient_that_no_turn_changes_is_a_bound(mesh8):
    # The gradient of a sum is 1 in every chunk, and what is taken away passes it on.
    plan = tp.plan(tp.trace(_centred, EVEN), mesh8, {"a": "data", "c": tp.chunks(2)})
    assert [found.bound for found in plan.collectives(True) if found.backward] == [True]
    assert_contract(plan, bounded=True)
    # A chunk more than there are cells for knows by its padding which turn it is.
    odd = tp.TensorType({"c": 5, "a": 8}, jnp.float32)
    uneven = tp.plan(tp.trace(_centred, odd), mesh8, {"a": "data", "c": tp.chunks(2)})
    assert [found.bound for found in uneven.collectives(True) if found.backward] == [False]
    assert_contract(uneven)


def test_what_a_kernel_makes_of_no_value_is_the_same_in_every_turn(mesh8):
    ones = tp.Map(jnp.ones_like, "c a -> c a")
    share = tp.Map(lambda x, s: x / s[:, None], "c a, c -> c a")
    plan = tp.plan(
        tp.trace(lambda x: share(x, tp.fold(agg.Sum(), "c a -> c")(ones(x))), EVEN),
        mesh8,
        {"a": "data", "c": tp.chunks(2)},
    )
    assert [found.bound for found in plan.collectives()] == [True]
    assert_contract(plan, bounded=True)


@pytest.mark.parametrize("cells", [pytest.param(3, marks=pytest.mark.thorough), 24])
def test_what_a_sum_is_scaled_by_has_no_gradient_to_send(mesh2x4, cells):
    x = tp.TensorType({"c": 4, "a": cells}, jnp.float32)
    plan = tp.plan(tp.trace(lambda x: tp.scan(agg.LogSumExp(), "c a -> c a", over="a")(x), x), mesh2x4, {"a": "model"})
    assert_contract(plan)


def test_a_stripe_of_one_cell_is_a_block(mesh2x4):
    recurrence = tp.Scan(tp.monoids.AffineRecurrence, "c a, c a -> c a, c a", over="a")
    x = tp.TensorType({"c": 3, "a": 4}, jnp.float32)
    graph = tp.trace(lambda x: recurrence(tp.Map(jnp.cos, "c a -> c a")(x), x)[1], x)
    plans = [tp.plan(graph, mesh2x4, {"a": entry}) for entry in (tp.striped("model"), "model")]
    assert plans[0].collectives(True) == plans[1].collectives(True)
    assert_contract(plans[0])


@pytest.mark.parametrize("first", ["loop", "beside"])
def test_a_loop_and_what_stands_beside_it_gather_once(mesh2x4, first):
    """The loop's operand is gathered before the loop, where the other reader's is."""
    x, w = tp.TensorType({"c": 4}, jnp.float32), tp.TensorType({"c": 4, "d": 3}, jnp.float32)
    into = tp.Reduce(lambda x, w: x @ w, "c, c d -> d", tp.monoids.Sum)
    back = tp.Reduce(lambda y, w: w @ y, "d, c d -> c", tp.monoids.Sum)

    def program(x, w):
        beside = into(x, w) if first == "beside" else None
        looped = tp.iterate(lambda x: x + back(into(x, w), w), 3)(x)
        return looped, into(x, w) if beside is None else beside

    plan = tp.plan(tp.trace(program, x, w), mesh2x4, {}, inputs={"x": {"c": "model"}, "w": {"c": "model"}})
    gathered = [found for found in plan.collectives() if found.kind == "all-gather"]
    assert sorted(found.bytes for found in gathered) == [16, 48]
    assert_contract(plan)


def test_a_value_that_two_operations_read_cut_elsewhere_is_exchanged_once(mesh2x4):
    """One of both reads it on all of `model` as well. Gradients come back by themselves."""
    x, w = tp.TensorType({"a": 4, "c": 4}, jnp.float32), tp.TensorType({"c": 4, "d": 8}, jnp.float32)
    graph = tp.trace(lambda x, w: (tp.Map(jnp.tanh)(x), tp.einsum("a c, c d -> a d")(x, w)), x, w)
    plan = tp.plan(graph, mesh2x4, {"a": "data", "d": "model"}, inputs={"x": {"c": "data"}})
    exchanged = [found for found in plan.collectives(True) if found.kind == "all-to-all"]
    assert [found.backward for found in exchanged] == [False, True, True]
    assert_contract(plan)


def test_a_loop_of_no_turns_sends_nothing_of_what_it_captures(mesh2x4):
    x, w = tp.TensorType({"a": 5, "c": 4}, jnp.float32), tp.TensorType({"c": 4, "d": 11}, jnp.float32)
    into = tp.Reduce(jnp.matmul, "a c, c d -> a d", tp.monoids.Sum)
    back = tp.Reduce(lambda y, w: y @ w.T, "a d, c d -> a c", tp.monoids.Sum)
    graph = tp.trace(lambda x, w: tp.iterate(lambda x: x + back(tp.Map(jnp.tanh)(into(x, w)), w), 0)(x), x, w)
    plan = tp.plan(graph, mesh2x4, {"d": tp.ring("model"), "a": "model"})
    assert not [found for found in plan.collectives(True) if found.path == "input w"]
    assert_contract(plan)


@pytest.mark.parametrize(
    ("entry", "stored", "changed"),
    [("model", "c", False), ("data", "d", False), ("data", "d", True)],
    ids=["where it is read", "before the loop", "before what the loop reads"],
)
def test_nothing_comes_back_through_a_loop_of_no_turns(mesh2x4, entry, stored, changed):
    """Once all-to-alls of zeros were compiled, and none predicted."""
    x, w = tp.TensorType({"a": 5, "c": 4}, jnp.float32), tp.TensorType({"c": 4, "d": 8}, jnp.float32)
    into = tp.Reduce(jnp.matmul, "a c, c d -> a d", tp.monoids.Sum)
    back = tp.Reduce(lambda y, w: y @ w.T, "a d, c d -> a c", tp.monoids.Sum)

    def program(x, w):
        read = tp.Map(jnp.tanh)(w) if changed else w
        return tp.iterate(lambda x: x + back(tp.Map(jnp.tanh)(into(x, read)), read), 0)(x)

    plan = tp.plan(tp.trace(program, x, w), mesh2x4, {"c": entry}, inputs={"w": {stored: entry}})
    assert not [found for found in plan.collectives(True) if found.path == "input w"]
    assert_contract(plan)


def test_a_leaf_that_no_operand_decides_is_not_sent(mesh8):
    """One cell on each device has no error yet, which JAX takes to vary with the cell that its zero was made like."""
    plan = tp.plan(
        tp.trace(lambda x: tp.fold(agg.CompensatedSum(), "b a -> b")(x), tp.TensorType({"b": 1, "a": 8}, jnp.float32)),
        mesh8,
        {"a": "data"},
    )
    assert_contract(plan)
