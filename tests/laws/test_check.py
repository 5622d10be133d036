"""Laws as tests of pytest, the message of a failure, replay, and questions that have no answer."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

import laws
import tapestry_jax as tp
from tests.quickly import PROCESS
from tests.thoroughly import some, thoroughly

ROOT = Path(__file__).resolve().parents[2]

HALVING = tp.Monoid(0.0, lambda a, b: (a + b) / 2, name="Halving")

MODULE = """
import jax.numpy as jnp
import tapestry_jax as tp

test_plus = tp.laws.check(tp.Monoid(0.0, jnp.add, commutative=True, name="Plus"), laws={some}, examples=5)
test_halving = tp.laws.check(tp.Monoid(0.0, lambda a, b: (a + b) / 2, name="Halving"), laws=["associativity"])
known = tp.laws.known_failing("monoid.right_identity", "no flag")
test_last = tp.laws.check(tp.Monoid(0.0, lambda a, b: b, name="Last"), laws=["right_identity"], known=[known])

class TestMany:
    test_max = tp.laws.check(tp.monoids.Max, laws=["associativity"], examples=5)
"""


def test_check_makes_one_test_a_law(tmp_path, monkeypatch, capfd):
    some_laws = None if thoroughly() else ["associativity", "inverse"]
    (tmp_path / "test_users.py").write_text(MODULE.replace("{some}", repr(some_laws)))
    words = ["-q", "-rA", "-p", "no:cacheprovider", f"--rootdir={tmp_path}"]
    if thoroughly():
        command = [sys.executable, "-m", "pytest", *words, "."]
        environment = {**PROCESS, "XLA_FLAGS": os.environ["XLA_FLAGS"], "PYTHONPATH": str(ROOT), "PATH": ""}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        out, err = done.stdout, done.stderr
    else:
        # As its own run of pytest in this process, which has imported everything; nothing of the test around is told.
        monkeypatch.delenv("PYTEST_CURRENT_TEST")
        monkeypatch.chdir(tmp_path)
        pytest.main([*words, "-p", "no:xdist", "-p", "no:faulthandler", "--import-mode=importlib", "."])
        out, err = capfd.readouterr()
    lines = out.splitlines()
    assert "PASSED test_users.py::test_plus[Plus-associativity]" in lines, out + err
    assert "PASSED test_users.py::TestMany::test_max[Max-associativity]" in lines
    assert any(re.search(r"SKIPPED.*not checked: `Plus` does not declare inverse", line) for line in lines)
    assert any(line.startswith("FAILED test_users.py::test_halving[Halving-associativity]") for line in lines)
    assert "XFAIL test_users.py::test_last[Last-right_identity] - no flag" in lines
    assert "1 failed" in lines[-1]


def test_check_inside_a_test_raises():
    with pytest.raises(laws.LawError, match=r"(?s)called inside of one.*Use tp.laws.assert_lawful"):
        laws.check(tp.monoids.Sum)


def test_failure_shows_sides_arguments_and_bound():
    with pytest.raises(laws.LawError) as caught:
        laws.assert_lawful(HALVING, laws="associativity", seed=3)
    lines = str(caught.value).splitlines()
    assert re.fullmatch(r"LAW monoid\.associativity FAILED  Halving  f32\[\] jit cpu  seed=3", lines[0])
    assert [line.split("  =  ")[0] for line in lines[1:3]] == ["  (a + b) + c", "  a + (b + c)"]
    assert [re.match(r"  ([abc]) = (lift\(-?\d+\)|identity)", line) is not None for line in lines[3:6]] == [True] * 3
    assert lines[5].endswith("# minimal, built by operations")
    assert re.search(r"\|difference\| = .* > 4 \* 2 \* u \* scale = \S+ \(\S+ times what is allowed\)", lines[6])
    assert lines[7].strip() == "exact domain: fails too, so this is not rounding."
    assert re.search(r'Rerun: tp\.laws\.replay\("[\w=-]+", Halving, \.\.\.\)', lines[-1])


def test_replay_fails_until_the_piece_is_mended():
    with pytest.raises(laws.LawError) as caught:
        laws.assert_lawful(HALVING, laws="associativity")
    token = caught.value.token
    assert token is not None
    with pytest.raises(laws.LawError, match=r"LAW monoid.associativity FAILED  Halving"):
        laws.replay(token, HALVING)
    laws.replay(token, tp.Monoid(0.0, jnp.add, name="Mended"))


def test_replay_refuses_a_token_of_something_else():
    with pytest.raises(laws.LawError) as caught:
        laws.assert_lawful(HALVING, laws="associativity")
    with pytest.raises(laws.LawError, match="does not belong to `MinMax`"):
        laws.replay(str(caught.value.token), tp.monoids.Min, [jax.ShapeDtypeStruct((2,), jnp.int32)], name="MinMax")
    with pytest.raises(laws.LawError, match="no replay token"):
        laws.replay("nonsense", HALVING)


def test_same_seed_finds_the_same_counterexample():
    texts = []
    for _ in range(2):
        with pytest.raises(laws.LawError) as caught:
            laws.assert_lawful(HALVING, laws="associativity", seed=5)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


def test_what_raises_breaks_the_law():
    def only_scalars(left, right):
        if jnp.ndim(left):
            raise ValueError("only scalars")
        return left + right

    with pytest.raises(laws.LawError, match="ValueError: only scalars") as caught:
        laws.assert_lawful(tp.Monoid(0.0, only_scalars), [jax.ShapeDtypeStruct((2,), jnp.float32)], laws="structure")
    assert isinstance(caught.value.__cause__, ValueError)


def test_states_have_to_be_made_somehow():
    pairs = tp.Monoid(0, lambda a, b: (a[0] + b[0], a[1] + b[1]), name="Pairs")
    with pytest.raises(laws.LawError, match=r"(?s)how states of `Pairs` are made.*Pass lift="):
        laws.assert_lawful(pairs)
    with pytest.raises(laws.LawError, match="there are no values"):
        laws.assert_lawful(pairs, values=[])


def test_values_may_be_listed_or_drawn():
    pairs = tp.Monoid(0, lambda a, b: (a[0] + b[0], a[1] + b[1]), commutative=True, name="Pairs")
    listed = [(np.float32(1), np.int32(2)), (np.float32(-3), np.int32(0))]
    both = ["commutativity", "associativity"]
    assert "monoid.commutativity" in laws.assert_lawful(pairs, values=listed, laws=both, examples=some(50)).held
    drawn = st.tuples(st.integers(-3, 3).map(np.float32), st.integers(0, 5).map(np.int32))
    assert (
        "monoid.associativity" in laws.assert_lawful(pairs, values=drawn, laws="associativity", examples=some(50)).held
    )
    first = tp.Monoid(0, lambda a, b: a, name="First")
    with pytest.raises(laws.LawError, match=r"value\("):
        laws.assert_lawful(first, values=drawn, laws="left_identity")


def test_unknown_laws_and_pieces_are_refused():
    with pytest.raises(laws.LawError, match=r"(?s)no law is called 'asociativity'.*monoid.associativity"):
        laws.assert_lawful(tp.monoids.Sum, laws="asociativity")
    with pytest.raises(laws.LawError, match=r"(?s)nothing is known of the laws of this.*got int"):
        laws.assert_lawful(3)


def test_nothing_checked_is_not_lawful():
    with pytest.raises(laws.LawError, match=r"(?s)no law of `Prod` could be checked.*does not declare inverse"):
        laws.assert_lawful(tp.monoids.Prod, laws="inverse")


def test_report_lists_what_held_and_what_was_not_checked():
    report = laws.assert_lawful(tp.monoids.Any, examples=3, laws=["idempotence", "inverse"])
    assert str(report).splitlines() == [
        "monoid.idempotence           held (3 examples)",
        "monoid.inverse               not checked (`Any` does not declare inverse)",
    ]


def test_law_error_is_an_error_of_the_library():
    assert issubclass(laws.LawError, tp.TapestryError)
    assert tp.laws is laws
