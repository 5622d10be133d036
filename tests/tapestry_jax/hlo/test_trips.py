"""Turns of loops, as XLA prints them on CPU and GPU, and as the TPU compiler leaves them to be found."""

from __future__ import annotations

import pytest

from tapestry_jax.hlo.text import read
from tapestry_jax.hlo.trips import executions

# As libtpu prints it: no trip count, a layout with tiles, the first number behind a copy, bound or step carried.
LOOP = """HloModule jit_f, is_scheduled=true

%turn (param.2: (s32[], f32[64,256], s32[])) -> (s32[], f32[64,256], s32[]) {{
  %one = s32[]{{:T(128)}} constant({step})
  %param.2 = (s32[]{{:T(128)}}, f32[64,256]{{1,0:T(8,128)S(1)}}, s32[]{{:T(128)}}) parameter(0)
  %i = s32[]{{:T(128)}} get-tuple-element(%param.2), index=0
  %x = f32[64,256]{{1,0:T(8,128)S(1)}} get-tuple-element(%param.2), index=1
  %kept = s32[]{{:T(128)}} get-tuple-element(%param.2), index=2
  %next = s32[]{{:T(128)}} {advance}
  ROOT %out = (s32[]{{:T(128)}}, f32[64,256]{{1,0}}, s32[]{{:T(128)}}) tuple(%next, %x, %kept)
}}

%goes_on (param.1: (s32[], f32[64,256], s32[])) -> pred[] {{
  %bound = s32[]{{:T(128)}} constant({bound})
  %param.1 = (s32[]{{:T(128)}}, f32[64,256]{{1,0}}, s32[]{{:T(128)}}) parameter(0)
  %j = s32[]{{:T(128)}} get-tuple-element(%param.1), index=0
  %carried = s32[]{{:T(128)}} get-tuple-element(%param.1), index=2
  ROOT %lt.3 = pred[]{{:T(512)}} compare({compared}), direction={direction}, metadata={{op_name="jit(f)/while/cond/lt"}}
}}

ENTRY %main (p: f32[64,256]) -> f32[64,256] {{
  %start = s32[]{{:T(128)}} constant({start})
  %far = s32[]{{:T(128)}} constant(12)
  %p = f32[64,256]{{1,0:T(8,128)}} parameter(0)
  %copied = s32[]{{:T(128)}} copy(%start)
  %given = (s32[]{{:T(128)}}, f32[64,256]{{1,0}}, s32[]{{:T(128)}}) tuple(%copied, %p, %far)
  %loop = (s32[]{{:T(128)}}, f32[64,256]{{1,0}}, s32[]{{:T(128)}}) while(%given), condition=%goes_on, body=%turn
  ROOT %y = f32[64,256]{{1,0}} get-tuple-element(%loop), index=1
}}
"""
USUAL = {
    "start": 0,
    "step": 1,
    "bound": 32,
    "direction": "LT",
    "compared": "%j, %bound",
    "advance": "add(%i, %one)",
}


@pytest.mark.parametrize(
    ("change", "turns"),
    [
        ({}, 32),
        ({"start": 5}, 27),
        ({"step": 3}, 11),
        ({"bound": 0}, 0),
        ({"start": 40}, 0),
        ({"direction": "LE"}, 33),
        ({"direction": "GT", "compared": "%bound, %j"}, 32),
        ({"direction": "GT", "start": 31, "bound": -1, "step": -1}, 32),
        ({"direction": "GT", "start": 31, "bound": -1, "step": -3}, 11),
        ({"direction": "NE"}, 32),
        ({"direction": "GE", "start": 31, "bound": 0, "advance": "subtract(%i, %one)"}, 32),
        ({"advance": "add(%one, %i)"}, 32),
        ({"compared": "%j, %carried"}, 12),
        # Nothing that can be told: it counts once.
        ({"advance": "add(%i, %i)"}, 1),
        ({"advance": "multiply(%i, %one)"}, 1),
        ({"step": -1}, 1),
        ({"step": 0}, 1),
    ],
)
def test_turns_are_found_where_none_are_printed(change: dict[str, object], turns: int) -> None:
    assert executions(read(LOOP.format(**(USUAL | change))))["turn"] == turns


def test_a_bound_that_a_turn_changes_is_not_known() -> None:
    text = LOOP.format(**(USUAL | {"compared": "%j, %carried"})).replace("%x, %kept)", "%x, %next)")
    assert executions(read(text))["turn"] == 1


def test_printed_turns_count() -> None:
    printed = 'body=%turn, backend_config={"known_trip_count":{"n":"7"}}'
    assert executions(read(LOOP.format(**USUAL).replace("body=%turn", printed)))["turn"] == 7


def test_a_computation_that_two_loops_run_counts_for_both() -> None:
    again = "  %again = (s32[], f32[64,256], s32[]) while(%given), condition=%goes_on, body=%turn\n  ROOT %y"
    assert executions(read(LOOP.format(**USUAL).replace("  ROOT %y", again)))["turn"] == 64


def test_a_loop_inside_a_loop_runs_in_every_turn_and_its_condition_counts_once() -> None:
    around = (
        "ENTRY %outer (o: f32[64,256]) -> f32[64,256] {\n  %o = f32[64,256]{1,0} parameter(0)\n"
        "  ROOT %z = f32[64,256]{1,0} while(%o), condition=%any, body=%main, "
        'backend_config={"known_trip_count":{"n":"3"}}\n}\n'
    )
    found = executions(read(LOOP.format(**USUAL).replace("ENTRY %main", "%main") + around))
    assert (found["main"], found["turn"], found["goes_on"]) == (3, 96, 3)
