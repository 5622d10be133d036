"""What `tapestry laws package.module:piece` does."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, final

from combinators.errors import message, spelt
from laws.check import replay
from laws.errors import LawError
from laws.examine import examine_named
from laws.mistakes.mutants import mutants
from laws.pieces import Asked
from laws.quickly import compile_quickly
from laws.reports.page import listing, page
from laws.reports.survey import How, Row, collection, made, survey, survey_in_processes, total
from tapestry_jax import command
from tapestry_jax.commands.piece import imported_piece, made_piece
from tapestry_jax.launching.insisting import insisting


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `tapestry`, see `tapestry_jax.command.main`."""
    return command.main(arguments)


def run(chosen: argparse.Namespace, *, is_process: bool) -> int:
    """Run `tapestry laws`.

    Args:
      chosen: the words, as `tapestry_jax.command.parser` reads them.
      is_process: whether this process does nothing else.

    Returns:
      The exit status.

    Raises:
      LawError: when the question cannot be read; a module or a piece that ends the process, or raises while it is
        imported, among them.
    """
    if is_process:
        compile_quickly()
    try:
        with insisting() if is_process else nullcontext():
            return _laws(chosen)
    except SystemExit as error:
        raise LawError(
            message(
                "tapestry laws: a piece tried to end the process.",
                f"it called sys.exit({spelt(error.code)})",
                remedy='Leave that to the part of the module behind `if __name__ == "__main__":`.',
            )
        ) from error


def _laws(chosen: argparse.Namespace) -> int:
    if chosen.list or chosen.markdown:
        sys.stdout.write((listing() if chosen.list else page()) + "\n")
        return 0
    if not chosen.pieces:
        raise LawError(
            message("tapestry laws: no piece is named.", remedy="Name one as package.module:piece, or pass --list.")
        )
    came: list[_Came] = []
    for text in chosen.pieces:
        found = find_piece(text)
        found = made_piece(text, lambda found=found: made(found), "tapestry laws", LawError)
        pieces = collection(found)
        if pieces is None:
            came.append(_report(text, found, chosen))
        elif chosen.mutants or chosen.replay:
            came += [_report(f"{text}, {name}", piece, chosen) for name, piece in pieces.items()]
        else:
            came.append(_survey(text, pieces, chosen))
    return 0 if all(one.is_fine for one in came) and any(one.is_checked for one in came) else 1


@final
@dataclass(frozen=True)
class _Came:
    """What came of the question to one piece or collection.

    Attributes:
      is_fine: whether nothing failed. A piece that has none of the laws that were named is fine.
      is_checked: whether anything was checked.
    """

    is_fine: bool
    is_checked: bool


def _survey(text: str, pieces: Mapping[str, Any], chosen: argparse.Namespace) -> _Came:
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
    return _Came(all(row.is_fine for row in rows), any(row.is_checked for row in rows))


def _report(text: str, piece: Any, chosen: argparse.Namespace) -> _Came:
    called = Asked.of(piece).called
    if chosen.replay:
        return _replay(called, piece, chosen.replay)
    if chosen.mutants:
        return _mutants(text, piece, chosen)
    report = examine_named(piece, chosen.law, examples=chosen.examples, seed=chosen.seed)
    sys.stdout.write(f"{called} ({text})\n{report.summary}\n")
    is_checked = bool(report.failed or report.held or report.known)
    return _Came(not report.failed and (is_checked or chosen.law is not None), is_checked)


def _mutants(text: str, piece: Any, chosen: argparse.Namespace) -> _Came:
    asked = Asked.of(piece)
    laws, others = (None, []) if chosen.law is None else asked.divided(chosen.law)
    if laws is not None and not laws:
        sys.stdout.write(f"{asked.called} ({text})\nnot checked: it has no law {', '.join(others)}\n")
        return _Came(is_fine=True, is_checked=False)
    planted = mutants(piece, laws=laws, examples=chosen.examples, seed=chosen.seed)
    sys.stdout.write(f"{asked.called} ({text})\n{planted}\n")
    return _Came(not planted.survivors, is_checked=True)


def _replay(called: str, piece: Any, token: str) -> _Came:
    try:
        replay(token, piece)
    except LawError as error:
        if error.law is None:
            raise
        sys.stdout.write(f"{error}\n")
        return _Came(is_fine=False, is_checked=True)
    sys.stdout.write(f"{called}: the counterexample holds now\n")
    return _Came(is_fine=True, is_checked=True)


def find_piece(text: str) -> Any:
    """Import what `package.module:name` stands for; the working directory is looked in first.

    Raises:
      LawError: when the text, the module or the name is wrong.
    """
    return imported_piece(text, "tapestry laws", LawError)
