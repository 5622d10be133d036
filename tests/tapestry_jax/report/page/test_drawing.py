"""The picture of a schedule: all of it is there, arrows say how values are read, what is sent stands between."""

from __future__ import annotations

import pytest

from tapestry_jax.planning.rewrites.deepen import is_barrier
from tapestry_jax.planning.scheduling.schedule import Finish, Region, Repeat, Run
from tapestry_jax.report.page.drawing import drawing
from tests.tapestry_jax.report.page import plans


def arrows(drawn, *, next=False):
    names = [f"{node.sends} for {node.path}" if node.sends else node.path for node in drawn.nodes]
    return [(names[each.source], names[each.target], each.layout) for each in drawn.edges if each.next == next]


def paths(schedule):
    """Every operation that a schedule runs, and every merge at its end."""
    for step in schedule.steps:
        if isinstance(step, Run | Finish):
            if not (isinstance(step, Run) and is_barrier(schedule.graph.nodes[step.node])):
                yield step.path
        elif isinstance(step, Repeat | Region):
            yield from paths(step.body)


@pytest.mark.parametrize("make", plans.EVERY)
def test_all_that_is_run_is_drawn_and_arrows_lead_forwards(make):
    drawn = drawing(make().schedule, counted=False)
    shown = sorted(node.path for node in drawn.nodes if node.kind in ("operation", "merge"))
    assert shown == sorted(paths(make().schedule))
    assert [node.path for node in drawn.nodes if node.kind == "output"] == [name for name, _ in make().graph.outputs]
    assert {node.path for node in drawn.nodes if node.kind == "input"} == {node.path for node in make().graph.inputs}
    assert all(each.source < each.target for each in drawn.edges if not each.next)
    # Whatever is read has been drawn, and nothing is drawn that nobody asked for.
    read = {each.source for each in drawn.edges}
    assert all(node.kind == "output" or number in read for number, node in enumerate(drawn.nodes))


def test_arrows_say_how_a_value_is_read():
    assert sorted(arrows(drawing(plans.mlp().schedule))) == [
        ("down", "matmul_1", "mlp:model"),
        ("gelu", "matmul_1", "batch:data mlp:model"),
        ("matmul", "gelu", "batch:data mlp:model"),
        ("matmul_1", "y", "batch:data"),
        ("up", "matmul", "mlp:model"),
        ("x", "matmul", "batch:data"),
    ]


def test_what_is_gathered_stands_between_what_is_stored_and_its_reader():
    found = arrows(drawing(plans.gathered().schedule))
    assert ("up", "all-gather for matmul", "embed:data mlp:model") in found
    assert ("all-gather for matmul", "matmul", "mlp:model") in found


def test_what_a_loop_gathers_in_every_turn_is_drawn_in_it():
    drawn = drawing(plans.layers().schedule)
    gathers = [node for node in drawn.nodes if node.sends == "all-gather"]
    assert len(gathers) == len([each for each in plans.layers().collectives() if each.kind == "all-gather"]) == 2
    assert {(node.loops[0].kind, node.times) for node in gathers} == {("repeat", 4)}


def test_a_loop_hands_on_to_the_operations_that_read_it_in_the_next_turn():
    drawn = drawing(plans.pipeline().schedule)
    handed = {(source, target) for source, target, _ in arrows(drawn, next=True)}
    assert handed == {("stack/add", "stack/matmul"), ("stack/add", "stack/add")}
    node = next(each for each in drawn.nodes if each.path == "stack/add")
    assert [loop.kind for loop in node.loops] == ["time", "repeat"]
    assert node.loops[0].what == "7 turns, 4 stages, bubble 3/7 (43%)"
    assert node.times == 7


def test_turns_of_a_deep_halo_stand_one_behind_the_other_and_one_exchange_before_them():
    drawn = drawing(plans.halo().schedule)
    assert [node.sends or node.kind for node in drawn.nodes[1:-1]] == ["collective-permute", *["operation"] * 4]
    assert [layout for *_, layout in arrows(drawn)][1] == "y:model(-3 +3)"


def test_blocks_are_counted_where_somebody_wants_it():
    first, second = (drawing(plans.mlp().schedule, counted=counted).nodes[2] for counted in (True, False))
    # 16 rows of the batch, 64 columns of the hidden layer, 64 products and sums for each.
    assert (first.flops, first.bytes) == (2 * 16 * 64 * 64, 4 * (16 * 64 + 64 * 64 + 16 * 64))
    assert (second.flops, second.bytes) == (None, None)
