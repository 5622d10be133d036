"""Tests mirror the rooms: what a room is about is tested in the folder of the same path, and by what it holds."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from tests.house.rooms import PACKAGES, ROOT, is_room

OF_THE_WHOLE = {
    "tapestry_jax/contract": "what a plan predicts is what XLA compiles: all rooms at once",
}
"""Folders of tests beside those of rooms, and why."""

THROUGH_A_DOOR = {
    "combinators/recording": "`tp.trace` is the door",
    "tapestry_jax/planning": "its own file is what `tp.plan` begins with",
    "tapestry_jax/shards/proof": "`ShardedGraph.verify` is the door",
    "tapestry_jax/shards/writing": "`Plan.shards` is the door",
}
"""Rooms whose tests import nothing of them, and use no public name that lives there; and why."""


def rooms(root: Path) -> list[str]:
    """Every folder with an `__init__` and files beside it."""
    inits = (init for package in PACKAGES for init in (root / package).rglob("__init__.py"))
    return sorted(init.parent.relative_to(root).as_posix() for init in inits if len([*init.parent.glob("*.py")]) > 1)


def folders(root: Path) -> list[str]:
    """Every folder of tests of a package, or of a part of one, in which a test stands."""
    files = (file for package in PACKAGES for file in (root / "tests" / package).rglob("test_*.py"))
    return sorted({file.parent.relative_to(root / "tests").as_posix() for file in files if _holds_a_test(file)})


def _holds_a_test(file: Path) -> bool:
    return re.search(r"^def test_\w+\(|^test_\w+ = ", file.read_text(encoding="utf-8"), re.MULTILINE) is not None


def differences(root: Path) -> list[str]:
    """What is to be done until rooms and folders of tests are the same."""
    expected, found = rooms(root), folders(root)
    untested = [f"no test in tests/{room}/" for room in expected if room not in found]
    return untested + [f"tests/{folder}/ is of no room" for folder in found if folder not in {*expected, *OF_THE_WHOLE}]


def rooms_spoken_of(text: str) -> set[str]:
    """The rooms that a test imports from, and those in which the public names live that it uses."""
    used = {_home(package, name) for package, name in re.findall(r"\b(tp\.nnx|tp|laws)\.(\w+)", text)}
    return {module.replace(".", "/") for module in {*_imports(ast.parse(text)), *used}}


def _imports(tree: ast.Module) -> Iterator[str]:
    """The rooms that are imported from: themselves, by one of their files, or by what a file defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module if is_room(node.module) else node.module.rpartition(".")[0]
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def _home(package: str, name: str) -> str:
    """The room in which a public name is defined; empty for values, which do not know it."""
    found = getattr(importlib.import_module(package.replace("tp", "tapestry_jax")), name, None)
    if isinstance(found, ModuleType):
        return found.__name__
    return str(getattr(found, "__module__", None) or "").rpartition(".")[0]


def test_every_room_has_its_tests_and_every_folder_of_tests_its_room() -> None:
    assert differences(ROOT) == []
    assert {*OF_THE_WHOLE} <= {*folders(ROOT)} - {*rooms(ROOT)}
    assert {*THROUGH_A_DOOR} <= {*rooms(ROOT)}


@pytest.mark.parametrize("room", rooms(ROOT))
def test_tests_speak_of_their_room(room: str) -> None:
    texts = [file.read_text(encoding="utf-8") for file in (ROOT / "tests" / room).glob("test_*.py")]
    spoken_of = any(room in rooms_spoken_of(text) for text in texts)
    assert spoken_of != (room in THROUGH_A_DOOR), "a room either is spoken of or has a door, given with a reason"


def test_what_is_missing_is_found(tmp_path: Path) -> None:
    files = {
        "combinators/leaves/__init__.py": "",
        "combinators/leaves/map.py": "",
        "combinators/graphs/__init__.py": "",
        "combinators/graphs/graph.py": "",
        "laws/empty/__init__.py": "",
        "tests/combinators/leaves/test_map.py": "def test_maps() -> None: ...",
        "tests/combinators/graphs/test_graph.py": "def helper() -> None: ...",
        "tests/combinators/gone/test_old.py": "def test_old() -> None: ...",
        "tests/tapestry_jax/contract/test_whole.py": "test_whole = laws.check(PIECE)",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert differences(tmp_path) == ["no test in tests/combinators/graphs/", "tests/combinators/gone/ is of no room"]


@pytest.mark.parametrize(
    ("text", "rooms"),
    [
        ("from laws.draws.states import build_state", {"laws/draws"}),
        ("from combinators import monoids", {"combinators/monoids"}),
        ("import tapestry_jax as tp\ntp.chunks(3)", {"tapestry_jax/planning/entries"}),
        ("import tapestry_jax as tp\ntp.monoids.Sum", {"combinators/monoids"}),
        ("tests = 'laws.nothing of tp.Sum'", set[str]()),
    ],
)
def test_rooms_are_found_by_imports_and_by_public_names(text: str, rooms: set[str]) -> None:
    seen = {room for room in rooms_spoken_of(text) if is_room(room.replace("/", "."))}
    assert seen - {"combinators"} == rooms
