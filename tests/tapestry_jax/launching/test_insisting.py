"""Interruptions that fall where nothing can be raised."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from typing import Any

import pytest

from tapestry_jax.launching.insisting import insisting


def collect_and_wait() -> None:
    gc.collect()
    until = time.monotonic() + 30
    while time.monotonic() < until:
        time.sleep(0.01)


def test_an_interruption_in_a_callback_of_the_collector_is_not_lost(capsys: Any) -> None:
    asked: list[str] = []

    def callback(phase: str, info: dict[str, int]) -> None:
        if not asked:
            asked.append(phase)
            os.kill(os.getpid(), signal.SIGINT)
            wait_a_little()

    handlers, hook = (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGALRM)), sys.unraisablehook
    gc.callbacks.append(callback)
    try:
        with pytest.raises(KeyboardInterrupt), insisting():
            collect_and_wait()
    finally:
        gc.callbacks.remove(callback)
    assert asked
    assert capsys.readouterr().err == ""
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGALRM)) == handlers
    assert sys.unraisablehook is hook
    time.sleep(0.4)  # nothing is repeated behind it


def wait_a_little() -> None:
    for _ in range(1000):
        pass


def test_in_another_thread_nothing_is_changed() -> None:
    found: list[Any] = []

    def run() -> None:
        with insisting():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGINT)]
