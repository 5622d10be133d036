"""The house as it is drawn: no circle runs through two rooms, rooms say what they hold, pictures are the imports."""

from __future__ import annotations

import ast

import pytest

from tests.house import rooms

FLOORS = rooms.floors()
DRAWN = {"combinators", "laws", "tapestry_jax", "tapestry_jax.planning", "tapestry_jax.lowering"}
# One file for each thing that is shipped: there the list in the docstring is that of the imports below it.
LIBRARIES = ("combinators.aggregators", "combinators.monoids")
ROOMS = [room for floor in FLOORS for room in rooms.rooms(floor) if rooms.is_room(room)]


def docstring(room: str) -> str:
    text = (rooms.ROOT / room.replace(".", "/") / "__init__.py").read_text(encoding="utf-8")
    return ast.get_docstring(ast.parse(text)) or ""


@pytest.mark.parametrize("floor", FLOORS)
def test_no_circle_runs_through_two_rooms(floor: str) -> None:
    assert rooms.circles(rooms.arrows(floor)) == []


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_what_lives_there_and_how_to_read_it(room: str) -> None:
    head, _, order = docstring(room).partition("\n\n")
    assert head.endswith(".") and "\n" not in head
    assert room in LIBRARIES or {f"`{name.rstrip('/')}`" for name in rooms.files(room)} <= {
        word.strip(",.;:()") for word in order.split()
    }


@pytest.mark.parametrize("room", sorted(set(ROOMS) - {*LIBRARIES}))
def test_a_room_can_be_seen_at_once(room: str) -> None:
    assert len(rooms.files(room)) <= 15


def repeating(room: str, names: list[str]) -> list[str]:
    """Names that say the name of their room again; the thing itself that a room is about may have it alone."""
    of_room = room.rpartition(".")[2]
    said = {of_room, of_room.removesuffix("s")}
    return [name for name in names if "_" in name and said & {*name.rstrip("/").split("_")}]


@pytest.mark.parametrize("room", ROOMS)
def test_a_name_does_not_repeat_its_room(room: str) -> None:
    assert repeating(room, rooms.files(room)) == []


def test_names_that_repeat_their_room_are_found() -> None:
    names = ["graph", "graph_json", "json", "of_graphs", "paragraph", "old_graphs/"]
    assert repeating("combinators.graphs", names) == ["graph_json", "of_graphs", "old_graphs/"]


def test_pictures_are_the_imports() -> None:
    page = rooms.PAGE.read_text(encoding="utf-8")
    assert set(rooms.drawn(page)) == DRAWN <= {*FLOORS}
    assert page == rooms.redrawn(page), "run python -m tests.house.rooms --write"


def test_circles_and_long_ways_are_found() -> None:
    around = {"a": frozenset("b"), "b": frozenset("c"), "c": frozenset("a"), "d": frozenset("a")}
    assert rooms.circles(around) == ["a", "b", "c"]
    straight = {"a": frozenset("bc"), "b": frozenset("c"), "c": frozenset[str]()}
    assert rooms.circles(straight) == []
    assert rooms.direct(straight) == {"a": frozenset("b"), "b": frozenset("c"), "c": frozenset()}
    assert rooms.levels(straight) == [["c"], ["b"], ["a"]]
