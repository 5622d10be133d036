"""Moves give candidates that can hold: no mesh axis twice, nothing without effect."""

from __future__ import annotations

from random import Random

from jax.sharding import AbstractMesh

from tapestry_jax.searching.choices import between, space_of
from tapestry_jax.searching.finding.moves import near, steps
from tapestry_jax.searching.finding.rules import is_left_out
from tapestry_jax.searching.question.read import read_question
from tapestry_jax.searching.space import Variable
from tests.tapestry_jax.searching.programs import mlp

MESH = AbstractMesh((2, 2), ("data", "model"))
SPACE = space_of(read_question(mlp(64, 32, 128), MESH, "H100", None, {}).problems[0]).plain


def test_moves_lead_to_candidates_that_are_not_left_out():
    rng, choice = Random(0), SPACE.nothing
    seen = {choice}
    for _ in range(500):
        choice = near(SPACE, choice, rng)
        seen.add(choice)
        assert not is_left_out(SPACE, choice), SPACE.chosen(choice)
    assert len(seen) > 300


def test_a_dimension_takes_the_mesh_axis_of_another():
    names = {each.name: at for at, each in enumerate(SPACE.variables) if each.kind == "axes"}
    (batch,) = (each for each in steps(SPACE, SPACE.nothing, names["batch"]) if _axes(each, "batch") == ("data",))
    taken = [each for each in steps(SPACE, batch, names["mlp"]) if _axes(each, "mlp") == ("data",)]
    assert [_axes(each, "batch") for each in taken] == [None]


def _axes(choice: tuple[int, ...], name: str) -> object:
    return SPACE.chosen(choice).get(("axes", name, ()))


def test_numbers_between_others_are_looked_at_beside_the_one_chosen():
    chunks = Variable("chunks", "batch", (), (None, 2, 8, 32, 3, 4, 6, 12, 16), 5)
    near = {
        chosen: [chunks.values[at] for at in chunks.others(chunks.values.index(chosen))] for chosen in (None, 8, 16)
    }
    assert near[None] == [2, 8, 32]
    assert near[8] == [None, 2, 32, 12, 6]
    assert near[16] == [None, 2, 8, 32, 12]


def test_other_numbers_of_chunks_leave_hardly_a_cell_over():
    assert between(4096)[:6] == (3, 4, 6, 12, 16, 24)
    assert between(3000) == (3, 4, 6, 12, 16, 24, 48, 64)
    assert 48 not in between(64) and between(2) == ()
