"""What `tapestry laws package.module:piece` does."""

from __future__ import annotations

import argparse
import importlib
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from combinators.errors import message
from laws.check import replay
from laws.errors import LawError
from laws.examine import examine
from laws.mutants import mutants
from laws.page import listing, page
from laws.pieces import Asked
from laws.quickly import compile_quickly
from laws.survey import How, Row, collection, made, survey, survey_in_processes, total
from tapestry_jax import command


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
        return _laws(chosen)
    except SystemExit as error:
        raise LawError(
            message(
                "tapestry laws: a piece tried to end the process.",
                f"it called sys.exit({error.code!r:.80})",
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
    found = _imported(module_name)
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


def _imported(name: str) -> Any:
    """Import a module of a user's.

    Raises:
      LawError: when it cannot be found, or its body raises, or ends the process.
    """
    headline, remedy = f"tapestry laws: `{name}` cannot be imported.", "Run it where the module can be imported."
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise LawError(message(f"tapestry laws: {error}.", remedy=remedy)) from error
    except SyntaxError as error:
        text = (error.text or "").rstrip()
        caret = [text.lstrip(), f"{' ' * (max(error.offset or 1, 1) - 1 - (len(text) - len(text.lstrip())))}^"]
        place = f"{error.filename}, line {error.lineno}: {type(error).__name__}: {error.msg}"
        raise LawError(message(headline, place, *(caret if text.strip() else []), remedy="Mend that line.")) from error
    except SystemExit as error:
        details = (_place_of(error), f"it called sys.exit({error.code!r:.80})")
        remedy = 'Leave that to the part of the module behind `if __name__ == "__main__":`.'
        raise LawError(message(headline, *filter(None, details), remedy=remedy)) from error
    except Exception as error:
        details = (_place_of(error), f"{type(error).__name__}: {error}"[:1000])
        raise LawError(message(headline, *filter(None, details), remedy="Mend the module, then ask again.")) from error


def _place_of(error: BaseException) -> str:
    """The file and line of the user's that raised: the innermost one that is not of an installed package."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [
        frame
        for frame in frames
        if not any(part in frame.filename for part in ("importlib", "site-packages", "laws/cli.py"))
    ]
    return f"{own[-1].filename}, line {own[-1].lineno}" if own else ""
