"""Sharded graphs of drawn plans, run block by block; and damaged files of them, which are refused or do no harm.

Thorough: more of the same sample.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

import jax
import pytest

from tapestry_jax.shards.proof.moves import prove_move
from tests.damaged import damaged
from tests.pairs import damaging_json
from tests.pairs.blocks import BROKEN, Drawn, checked, damages_of
from tests.pairs.features import lacking
from tests.pairs.test_pairs import sample
from tests.tapestry_jax.shards.examples import PLANS, plan_of, shards_of
from tests.tapestry_jax.shards.test_run import arguments

FOUND = ("orc2/84/3", "orc2/29/3", "orc1/0/1", "dmg0/7/2")
"""A block without an index, leaves that move along coordinates of their own, a scan that begins with an empty block."""


@pytest.fixture(autouse=True)
def _doubles():
    with jax.enable_x64(True):
        yield


def counted(seed: str, damages: int, plans: Sequence[int]) -> Counter[str]:
    """Verdicts on a program; none is a finding."""
    found = list(checked(seed, damages, Counter(), plans))
    assert not [each for each in found if each[0] in BROKEN]
    return Counter(verdict for verdict, _ in found)


@pytest.mark.parametrize("number", sample(3, 60))
def test_blocks_one_by_one_give_the_program(number: int) -> None:
    found = counted(f"blocks/{number}", 0, range(4))
    assert found["equal"] + found["refused by planning"] == 4


def test_what_is_drawn_is_counted() -> None:
    """Programs of the second edition: random numbers, windows over planes, tuples of axes in layouts."""
    drawn = Drawn(Counter(), Counter())
    chosen = {"edition": 2, "only": ("random", "plane", "strided", "backwards", "seen", "fold")}
    for number in range(6):
        found = list(checked(f"counted/{number}", 0, Counter(), range(2), drawn, **chosen))
        assert {verdict for verdict, _ in found} <= {"equal", "refused by planning"}
    assert drawn.alone["random numbers"] and drawn.alone["coordinates"]
    missing = lacking(drawn.met, drawn.alone)
    assert "by key" in missing and "coordinates" not in missing


@pytest.mark.parametrize("pair", FOUND)
def test_blocks_of_pairs_that_were_wrong_once_give_the_program(pair: str) -> None:
    seed, number = pair.rsplit("/", 1)
    assert counted(seed, 0, [int(number)]) == {"equal": 1}


@pytest.mark.parametrize("number", sample(3, 40))
def test_damaged_files_are_refused_or_do_no_harm(number: int) -> None:
    # What planning refuses makes no file.
    drawn = (counted(f"damaged/{number}", 20, [plan]) for plan in range(8))
    assert next(found for found in drawn if not found["refused by planning"])["refused"]


@pytest.mark.parametrize(
    "name", [name if place < 3 else pytest.param(name, marks=pytest.mark.thorough) for place, name in enumerate(PLANS)]
)
def test_damaged_files_of_plans_of_every_kind_are_refused_or_do_no_harm(name: str) -> None:
    graph, args = plan_of(name).graph, arguments(plan_of(name).graph)
    with jax.enable_x64(False):
        want = jax.tree.leaves(shards_of(name).run(*args))
        found = list(damages_of(shards_of(name), graph, args, want, name, 40))
    assert not [each for each in found if each[0] in BROKEN]
    assert Counter(verdict for verdict, _ in found)["refused"]


def test_a_hole_in_the_proof_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def other_source(text: str, _: object) -> tuple[str, str]:
        stored = json.loads(text)
        del stored["sha256"]
        move = next(step for step in stored["content"]["program"]["steps"] if step["step"] == "move")
        assert move["source"] == 0
        move["source"] = 1
        return "source of a move", json.dumps(stored)

    monkeypatch.setattr(damaging_json, "damaged", other_source)
    with jax.enable_x64(False):
        graph, args = plan_of("scan").graph, arguments(plan_of("scan").graph)
        want = jax.tree.leaves(shards_of("scan").run(*args))
        assert [verdict for verdict, _ in damages_of(shards_of("scan"), graph, args, want, "", 1)] == ["refused"]
        kept = "(source.value, source.partial, source.substep) == (result.value, result.partial, result.substep)"
        with damaged(prove_move, kept, "True"):
            found = [verdict for verdict, _ in damages_of(shards_of("scan"), graph, args, want, "", 1)]
    assert found == ["accepted and different"]
