"""What `tapestry search GRAPH --mesh data=2,model=4` does."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

from jax.sharding import AbstractMesh

from combinators.errors import TapestryError, message, spelt
from combinators.stored.whole import told, write_whole
from tapestry_jax.commands.planned import answer_words, check_not_read, is_piece, machine_words, read_graph, read_plan
from tapestry_jax.commands.why import read_wanted
from tapestry_jax.plan import Plan
from tapestry_jax.planning.pricing.cost import duration
from tapestry_jax.searching.methods import METHODS
from tapestry_jax.searching.question.meshes import MOST
from tapestry_jax.searching.search import search

_COMMAND = "tapestry search"
_NOT_A_PLAN = (
    "Name the file that graph.to_json() wrote, or package.module:graph; a plan to begin from goes behind --start."
)
_ABOUT = """\
The cheapest plan of a program that fits into a device's memory, proved and written to a plan file. Told are what it
asks for, its seconds, its memory, and how far from the best it may be. Ctrl-C ends the search with the best plan so
far. Exit status 0 where a plan is found, 2 where nothing fits or the question cannot be read, 130 where it was
interrupted before there was one.

GRAPH is a file that graph.to_json() wrote: data, no code of which is run; or package.module:graph, a graph of a module
of yours, or a function without parameters that makes one. Nothing is compiled, and no device of the mesh has to be
here.

  tapestry search graph.json --mesh data=2,model=4 --machine h100 --grad
  tapestry search mypackage.mymodule:graph --mesh data=2,model=4 --machine h100 --grad
  tapestry search graph.json --mesh 64 --machine v5p --memory 90GB --fix batch=data --fix embed=none -o plan.json
"""


def words(parser: argparse.ArgumentParser) -> None:
    """The words of `tapestry search`."""
    parser.description = _ABOUT
    add = parser.add_argument
    add("source", metavar="GRAPH", help="a graph file, or package.module:graph")
    add(
        "--mesh",
        required=True,
        metavar="AXES",
        help="mesh axes and their sizes, such as data=2,model=4; or a number of devices, for the best mesh of so many",
    )
    machine_words(parser, required=True)
    add("--memory", metavar="BYTES", help="of one device, such as 70GB or 64GiB; by default what the machine has")
    add("--method", choices=tuple(METHODS), default="auto", help="how to search; auto goes by the size of the program")
    add("--seed", type=int, default=0, help="of methods that draw (default 0)")
    add("--time-limit", type=float, metavar="SECONDS", help="for each mesh; then the best plan so far is taken")
    add(
        "--fix",
        action="append",
        default=[],
        metavar="DIM=PLACE",
        help="what stays as you say: batch=data, batch=data,chunks(4), embed=none to leave it whole. May be repeated",
    )
    add("--start", metavar="PLAN", help="a plan file of this graph to begin from; what is found is not dearer")
    add("--cache", metavar="FOLDER", help="of plans found before, looked into first")
    add(
        "-o",
        "--output",
        metavar="FILE",
        help="the plan file; by default graph.plan.json beside graph.json, or in the working directory",
    )
    answer_words(parser)


def run(chosen: argparse.Namespace, *, is_process: bool) -> int:
    """Run `tapestry search`.

    Raises:
      TapestryError: when the graph or a word cannot be read, nothing fits, or the plan cannot be written.
    """
    del is_process
    if chosen.machine is None:
        raise TapestryError(
            message(
                f"{_COMMAND}: no machine is named, and without one there are no prices.",
                remedy="Name one: --machine h100, --machine v5p:4x4x4.",
            )
        )
    graph, mesh = read_graph(chosen.source, chosen, _COMMAND, _NOT_A_PLAN), read_mesh(chosen.mesh)
    path = _beside(chosen.source) if chosen.output is None else Path(chosen.output)
    # Before the search, which may take long.
    if not path.parent.is_dir():
        raise _unwritten(path, "there is no such folder")
    if path.is_dir():
        raise _unwritten(path, "it is a folder")
    check_not_read(path, [chosen.source], _COMMAND)
    start = None
    if chosen.start is not None:
        chosen.graph = chosen.source
        start = read_plan(chosen.start, chosen, _COMMAND)
    plan = search(
        graph,
        mesh,
        chosen.machine,
        _amount(chosen.memory),
        chosen.method,
        chosen.seed,
        grad=chosen.grad,
        entries=read_wanted(chosen.fix, _COMMAND),
        start=start,
        cache=chosen.cache,
        time_limit=chosen.time_limit,
        progress=True,
    )
    _write(path, plan.to_json())
    sys.stdout.write(f"{_json(plan, chosen, path) if chosen.json else _told(plan, chosen, path)}\n")
    return 0


def _beside(source: str) -> Path:
    """The plan file that belongs to a graph file; of a module's graph it lies in the working directory."""
    if is_piece(source):
        return Path(f"{source.rpartition(':')[2].rpartition('.')[2]}.plan.json")
    return Path(source).with_suffix(".plan.json")


