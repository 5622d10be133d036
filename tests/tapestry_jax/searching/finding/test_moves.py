"""Moves give candidates that can hold: no mesh axis twice, nothing without effect."""

from __future__ import annotations

from random import Random

from jax.sharding import AbstractMesh

from tapestry_jax.searching.choices import space_of
from tapestry_jax.searching.finding.moves import near, steps
from tapestry_jax.searching.finding.rules import is_left_out
from tapestry_jax.searching.question.read import read_question
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
