"""The command line: `tapestry laws package.module:piece`."""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from combinators.errors import TapestryError, message
from laws.check import replay
from laws.errors import LawError
from laws.examine import examine
from laws.mutants import mutants
from laws.page import listing, page
from laws.pieces import Asked
from laws.quickly import compile_quickly
from laws.survey import How, Row, collection, made, survey, survey_in_processes, total


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
      arguments: the words after `tapestry`; those of this process where None.

    Returns:
      The exit status: 0 where every law held or was not checked, 1 where one failed or none could be checked, 2 where
      the question cannot be read.
    """
    if arguments is None:
        compile_quickly()
    parser = argparse.ArgumentParser(
        prog="tapestry", description="Tensor programs, planned; and the laws that carry them."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    _add_laws(commands)
    chosen = parser.parse_args(arguments)
    try:
        return int(chosen.run(chosen))
    except TapestryError as error:
        sys.stderr.write(f"{error}\n")
        return 2


def _add_laws(commands: Any) -> None:
    laws = commands.add_parser("laws", help="check the laws of a piece, or list them")
    laws.add_argument(
        "pieces",
        nargs="*",
        metavar="package.module:piece",
        help="a monoid, aggregator, arrow, graph or plan; a function without parameters that makes one; or a mapping "
        "of such by name",
    )
    laws.add_argument("--list", action="store_true", help="print every law with its formula and source")
    laws.add_argument("--markdown", action="store_true", help="print the page of the documentation")
    laws.add_argument("--mutants", action="store_true", help="plant mistakes, and print which laws catch them")
    laws.add_argument("--replay", metavar="TOKEN", help="run one counterexample again, from the message of a failure")
    laws.add_argument("--law", action="append", metavar="NAME", help="a law or family; may be repeated")
    laws.add_argument("--examples", type=int, default=50, help="arguments drawn for every law (default 50)")
    laws.add_argument("--seed", type=int, default=0, help="of the draws (default 0)")
    laws.add_argument("--jobs", type=int, default=1, help="processes for the pieces of a mapping (default 1)")
    laws.set_defaults(run=_laws)


def _laws(chosen: argparse.Namespace) -> int:
    if chosen.list or chosen.markdown:
        sys.stdout.write((listing() if chosen.list else page()) + "\n")
        return 0
    if not chosen.pieces:
        raise LawError(
            message("tapestry laws: no piece is named.", remedy="Name one as package.module:piece, or pass --list.")
        )
    status = 0
    for text in chosen.pieces:
        found = made(find_piece(text))
        pieces = collection(found)
        if pieces is None:
            status = max(status, _report(text, found, chosen))
        elif chosen.mutants or chosen.replay:
            status = max(status, *(_report(f"{text}, {name}", piece, chosen) for name, piece in pieces.items()))
        else:
            status = max(status, _survey(text, pieces, chosen))
    return status


def _survey(text: str, pieces: Mapping[str, Any], chosen: argparse.Namespace) -> int:
    """One line for each piece of a collection, then the counterexamples, then the sum."""
    how = How(tuple(chosen.law) if chosen.law else None, chosen.examples, chosen.seed)
    begin, rows = time.perf_counter(), list[Row]()
    several = chosen.jobs > 1 and len(pieces) > 1
    found = survey_in_processes(find_piece, text, list(pieces), how, chosen.jobs) if several else survey(pieces, how)
    for row in found:
        rows.append(row)
        sys.stdout.write(f"{row}\n")
        sys.stdout.flush()
    failures = "".join(f"\n{row.name}\n{failure}\n" for row in rows for failure in row.messages)
    sys.stdout.write(f"{failures}{total(rows, time.perf_counter() - begin)}\n")
    return 0 if all(row.is_fine for row in rows) else 1


def _report(text: str, piece: Any, chosen: argparse.Namespace) -> int:
    called = Asked.of(piece).called
    if chosen.replay:
        return _replay(called, piece, chosen.replay)
    if chosen.mutants:
        planted = mutants(piece, laws=chosen.law, examples=chosen.examples, seed=chosen.seed)
        sys.stdout.write(f"{called} ({text})\n{planted}\n")
        return 1 if planted.survivors else 0
    report = examine(piece, laws=chosen.law, examples=chosen.examples, seed=chosen.seed)
    sys.stdout.write(f"{called} ({text})\n{report.summary}\n")
    return 1 if report.failed or not (report.held or report.known) else 0


def _replay(called: str, piece: Any, token: str) -> int:
    try:
        replay(token, piece)
    except LawError as error:
        if error.law is None:
            raise
        sys.stdout.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{called}: the counterexample holds now\n")
    return 0


def find_piece(text: str) -> Any:
    """Import what `package.module:name` stands for; the working directory is looked in first.

    Raises:
      LawError: when the text, the module or the name is wrong.
    """
    module_name, colon, path = text.partition(":")
    if not (module_name and colon and path):
        raise LawError(message(f"tapestry laws: cannot read {text!r}.", remedy="Write it as package.module:piece."))
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise LawError(
            message(f"tapestry laws: {error}.", remedy="Run it where the module can be imported.")
        ) from error
    for name in path.split("."):
        if not hasattr(found, name):
            raise LawError(
                message(
                    f"tapestry laws: {module_name} has no {path!r}.",
                    f"it has {', '.join(sorted(n for n in vars(found) if not n.startswith('_')))[:300]}",
                    remedy="Name a piece of the module.",
                )
            )
        found = getattr(found, name)
    return found
