"""Faults in what a device does for itself: the cells of a result are made of other cells; no array is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.lowering import program
from tapestry_jax.lowering.exchange import collectives, convert, fold, halo, ordered
from tapestry_jax.lowering.on_device import here, pad, read, stripes
from tapestry_jax.lowering.time import accumulate, carried, pipeline, prefixes, region, scan
from tapestry_jax.shards.lowered.exact import Exact
from tapestry_jax.shards.lowered.made_of import MadeOf, cells
from tapestry_jax.shards.numeric.simulated import Simulation
from tests.damaged import damaged
from tests.pairs.kernels import second
from tests.pairs.pair import draw_pair
from tests.pairs.plans import repaired
from tests.tapestry_jax.shards.examples import PLANS, plan_of, types
from tests.thoroughly import but, thoroughly

sine = tp.Map(jnp.sin, "a b -> a b", name="sine")
sine_of = tp.Map(jnp.sin)
scale = tp.Map(jnp.multiply, "a b, b -> a b", name="scale")


def _sine(mesh: dict[str, int], entries: Any) -> tp.Plan:
    return tp.plan(tp.trace(sine, *types({"a": 7, "b": 2})), tp.mesh(**mesh), entries)


def _causal() -> tp.Plan:
    def attend(q: Any, k: Any, v: Any) -> Any:
        return tp.attention(q, k, v, over="keys", causal=True)

    graph = tp.trace(attend, *types({"q": 8, "h": 1, "d": 2}, {"keys": 8, "h": 1, "d": 2}, {"keys": 8, "h": 1, "e": 2}))
    return tp.plan(graph, tp.mesh(data=4), {"q": "data", "keys": tp.ring("data")})


def _framed() -> tp.Plan:
    sizes = types({"q": 2, "h": 1, "d": 2}, {"keys": 8, "h": 1, "d": 2}, {"keys": 8, "h": 1, "e": 2})
    return tp.plan(tp.trace(tp.attention, *sizes), tp.mesh(data=4), {"keys": "data"})


def _exclusive() -> tp.Plan:
    of = tp.Scan(tp.monoids.AffineRecurrence, "t f, t f -> t f", over="t", exclusive=True, present=second)
    return tp.plan(tp.trace(of, *types({"t": 10, "f": 2}, {"t": 10, "f": 2})), tp.mesh(data=4), {"t": "data"})


def _neutral() -> tp.Plan:
    of = tp.Reduce(lambda x: jnp.sum(x, 0), "t f -> f", tp.monoids.Sum, pad=(0.0,))
    return tp.plan(tp.trace(of, *types({"t": 10, "f": 2})), tp.mesh(data=4), {"t": "data"})


def _stages() -> tp.Plan:
    def layers(x: Any, w: Any) -> Any:
        return tp.stack(tp.program(lambda x, w: scale(x, w)), 5)(x, w)

    graph = tp.trace(layers, *types({"a": 8, "b": 3}, {"layer": 5, "b": 3}))
    return tp.plan(graph, tp.mesh(stage=3), {"layer": "stage", "a": tp.chunks(4)})


def _recurrence_in_stages() -> tp.Plan:
    step = tp.program("b, b -> b, b")(lambda x, state: (sine_of(state), x + state))
    graph = tp.trace(step.feedback("t"), *types({"t": 4, "b": 4}, {"b": 4}))
    return tp.plan(graph, tp.mesh(data=2), {"t": "data", "b": tp.chunks(2)})


def _folded(mesh: dict[str, int], kind: Any, monoid: Any, kernel: Any, size: int = 8) -> tp.Plan:
    graph = tp.trace(tp.Reduce(kernel, "a b -> b", monoid), tp.TensorType({"a": size, "b": 2}, kind))
    return tp.plan(graph, tp.mesh(**mesh), {"a": "data"})


def _rows_of_largest(x: Any) -> Any:
    return jnp.max(x, 0)


def _told(kernel: Any) -> tp.Plan:
    graph = tp.trace(tp.Map(kernel, "a b, @a -> a b", name="told"), *types({"a": 8, "b": 2}))
    return tp.plan(graph, tp.mesh(data=4), {"a": "data"})


def _uniform(x: Any, places: Any) -> Any:
    of = jax.vmap(lambda place: jax.random.uniform(jax.random.fold_in(jax.random.key(0), place)))
    return x * of(places)[:, None]


MORE: dict[str, Callable[[], tp.Plan]] = {
    "largest": lambda: _folded({"data": 4}, jnp.float32, tp.monoids.Max, _rows_of_largest),
    "largest of five": lambda: _folded({"data": 4}, jnp.float32, tp.monoids.Max, _rows_of_largest, 5),
    "largest integer of five": lambda: _folded({"data": 4}, jnp.int32, tp.monoids.Max, _rows_of_largest, 5),
    "integers": lambda: _folded({"data": 4}, jnp.int32, tp.monoids.Sum, lambda x: jnp.sum(x, 0)),
    "powers": lambda: _told(lambda x, places: x ** places[:, None]),
    "uniform": lambda: _told(_uniform),
    "causal": _causal,
    "exclusive": _exclusive,
    "framed": _framed,
    "neutral": _neutral,
    "stages": _stages,
    "recurrence in stages": _recurrence_in_stages,
    "striped axis": lambda: _sine({"data": 4}, {"a": tp.striped("data")}),
    "stacked": lambda: _sine({"data": 2}, {"a": tp.chunks(3)}),
}


def made(name: str) -> tp.Plan:
    """A plan that is not traced yet."""
    return (MORE.get(name) or PLANS[name])()


# The causal plan goes round a ring as well.
@pytest.mark.parametrize("name", but([*PLANS, *MORE], "uniform", "ring"))
def test_cells_are_made_of_what_the_program_makes_them_of(name: str) -> None:
    plan = plan_of(name) if name in PLANS else made(name)
    plan.shards().verify_lowered(plan.compile().jaxpr(), cells=True)


def test_cells_of_random_plans_are_those_of_their_programs() -> None:
    seen = 0
    for index in range(6 if thoroughly() else 3):
        for number, (drawn, placing) in enumerate(draw_pair(f"cells/{index}", 2, edition=2)):
            _, plan, _ = repaired(placing, drawn.graph, f"cells/{index}/{number}")
            if plan is not None:
                plan.shards().verify_lowered(plan.compile().jaxpr(), cells=True)
                seen += 1
    assert seen > (8 if thoroughly() else 4)


# The plan, the function, what stands in it and what stands there instead; by the name of the fault.
FAULTS: dict[str, tuple[str, Any, str, str]] = {
    "a chunk begins a cell later": ("chunks", convert.convert, "index(cut.axes) * cut.block", "index(cut.axes)"),
    "a ring counts the other way": (
        "causal",
        here.Here._along,
        "lax.axis_index(ring) - self.counters[axis]",
        "lax.axis_index(ring) + self.counters[axis]",
    ),
    "coordinates begin a cell later": ("causal", read.coordinates, "block + cut.low", "block + cut.low + 1"),
    "the mask of the remainder is a cell short": ("neutral", fold._neutralised, "< count", "< count - 1"),
    "an exclusive prefix is inclusive": (
        "exclusive",
        prefixes._without_own,
        "[leaf, one] if block.reverse else [one, leaf]",
        "[one, leaf] if block.reverse else [leaf, one]",
    ),
    "prefixes are merged in another order": (
        "scan",
        scan.total_before,
        "receive(state, distance, there), state, there, reverse)",
        "receive(state, distance, there), state, there, not reverse)",
    ),
    "a prefix goes on from what comes behind it": (
        "scan",
        prefixes._with_own,
        "spread, inclusive, there, block.reverse)",
        "spread, inclusive, there, not block.reverse)",
    ),
    "what comes before is not merged": (
        "scan",
        prefixes._with_own,
        "merge_behind(*arguments, spread, inclusive, there, block.reverse)",
        "inclusive",
    ),
    "a turn forgets those before it": (
        "chunks",
        carried._accumulated,
        "accumulate(shaped, carrier, before[own], local[own], there, some, reverse=reverse)",
        "local[own]",
    ),
    "turns are multiplied": (
        "chunks",
        accumulate.accumulate,
        "merge_behind(merge.monoid, merge.tree, axes, earlier, later, there, reverse, some)",
        "[a * b for a, b in zip(first, second)]",
    ),
    "the last stage gives the chunks of other turns": (
        "pipeline",
        pipeline._chunks,
        "slice_in_dim(turns, last, last + chunks)",
        "slice_in_dim(turns, 0, chunks)",
    ),
    "stages give the chunks of other turns": (
        "recurrence in stages",
        pipeline._chunks,
        "dynamic_slice_in_dim(turns, here.index(step.stages), chunks)",
        "dynamic_slice_in_dim(turns, 0, chunks)",
    ),
    "the first stage shares its results": ("pipeline", convert._of_last, "here.size(axes) - 1", "0"),
    "halos on the other side": ("halo", halo._joined, "concatenate(found, axis)", "concatenate(found[::-1], axis)"),
    "a halo begins a cell earlier": ("halo", halo._piece, "= piece.starts[0]", "= max(0, piece.starts[0] - 1)"),
    "padding is cropped in front": (
        "uneven",
        pad.crop_axis,
        "lax.slice_in_dim(array, 0, size, axis=axis)",
        "lax.slice_in_dim(array, array.shape[axis] - size, None, axis=axis)",
    ),
    "stripes of the remainder": ("striped axis", stripes.cells_at, "row * full + jnp.minimum(row, rest)", "row * full"),
    "stripes put together as blocks": (
        "striped axis",
        stripes.places_of,
        "left % devices * cut.piece + row",
        "row * cut.piece + left % devices",
    ),
    "chunks put together backwards": ("stacked", region.together, "(pieces, 0, at)", "(pieces[::-1], 0, at)"),
    "sums in half the bits": (
        "megatron",
        collectives.sum_over,
        "lax.psum(value, axes)",
        "lax.psum(value.astype(jnp.bfloat16), axes).astype(value.dtype)",
    ),
    "integers in a quarter of the bits": (
        "integers",
        collectives.sum_over,
        "lax.psum(value, axes)",
        "lax.psum(value.astype(jnp.int8), axes).astype(value.dtype)",
    ),
    "carries in half the bits": (
        "chunks",
        carried._accumulated,
        "accumulate(shaped, carrier, before[own], local[own], there, some, reverse=reverse)",
        "[x.astype('bfloat16').astype(x.dtype) for x in accumulate(shaped, carrier, before[own], local[own], there)]",
    ),
}


# Of the faults of orders of prefixes one is planted in every run, and one of numbers of fewer bits.
@pytest.mark.parametrize("fault", but(FAULTS, "a prefix goes on from what comes behind it", "carries in half the bits"))
def test_faults_on_a_device_are_seen_in_the_cells(fault: str) -> None:
    name, function, old, new = FAULTS[fault]
    plan = made(name)
    with damaged(function, old, new):
        jaxpr = plan.compile().jaxpr()
    with pytest.raises(tp.PlanError, match=r"is made of other cells at|makes numbers narrower|do not send them"):
        plan.shards().verify_lowered(jaxpr, cells=True)


# What leaves every cell made of the same cells: a copy more, another order, a factor.
NUMBERS: dict[str, tuple[str, Any, str, str]] = {
    "the mask of the remainder is dropped": (
        "neutral",
        fold._neutralised,
        "valid = lax.broadcasted_iota(jnp.int32, block.shape, number) < count",
        "valid = True",
    ),
    "kernels run on padding": (
        "uneven",
        fold._switch_on_counts,
        "count = valid_count(cuts[dim], shaped.sizes[dim], here)",
        "count = jnp.int32(cuts[dim].block)",
    ),
    "a turn is merged twice": (
        "chunks",
        carried._accumulated,
        "accumulate(shaped, carrier, before[own], local[own], there, some, reverse=reverse)",
        "accumulate(shaped, carrier, accumulate(shaped, carrier, before[own], local[own], there), local[own], there)",
    ),
    "turns are merged in another order": (
        "ordered",
        carried._accumulated,
        "some, reverse=reverse)",
        "some, reverse=not reverse)",
    ),
    "a sum is doubled": (
        "megatron",
        fold._natively,
        "received(NATIVE[kind](vary(leaf, axes), axes))",
        "received(NATIVE[kind](vary(leaf, axes), axes)) * 2",
    ),
    "the padding of a stage is a layer": ("stages", program._repeat, "< step.layers", "< step.layers + 9"),
    "every stage counts its layers from the first": (
        "stages",
        program._repeat,
        "first + number < step.layers",
        "number < step.layers",
    ),
    "devices are merged in another order": ("ordered", ordered._balanced, "in (0, 1))", "in (1, 0))"),
    "powers of coordinates a cell later": ("powers", read.coordinates, "block + cut.low", "block + cut.low + 1"),
    "random numbers of the next cell": ("uniform", read.coordinates, "block + cut.low", "block + cut.low + 1"),
    "negative floats are ordered by their bits": ("largest", collectives._ordered, "return ", "return bits  # "),
    "the largest of nothing is 0": (
        "largest of five",
        fold._switch_on_counts,
        "_identity(shaped, full)",
        "[jnp.zeros_like(leaf) for leaf in _identity(shaped, full)]",
    ),
    "the largest integer of nothing is 0": (
        "largest integer of five",
        fold._switch_on_counts,
        "_identity(shaped, full)",
        "[jnp.zeros_like(leaf) for leaf in _identity(shaped, full)]",
    ),
    "devices add in frames of their own": (
        "framed",
        fold._merge_framed,
        "[vary(leaf, axes) for leaf in reference]",
        "frame.at(frame.summary(state))",
    ),
}


@pytest.mark.parametrize("fault", NUMBERS)
def test_faults_in_how_cells_are_computed_are_seen_in_finite_fields(fault: str) -> None:
    name, function, old, new = NUMBERS[fault]
    plan = made(name)
    with damaged(function, old, new):
        jaxpr = plan.compile().jaxpr()
    with pytest.raises(tp.PlanError, match="comes to something else at"):
        plan.shards().verify_lowered(jaxpr, cells=True)


@pytest.mark.parametrize(
    ("leaf", "entries"),
    [
        (lambda x: jnp.tanh(x) + jnp.sin(x), {"a": ("data", "model")}),  # padding of zeros: their sines are none
        (lambda x: jnp.exp2(x) - jnp.cosh(x) * jnp.sqrt(jnp.abs(x)) + x**-2, {"a": "data", "b": tp.chunks(2)}),
        (lambda x: jnp.where(x > 0.5, jnp.maximum(x, 0.25), -jnp.minimum(-x, x)), {"b": "model"}),
        (lambda x: jax.lax.stop_gradient(x).astype(jnp.bfloat16).astype(jnp.float32) / 3, {"a": tp.striped("data")}),
    ],
)
def test_right_plans_come_to_the_same_in_any_order(leaf: Any, entries: Any) -> None:
    def run(x: Any) -> Any:
        kept = tp.Map(leaf, "a b -> a b", name="kept")(x)
        summed = tp.Reduce(lambda x: jnp.sum(x, 0), "a b -> b", tp.monoids.Sum, pad=(0.0,))(kept)
        return summed, tp.Reduce(lambda x: jnp.max(x, (0, 1)), "a b -> ", tp.monoids.Max)(kept)

    plan = tp.plan(tp.trace(run, *types({"a": 7, "b": 6})), tp.mesh(data=2, model=2), entries)
    plan.shards().verify_lowered(plan.compile().jaxpr(), cells=True)


# Lawful by what is known of real numbers, and of no field: orders beside arithmetic, and functions.
REALS: dict[str, tuple[Any, Any, Any]] = {
    "logaddexp": (jnp.logaddexp, -jnp.inf, lambda x: jax.nn.logsumexp(x, 0)),
    "hypot": (lambda a, b: jnp.sqrt(a * a + b * b), 0.0, lambda x: jnp.sqrt(jnp.sum(x * x, 0))),
    "twice the largest": (jnp.maximum, -jnp.inf, lambda x: 2 * jnp.max(x, 0)),
    "log of a product": (jnp.add, 0.0, lambda x: jnp.log(jnp.prod(jnp.abs(x), 0))),
}


def _of_reals(name: str) -> tp.Plan:
    combine, identity, kernel = REALS[name]
    monoid = tp.Monoid(identity, combine, commutative=True, name="own")
    return _folded({"data": 4}, jnp.float32, monoid, kernel, 7)


@pytest.mark.parametrize("name", REALS)
def test_laws_of_reals_are_no_faults(name: str) -> None:
    plan = _of_reals(name)
    plan.shards().verify_lowered(plan.compile().jaxpr(), cells=True)


@pytest.mark.parametrize("name", ["hypot", "logaddexp", "log of a product"])
def test_faults_beside_laws_of_reals_are_seen_in_floats(name: str) -> None:
    plan = _of_reals(name)
    with damaged(
        fold._switch_on_counts,
        "count = valid_count(cuts[dim], shaped.sizes[dim], here)",
        "count = jnp.int32(cuts[dim].block)",
    ):
        jaxpr = plan.compile().jaxpr()
    with pytest.raises(tp.PlanError, match="comes to something else at"):
        plan.shards().verify_lowered(jaxpr, cells=True)


def test_copies_of_wide_integers_are_held_by_all_their_bits() -> None:
    aval = jax.ShapeDtypeStruct((1,), np.int64)
    assert not Exact().agree(np.array([5]), np.array([6]), aval)
    assert Exact().agree(np.array([5]), np.array([5]), aval)


def test_what_a_gather_fills_with_is_made_of_nothing() -> None:
    """Not of the cell of that number."""
    taken = jax.make_jaxpr(lambda x: jnp.take(x, jnp.array([0, 9]), mode="fill", fill_value=3.0))(
        np.ones(4, np.float32)
    )
    ((found,),) = Simulation(MadeOf()).closed(taken, [[cells((4,), 0)]])
    assert found.tolist() == [1, 0]


def test_too_many_cells_are_not_followed() -> None:
    plan = tp.plan(tp.trace(sine, *types({"a": 128, "b": 128})), tp.mesh(data=2), {"a": "data"})
    jaxpr = plan.compile().jaxpr()
    plan.shards().verify_lowered(jaxpr)
    with pytest.raises(tp.PlanError, match="`sine` has 32768 cells of arguments and results, more than 16384"):
        plan.shards().verify_lowered(jaxpr, cells=True)
    with pytest.raises(tp.PlanError, match="cells= of verify_lowered"):
        plan.shards().verify_lowered(jaxpr, cells=2)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("nothing", [lambda n: n & 0, lambda n: n * 0, lambda n: jnp.zeros_like(n) & n])
def test_integers_that_are_0_of_any_cell_are_numbers(nothing: Callable[[Any], Any]) -> None:
    # As masks are that stand in loops: a choice by them is one side.
    def chosen(x: Any) -> Any:
        return jnp.where(nothing(x.astype(jnp.int32)) == 0, x, x[::-1])

    ((found,),) = Simulation(MadeOf()).closed(jax.make_jaxpr(chosen)(jnp.zeros(4)), [[cells((4,), 0)]])
    assert found.tolist() == cells((4,), 0).tolist()


def test_integers_that_are_0_of_some_cells_are_made_of_them() -> None:
    def chosen(x: Any) -> Any:
        return jnp.where(x.astype(jnp.int32) & jnp.array([0, 1, 0, 1]) == 0, x, x[::-1])

    ((found,),) = Simulation(MadeOf()).closed(jax.make_jaxpr(chosen)(jnp.zeros(4)), [[cells((4,), 0)]])
    assert found[1] == found[2] == 0b0110


def test_numbers_of_python_are_made_as_narrow_as_what_they_meet() -> None:
    """With doubles they are of 64 bits, and places on devices of 32: every plan that pads was an alarm."""
    with jax.enable_x64(True):
        given = (tp.TensorType(sizes, jnp.float64) for sizes in ({"i": 5, "k": 7}, {"k": 7, "n": 3}))
        graph = tp.trace(tp.einsum("i k, k n -> i n"), *given)
        plan = tp.plan(graph, tp.mesh(data=2), {"k": ("data", tp.chunks(2))})
        plan.shards().verify_lowered(plan.compile().jaxpr(), cells=True)
