"""Interruptions that are not lost.

What Python calls for itself, such as a callback of its garbage collector, cannot raise: an interruption that falls into
one is told as ignored, and the process goes on. hypothesis has such a callback, and a command that it runs in did not
end in one of five attempts.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Generator
from typing import Any, NoReturn

AGAIN = 0.3
"""Seconds after which an interruption is repeated."""


@contextlib.contextmanager
def insisting() -> Generator[None]:
    """Inside, an interruption is repeated until it arrives; for a process that does nothing else."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def interrupt(number: int, frame: Any) -> NoReturn:
        del number, frame
        signal.setitimer(signal.ITIMER_REAL, AGAIN)
        raise KeyboardInterrupt

    hook = sys.unraisablehook

    def tell(unraisable: Any) -> None:
        if unraisable.exc_type is not KeyboardInterrupt:
            hook(unraisable)

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGALRM)}
    sys.unraisablehook = tell
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)
