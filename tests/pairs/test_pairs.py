"""A sample of the pairs that `make pairs` draws, and the tool itself: a fault is found, and made smaller.

Thorough: more of the same sample.
"""

from __future__ import annotations

from typing import Any

import jax
import pytest

from tapestry_jax.lowering import program as lowering
from tests.pairs.__main__ import main
from tests.pairs.pair import check, draw_pair
from tests.pairs.smaller import smaller
from tests.thoroughly import thoroughly


@pytest.fixture(autouse=True)
def _doubles():
    with jax.enable_x64(True):
        yield


def assert_equal_pairs(seed: str, plans: int, **chosen: object) -> None:
    """Every plan that is accepted gives what the program gives."""
    for number, (program, placing) in enumerate(draw_pair(seed, plans, **chosen)):
        placing, outcome = check(program, placing, f"{seed}/{number}")
        shown = f"{seed}/{number}: {outcome.verdict}\n{program.graph.show()}\n{placing}\n{outcome.text}"
        assert outcome.verdict in ("equal", "trivial", "refused"), shown


def sample(few: int, all_of_them: int) -> list[Any]:
    """Numbers of pairs; the later ones are thorough."""
    more = [pytest.param(number, marks=pytest.mark.thorough) for number in range(few, all_of_them)]
    return [*range(few), *more]


@pytest.mark.parametrize("number", sample(3, 20))
def test_planned_is_unplanned(number):
    assert_equal_pairs(f"sample/{number}", 5 if thoroughly() else 2)


@pytest.mark.parametrize("number", sample(2, 10))
def test_planned_is_unplanned_where_dimensions_are_empty(number):
    sizes = tuple({"abc"[number % 3]: 0, "abcd"[number % 4]: 3}.items())
    assert_equal_pairs(f"empty/{number}", 3, sizes=sizes)


def test_a_planted_fault_is_found_and_made_smaller(monkeypatch):
    # Devices keep their partial results to themselves.
    monkeypatch.setattr(lowering, "merge_states", lambda shaped, carrier, cuts, axes, here, state: state)
    chosen = {"only": ("fold", "elementwise"), "sizes": (("a", 6), ("b", 6), ("c", 6))}
    found = []
    for number in range(3):
        for program, placing in draw_pair(f"planted/{number}", 2, **chosen):
            placing, outcome = check(program, placing)
            if outcome.verdict not in ("equal", "trivial", "refused"):
                found.append((program, placing, outcome))
        if found:
            break
    assert found
    program, placing, before = max(found, key=lambda pair: len(str(pair[1])))
    least, small, outcome = smaller(program, placing, before)
    assert outcome.verdict == before.verdict
    assert set(least.steps) <= set(program.steps) and len(small.entries) == 1
    assert not (small.ops or small.inputs or small.outputs)


def test_a_run_goes_on_where_it_was(tmp_path, capsys):
    own = ["--seed", "again", "--folder", str(tmp_path), "--only", "elementwise"]
    assert main([*own, "--pairs", "4"]) == 0
    (file,) = tmp_path.iterdir()
    before = file.read_text().splitlines()
    assert main([*own, "--pairs", "8"]) == 0
    after = file.read_text().splitlines()
    assert len(before) == 4 and len(after) == 8 and after[:4] == before
    assert "8 drawn" in capsys.readouterr().out
