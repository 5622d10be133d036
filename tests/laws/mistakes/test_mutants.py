"""Mistakes that are planted in pieces, and the laws that see them."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import laws
from combinators import Aggregator, Map, Monoid, Reduce, monoids, program
from laws.cli import main
from laws.mistakes.mutations import mutations
from laws.subjects.carrier import MonoidSubject
from laws.subjects.examples import examples_of


def three(x):
    return x[:-2] + 2 * x[1:-1] + x[2:]


def test_mistakes_in_a_monoid_are_seen():
    asked = ["left_identity", "right_identity", "commutativity"]
    only = ["swap", "wrong identity", "declare commutative"]
    found = laws.mutants(monoids.AffineRecurrence, laws=asked, only=only, examples=8)
    by_name = {mutant.name: mutant for mutant in found.mutants}
    assert by_name["declare commutative"].caught_by == ("monoid.commutativity",)
    assert by_name["wrong identity"].caught_by == ("monoid.left_identity", "monoid.right_identity")
    # A monoid with its arguments swapped is one, too; what cannot be seen is said.
    assert found.survivors == ("swap the arguments",)
    assert "NOT CAUGHT (the dual of a monoid is a monoid" in str(found)


def test_mistake_that_changes_nothing_is_none():
    found = laws.mutants(Monoid(0.0, jnp.add, name="Plus"), laws="left_identity", only="swap", examples=8)
    assert str(found) == "caught 0 of 0 mutants\n  swap the arguments: makes no difference here"


def test_every_mistake_has_its_mutant():
    names = [mutant.name for mutant in mutations(MonoidSubject(monoids.Mean, examples_of(monoids.Mean)[0], "Mean"))]
    assert names[:4] == ["swap the arguments", "wrong identity", "drop a term of [0]", "mean of means of [0]"]
    assert names[-2:] == ["declare idempotent", "wrong inverse"]
    with pytest.raises(laws.LawError, match=r"(?s)begin with 'jump'.*it has swap the arguments"):
        laws.mutants(monoids.Mean, only="jump")


def test_mistakes_in_an_aggregator_are_seen():
    """Arguments that are swapped everywhere make another monoid, and only the reference knows."""
    first = Monoid((0.0, False), lambda a, b: (jnp.where(a[1], a[0], b[0]), a[1] | b[1]), name="First")
    aggregator = Aggregator(
        lambda x: (x, jnp.asarray(True)), first, lambda s: s[0], reference=lambda xs: xs[0], name="First"
    )
    found = laws.mutants(aggregator, laws=["aggregator.step", "semantic"], only=["swap", "missing mask"], examples=6)
    by_name = {mutant.name: mutant for mutant in found.mutants}
    assert by_name["swap the arguments"].caught_by == ("aggregator.semantic",)
    assert by_name["missing mask: padding of zeros is counted"].is_equivalent  # what comes behind the first is not seen


@pytest.mark.parametrize(
    ("piece", "law", "only"),
    [
        (Map(three, "(y+[dy]) -> y", sizes={"dy": 3}, name="three"), "map.split", ["off-by-one", "forgotten halo"]),
        (
            Reduce(lambda x: jnp.sum(x, axis=0), "k n -> n", monoids.Sum, name="total"),
            "reduce.fold",
            ["drop a term on", "mean of means on"],
        ),
    ],
    ids=["map", "reduce"],
)
def test_mistakes_in_an_operation_are_seen(piece, law, only):
    found = laws.mutants(piece, laws=law, only=only, examples=4)
    assert [mutant.caught_by for mutant in found.mutants] == [(law,)] * 2
    assert found.survivors == ()


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
