"""Moves around what another method asked for: nothing fixed is changed, stages free their mesh axes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from jax.sharding import AbstractMesh

import tapestry_jax as tp
from tapestry_jax.plan import asked_of
from tapestry_jax.planning.asked import Asked
from tapestry_jax.planning.entries.items import Halo, Ring, Striped
from tapestry_jax.searching.choices import space_of
from tapestry_jax.searching.finding.altered import altered, around, asked_around
from tapestry_jax.searching.problem import Problem
from tapestry_jax.searching.question.read import read_question
from tapestry_jax.searching.space import Space
from tests.tapestry_jax.searching.programs import layers

MESH = AbstractMesh((4, 8), ("stage", "model"))
GRAPH = layers(8, 64, 128)
OPS = {"stack/gelu": {"mlp": None, "batch": "model"}}


def asked(placed: dict[str, Any], **fixed: Any) -> tuple[Problem, Space, Asked]:
    problem = read_question(GRAPH, MESH, "h100:4x8", None, {"grad": True} | fixed).problems[0]
    base = asked_of(tp.plan(GRAPH, MESH, placed, ops=OPS, inputs={"up": {"embed": "stage"}}))
    return problem, around(problem, space_of(problem), base), base


@pytest.fixture(scope="module")
def around_base() -> tuple[Problem, Space, Asked]:
    return asked({"batch": "stage", "mlp": "model"})


def variable(space: Space, kind: str, name: str) -> int:
    return next(at for at, each in enumerate(space.variables) if (each.kind, each.name) == (kind, name))


def test_nothing_chosen_is_the_base(around_base: tuple[Problem, Space, Asked]):
    problem, space, base = around_base
    assert asked_around(problem, space, base, space.nothing) == base
    assert {each.kind for each in space.variables} >= {"chunks", "ring", "remat", "axes"}
    assert all(each.name == "layer" for each in space.variables if each.kind == "axes")


def test_chunks_are_added_to_entries_and_exceptions(around_base: tuple[Problem, Space, Asked]):
    problem, space, base = around_base
    found = altered(problem, base, space.variables[variable(space, "chunks", "batch")], 8)
    assert dict(found.entries)["batch"] == ("stage", tp.chunks(8))
    assert dict(dict(found.ops)["stack/gelu"])["batch"] == ("model", tp.chunks(8))
    assert found.inputs == base.inputs
    # Another number takes the place of the first.
    again = altered(problem, found, space.variables[variable(space, "chunks", "batch")], 4)
    assert dict(again.entries)["batch"] == ("stage", tp.chunks(4))


def test_stages_free_their_mesh_axes(around_base: tuple[Problem, Space, Asked]):
    problem, space, base = around_base
    found = altered(problem, base, space.variables[variable(space, "axes", "layer")], ("stage",))
    assert dict(found.entries) == {"batch": (), "mlp": ("model",), "layer": ("stage",)}
    assert dict(found.inputs)["up"] == (("embed", ()),)
    other = altered(problem, base, space.variables[variable(space, "axes", "layer")], ("model",))
    assert dict(dict(other.ops)["stack/gelu"])["batch"] == ()


def test_what_is_fixed_stays():
    problem, space, base = asked({"batch": "stage", "mlp": "model"}, entries={"batch": "stage"})
    found = altered(problem, base, space.variables[variable(space, "axes", "layer")], ("stage",))
    assert dict(found.entries)["batch"] == ("stage",)
    assert not any(each.name == "batch" for each in space.variables if each.kind == "chunks")


def test_exceptions_and_layouts_that_are_fixed_stay():
    fixed = {"ops": OPS, "inputs": {"up": {"embed": "stage"}}}
    problem, space, base = asked({"mlp": "model"}, **fixed)
    chunked = altered(problem, base, space.variables[variable(space, "chunks", "batch")], 8)
    assert chunked.ops == base.ops and dict(chunked.entries)["batch"] == (tp.chunks(8),)
    stages = space.variables[variable(space, "axes", "layer")]
    assert altered(problem, base, stages, ("model",)).ops == base.ops
    assert altered(problem, base, stages, ("stage",)).inputs == base.inputs


def test_how_pieces_are_taken_stays_where_something_else_of_it_changes(around_base: tuple[Problem, Space, Asked]):
    problem, space, base = around_base
    items = Striped(("model",)), Ring("stage"), Halo(2)
    rich = replace(base, entries=(("batch", items),))
    found = altered(problem, rich, space.variables[variable(space, "chunks", "batch")], 8)
    assert set(dict(found.entries)["batch"]) == {*items, tp.chunks(8)}


def test_stages_free_rings_that_were_there_and_none_that_is_chosen_with_them(around_base: tuple[Problem, Space, Asked]):
    problem, space, base = around_base
    there = replace(base, entries=(("batch", ("model", Ring("stage"))),), ops=())
    at = variable(space, "axes", "layer")
    assert dict(altered(problem, there, space.variables[at], ("stage",)).entries)["batch"] == ("model",)
    ring = variable(space, "ring", "batch")
    stages, round_ = (space.variables[each].values.index(to) for each, to in ((at, ("stage",)), (ring, "stage")))
    choice = tuple({at: stages, ring: round_}.get(each, 0) for each in range(len(space.variables)))
    assert dict(asked_around(problem, space, base, choice).entries)["batch"] == (Ring("stage"),)


def test_layers_are_computed_again_in_one_way(around_base: tuple[Problem, Space, Asked]):
    problem, space, base = around_base
    again = space.variables[variable(space, "remat", "stack")]
    found = altered(problem, altered(problem, base, again, True), again, "dots")
    assert found.remat == (("stack", "dots"),)
