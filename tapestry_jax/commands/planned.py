"""What a command line names: a plan file beside its graph file, `package.module:plan`, `package.module:graph`."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from combinators.errors import TapestryError, message, spelt
from combinators.graphs.graph import Graph
from combinators.stored.whole import read_whole
from tapestry_jax.commands.piece import imported_piece, made_piece
from tapestry_jax.plan import Plan

_Read = TypeVar("_Read")
_Made = TypeVar("_Made", Plan, Graph)
_HEAD = 1000  # characters in which a file says what it is
_WRITTEN = "Name a file that to_json() wrote, or package.module:plan."
_ORDER = "Name the plan file first, and the graph file behind --graph."
ABOUT = """
PLAN is a file that plan.to_json() wrote, and GRAPH one of graph.to_json(), of the program that it was made for; or
either is package.module:name, a plan or a graph of a module of yours, or a function without parameters that makes it.
Files are read as data: no code of theirs is run. Nothing is compiled, and no device of the mesh has to be here."""


def plan_words(parser: argparse.ArgumentParser, about: str, *, grad: bool = True) -> None:
    """The words that name a plan, and how the answer is wanted."""
    parser.description = f"{about}\n{ABOUT}"
    parser.add_argument("plan", metavar="PLAN", help="a plan file, or package.module:plan")
    parser.add_argument("--graph", metavar="GRAPH", help="the graph of a plan file: its file, or package.module:graph")
    answer_words(parser, grad=grad)


def answer_words(parser: argparse.ArgumentParser, *, grad: bool = True) -> None:
    """The words that say what a graph file may name, and how the answer is wanted."""
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="a package of your own whose kernels the graph file may name; it is imported. May be repeated",
    )
    if grad:
        parser.add_argument("--grad", action="store_true", help="values and gradients, not values alone")
    parser.add_argument("--json", action="store_true", help="answer in JSON")


def machine_words(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """The word that names a machine."""
    told = "" if required else "; by default the one that the plan's devices are"
    parser.add_argument("--machine", metavar="NAME", help=f"such as h100, v5p, v5e:4x4, h100:8x8{told}")


def chosen_plan(chosen: argparse.Namespace) -> Plan:
    """The plan of the words of `plan_words`.

    Raises:
      TapestryError: when there is none, or a file is none of ours.
    """
    return read_plan(chosen.plan, chosen, f"tapestry {chosen.command}")


def read_plan(named: str, chosen: argparse.Namespace, command: str) -> Plan:
    """A plan by its name on the command line.

    Raises:
      TapestryError: likewise.
    """
    return piece_plan(named, command) if is_piece(named) else _from_files(named, chosen, command)


def is_piece(named: str) -> bool:
    """Whether a name on the command line is one of a module: a file may have a colon in its name, too."""
    return ":" in named and not Path(named).exists()


def piece_plan(named: str, command: str) -> Plan:
    """The plan of a module.

    Raises:
      TapestryError: when there is none.
    """
    return _of_kind(_piece(named, command), Plan, named, command, "plan", "tp.plan")


def _piece(named: str, command: str) -> Any:
    """What a module has under a name, or what its function without parameters makes.

    Raises:
      TapestryError: when there is none.
    """
    found: Any = imported_piece(named, command, TapestryError)
    if inspect.isfunction(found) and not inspect.signature(found).parameters:
        return made_piece(named, found, command, TapestryError)
    return found


def _of_kind(found: Any, kind: type[_Made], named: str, command: str, what: str, maker: str) -> _Made:
    if isinstance(found, kind):
        return found
    raise TapestryError(
        message(
            f"{command}: {named} is no {what}.",
            f"got {type(found).__name__}: {spelt(found)}",
            remedy=f"Name what {maker} returned, or a function without parameters that returns it.",
        )
    )


def graph_alone(chosen: argparse.Namespace) -> Graph | None:
    """The graph where one stands in the place of a plan: its file, or a module's.

    Raises:
      TapestryError: when it cannot be read.
    """
    if chosen.graph is not None:
        return None
    command = f"tapestry {chosen.command}"
    if is_piece(chosen.plan):
        found = _piece(chosen.plan, command)
        return found if isinstance(found, Graph) else None
    text = read_file(chosen.plan, command)
    # Whatever else it may be, reading it as a plan says so.
    return _graph_of(text, chosen.plan, chosen, command) if _is_of(text, "graph") else None


def _from_files(named: str, chosen: argparse.Namespace, command: str) -> Plan:
    text = read_file(named, command)
    if _is_of(text, "graph"):
        raise _swapped(command, named, "graph", "plan")
    if chosen.graph is None:
        raise TapestryError(
            message(
                f"{command}: a plan file is read beside the file of its graph.",
                f"got {named}",
                remedy="Name the graph file: --graph graph.json, as graph.to_json() writes it.",
            )
        )
    graph = read_graph(chosen.graph, chosen, command)
    return _naming(named, command, lambda: Plan.from_json(text, graph))


def read_graph(path: str, chosen: argparse.Namespace, command: str, remedy: str = _ORDER) -> Graph:
    """The graph of a graph file, or of a module.

    Args:
      path: of the file, or `package.module:graph`.
      chosen: the words, of which those of `answer_words` say what the file may name.
      command: who asks, as errors call it.
      remedy: where it is the file of a plan.

    Raises:
      TapestryError: when it cannot be read, or is the file of a plan.
    """
    if is_piece(path):
        return _of_kind(_piece(path, command), Graph, path, command, "graph", "tp.trace or tp.lift")
    text = read_file(path, command, "Name the file that graph.to_json() wrote, or package.module:graph.")
    if _is_of(text, "plan"):
        raise _swapped(command, path, "plan", "graph", remedy)
    return _graph_of(text, path, chosen, command)


def check_not_read(path: Any, read: Sequence[Any], command: str) -> None:
    """Refuse to write into a file that is read: its plan or graph would be lost.

    Args:
      path: of what is written.
      read: what is read: paths of files, names of pieces, or None.
      command: who writes, as errors call it.

    Raises:
      TapestryError: when it is the same file, by whatever name.
    """
    files = [Path(other) for other in read if other is not None and not is_piece(str(other))]
    try:
        same = Path(path).exists() and any(other.exists() and Path(path).samefile(other) for other in files)
    except (OSError, ValueError):  # where it cannot be looked at it cannot be written, which is told there
        return
    if same:
        headline = f"{command}: {str(path)!r:.200} is the file that is read, and would be lost."
        raise TapestryError(message(headline, remedy="Name another file with -o."))


def _graph_of(text: str, path: str, chosen: argparse.Namespace, command: str) -> Graph:
    return _naming(path, command, lambda: Graph.from_json(text, allow=tuple(chosen.allow)))


def _naming(path: str, command: str, read: Callable[[], _Read]) -> _Read:
    """What is read from a file; whatever is wrong with it is told with its name.

    Raises:
      TapestryError: when it is refused.
    """
    try:
        return read()
    except TapestryError as error:
        raise TapestryError(message(f"{command}: {spelt(path, 200)} is refused.", str(error))) from error


def _is_of(text: str, what: str) -> bool:
    return f'"tapestry-{what}"' in text[:_HEAD]


def _swapped(command: str, path: str, found: str, expected: str, remedy: str = _ORDER) -> TapestryError:
    headline = f"{command}: {spelt(path, 200)} is the file of a {found}, expected one of a {expected}."
    return TapestryError(message(headline, remedy=remedy))


def read_file(path: str, command: str, remedy: str = _WRITTEN) -> str:
    """The text of a file that is read as data.

    Raises:
      TapestryError: when it is no file, no text, or too large to be one of ours.
    """
    try:
        return read_whole(path)
    except (OSError, ValueError) as error:
        told = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
        raise _unread(command, path, told, remedy) from error


def _unread(command: str, path: str, why: str, remedy: str) -> TapestryError:
    return TapestryError(message(f"{command}: {spelt(path, 200)} cannot be read.", why[:300], remedy=remedy))
