"""The public API is what it was: every name with its kind and signature."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

import combinators
from tests.house.public_names import public_names

STORED = Path(__file__).parent / "public_names.txt"
REMEDY = (
    "If that is meant: python -m tests.house.public_names > tests/house/public_names.txt, and tell it in CHANGELOG.md."
)


def difference(stored: list[str], found: list[str]) -> str:
    lines = difflib.unified_diff(stored, found, "as it was", "as it is", n=0, lineterm="")
    return "\n".join(line for line in lines if not line.startswith("@@"))


def test_the_public_api_is_what_it_was():
    changed = difference(STORED.read_text(encoding="utf-8").splitlines(), public_names())
    assert not changed, f"\n{changed}\n{REMEDY}"


def test_a_changed_signature_and_a_lost_name_are_seen(monkeypatch: pytest.MonkeyPatch):
    stored = STORED.read_text(encoding="utf-8").splitlines()
    monkeypatch.setattr(combinators, "fold", lambda aggregator, signature: None)
    monkeypatch.delattr(combinators.Box, "split")
    changed = difference(stored, public_names())
    assert "-combinators.Box.split  method (self, axis: int" in changed
    assert "+combinators.fold  function (aggregator, signature)" in changed
    # The face still has the fold that it took before.
    assert "-tapestry_jax.fold  is combinators.fold" in changed
