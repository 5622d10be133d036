"""The laws of many pieces, one line each: what passed, what failed, and what it took."""

from __future__ import annotations

import inspect
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, final

from combinators.errors import TapestryError, message
from laws.catalogue import every_family, select
from laws.counterexamples.search import Search
from laws.errors import LawError
from laws.examine import examine_named
from laws.pieces import has_laws


@final
@dataclass(frozen=True)
class Row:
    """What came of the laws of one piece; plain data, so that it travels between processes.

    Attributes:
      name: of the piece.
      passed: how many laws held.
      failed: the names of those that did not.
      known: how many failed as declared.
      not_checked: how many say nothing about the piece.
      examples: arguments on which laws held.
      seconds: by the clock.
      messages: of the failures; or why the piece could not be checked at all.
      by_name: whether laws were asked for by name, of which a piece need not have any.
    """

    name: str
    passed: int = 0
    failed: tuple[str, ...] = ()
    known: int = 0
    not_checked: int = 0
    examples: int = 0
    seconds: float = 0.0
    messages: tuple[str, ...] = ()
    by_name: bool = False

    @property
    def is_fine(self) -> bool:
        """Whether none failed, and some were checked, unless laws were asked for that the piece need not have."""
        return not self.messages and (self.by_name or self.is_checked)

    @property
    def is_checked(self) -> bool:
        """Whether any law was."""
        return bool(self.failed) or self.passed + self.known > 0

    def __str__(self) -> str:
        known = f", {self.known} failing as known" if self.known else ""
        outcome = f"{self.passed} passed{known}, {self.not_checked} not checked, {self.examples} examples"
        bad = f"  FAILED: {', '.join(self.failed) or 'cannot be checked'}" if not self.is_fine else ""
        return f"{self.name:<34} {outcome}, {self.seconds:.1f} s{bad}"


@final
@dataclass(frozen=True)
class How:
    """How pieces are checked: the options of `examine` that are the same for all.

    Attributes:
      laws: names or families of laws, each checked on the pieces that have it; None for all of each.
      examples: arguments drawn for every law.
      seed: of the draws.
    """

    laws: tuple[str, ...] | None = None
    examples: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        # Refused here, they are told once, and not for every piece.
        Search(self.examples, self.seed)
        select(every_family, self.laws)


def made(found: Any) -> Any:
    """What a function without parameters makes, where that has laws or holds pieces; all else as it is.

    A command line names what it checks and cannot call it.
    """
    if not inspect.isfunction(found) or inspect.signature(found).parameters:
        return found
    result = found()
    return result if isinstance(result, Mapping) or has_laws(result) else found


def collection(found: Any) -> Mapping[str, Any] | None:
    """The pieces that something stands for: a mapping by name, or a function without parameters that returns one."""
    found = made(found)
    return found if isinstance(found, Mapping) else None


def survey(pieces: Mapping[str, Any], how: How) -> Iterator[Row]:
    """Check the laws of pieces one after the other."""
    for name, piece in pieces.items():
        yield surveyed(name, piece, how)


def survey_in_processes(
    find: Callable[[str], Any], text: str, names: Sequence[str], how: How, jobs: int
) -> Iterator[Row]:
    """Check pieces in several processes, each of which finds them again by their text.

    Args:
      find: text -> the collection; importable.
      text: what `find` takes.
      names: of the pieces.
      how: how they are checked.
      jobs: number of processes.

    Yields:
      One row for each name, in their order.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        yield from pool.map(_in_process, *zip(*((find, text, name, how) for name in names), strict=True))


def surveyed(name: str, piece: Any, how: How) -> Row:
    """Check the laws of one piece to the end."""
    begin = time.perf_counter()
    try:
        report = examine_named(piece, how.laws, examples=how.examples, seed=how.seed)
    except TapestryError as error:
        return Row(name, seconds=time.perf_counter() - begin, messages=(str(error),))
    return Row(
        name,
        len(report.held),
        tuple(report.failed),
        len(report.known),
        len(report.not_checked),
        sum(entry.examples for entry in report.checked if entry.holds),
        time.perf_counter() - begin,
        tuple(map(str, report.failed.values())),
        how.laws is not None,
    )


def total(rows: Sequence[Row], seconds: float) -> str:
    """The last line of a survey.

    Raises:
      LawError: when there is no row.
    """
    if not rows:
        raise LawError(message("tapestry laws: the collection holds no piece.", remedy="Put one in, by its name."))
    failed = sum(len(row.failed) or not row.is_fine for row in rows)
    passed, examples = sum(row.passed for row in rows), sum(row.examples for row in rows)
    left = sum(row.not_checked for row in rows)
    return (
        f"{len(rows)} pieces: {passed} laws passed, {failed} FAILED, {left} not checked, "
        f"{examples} examples, {seconds:.0f} s"
    )


def _in_process(find: Callable[[str], Any], text: str, name: str, how: How) -> Row:
    pieces = collection(find(text))
    assert pieces is not None
    return surveyed(name, pieces[name], how)
