"""What a picture is folded by: scopes, loops, equal layers in a row, and parts of long lists."""

from __future__ import annotations

from tapestry_jax.report.page.drawing import drawing
from tapestry_jax.report.page.scopes import LONGEST, scopes_of
from tests.tapestry_jax.report.page import plans


def named(make):
    drawn = drawing(make().schedule, counted=False)
    scopes, within = scopes_of(drawn)
    return drawn, scopes, within


def test_equal_layers_are_a_row_whatever_the_order_of_their_parameters():
    drawn, scopes, within = named(plans.transformer)
    (row,) = [number for number, scope in enumerate(scopes) if scope.kind == "alike"]
    assert (scopes[row].name, scopes[row].count, scopes[row].parent) == ("decoder/0..11", 12, -1)
    assert [scope.name for scope in scopes if scope.parent == row] == [str(number) for number in range(12)]
    # In the order of the program, although parameters come first in it.
    assert [scope.name for scope in scopes if scope.parent == -1] == [
        "embed",
        "positions",
        "decoder/0..11",
        "norm",
        "head",
    ]
    # Parameters lie in the layers that read them.
    bias = next(n for n, node in enumerate(drawn.nodes) if node.path.endswith("decoder/3/mlp/up/bias"))
    assert scopes[within[bias]].path == "decoder/3/mlp/up"


def test_a_layer_that_differs_is_in_no_row():
    graph = plans.transformer().graph
    ops = {"decoder/5/mlp/gelu": {"mlp": None}}
    import tapestry_jax as tp

    plan = tp.plan(graph, plans.MESH, {"batch": "data", "mlp": "model", "heads": "model"}, ops=ops)
    scopes, _ = scopes_of(drawing(plan.schedule, counted=False))
    assert [scope.name for scope in scopes if scope.kind == "alike"] == ["0..4", "6..11"]
    assert "5" in [scope.name for scope in scopes]


def test_loops_lie_in_each_other_and_hold_what_runs_in_them():
    drawn, scopes, within = named(plans.pipeline)
    assert [(scope.kind, scope.parent) for scope in scopes] == [("time", -1), ("repeat", 0)]
    inside = [drawn.nodes[number].path for number, scope in enumerate(within) if scope == 1]
    assert {"stack/matmul", "stack/gelu", "stack/add", "up", "down", "x"} == {*inside} - {"stack/matmul_1"}


def test_long_lists_are_put_into_parts():
    drawn, scopes, within = named(plans.long)
    assert {scope.kind for scope in scopes} == {"part"}
    beside = [scope for scope in scopes if scope.parent == -1]
    assert len(beside) <= LONGEST
    assert max(within.count(number) for number in range(len(scopes))) <= LONGEST
    assert min(within) >= 0
    assert len(within) == len(drawn.nodes)


def test_a_program_without_operations_has_no_scopes():
    _, scopes, within = named(plans.empty)
    assert (scopes, within) == ([], [-1, -1])
