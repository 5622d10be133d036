"""What `tapestry fabric ls FABRIC` and its like do."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from combinators.errors import TapestryError, message, spelt
from tapestry_jax.commands.piece import imported_piece
from tapestry_jax.commands.planned import is_piece, read_graph
from tapestry_jax.commands.search import read_mesh
from tapestry_jax.fabric.catalogue.connection import FILE
from tapestry_jax.fabric.described import Described
from tapestry_jax.fabric.fabric import Fabric
from tapestry_jax.mesh import mesh as make_mesh
from tapestry_jax.planning.entries.items import chunks

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
  tapestry fabric apply data/ graph.json x w --out y --over row --memory 1GiB --checkpoint run/
  tapestry fabric recover data/ y                     compute blocks that are lost again
  tapestry fabric delete data/ x y
  tapestry fabric snapshot data/ before               keep all as it is; without a name: which there are
  tapestry fabric restore data/ before x              one tensor, or without names all of them

What load and copy write, and apply names, is there as a whole or not at all. --json prints what is there as JSON. A
graph file is data, no code of which is run; package.module:program is code of yours, which is imported.

exit status: 0 where it is done, 1 where `show --check` finds blocks that are lost, 2 where it cannot be done"""


def words(parser: argparse.ArgumentParser) -> None:
    """The words of `tapestry fabric`."""
    parser.description = _ABOUT.strip()
    actions = parser.add_subparsers(dest="action", required=True, metavar=" | ".join(_ACTIONS))
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
    apply.add_argument("--over", action="append", default=[], metavar="DIM[=SIZE]", help="stream it, in such chunks")
    apply.add_argument("--memory", metavar="BYTES", help="that a stream may need, such as 512MiB")
    apply.add_argument("--checkpoint", metavar="FOLDER", help="of this stream: the same words go on from there")
    apply.add_argument("--parameters", metavar="NAME", help="under which what a module holds is kept")
    apply.add_argument("--allow", action="append", default=[], metavar="PACKAGE", help="what a graph file may name")
    apply.add_argument("--overwrite", action="store_true", help="replace tensors of these names")
    _keeping(actions)


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


def _keeping(actions: Any) -> None:
    recover = _action(actions, "recover", "compute blocks that are lost again")
    recover.add_argument("name", metavar="NAME")
    recover.add_argument("program", nargs="?", metavar="PROGRAM", help="package.module:program, where no file holds it")
    recover.add_argument("--allow", action="append", default=[], metavar="PACKAGE", help="what stored graphs may name")
    delete = _action(actions, "delete", "let names stand for nothing")
    delete.add_argument("names", nargs="+", metavar="NAME")
    snapshot = _action(actions, "snapshot", "keep all tensors as they are, or list what is kept")
    snapshot.add_argument("name", nargs="?", metavar="SNAPSHOT")
    snapshot.add_argument("--forget", metavar="SNAPSHOT", help="keep one no longer")
    restore = _action(actions, "restore", "let names stand for what they stood for")
    restore.add_argument("name", metavar="SNAPSHOT")
    restore.add_argument("names", nargs="*", metavar="NAME", help="default all; what came later is gone then")


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
        raise TapestryError(
            message(f"{_COMMAND} {chosen.action}: {spelt(chosen.fabric, 200)} is no fabric", remedy=remedy)
        )
    mesh = _mesh(chosen)
    allow = getattr(chosen, "allow", []) if chosen.action == "recover" else []
    with Fabric(folder, mesh=mesh, allow=allow) as fabric:
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
    program: Any = (
        imported_piece(chosen.program, command, TapestryError)
        if is_piece(chosen.program)
        else read_graph(chosen.program, chosen, command)
    )
    outputs = tuple(name.strip() for name in chosen.out.split(","))
    plan = dict(_entry(text) for text in chosen.plan) or None
    kept = {"parameters": chosen.parameters, "memory": chosen.memory, "checkpoint": chosen.checkpoint}
    over = _over(chosen.over)
    fabric.apply(program, *chosen.inputs, out=outputs, plan=plan, over=over, **kept, overwrite=chosen.overwrite)
    return _done(fabric, outputs, chosen)


def _recover(fabric: Fabric, chosen: argparse.Namespace) -> int:
    command = f"{_COMMAND} recover"
    program = None if chosen.program is None else imported_piece(chosen.program, command, TapestryError)
    found = fabric.recover(chosen.name, program)
    if chosen.json:
        return _print(json.dumps({"fabric": 1, "recovered": found}))
    return _print("\n".join(f"recovered: {box}" for box in found) or "nothing was lost")


def _delete(fabric: Fabric, chosen: argparse.Namespace) -> int:
    missing = [name for name in chosen.names if name not in fabric]
    for name in missing or chosen.names:  # the first that is not there is told before any is gone
        fabric.delete(name)
    return _ls(fabric, chosen)


def _snapshot(fabric: Fabric, chosen: argparse.Namespace) -> int:
    if chosen.forget is not None:
        fabric.forget(chosen.forget)
    if chosen.name is not None:
        fabric.snapshot(chosen.name)
    found = fabric.snapshots()
    return _print(json.dumps({"fabric": 1, "snapshots": found}) if chosen.json else "\n".join(found))


def _restore(fabric: Fabric, chosen: argparse.Namespace) -> int:
    fabric.restore(chosen.name, *chosen.names)
    return _ls(fabric, chosen)


_ACTIONS: dict[str, Callable[[Fabric, argparse.Namespace], int]] = {
    "ls": _ls,
    "show": _show,
    "load": _load,
    "export": _export,
    "copy": _copy,
    "apply": _apply,
    "recover": _recover,
    "delete": _delete,
    "snapshot": _snapshot,
    "restore": _restore,
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
                message(f"{_COMMAND}: cannot read the box {spelt(text, 120)}", f"at {spelt(part, 60)}", remedy=remedy)
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
        raise TapestryError(message(f"{_COMMAND} apply: cannot read the entry {spelt(text, 120)}", remedy=remedy))
    return name, tuple(axis.strip() for axis in axes.split(","))


def _over(texts: Sequence[str]) -> Any:
    """What is streamed: names of dimensions, whose chunks the memory chooses, or entries with the sizes of chunks."""
    pairs = [(name.strip(), size.strip()) for name, _, size in (text.partition("=") for text in texts)]
    written = " ".join(
        f"--over {text!r}" if not text.isprintable() or " " in text else f"--over {text}" for text in texts
    )
    sizes = [size for _, size in pairs if size]
    if not all(name for name, _ in pairs) or not all(size.isdecimal() and int(size) for size in sizes):
        remedy = "Write it as --over row, or --over row=4096."
        raise TapestryError(message(f"{_COMMAND} apply: cannot read --over", f"got {written:.120}", remedy=remedy))
    if sizes and len(sizes) != len(pairs):
        remedy = "Give a size to all of them, or to none."
        raise TapestryError(
            message(f"{_COMMAND} apply: some of --over have a size", f"got {written:.120}", remedy=remedy)
        )
    if sizes:
        return {name: chunks(size=int(size)) for name, size in pairs}
    return [name for name, _ in pairs] or None


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
