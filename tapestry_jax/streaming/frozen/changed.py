"""Whether a frozen job is the one that asks to go on: its graph, its plan, what it reads and where it writes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from combinators.errors import message
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.frozen.state import Frozen

_CHECKSUM = re.compile(r"[0-9a-f]{32,}")
_TYPE = re.compile(r"[a-z]\w*\([\d, ]*\)")
"""How fingerprints of sources begin that have a type in them."""


def check_unchanged(folder: str | Path, before: Frozen, now: Frozen) -> None:
    """Raise for a job that is not the one that was frozen: going on would mix two results.

    Args:
      folder: of the job, as the error names it.
      before: what was frozen.
      now: the job that asks; how far it is, and its arrays, are not looked at.

    Raises:
      StreamError: with everything that differs.
    """
    parts = (
        ("", before.job, now.job),
        ("source ", before.sources, now.sources),
        ("sink ", before.sinks, now.sinks),
    )
    differ = [line for kind, old, new in parts for line in _differences(kind, old, new)]
    if differ:
        raise StreamError(
            message(
                f"the job in {folder} is another one than this.",
                *differ,
                remedy="Give it what it began with, or name another folder to begin anew.",
            )
        )


def _differences(kind: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    for name in sorted({*old, *new}):
        if name not in new:
            yield f"{kind}{name}: was {_short(old[name])}, and is not there now"
        elif name not in old:
            yield f"{kind}{name}: was not there, and is {_short(new[name])} now"
        elif old[name] != new[name]:
            yield f"{kind}{name}: {_changed(kind, old[name], new[name])}"


def _changed(kind: str, old: str, new: str) -> str:
    """How one text became another; of checksums and times, which tell nobody anything, what they stand for."""
    if _CHECKSUM.fullmatch(old) and _CHECKSUM.fullmatch(new):
        return "was another program"
    types = _TYPE.match(old), _TYPE.match(new)
    if kind != "source " or None in types:
        return f"was {_short(old)}, is {_short(new)}"
    was, now = (found.group() for found in types if found is not None)
    return "was written since, or is another file of the same type" if was == now else f"was {was}, is {now}"


def _short(text: str) -> str:
    if text.startswith("0 passes "):
        return "none: one turn takes all"
    shown = text if text.isprintable() else repr(text)
    return shown if len(shown) <= 80 else f"{shown[:40]}...{shown[-36:]}"
