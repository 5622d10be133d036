"""What `tapestry fabric ls FABRIC` and its like do."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from combinators.errors import TapestryError, message
from tapestry_jax.commands.piece import imported_piece
from tapestry_jax.commands.planned import read_graph
from tapestry_jax.commands.search import read_mesh
from tapestry_jax.fabric.catalogue.connection import FILE
from tapestry_jax.fabric.described import Described
from tapestry_jax.fabric.fabric import Fabric
from tapestry_jax.mesh import mesh as make_mesh

_COMMAND = "tapestry fabric"
_ABOUT = """
Named tensors in a folder, as tp.Fabric keeps them.

  tapestry fabric ls    data/                         names, types and bytes
  tapestry fabric show  data/ x --box row=0:2         what a tensor is, and cells of it
  tapestry fabric load  data/ x x.npy --names row,col
  tapestry fabric export data/ x x.zarr
  tapestry fabric copy  data/ x y --from row=0:8 --to row=8:16
  tapestry fabric apply data/ package.module:program x w --out y
  tapestry fabric apply data/ graph.json x w --out y --mesh data=2 --plan row=data

What load and copy write, and apply names, is there as a whole or not at all. --json prints what is there as JSON. A
graph file is data, no code of which is run; package.module:program is code of yours, which is imported.

