"""Waiting for tasks, and for who runs them: a cluster without workers is told, and not waited for without end."""

from __future__ import annotations

import queue
import time
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from combinators.errors import message
from tapestry_jax.streaming.errors import StreamError

PATIENCE = "distributed.scheduler.no-workers-timeout"
"""Dask's own setting of how long tasks wait for workers; it has none by default."""
_SECONDS = 600.0
"""How long they are waited for where nothing is set."""
_LOOK = 1.0
"""Seconds without an end of a task after which the workers are counted."""


def as_they_end(client: Any, futures: Iterable[Any]) -> Iterator[Any]:
    """Futures in the order in which they end; None now and then while there is no worker.

    Raises:
      StreamError: where no worker has been there for as long as Dask's `distributed.scheduler.no-workers-timeout` says,
        or ten minutes.
    """
    ended, workers, left = queue.SimpleQueue[Any](), _Workers(client), 0
    for future in futures:
        future.add_done_callback(ended.put)
        left += 1
    while left:
        try:
            future = ended.get(timeout=_LOOK)
        except queue.Empty:
            if not workers.are_there():
                yield None
            continue
        workers.forget()
        left -= 1
        yield future


class _Workers:
    """How long a cluster has had no worker."""

    def __init__(self, client: Any) -> None:
        self._client, self._since = client, None
        self._is_told = False

    def forget(self) -> None:
        """There are some."""
        self._since = None

    def are_there(self) -> bool:
        """Whether there is one, or the scheduler does not say.

        Raises:
          StreamError: where there has been none for too long.
        """
        if self._count() != 0:
            self.forget()
            return True
        now, most = time.monotonic(), _patience()
        self._since = now if self._since is None else self._since
        if now - self._since >= most:
            raise no_worker(self._client, f"got none for {most:g} s ({PATIENCE} of Dask says how long)")
        if not self._is_told:
            self._is_told = True
            told = f"for {most:g} s: {PATIENCE} of Dask says how long"
            remedy = "Start workers, or interrupt the job: what is committed is not run again."
            warnings.warn(
                message(f"{_named(self._client)} has no worker: one is waited for", told, remedy=remedy), stacklevel=6
            )
        return False

    def _count(self) -> int | None:
        try:
            return len(self._client.nthreads())
        except (OSError, TimeoutError):  # no scheduler: the futures will say so
            return None


def no_worker(client: Any, got: str) -> StreamError:
    """The error of a cluster that nobody works for.

    Args:
      client: of the cluster.
      got: what is known of it.
    """
    remedy = "Start workers, and run the job again: what is committed is not run again."
    headline = f"{_named(client)} has no worker to turn the chunks"
    return StreamError(message(headline, "expected one worker or more", got, remedy=remedy))


def _named(client: Any) -> str:
    scheduler = getattr(client, "scheduler", None)
    return f"the cluster at {getattr(scheduler, 'address', 'an unknown address')}"


def _patience() -> float:
    # Comes with distributed.
    from dask import config
    from dask.utils import parse_timedelta

    set_to = config.get(PATIENCE, default=None)
    return _SECONDS if set_to is None else float(parse_timedelta(set_to))
