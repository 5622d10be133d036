"""The scopes that a picture is folded by: loops, the parts of paths, runs of equal layers, and long lists in parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from itertools import takewhile
from typing import Any

from combinators.frozen import dataclass
from tapestry_jax.report.page.drawing import Drawing, Node

LONGEST = 100
"""So many nodes and scopes stand beside each other in a scope; more are put into parts by their order."""

_NUMBERED = re.compile(r"(?P<stem>.*?)(?P<gap>_?)(?P<number>\d+)")


@dataclass(frozen=True)
class Scope:
    """Nodes and scopes that are drawn as one until somebody unfolds it.

    Attributes:
      name: what is written on it.
      path: of what lies in it; of several in a row, and of a part of a list, the path around them.
      kind: `scope`, `repeat` or `time` (loops), `alike` (equal ones in a row) or `part` (of a long list).
      parent: its place in the list of scopes; -1 is the whole picture.
      what: of a loop, how often it turns.
      count: of equal ones, how many.
    """

    name: str
    path: str
    kind: str
    parent: int
    what: str = ""
    count: int = 0


def scopes_of(drawn: Drawing) -> tuple[list[Scope], list[int]]:
    """The scopes of a picture, each behind the one around it, and for every node the innermost that holds it."""
    root = _Branch("", "", "scope")
    for number, place in enumerate(_places(drawn)):
        at = root
        for level in place:
            at = at.enter(level)
        at.items.append(number)
    for change in (_alike, _joined, _in_parts):
        _everywhere(root, lambda branch, change=change: change(branch, drawn.nodes))
    scopes, within = list[Scope](), [-1] * len(drawn.nodes)
    _list(root, -1, scopes, within)
    return scopes, within


@dataclass(frozen=True)
class _Level:
    """One scope on the way to a node; loops have a number, since two may have one path."""

    name: str
    path: str
    kind: str = "scope"
    what: str = ""
    number: int = -1


@dataclass(frozen=True, eq=False)
class _Branch:
    """A scope while it is made: nodes by number, and scopes, in the order of the program."""

    name: str
    path: str
    kind: str
    what: str = ""
    count: int = 0
    items: list[int | _Branch] = field(default_factory=list)
    known: dict[_Level, _Branch] = field(default_factory=dict)

    def enter(self, level: _Level) -> _Branch:
        if level not in self.known:
            self.known[level] = _Branch(level.name, level.path, level.kind, level.what)
            self.items.append(self.known[level])
        return self.known[level]


def _places(drawn: Drawing) -> list[tuple[_Level, ...]]:
    """The scopes around every node. Inputs lie where all that read them do; outputs lie in none."""
    ends = ("input", "output")
    places = [() if node.kind in ends else tuple(_levels(node)) for node in drawn.nodes]
    readers: dict[int, list[tuple[_Level, ...]]] = {}
    for edge in drawn.edges:
        readers.setdefault(edge.source, []).append(places[edge.target])
    for number, node in enumerate(drawn.nodes):
        if node.kind == "input" and number in readers:
            places[number] = _shared(readers[number])
    return places


def _shared(places: Sequence[tuple[_Level, ...]]) -> tuple[_Level, ...]:
    """The scopes that several places have in common, from the outermost on."""
    alike = takewhile(lambda levels: len({*levels}) == 1, zip(*places, strict=False))
    return tuple(levels[0] for levels in alike)


def _levels(node: Node) -> Iterator[_Level]:
    """The scopes around a node: parts of its path, and loops, each within the scopes of its own path."""
    done = 0
    for loop in node.loops:
        if loop.kind == "repeat":
            yield from _parts(loop.path, done)
            yield _Level(loop.path.split("/")[-1], loop.path, loop.kind, loop.what, loop.number)
            done = loop.path.count("/") + 1
        else:
            # What shares a loop in time may lie in several scopes.
            yield _Level(loop.path, loop.path, loop.kind, loop.what, loop.number)
    yield from _parts(node.path, done)


def _parts(path: str, done: int) -> Iterator[_Level]:
    parts = path.split("/")
    for end in range(done + 1, len(parts)):
        yield _Level(parts[end - 1], "/".join(parts[:end]))


def _everywhere(branch: _Branch, change: Callable[[_Branch], None]) -> None:
    """Change a scope and all in it, the innermost first."""
    for item in branch.items:
        if isinstance(item, _Branch):
            _everywhere(item, change)
    change(branch)


def _alike(branch: _Branch, nodes: Sequence[Node]) -> None:
    """Equal numbered scopes in a row become one that holds them: `0..11`."""
    contents = {id(item): _content(item, nodes) for item in branch.items if isinstance(item, _Branch)}
    rows: list[list[int | _Branch]] = []
    for item in branch.items:
        before = rows[-1][-1] if rows else None
        if (
            isinstance(item, _Branch)
            and isinstance(before, _Branch)
            and _is_next(before.name, item.name)
            and contents[id(item)] == contents[id(before)]
        ):
            rows[-1].append(item)
        else:
            rows.append([item])
    branch.items[:] = [_row(row, branch.path) if len(row) > 1 else row[0] for row in rows]


def _row(row: list[int | _Branch], path: str) -> _Branch:
    first, last = (item.name if isinstance(item, _Branch) else "" for item in (row[0], row[-1]))
    return _Branch(f"{first}..{last}", path, "alike", f"{len(row)} alike", len(row), row)


def _is_next(before: str, after: str) -> bool:
    """Whether a scope is the numbered successor of another: `1` of `0`, `block_1` of `block`."""
    found = _NUMBERED.fullmatch(after)
    if found is None:
        return False
    number = int(found["number"])
    return before == f"{found['stem']}{found['gap']}{number - 1}" or (number == 1 and before == found["stem"] != "")


def _content(branch: _Branch, nodes: Sequence[Node]) -> tuple[Any, ...]:
    """What two scopes have in common that are drawn as several of one: all but where they lie."""
    return tuple(
        (item.name, item.kind, item.what, _content(item, nodes))
        if isinstance(item, _Branch)
        else replace(nodes[item], path=nodes[item].path.rpartition("/")[2], loops=())
        for item in branch.items
    )


def _joined(branch: _Branch, _: Sequence[Node]) -> None:
    """A scope that holds nothing but one scope is drawn as that one, under both names."""
    for place, item in enumerate(branch.items):
        if isinstance(item, _Branch) and item.kind == "scope" and len(item.items) == 1:
            (only,) = item.items
            if isinstance(only, _Branch):
                name = f"{item.name}/{only.name}"
                branch.items[place] = _Branch(name, only.path, only.kind, only.what, only.count, only.items)


def _in_parts(branch: _Branch, _: Sequence[Node]) -> None:
    """A list that is too long is put into parts, in the order of the program; a long row of equal scopes as well."""
    size = max(LONGEST // 2, -(-len(branch.items) // LONGEST))
    if len(branch.items) <= LONGEST:
        return
    starts = range(0, len(branch.items), size)
    parts = [(start, branch.items[start : start + size]) for start in starts]
    branch.items[:] = [
        _Branch(f"part {start + 1} to {start + len(items)}", branch.path, "part", "of a long list", 0, items)
        for start, items in parts
    ]


def _list(branch: _Branch, own: int, scopes: list[Scope], within: list[int]) -> None:
    for item in branch.items:
        if isinstance(item, _Branch):
            scopes.append(Scope(item.name, item.path, item.kind, own, item.what, item.count))
            _list(item, len(scopes) - 1, scopes, within)
        else:
            within[item] = own
