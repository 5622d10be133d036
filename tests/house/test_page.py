"""The page of the house names files that are there, and CONTRIBUTING leads to it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house.rooms import PAGE, ROOT

CONTRIBUTING = ROOT / "CONTRIBUTING.md"
# Without a package paths are those of tapestry_jax, and behind another one those of its room.
ROOMS = ("", "tapestry_jax/", "tapestry_jax/planning/", "tapestry_jax/planning/entries/")


def directions() -> str:
    """The journey of a program, and where to add what: all before the pictures."""
    return PAGE.read_text(encoding="utf-8").partition("## The algebra")[0]


def paths(text: str) -> set[str]:
    """Everything in backticks that is a file or a folder."""
    return {found for found in re.findall(r"`([\w./]+)`", text) if found.endswith((".py", "/", ".txt", ".md", ".toml"))}


def lost(text: str) -> list[str]:
    """Paths that lead nowhere."""
    return sorted(path for path in paths(text) if not any((ROOT / room / path).exists() for room in ROOMS))


def lost_links(file: Path, text: str) -> list[str]:
    """Links to files that are not there."""
    targets = (target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text))
    return sorted(each for each in targets if each and "://" not in each and not (file.parent / each).exists())


def test_every_path_on_the_page_is_there() -> None:
    assert len(paths(directions())) > 60
    assert lost(directions()) == []


def test_every_symbol_of_the_table_is_in_the_file_beside_it() -> None:
    pairs = re.findall(r"`(_?[A-Z][A-Z_]+|_[a-z]\w+)`(?: in| of) `([\w./]+\.py)`", directions())
    assert len(pairs) > 8
    for symbol, path in pairs:
        file = next(ROOT / room / path for room in ROOMS if (ROOT / room / path).exists())
        assert re.search(rf"\b{symbol}\b", file.read_text(encoding="utf-8")), f"{symbol} is not in {path}"


@pytest.mark.parametrize("file", [CONTRIBUTING, PAGE], ids=lambda file: file.name)
def test_links_lead_somewhere(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert lost_links(file, text) == []
    assert file is PAGE or "(docs/design/architecture.md)" in text


def test_what_is_lost_is_found() -> None:
    assert lost("`planning/gone.py`, `planning/planned.py`, `tests/house/`, `Plan`") == ["planning/gone.py"]
    assert lost_links(CONTRIBUTING, "[a](docs/gone.md) [b](docs/index.md#x) [c](https://x.org)") == ["docs/gone.md"]
