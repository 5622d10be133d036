"""Mistakes that are planted in pieces, and the laws that see them."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import laws
from combinators import Aggregator, Map, Monoid, Reduce, monoids, program
from laws.cli import main


def three(x):
    return x[:-2] + 2 * x[1:-1] + x[2:]


def test_mistakes_in_a_monoid_are_seen():
    found = laws.mutants(
        monoids.AffineRecurrence, laws=["left_identity", "right_identity", "commutativity", "idempotence"], examples=10
    )
    by_name = {mutant.name: mutant for mutant in found.mutants}
    assert by_name["declare commutative"].caught_by == ("monoid.commutativity",)
    assert by_name["declare idempotent"].caught_by == ("monoid.idempotence",)
    assert by_name["wrong identity"].caught_by == ("monoid.left_identity", "monoid.right_identity")
    assert set(by_name) >= {"drop a term of [0]", "drop a term of [1]", "mean of means of [0]"}
    # A monoid with its arguments swapped is one, too; what cannot be seen is said.
    assert found.survivors == ("swap the arguments",)
    assert "NOT CAUGHT (the dual of a monoid is a monoid" in str(found)


def test_mistake_that_changes_nothing_is_none():
    found = laws.mutants(Monoid(0.0, jnp.add, name="Plus"), laws=["left_identity", "associativity"], examples=10)
    assert found.mutants[0].is_equivalent
    assert str(found.mutants[0]) == "swap the arguments: makes no difference here"
    assert str(found).startswith("caught ")


def test_mistakes_in_an_aggregator_are_seen():
    first = Monoid((0.0, False), lambda a, b: (jnp.where(a[1], a[0], b[0]), a[1] | b[1]), name="First")
    aggregator = Aggregator(
        lambda x: (x, jnp.asarray(True)), first, lambda s: s[0], reference=lambda xs: xs[0], name="First"
    )
    found = laws.mutants(aggregator, laws=["aggregator.step", "semantic", "masking"], examples=8)
    by_name = {mutant.name: mutant for mutant in found.mutants}
    assert by_name["swap the arguments"].caught_by == ("aggregator.semantic",)
    assert by_name["missing mask: padding of zeros is counted"].is_equivalent  # what comes behind the first is not seen


@pytest.mark.parametrize(
    ("piece", "mistakes"),
    [
        (Map(three, "(y+[dy]) -> y", sizes={"dy": 3}, name="three"), {"off-by-one projection", "forgotten halo"}),
        (
            Reduce(lambda x: jnp.sum(x, axis=0), "k n -> n", monoids.Sum, name="total"),
            {"drop a term", "mean of means", "wrong identity", "off-by-one projection"},
        ),
    ],
    ids=["map", "reduce"],
)
def test_mistakes_in_an_operation_are_seen(piece, mistakes):
    found = laws.mutants(
        piece, laws=["map.split", "reduce.fold", "reduce.empty"][: 1 if piece.name == "three" else 3], examples=4
    )
    assert {mutant.name.split(" on axis")[0] for mutant in found.mutants} >= mistakes
    assert found.survivors == ()
    assert any(mutant.caught_by for mutant in found.mutants)


def test_what_has_no_operation_has_no_mutations():
    with pytest.raises(laws.LawError, match="has no mutations"):
        laws.mutants(program(lambda x: x), types=[jnp.ones(3)], laws="arrow")


def test_command_line_prints_who_saw_what(tmp_path, monkeypatch, capsys):
    (tmp_path / "mutable.py").write_text(
        "import jax.numpy as jnp\nimport tapestry_jax as tp\nPlus = tp.Monoid(0.0, jnp.add, name='Plus')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    words = ["laws", "mutable:Plus", "--mutants", "--examples", "8", "--law", "left_identity", "--law", "idempotence"]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("caught ")
    assert "  wrong identity: monoid.left_identity" in lines
    assert "  declare idempotent: monoid.idempotence" in lines
