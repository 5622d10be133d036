"""`tp.halo(depth=n)`: one exchange of the overlap for several turns of an iteration, boundaries applied in each."""

from __future__ import annotations

import numpy as np
import pytest

import tapestry_jax as tp
from tests.boundaries import PADS
from tests.contract import assert_holds, inside
from tests.tapestry_jax.draw import normal


def corners(block):
    return 0.4 * block[:-2, :-2] + 0.3 * block[2:, :-2] - 0.2 * block[:-2, 2:] - 0.5 * block[2:, 2:]


def ahead(block):
    return block[3:] - 0.5 * block[:-3]


def padded(array, widths, modes):
    for axis, (width, mode) in enumerate(zip(widths, modes, strict=True)):
        array = np.pad(array, [width if other == axis else (0, 0) for other in range(array.ndim)], mode=PADS[mode])
    return array


def test_deep_halo_of_two_dimensions_with_corners_and_a_remainder(mesh2x4):
    # Uneven blocks of 3 rows and 4 columns; 5 turns are 2 exchanges for 2 turns each, and 1 for the last. That every
    # boundary holds in every turn is simulated in test_neighbour_exchange.py.
    modes = ("periodic", "edge")
    step = tp.Map(corners, "(y+[dy]-1) (x+[dx]-1) -> y x", sizes={"dy": 3, "dx": 3}, boundary=modes)
    args = (normal(10, 7),)

    @tp.program("y x -> y x")
    def simulate(field):
        return tp.iterate(step, 5)(field)

    def reference(field):
        field = np.asarray(field)
        for _ in range(5):
            field = corners(padded(field, ((1, 1), (1, 1)), modes))
        return field

    entries = {"y": ("model", tp.halo(depth=2)), "x": ("data", tp.halo(depth=2))}
    plan = tp.plan(tp.trace(simulate, *args), mesh2x4, entries)
    assert_holds(plan, args, reference=reference)
    assert {each.kind for each in inside(plan, True)} == {"collective-permute"}


@pytest.mark.parametrize("size", [19, pytest.param(24, marks=pytest.mark.thorough)])
def test_deep_halo_of_a_window_that_begins_with_nothing(mesh8, size):
    # What lies before the first element counts as nothing, also where a device computes indices before the first one.
    step = tp.window(tp.aggregators.Sum(), 3, "t -> t")
    args = (normal(size),)
    simulate = tp.program("t -> t")(lambda field: tp.iterate(step, 3)(field))
    plan = tp.plan(tp.trace(simulate, *args), mesh8, {"t": ("data", tp.halo(depth=2))})
    weights = np.tril(np.ones((size, size))) - np.tril(np.ones((size, size)), -3)
    assert_holds(plan, args, reference=lambda field: np.linalg.matrix_power(weights, 3) @ np.asarray(field))


def test_deep_halo_of_a_step_of_several_operations(mesh8):
    # A one-sided window wider than a block, a fold that everyone reads, a constant that is read by windows, and two
    # reads of the carry. Three turns at once reach 18 cells ahead, over blocks of three.
    reach = tp.Map(ahead, "(t+3*[k]) -> t", sizes={"k": 2}, boundary="periodic")
    total = tp.einsum("t -> ")
    args = (normal(24), normal(24, seed=1))

    @tp.program("t, t -> t")
    def simulate(field, source):
        def step(carry, held):
            return carry + 0.1 * reach(reach(carry)) * reach(held) - 0.01 * total(carry)

        return tp.iterate(step, 6)(field, source)

    def reference(field, source):
        field, source = np.asarray(field), np.asarray(source)

        def read(array):
            return ahead(np.pad(array, (0, 3), mode="wrap"))

        for _ in range(6):
            field = field + 0.1 * read(read(field)) * read(source) - 0.01 * field.sum()
        return field

    plan = tp.plan(tp.trace(simulate, *args), mesh8, {"t": ("data", tp.halo(depth=3))})
    assert_holds(plan, args, reference=reference)


def diffuse(block):
    return (block[:-2] + block[2:] + 2 * block[1:-1]) / 4


def stencil(turns, boundary="periodic"):
    step = tp.Map(diffuse, "(y+[dy]-1) x -> y x", sizes={"dy": 3}, boundary=boundary)
    program = tp.program("y x -> y x")(lambda field: tp.iterate(step, turns)(field))
    return tp.trace(program, tp.TensorType({"y": 256, "x": 64}))


@pytest.mark.parametrize(("depth", "permutes"), [(1, 64), (16, 4), (10, 8)])
def test_exchanges_are_once_for_every_depth_turns(mesh8, depth, permutes):
    plan = tp.plan(stencil(32), mesh8, {"y": ("data", tp.halo(depth=depth))})
    found = plan.collectives()
    assert sum(each.times for each in found) == permutes
    # What is sent is the overlap of all turns, however they are grouped.
    assert sum(each.bytes * each.times for each in found) == 2 * 32 * 64 * 4
    plan.verify()