exit status: 0 where it is done, 1 where `show --check` finds blocks that are lost, 2 where it cannot be done"""


def words(parser: argparse.ArgumentParser) -> None:
    """The words of `tapestry fabric`."""
    parser.description = _ABOUT.strip()
    actions = parser.add_subparsers(dest="action", required=True, metavar="ls | show | load | export | copy | apply")
    _listing(actions)
    _moving(actions)
    copy = _action(actions, "copy", "a box of a tensor into another, or into the same")
    copy.add_argument("name", metavar="SOURCE")
    copy.add_argument("target", metavar="TARGET")
    copy.add_argument(
        "--from", dest="source_box", default="", metavar="BOX", help="such as row=0:8,col=:4; default all"
    )
    copy.add_argument("--to", dest="target_box", default="", metavar="BOX", help="as large; default all")
    copy.add_argument("--cast", action="store_true", help="convert values where the dtypes differ")
    apply = _action(actions, "apply", "run a program on tensors")
    apply.add_argument("program", metavar="PROGRAM", help="a graph file, or package.module:program")
    apply.add_argument("inputs", nargs="+", metavar="NAME", help="its arguments, in order")
    apply.add_argument("--out", required=True, metavar="NAMES", help="of its results: y, or y,z")
    apply.add_argument("--mesh", metavar="AXES", help="of devices here, such as data=2,model=4")
    apply.add_argument("--plan", action="append", default=[], metavar="DIM=AXES", help="such as row=data; repeat it")
    apply.add_argument("--allow", action="append", default=[], metavar="PACKAGE", help="what a graph file may name")
    apply.add_argument("--overwrite", action="store_true", help="replace tensors of these names")


def _listing(actions: Any) -> None:
    _action(actions, "ls", "names, types and bytes")
    show = _action(actions, "show", "what a tensor is")
    show.add_argument("name", metavar="NAME")
    show.add_argument("--box", default=None, metavar="BOX", help="print these cells, such as row=0:2,col=:4")
    show.add_argument("--check", action="store_true", help="read all of it, and name blocks that are lost")


def _moving(actions: Any) -> None:
    load = _action(actions, "load", "bring in a file")
    load.add_argument("name", metavar="NAME")
    load.add_argument("path", metavar="FILE", help="as tp.open reads it")
    load.add_argument("--tensor", metavar="NAME", help="which one, of a file with several")
    load.add_argument("--names", metavar="A,B", help="what the axes are called; an empty one has no name")
    export = _action(actions, "export", "write a tensor to a file")
    export.add_argument("name", metavar="NAME")
    export.add_argument("path", metavar="FILE", help="as tp.create makes it")
    for each in (load, export):
        each.add_argument("--format", metavar="FORMAT", help="what the suffix does not say")
        each.add_argument("--overwrite", action="store_true", help="replace what is there")


def _action(actions: Any, name: str, told: str) -> argparse.ArgumentParser:
    made = actions.add_parser(name, help=told, description=told)
    made.add_argument("fabric", metavar="FABRIC", help="its folder")
    made.add_argument("--json", action="store_true", help="print JSON")
    return made


def run(chosen: argparse.Namespace, *, is_process: bool) -> int:
    """Run `tapestry fabric`.

    Raises:
      TapestryError: when a word cannot be read, or it cannot be done.
    """
    del is_process
    folder = Path(chosen.fabric)
    # Only load makes a fabric: elsewhere a name that is wrong must not leave an empty one behind.
    if chosen.action != "load" and not (folder / FILE).is_file():
        remedy = "Name a folder that `tapestry fabric load` or tp.Fabric has made."
        raise TapestryError(message(f"{_COMMAND} {chosen.action}: {chosen.fabric!r:.200} is no fabric", remedy=remedy))
    mesh = _mesh(chosen)
    with Fabric(folder, mesh=mesh) as fabric:
        return _ACTIONS[chosen.action](fabric, chosen)


def _ls(fabric: Fabric, chosen: argparse.Namespace) -> int:
    found = [fabric.describe(name) for name in fabric]
    if chosen.json:
        return _print(json.dumps({"fabric": 1, "tensors": [_data(each) for each in found]}, indent=1))
    width = max((len(each.name) for each in found), default=0)
    return _print("\n".join(f"{each.name:{width}}  {each.type}  {each.type.nbytes:,} B" for each in found))


def _show(fabric: Fabric, chosen: argparse.Namespace) -> int:
    told = fabric.describe(chosen.name)
    lost = fabric.check(chosen.name) if chosen.check else ()
    cells = None if chosen.box is None else fabric.read(chosen.name, read_box(chosen.box))
    if chosen.json:
        more = {"lost": lost} if chosen.check else {}
        # Texts for numbers that JSON does not have: NaN, infinities, and complex ones.
        more |= {} if cells is None else {"cells": _cells(cells.tolist())}
        _print(json.dumps({**_data(told), **more}, indent=1))
        return int(bool(lost))
    lines = [str(told), *(f"  lost: {box}" for box in lost), *([] if cells is None else [str(cells)])]
    _print("\n".join(lines))
    return int(bool(lost))


def _load(fabric: Fabric, chosen: argparse.Namespace) -> int:
    names = None if chosen.names is None else tuple(name.strip() or None for name in chosen.names.split(","))
    options: dict[str, Any] = {"format": chosen.format, "names": names, "overwrite": chosen.overwrite}
    fabric.load(chosen.name, chosen.path, chosen.tensor, **options)
    return _done(fabric, [chosen.name], chosen)


def _export(fabric: Fabric, chosen: argparse.Namespace) -> int:
    fabric.export(chosen.name, chosen.path, format=chosen.format, overwrite=chosen.overwrite)
    return _done(fabric, [chosen.name], chosen)


def _copy(fabric: Fabric, chosen: argparse.Namespace) -> int:
    boxes = read_box(chosen.source_box), read_box(chosen.target_box)
    fabric.copy(chosen.name, boxes[0], chosen.target, boxes[1], cast=chosen.cast)
    return _done(fabric, [chosen.target], chosen)


def _apply(fabric: Fabric, chosen: argparse.Namespace) -> int:
    command = f"{_COMMAND} apply"
    is_file = ":" not in chosen.program or Path(chosen.program).exists()
    program: Any = (
        read_graph(chosen.program, chosen, command)
        if is_file
        else imported_piece(chosen.program, command, TapestryError)
    )
    outputs = tuple(name.strip() for name in chosen.out.split(","))
    plan = dict(_entry(text) for text in chosen.plan) or None
    fabric.apply(program, *chosen.inputs, out=outputs, plan=plan, overwrite=chosen.overwrite)
    return _done(fabric, outputs, chosen)


_ACTIONS: dict[str, Callable[[Fabric, argparse.Namespace], int]] = {
    "ls": _ls,
    "show": _show,
    "load": _load,
    "export": _export,
    "copy": _copy,
    "apply": _apply,
}


def read_box(text: str) -> dict[Any, slice] | None:
    """A box of `row=0:8,col=:4`; axes without a name by their position.

    Raises:
      TapestryError: for text that says none.
    """
    found: dict[Any, slice] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, equals, bounds = (each.strip() for each in part.partition("="))
        start, colon, stop = (each.strip() for each in bounds.partition(":"))
        key: Any = int(name) if name.isdecimal() and len(name) < 4 else name
        if not (name and equals and colon and _is_bound(start) and _is_bound(stop)) or key in found:
            remedy = "Write it as row=0:8,col=:4."
            raise TapestryError(
                message(f"{_COMMAND}: cannot read the box {text!r:.120}", f"at {part!r:.60}", remedy=remedy)
            )
        found[key] = slice(int(start) if start else None, int(stop) if stop else None)
    return found or None


def _is_bound(text: str) -> bool:
    digits = text.removeprefix("-")
    return not text or (digits.isdecimal() and len(digits) < 20)


def _entry(text: str) -> tuple[str, tuple[str, ...]]:
    name, equals, axes = (each.strip() for each in text.partition("="))
    if not (name and equals and axes):
        remedy = "Write it as --plan row=data, or --plan row=data,model."
        raise TapestryError(message(f"{_COMMAND} apply: cannot read the entry {text!r:.120}", remedy=remedy))
    return name, tuple(axis.strip() for axis in axes.split(","))


def _mesh(chosen: argparse.Namespace) -> Any:
    text = getattr(chosen, "mesh", None)
    if text is None:
        return None
    found = read_mesh(text)
    axes: dict[str, int] = {"data": found} if isinstance(found, int) else dict(found.shape)
    return make_mesh(None, **axes)


def _data(told: Described) -> dict[str, Any]:
    return {
        "name": told.name,
        "dtype": told.type.dtype.name,
        "dims": [[name, size] for name, size in zip(told.type.names, told.type.shape, strict=True)],
        "bytes": told.type.nbytes,
        "version": told.version,
        "chunks": told.chunks,
        "blocks": told.blocks,
        "stored": told.stored,
        "layout": dict(told.layout),
        "made": told.made,
    }


def _cells(found: Any) -> Any:
    if isinstance(found, list):
        return [_cells(each) for each in found]
    is_plain = isinstance(found, bool | int) or (isinstance(found, float) and found - found == 0)
    return found if is_plain else str(found)


def _done(fabric: Fabric, names: Any, chosen: argparse.Namespace) -> int:
    found = [fabric.describe(name) for name in names]
    if chosen.json:
        return _print(json.dumps({"fabric": 1, "tensors": [_data(each) for each in found]}, indent=1))
    return _print("\n".join(map(str, found)))


def _print(text: str) -> int:
    sys.stdout.write(f"{text}\n" if text else "")
    return 0
