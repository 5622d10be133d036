"""A thread that runs calls in order, and can be left behind: what makes rows may never come back."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future

from combinators.errors import message
from tapestry_jax.streaming.errors import StreamError

_GRACE = 1.0
"""Seconds that a call under way is waited for where it is left."""


class Making:
    """One thread, which ends with the process whatever it does.

    Args:
      what: it does, for people.
    """

    def __init__(self, what: str) -> None:
        self._what, self._lock = what, threading.Lock()
        self._calls: queue.SimpleQueue[tuple[Future[None], Callable[[], None]] | None] = queue.SimpleQueue()
        self._open = set[Future[None]]()
        self._is_left = False
        # No executor: Python waits for the threads of those when it ends.
        self._thread = threading.Thread(target=self._run, name=f"tapestry-{what}", daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], None]) -> Future[None]:
        """A future of a call, which runs behind those before it."""
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            self._open.add(future)
            is_left = self._is_left
        if is_left:
            self._settle(future, self._given_up())
        else:
            self._calls.put((future, call))
        return future

    def leave(self) -> None:
        """Fail all that is under way, at once; what the thread is doing may go on, and nobody hears of it."""
        with self._lock:
            self._is_left, under_way = True, [*self._open]
        for future in under_way:
            self._settle(future, self._given_up())
        self._calls.put(None)

    def end(self) -> None:
        """Leave it, and wait a little for a call that is about to end."""
        self.leave()
        self._thread.join(_GRACE)

    def _run(self) -> None:
        while (found := self._calls.get()) is not None and not self._is_left:
            future, call = found
            try:
                call()
            except BaseException as error:  # noqa: BLE001 - whatever it is, who waits for the future has to get it
                self._settle(future, error)
            else:
                self._settle(future, None)

    def _settle(self, future: Future[None], error: BaseException | None) -> None:
        with self._lock:
            if future not in self._open:
                return
            self._open.discard(future)
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    def _given_up(self) -> StreamError:
        remedy = "Run the job again, with what makes rows anew."
        return StreamError(message(f"{self._what}: the run has ended before they came", remedy=remedy))
