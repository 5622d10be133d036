"""Steps that are taken as a whole or not at all, though Ctrl-C may come at any time."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any


@contextmanager
def uninterrupted() -> Generator[None]:
    """Ctrl-C waits until the block ends: a step takes the memory of the old state before the new one is kept.

    Signals reach the main thread alone; in others, and where they are not Python's to hear, nothing is done.
    """
    known: Any = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(known):
        yield
        return
    came: list[tuple[int, Any]] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, known)
        if came:
            known(*came[0])