def read_mesh(text: str) -> Any:
    """A mesh without devices, of `data=2,model=4`; or a number of devices.

    Raises:
      TapestryError: for text that says neither.
    """
    if _is_size(text.strip()):
        return int(text)
    axes: dict[str, int] = {}
    for word in text.split(","):
        name, equals, size = (part.strip() for part in word.partition("="))
        if not (name.isidentifier() and equals and _is_size(size) and int(size)):
            raise _no_mesh(text, f"{spelt(word, 60)} is no axis with a size")
        if name in axes:
            raise _no_mesh(text, f"`{name}` stands twice")
        axes[name] = int(size)
    if math.prod(axes.values()) > MOST:
        raise _no_mesh(text, f"it has more than {MOST:,} devices")
    return AbstractMesh(tuple(axes.values()), tuple(axes))


def _is_size(text: str) -> bool:
    """Whether it is a number, and no larger than meshes are."""
    return text.isdecimal() and len(text) <= len(str(MOST)) and int(text) <= MOST


def _no_mesh(text: str, why: str) -> TapestryError:
    remedy = "Write it as --mesh data=2,model=4, or as a number of devices: --mesh 8."
    return TapestryError(message(f"{_COMMAND}: cannot read the mesh {spelt(text, 120)}.", why, remedy=remedy))


def _amount(text: str | None) -> int | str | None:
    # More digits than that are no amount of memory, and may be more than Python reads.
    return int(text) if text is not None and text.strip().isdecimal() and len(text) < 100 else text


def _write(path: Path, text: str) -> None:
    try:
        write_whole(path, text)
    except (OSError, ValueError) as error:
        raise _unwritten(path, told(error)) from error


def _unwritten(path: Path, why: str) -> TapestryError:
    headline = f"{_COMMAND}: the plan cannot be written to {str(path)!r:.200}."
    return TapestryError(message(headline, why[:300], remedy="Name another file: -o plan.json."))


def _rows(plan: Plan) -> list[tuple[str, str]]:
    """What a plan asks for, in words of a command line."""
    rows = [(name, ",".join(map(str, items)) or "none") for name, items in plan.entries]
    rows += [(f"{path}: {name}", ",".join(map(str, items)) or "none") for path, own in plan.ops for name, items in own]
    rows += [
        (f"stored {path}: {name}", ",".join(map(str, items)) or "whole")
        for path, own in plan.inputs
        for name, items in own
    ]
    return rows + [(f"computed again {path or 'everywhere'}", str(how)) for path, how in plan.remat]


def _told(plan: Plan, chosen: argparse.Namespace, path: Path) -> str:
    cost, needed = plan.cost(chosen.machine, chosen.grad), plan.memory(chosen.grad).total
    gap = "not known" if plan.gap is None else f"{plan.gap:.2%} at most, by what its method looks at"
    lines = [
        f"{plan.graph.name} on {plan.schedule.mesh}, {cost.machine}: {duration(cost.seconds)}, {needed:,} B a device"
    ]
    lines += [f"  {what} -> {where}" for what, where in _rows(plan)] or ["  nothing is placed"]
    return "\n".join([*lines, f"from the best: {gap}", str(path)])


def _json(plan: Plan, chosen: argparse.Namespace, path: Path) -> str:
    cost = plan.cost(chosen.machine, chosen.grad)
    found = {
        "search": 1,
        "name": plan.graph.name,
        "plan": str(path),
        "mesh": dict(plan.schedule.mesh.axes),
        "machine": cost.machine,
        "gradients": chosen.grad,
        "seconds": cost.seconds,
        "memory": plan.memory(chosen.grad).total,
        "gap": plan.gap,
        "asked": dict(_rows(plan)),
    }
    return json.dumps(found, indent=1)
