"""Threads that read and write for one tensor: what the system does in blocking calls, as futures."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from combinators.errors import message
from tapestry_jax.storage.errors import StorageError, check_process

THREADS = 4
"""Calls that are under way at once for each tensor; the others wait."""


class Threads:
    """A few threads that start with the first call, and end with `close`."""

    def __init__(self, where: str, count: int = THREADS) -> None:
        self._where, self._pool = where, ThreadPoolExecutor(count, thread_name_prefix="tapestry-storage")
        self._is_closed, self._process = False, os.getpid()
        self._under_way = set[Future[None]]()

    def submit(self, call: Callable[[], None]) -> Future[None]:
        """Run `call` on one of them.

        Raises:
          StorageError: after `close`.
        """
        self.check_open()
        future = self._pool.submit(call)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        return future

    def drain(self) -> None:
        """Wait for what is under way; the first error of it is raised."""
        for future in [*self._under_way]:
            future.result()

    def check_open(self) -> None:
        """Refuse a tensor that was closed, or that another process opened.

        Raises:
          StorageError: after `close`, or a fork.
        """
        check_process(self._process, self._where)
        if self._is_closed:
            raise StorageError(message(f"`{self._where}` is closed", remedy="Open it again."))

    def close(self) -> bool:
        """Wait for what is under way; whether it was open. After a fork it is the other process's to close."""
        if os.getpid() != self._process:
            return False
        was_open, self._is_closed = not self._is_closed, True
        self._pool.shutdown(wait=True)
        return was_open
