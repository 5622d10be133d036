"""Faults planted in lowering, one by one: each is seen in the jaxpr, held against the blocks; no array is made."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import tapestry_jax as tp
from tapestry_jax.lowering import compiled, program
from tapestry_jax.lowering.exchange import collectives, convert, fold, halo
from tapestry_jax.lowering.on_device.varying import vary
from tapestry_jax.lowering.time import pipeline, region, scan
from tapestry_jax.planning.scheduling.schedule import Region
from tests.damaged import damaged
from tests.pairs.pair import draw_pair
from tests.pairs.plans import repaired
from tests.tapestry_jax.shards.examples import PLANS, plan_of, shards_of, types
from tests.tapestry_jax.shards.proof.test_damage import counted_down
from tests.thoroughly import thoroughly

negative = tp.Map(jnp.negative, "a b -> a b", name="negative")


def _square(mesh: dict[str, int], entries: Any, **more: Any) -> tp.Plan:
    return tp.plan(tp.trace(negative, *types({"a": 8, "b": 8})), tp.mesh(**mesh), entries, **more)


SQUARES: dict[str, Callable[[], tp.Plan]] = {
    "stored": lambda: _square({"data": 2}, {"a": "data"}),
    "gathered": lambda: _square({"data": 2, "model": 2}, {"a": ("data", "model")}, outputs={"y": {}}),
    "exchanged": lambda: _square({"data": 2}, {"a": "data"}, outputs={"y": {"b": "data"}}),
    "sliced": lambda: _square({"data": 2}, {"a": "data"}, inputs={"x": {}}),
}


def made(name: str) -> tp.Plan:
    return SQUARES[name]() if name in SQUARES else plan_of(name)


@pytest.mark.parametrize("name", [*PLANS, *SQUARES])
def test_what_is_lowered_is_what_the_blocks_say(name: str) -> None:
    plan = made(name)
    plan.shards().verify_lowered(plan.compile().jaxpr())


def test_random_plans_are_lowered_as_their_blocks_say() -> None:
    seen = 0
    for index in range(5 if thoroughly() else 3):
        for number, (drawn, placing) in enumerate(draw_pair(f"low1/{index + 5}", 4)):
            _, plan, _ = repaired(placing, drawn.graph, f"low1/{index + 5}/{number}")
            if plan is not None:
                plan.shards().verify_lowered(plan.compile().jaxpr())
                seen += 1
    assert seen > 6


# On two devices a neighbour on both sides is one; an axis is dealt beside two others; what stands before a loop and
# what is gathered in it have one path; in the last turn of a ring others stand.
@pytest.mark.parametrize(
    "pair",
    [
        *("exb/47/1", "exd/130/0", "exd/147/0", "rvz/157/0"),
        *(pytest.param(pair, marks=pytest.mark.thorough) for pair in ("exa/38/1", "exd/11/0", "rvz/144/0")),
    ],
)
def test_drawn_plans_that_were_alarms_are_none(pair: str) -> None:
    seed, number = pair.rsplit("/", 1)
    drawn, placing = draw_pair(seed, 2, edition=2)[int(number)]
    _, plan, _ = repaired(placing, drawn.graph, pair)
    assert plan is not None
    plan.shards().verify_lowered(plan.compile().jaxpr(), cells=True)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.complex64], ids=lambda each: each.__name__)
def test_what_is_gathered_along_an_inner_axis_is_no_alarm(dtype: Any) -> None:
    """Complex numbers are gathered with this axis in front, which was taken for another one."""
    kind = tp.TensorType({"a": 5, "b": 6}, dtype)
    plan = tp.plan(tp.trace(negative, kind), tp.mesh(data=4), {"b": "data"})
    plan.shards().verify_lowered(plan.compile().jaxpr(), cells=True)


def test_numbers_beside_arrays_are_followed() -> None:
    """`np.pad`, by which arguments are padded, takes no array without axes."""
    scaled = tp.Map(jnp.multiply, "a b, -> a b")
    plan = tp.plan(tp.trace(scaled, *types({"a": 5, "b": 2}, {})), tp.mesh(data=4), {"a": "data"})
    plan.shards().verify_lowered(plan.compile().jaxpr(), cells=True)


def test_a_ring_behind_a_scan_whose_totals_are_found_first_sends_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # The pass for totals runs none of it, and is held against what is left.
    scanned, product = tp.scan(tp.aggregators.Sum(), "t c -> t c", over="t"), tp.einsum("t c, c d -> t d")
    graph = tp.trace(lambda x, w: product(scanned(x), w), *types({"t": 16, "c": 16}, {"c": 16, "d": 8}))
    plan = tp.plan(graph, tp.mesh(z=2, y=2), {"t": ("z", tp.chunks(2)), "c": tp.ring("y"), "d": "y"})
    plan.shards().verify_lowered(plan.compile().jaxpr())
    monkeypatch.setattr(region, "permute_over", lambda value, *_: value)
    jaxpr = tp.plan(graph, plan.mesh, dict(plan.entries)).compile().jaxpr()
    with pytest.raises(tp.PlanError, match="goes round `y`, and the lowered program sends nothing more"):
        plan.shards().verify_lowered(jaxpr)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("pairs, starts = drift.sent(number, devices)", "pairs, starts = ((0, 1),), drift.sent(number, devices)[1]"),
        ("pairs, starts = drift.sent(number, devices)", "pairs, starts = ((1, 0),), drift.sent(number, devices)[1]"),
    ],
)
def test_two_devices_have_to_send_to_each_other(old: str, new: str) -> None:
    """Both directions are one distance round the axis."""
    of = tp.Map(lambda x: x[:-2] + x[1:-1] + x[2:], "(a+[k]) b -> a b", sizes={"k": 3}, name="taps")
    graph = tp.trace(of, *types({"a": 11, "b": 2}))

    def plan() -> tp.Plan:
        return tp.plan(graph, tp.mesh(data=2), {"a": "data"})

    plan().shards().verify_lowered(plan().compile().jaxpr(), cells=True)
    with damaged(halo.exchange_drifting, old, new):
        jaxpr = plan().compile().jaxpr()
    with pytest.raises(tp.PlanError, match=r"neighbours along \(data\) that do not send them"):
        plan().shards().verify_lowered(jaxpr)


# Faults. Each takes what it replaces.

Fault = Callable[[Any], Any]


def pairs_by(change: Callable[[list[Any], int], Any]) -> Fault:
    """Send along other pairs."""

    def fault(send: Any) -> Any:
        return lambda value, axes, pairs, mesh, *rest: send(
            value, axes, change([tuple(map(int, p)) for p in pairs], mesh.size(axes)), mesh, *rest
        )

    return fault


def backwards(pairs: list[Any], _: int) -> Any:
    return [(there, here) for here, there in pairs]


def one_further(pairs: list[Any], size: int) -> Any:
    return [(here, (there + 1) % size) for here, there in pairs]


def one_left_out(pairs: list[Any], _: int) -> Any:
    return pairs[1:]


def native(reduce: Callable[[Any, tuple[str, ...]], Any]) -> Fault:
    """Merge sums by something else."""
    return lambda natives: {**natives, "sum": reduce}


def first_alone(value: Any, axes: tuple[str, ...]) -> Any:
    """What the first device has, on all devices."""
    return collectives.gather_over(value[None], 0, axes, "invarying")[0]


def twice(value: Any, axes: tuple[str, ...]) -> Any:
    return lax.psum(vary(lax.psum(value, axes), axes), axes)


def everywhere(value: Any, axes: tuple[str, ...]) -> Any:
    return lax.psum(vary(value, ("data", "model")), ("data", "model"))


def gathered_along_another(gather: Any) -> Any:
    def fault(value: Any, axis: int, axes: tuple[str, ...], to: str) -> Any:
        size = jax.eval_shape(lambda given: gather(given, axis, axes, to), value).shape
        return gather(value, 1 - axis, axes, to).reshape(size)

    return fault


def gathered_in_another_order(gather: Any) -> Any:
    return lambda value, axis, axes, to: gather(value, axis, axes[::-1], to)


class _Lax:
    """`lax`, one function of which is another."""

    def __init__(self, real: Any, **changed: Any) -> None:
        self._real, self._changed = real, changed

    def __getattr__(self, name: str) -> Any:
        return self._changed.get(name) or getattr(self._real, name)


def traded_backwards(real: Any) -> Any:
    def all_to_all(value: Any, axes: Any, split: int, together: int, *, tiled: bool) -> Any:
        size = jax.eval_shape(lambda x: real.all_to_all(x, axes, split, together, tiled=tiled), value).shape
        square = value.reshape(size)
        return real.all_to_all(square, axes, together, split, tiled=tiled).reshape(size)

    return _Lax(real, all_to_all=all_to_all)


def scattered_along_another(real: Any) -> Any:
    def psum_scatter(value: Any, axes: Any, *, scatter_dimension: int, tiled: bool) -> Any:
        size = list(value.shape)
        size[scatter_dimension] //= 8
        return real.psum_scatter(value, axes, scatter_dimension=1 - scatter_dimension, tiled=tiled).reshape(size)

    return _Lax(real, psum_scatter=psum_scatter)


def a_turn_less(turns_of: Any) -> Any:
    return lambda axis: turns_of(axis) - ("mlp" in axis)


def an_iteration_less(real: Any) -> Any:
    return lambda body, start, given, length: real(body, start, given, length=length - 1)


def a_turn_more(turns: Any) -> Any:
    return lambda step, mesh: turns(step, mesh) + 1


def only_results(spec: Any) -> Any:
    """Results lie along the other axis; arguments as they should."""
    calls: list[int] = []

    def fault(layout: Any) -> Any:
        calls.append(1)
        return spec(layout) if len(calls) % 2 else type(spec(layout))(*spec(layout)[::-1])

    return fault


def sliced_along_another(cut: Any) -> Any:
    def fault(value: Any, axis: int, how: Any, here: Any) -> Any:
        return cut(value, 1 - axis, how, here).reshape(how.block, -1)

    return fault


def largest_of_stages(value: Any, axes: tuple[str, ...]) -> Any:
    return lax.pmax(value, axes)


FAULTS: list[tuple[str, str, Any, str, Fault, str]] = [
    ("halos backwards", "halo", halo, "permute_over", pairs_by(backwards), "do not send them"),
    ("halos one device further", "halo", halo, "permute_over", pairs_by(one_further), "do not send them"),
    ("a device gets no halo", "halo", halo, "permute_over", pairs_by(one_left_out), "do not send them"),
    ("deep halos one further", "deep", halo, "permute_over", pairs_by(one_further), "do not send them"),
    ("a ring backwards", "ring", region, "permute_over", pairs_by(backwards), "another way than its blocks"),
    ("a ring broken", "ring", region, "permute_over", pairs_by(one_left_out), "another way than its blocks"),
    ("a ring that stands", "ring", region, "permute_over", lambda _: lambda value, *_: value, "sends nothing more"),
    ("stages backwards", "pipeline", pipeline, "permute_over", pairs_by(backwards), "another stage than the next"),
    ("a pipeline too long", "pipeline", Region, "turns", a_turn_more, r"."),
    ("stages shared by the largest", "pipeline", convert, "sum_over", lambda _: largest_of_stages, "expected sum"),
    ("a scan backwards", "scan", scan, "permute_over", pairs_by(backwards), "not its own"),
    ("a scan one device further", "scan", scan, "permute_over", pairs_by(one_further), "not its own"),
    ("a scan without its rounds", "scan", scan, "scan_distances", lambda _: lambda devices: [], "sends nothing more"),
    ("a sum that is dropped", "megatron", fold, "NATIVE", native(first_alone), "merges a state"),
    ("a sum taken twice", "megatron", fold, "NATIVE", native(twice), "sends what no block asks for"),
    ("a sum over all devices", "megatron", fold, "NATIVE", native(everywhere), r"expected sum over \(model\)"),
    ("the largest for a sum", "megatron", fold, "NATIVE", native(lax.pmax), "merges a state"),
    ("scattered along another axis", "scattered", program, "lax", scattered_along_another, "along another axis"),
    ("gathered along another axis", "gathered", convert, "gather_over", gathered_along_another, "does not lie so"),
    ("gathered in another order", "gathered", convert, "gather_over", gathered_in_another_order, "does not lie so"),
    ("traded the other way", "exchanged", convert, "lax", traded_backwards, "does not lie so"),
    (
        "sliced along another axis",
        "sliced",
        convert,
        "slice_alike",
        sliced_along_another,
        r"slice over \(data\) at axis 1",
    ),
    ("results lie otherwise", "stored", compiled, "spec", only_results, "result y.*lies otherwise"),
    ("a turn left out", "chunks", region, "turns_of", a_turn_less, "turn otherwise|expected 2 x 3"),
    ("an iteration left out", "halo", program, "scan", an_iteration_less, "that do not send them"),
]


@pytest.mark.parametrize(
    ("name", "where", "what", "fault", "told"), [x[1:] for x in FAULTS], ids=[x[0] for x in FAULTS]
)
def test_faults_of_lowering_are_seen(
    name: str, where: Any, what: str, fault: Fault, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = made(name)
    shards = shards_of(name) if name in PLANS else plan.shards()
    monkeypatch.setattr(where, what, fault(getattr(where, what)))
    jaxpr = plan.compile().jaxpr()
    with pytest.raises(tp.PlanError) as found:
        shards.verify_lowered(jaxpr)
    assert re.search(told, str(found.value), re.DOTALL), str(found.value)


def test_blocks_on_devices_in_another_order_are_refused() -> None:
    """They compute the same, and a jaxpr that has pieces of these sizes on these axes does not."""
    plan = made("stored")
    turned = counted_down("data")(plan.shards())
    turned.verify(plan.graph)
    with pytest.raises(tp.PlanError, match="in an order in which nothing is lowered"):
        turned.verify_lowered(plan.compile().jaxpr())


def test_another_program_is_refused() -> None:
    with pytest.raises(tp.PlanError, match="one `shard_map`, and 0 were found"):
        shards_of("megatron").verify_lowered(jax.make_jaxpr(jnp.negative)(1.0))
    with pytest.raises(tp.PlanError, match="`argument x` has other pieces"):
        shards_of("megatron").verify_lowered(plan_of("halo").compile().jaxpr())
