"""Programs over the operations of a monoid: plain data that is built, and printed as it is built."""

from __future__ import annotations

import hypothesis
from hypothesis import strategies as st

from laws.draws.states import MOST_LEAVES, build_state, programs, show_state


def test_programs_print_as_they_are_built():
    program = ["combine", ["combine", ["lift", 1.0, [2.5, 3.0]], ["identity"]], ["value", -1, True]]
    assert show_state(program) == "combine(combine(lift(1, [2.5, 3]), identity), value(-1, True))"
    spelled = build_state(
        program,
        identity=lambda: "e",
        lift=lambda *parts: f"l{parts}",
        value=lambda parts: f"v{parts}",
        combine=lambda a, b: f"({a} {b})",
    )
    assert spelled == "((l(1.0, [2.5, 3.0]) e) v[-1, True])"


@hypothesis.settings(max_examples=60, database=None, deadline=None, derandomize=True)
@hypothesis.given(programs(st.integers(0, 9).map(lambda number: ["lift", number])))
def test_what_is_drawn_is_built_from_its_lifts_in_order(program):
    built = build_state(program, identity=list, lift=lambda number: [number], value=list, combine=list.__add__)
    assert built == [
        int(word)
        for word in show_state(program).replace("(", " ").replace(")", " ").replace(",", " ").split()
        if word.isdigit()
    ]
    assert len(built) <= MOST_LEAVES
