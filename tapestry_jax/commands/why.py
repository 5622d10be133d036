"""What `tapestry why PLAN PATH DIM=PLACE` does."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Any

from combinators.errors import TapestryError, message, spelt
from tapestry_jax.commands.planned import chosen_plan, machine_words, plan_words
from tapestry_jax.planning.entries.items import Item, chunks, halo, ring, striped

_ITEM = re.compile(r"(?P<name>chunks|size|ring|halo|striped)\((?P<given>[^()]*)\)")
_MAKE: dict[str, Any] = {
    "chunks": lambda given: chunks(int(given)),
    "size": lambda given: chunks(size=int(given)),
    "ring": ring,
    "halo": lambda given: halo(int(given)),
    "striped": lambda given: striped(*given.split("+")),
}


def words(parser: argparse.ArgumentParser) -> None:
    """The words of `tapestry why`."""
    plan_words(
        parser,
        "The plan with one exception more, planned, proved and priced beside it: which is cheaper and what makes it\n"
        "so, or why it cannot be. Exit status 1 where the exception is cheaper, else 0.",
    )
    parser.add_argument("path", metavar="PATH", help="of an operation or scope, as `tapestry explain` prints it")
    parser.add_argument(
        "wanted",
        metavar="DIM=PLACE",
        nargs="+",
        help="where a dimension should go: heads=model, batch=data,chunks(4), keys=ring(model), y=model,halo(8), "
        "rows=size(512) for chunks of 512, queries=striped(data+model), heads=none to leave it whole",
    )
    machine_words(parser)


def run(chosen: argparse.Namespace, *, is_process: bool) -> int:
    """Run `tapestry why`.

    Raises:
      TapestryError: when the plan or the question cannot be read, or names what is not there.
    """
    del is_process
    wanted = read_wanted(chosen.wanted)
    found = chosen_plan(chosen).why(chosen.path, wanted, chosen.machine, chosen.grad)
    sys.stdout.write(f"{found.to_json() if chosen.json else found}\n")
    return int(found.verdict == "target cheaper")


def read_wanted(words: Sequence[str], command: str = "tapestry why") -> dict[str, tuple[Item, ...] | None]:
    """Dimensions and where they should go.

    Args:
      words: as users write them.
      command: who asks, as errors call it.

    Raises:
      TapestryError: for words that do not say it, or say it twice.
    """
    found: dict[str, tuple[Item, ...] | None] = {}
    for word in words:
        dim, equals, place = word.partition("=")
        if not (dim and equals and place):
            raise _unread(word, "no DIM=PLACE", command)
        if dim in found:
            raise _unread(word, f"`{dim}` stands twice", command)
        found[dim] = None if place == "none" else tuple(_item(part, word, command) for part in place.split(","))
    return found


def _item(part: str, word: str, command: str) -> Item:
    if "(" not in part and ")" not in part and part:
        return part
    known = _ITEM.fullmatch(part)
    if known is None:
        raise _unread(word, f"{spelt(part, 60)} is no place", command)
    try:
        return _MAKE[known["name"]](known["given"])
    except ValueError as error:
        raise _unread(word, f"{spelt(part, 60)}: {error}", command) from error


def _unread(word: str, why: str, command: str) -> TapestryError:
    remedy = "Write it as heads=model, batch=data,chunks(4), keys=ring(model), or heads=none."
    return TapestryError(message(f"{command}: cannot read {spelt(word, 120)}.", why, remedy=remedy))
