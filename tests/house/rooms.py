"""The rooms of the house, read from the imports: who needs whom, and the pictures of docs/design/architecture.md.

A room is a folder with an `__init__.py`. A file beside rooms, in a folder that has some, is drawn as a room of one.

    python -m tests.house.rooms            # print the pictures
    python -m tests.house.rooms --write    # put them into docs/design/architecture.md
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "design" / "architecture.md"
PACKAGES = ("combinators", "laws", "tapestry_jax")

Arrows = dict[str, frozenset[str]]
"""What each room imports."""


@cache
def imports() -> grimp.ImportGraph:
    """Every import of the three packages, those inside functions and those for type checkers included."""
    return grimp.build_graph(*PACKAGES, cache_dir=None)


def is_room(module: str) -> bool:
    return (ROOT / module.replace(".", "/") / "__init__.py").exists()


def rooms(package: str) -> list[str]:
    """The folders directly in `package`, and the files beside them; its own `__init__` is no room."""
    return sorted(imports().find_children(package))


def floors() -> list[str]:
    """The packages, and the rooms that have rooms of their own."""
    inside = {name: imports().find_children(name) for name in imports().modules}
    return sorted(name for name, children in inside.items() if any(map(is_room, children)))


def files(room: str) -> list[str]:
    """The names of the files in a room, without its `__init__`; folders in it end in `/`."""
    return sorted(name.rpartition(".")[2] + "/" * is_room(name) for name in imports().find_children(room))


def arrows(package: str) -> Arrows:
    """Which rooms of `package` each of its rooms imports, directly."""
    inside = rooms(package)
    return {room: frozenset(other for other in inside if other != room and _imports(room, other)) for room in inside}


def _imports(room: str, other: str) -> bool:
    graph = imports()
    own, theirs = ({name, *graph.find_descendants(name)} for name in (room, other))
    return any(graph.find_modules_directly_imported_by(module) & theirs for module in own)


def circles(graph: Mapping[str, frozenset[str]]) -> list[str]:
    """Nodes from which a path leads back to themselves."""
    return [node for node in graph if node in reachable(graph, node)]


def reachable(graph: Mapping[str, frozenset[str]], start: str) -> frozenset[str]:
    """What follows `start`, by one arrow or more."""
    seen: set[str] = set()
    todo = list(graph[start])
    while todo:
        if (node := todo.pop()) not in seen:
            seen.add(node)
            todo += graph[node]
    return frozenset(seen)


def direct(graph: Mapping[str, frozenset[str]]) -> Arrows:
    """The arrows without those that a longer way says already: the ones worth drawing. No circles."""
    far = {node: reachable(graph, node) for node in graph}
    return {
        node: frozenset(other for other in others if not any(other in far[third] for third in others))
        for node, others in graph.items()
    }


def levels(graph: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """The nodes from the ground up: each stands above all that it imports."""
    height: dict[str, int] = {}

    def measure(node: str) -> int:
        if node not in height:
            height[node] = 1 + max((measure(other) for other in graph[node]), default=-1)
        return height[node]

    for node in graph:
        measure(node)
    return [sorted(node for node in graph if height[node] == level) for level in range(max(height.values()) + 1)]


def picture(package: str) -> str:
    """The rooms of `package` as a Mermaid flowchart: an arrow from a room to what it imports."""
    graph = direct(arrows(package))
    return "\n".join(["```mermaid", "flowchart TD", *_lines(package, graph), "```"])


def _lines(package: str, graph: Arrows) -> Iterator[str]:
    for level in reversed(levels(graph)):
        for room in level:
            name = room.removeprefix(package + ".")
            count = len([file for file in imports().find_descendants(room) if not is_room(file)])
            counted = f"{count} file{'s' * (count != 1)}"
            label = f'["{name}/<br/>{counted}"]' if is_room(room) else f'("{name}.py")'
            yield f"  {_id(name)}{label}"
    for room in sorted(graph):
        for other in sorted(graph[room]):
            yield f"  {_id(room.removeprefix(package + '.'))} --> {_id(other.removeprefix(package + '.'))}"


def _id(name: str) -> str:
    # `end`, `graph` and other words mean something to Mermaid.
    return f"r_{name}"


PICTURE = re.compile(r"<!-- rooms of (?P<package>[\w.]+) -->\n(?P<picture>.*?)\n<!-- end -->", re.DOTALL)


def drawn(page: str) -> dict[str, str]:
    """The pictures that stand on a page, by package."""
    return {found["package"]: found["picture"] for found in PICTURE.finditer(page)}


def redrawn(page: str) -> str:
    """The page with its pictures as the imports are now."""
    return PICTURE.sub(
        lambda found: f"<!-- rooms of {found['package']} -->\n{picture(found['package'])}\n<!-- end -->", page
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.house.rooms", description="Draw the rooms from the imports.")
    parser.add_argument("--write", action="store_true", help="write them into docs/design/architecture.md")
    page = PAGE.read_text(encoding="utf-8")
    if parser.parse_args().write:
        PAGE.write_text(redrawn(page), encoding="utf-8")
    else:
        print(*(picture(package) for package in drawn(page)), sep="\n\n")


if __name__ == "__main__":
    main()