def test_halo_of_depth_one_is_no_halo(mesh8):
    graph = stencil(4, "edge")
    halo = tp.plan(graph, mesh8, {"y": ("data", tp.halo(depth=1))})
    assert halo.schedule == tp.plan(graph, mesh8, {"y": "data"}).schedule


def test_explain_counts_redundant_work(mesh8):
    text = tp.plan(stencil(8), mesh8, {"y": ("data", tp.halo(depth=4))}).explain()
    assert [f"y:data(-{more} +{more})" in text for more in (1, 2, 3, 4)] == [True, True, True, False]
    flops = [float(line.split()[-2].rstrip("k")) for line in text.splitlines() if line.startswith("one device")]
    plain = tp.plan(stencil(8), mesh8, {"y": "data"}).explain()
    shallow = [float(line.split()[-2].rstrip("k")) for line in plain.splitlines() if line.startswith("one device")]
    # Blocks of 32 rows, and 6, 4, 2 and 0 further ones.
    assert flops[0] / shallow[0] == pytest.approx((38 + 36 + 34 + 32) / (4 * 32), rel=0.01)


def test_what_cannot_be_computed_twice_is_exchanged_where_it_is_read(mesh8):
    # Around periodic ends nothing else than a periodic window can be repeated, and coordinates of copies are none.
    step = {
        mode: tp.Map(diffuse, "(y+[dy]-1) x -> y x", sizes={"dy": 3}, boundary=mode) for mode in ("edge", "periodic")
    }
    scaled = tp.Map(lambda block, at: block * at[:, None], "y x, @y -> y x")

    def permutes(*operations):
        def body(field):
            for operation in operations:
                field = operation(field)
            return field

        program = tp.program("y x -> y x")(lambda field: tp.iterate(body, 4)(field))
        graph = tp.trace(program, tp.TensorType({"y": 32, "x": 2}))
        plan = tp.plan(graph, mesh8, {"y": ("data", tp.halo(depth=2))})
        return sum(each.times for each in plan.collectives())

    assert permutes(step["edge"], step["edge"]) == permutes(step["edge"], scaled) == 4
    assert permutes(step["periodic"], step["edge"]) == permutes(step["periodic"], scaled) == 8


def test_plan_with_a_halo_is_stored(mesh8):
    graph = stencil(8)
    plan = tp.plan(graph, mesh8, {"y": ("data", tp.halo(depth=4))})
    assert tp.Plan.from_json(plan.to_json(), graph, mesh8).schedule == plan.schedule


def sequence(x):
    return tp.Map(diffuse, "(y+[dy]-1) x -> y x", sizes={"dy": 3}, boundary="edge")(x)


@pytest.mark.parametrize(
    ("graph", "entries", "text"),
    [
        (stencil(8), {"y": ("data", tp.halo(depth=9))}, "turns 8 times, fewer than one halo serves"),
        (stencil(300), {"y": ("data", tp.halo(depth=300))}, "the halo of `y` is wider than the tensor"),
        (stencil(8), {"y": tp.halo(depth=2)}, "but cuts it neither over mesh axes nor in chunks"),
        (stencil(8), {"y": "data", "x": ("data", tp.halo())}, "`x` a halo, but no loop reads windows of it"),
        (
            tp.trace(tp.program("y x -> y x")(sequence), tp.TensorType({"y": 8, "x": 2})),
            {"y": ("data", tp.halo(depth=2))},
            "loops read windows of: nothing",
        ),
    ],
    ids=["loop", "tensor", "uncut", "windows", "iterated"],
)
def test_halos_that_cannot_be_say_so(mesh8, graph, entries, text):
    with pytest.raises(tp.PlanError, match=text):
        tp.plan(graph, mesh8, entries)


def test_two_depths_in_one_loop_are_refused(mesh2x4):
    step = tp.Map(corners, "(y+[dy]-1) (x+[dx]-1) -> y x", sizes={"dy": 3, "dx": 3}, boundary="edge")
    program = tp.program("y x -> y x")(lambda field: tp.iterate(step, 8)(field))
    graph = tp.trace(program, tp.TensorType({"y": 16, "x": 16}))
    with pytest.raises(tp.PlanError, match="halos of several depths") as caught:
        tp.plan(graph, mesh2x4, {"y": ("model", tp.halo(depth=4)), "x": ("data", tp.halo(depth=2))})
    assert "Give all dimensions of one loop the same depth." in str(caught.value)


def test_loop_that_takes_slices_is_refused(mesh8):
    step = tp.Map(lambda block, w: diffuse(block) * w, "(y+[dy]-1) x, y x -> y x", sizes={"dy": 3}, boundary="edge")
    program = tp.program("y x, layer y x -> y x")(lambda field, scales: tp.stack(step, 4)(field, scales))
    graph = tp.trace(program, tp.TensorType({"y": 16, "x": 2}), tp.TensorType({"layer": 4, "y": 16, "x": 2}))
    with pytest.raises(tp.PlanError, match="takes slices along `layer`"):
        tp.plan(graph, mesh8, {"y": ("data", tp.halo(depth=2))})
