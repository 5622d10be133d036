"""Where a command prints: outputs that are closed, full, or have no letter for a name do not change what it answers."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import TextIO, final


class RefusedError(OSError):
    """What was printed cannot be written; the error of the system is its cause."""


def open_outputs() -> None:
    """Make both outputs of this process take any text: one that was closed is led to nowhere, letters are spelt out.

    Who closes an output (`>&-`) asks for the exit status alone. What the standard output does not take is a
    `RefusedError`, so that it is told apart from what a command reads and writes itself.
    """
    for name in ("stdout", "stderr"):
        sink = getattr(sys, name)
        if sink is None:
            setattr(sys, name, _nowhere())
        elif isinstance(sink, io.TextIOWrapper) and sink.errors == "strict":
            sink.reconfigure(errors="backslashreplace")
    if type(sys.stdout) is io.TextIOWrapper:
        sys.stdout = _Answers(sys.stdout)


def tell(text: str) -> None:
    """Write lines to the error output, or nowhere: what steers a terminal, as names of files may, is spelt out."""
    letters = (each if each.isprintable() or each in "\n\t" else _spelt_out(each) for each in text)
    with suppress(OSError, ValueError):
        sys.stderr.write(f"{''.join(letters)}\n")
        sys.stderr.flush()


def give_up(*, refused: bool) -> None:
    """Where the standard output takes no more, lead it to nowhere: Python would complain of it when it ends.

    Args:
      refused: whether it is known to take no more; else it is asked.
    """
    try:
        sys.stdout.flush()
    except OSError:
        refused = True
    if refused:
        to_nowhere(sys.stdout)
        sys.stdout = _nowhere()


def to_nowhere(sink: TextIO) -> None:
    """Lead an output to where everything may be written, also what Python would write of it at its end."""
    with suppress(OSError, ValueError):  # one that is no file of the system has no number
        number = sink.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, number)
        finally:
            os.close(nowhere)


@final
class _Answers(io.TextIOWrapper):
    def __init__(self, output: io.TextIOWrapper) -> None:
        is_at_once = output.write_through
        super().__init__(output.buffer, output.encoding, output.errors, None, output.line_buffering, is_at_once)
        self._output = output  # which would close the buffer of both when nobody has it any more

    def write(self, s: str, /) -> int:
        try:
            return super().write(s)
        except OSError as error:
            raise RefusedError(error.errno, error.strerror) from error

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise RefusedError(error.errno, error.strerror) from error


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, it stays open to the end


def _spelt_out(letter: str) -> str:
    return letter.encode("unicode_escape").decode()
