"""The catalogue, and the page that is printed from it."""

from __future__ import annotations

import inspect
from pathlib import Path

import laws
from laws.reports.page import FAMILIES, listing, page

ROOT = Path(__file__).resolve().parents[3]


def test_page_is_what_the_catalogue_prints():
    written = (ROOT / "docs" / "laws.md").read_text(encoding="utf-8")
    assert written == page() + "\n", "run: python -m laws laws --markdown > docs/laws.md"


def test_every_law_says_what_where_and_by_whom():
    for law in laws.catalogue:
        left, right = law.sides
        assert left and right, law.name
        assert law.source, law.name
        assert inspect.getdoc(law.function), law.name
        assert law.name in listing()
        assert f"source: {law.source}" in listing()
        assert f"| `{law.short}` |" in page()


def test_names_of_laws_are_unique_and_their_families_told():
    names = [law.name for law in laws.catalogue]
    assert len(set(names)) == len(names)
    assert {law.family for law in laws.catalogue} == set(FAMILIES)
