"""Ctrl-C and SIGTERM, heard between two turns: what is under way is kept first.

Where nothing is kept of what is under way, such as rows that somebody else makes, they end it at once.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Generator
from types import FrameType
from typing import NoReturn


class Interrupts:
    """The signal that was sent, if any; a second one does not wait."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._told: str | None = None

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The handler of a signal."""
        del frame
        if self.number is not None:
            raise KeyboardInterrupt
        self.number = number
        if self._told is not None:
            raise Interrupted(self._told)

    @contextlib.contextmanager
    def at_once(self, told: str) -> Generator[None]:
        """Inside a signal raises where it finds the process, and one that came before does at the beginning.

        Args:
          told: to who has sent it.
        """
        self._told = told
        try:
            if self.number is not None:
                raise Interrupted(told)
            yield
        finally:
            self._told = None


class Interrupted(BaseException):
    """A signal has come, and what is under way is kept, or nothing of it is. It passes through what handles errors."""


@contextlib.contextmanager
def heard() -> Generator[Interrupts]:
    """Hear SIGINT and SIGTERM; in another thread than the main one nothing is heard, as ever.

    A signal that the process ignores stays ignored: shells start what runs in the background so, and Ctrl-C for
    another program must not stop it.

    Where `Interrupted` comes out, the signal is told as it would have been: KeyboardInterrupt, or the end by SIGTERM.
    """
    interrupts = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    numbers = [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) != signal.SIG_IGN]
    before = {number: signal.signal(number, interrupts.handle) for number in numbers}
    told: str | None = None
    try:
        yield interrupts
    except Interrupted as stopped:
        told = str(stopped)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
    if told is not None:
        _end(interrupts.number, told)


def _end(number: int | None, told: str) -> NoReturn:
    if number == signal.SIGTERM:
        signal.raise_signal(number)
        raise SystemExit(128 + number)  # its handler has returned
    raise KeyboardInterrupt(told)
