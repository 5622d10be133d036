"""A cluster of this machine, for as long as a job runs."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from combinators.errors import PlanError, first_line, message
from tapestry_jax.streaming.errors import StreamError

_FAILURES = 10
"""Deaths of workers that a task may see. Dask gives a task up after three, whoever is to blame for them."""
_GUARD = 'if __name__ == "__main__":'


def distributed() -> Any:
    """The package `distributed`.

    Raises:
      PlanError: where it is not installed.
    """
    try:
        # An optional package.
        import distributed as found
    except ImportError as error:
        remedy = "Install it: pip install 'tapestry-jax[cluster]', or leave engine= out."
        raise PlanError(message("engine= of tp.stream needs the package distributed", remedy=remedy)) from error
    return found


@contextmanager
def local_client(workers: int | None = None) -> Generator[Any]:
    """A client of a cluster of processes, one to a core, none of which looks at an accelerator.

    Raises:
      StreamError: where it does not start.
      PlanError: in a process that is itself being started, and imports the script that has begun it all.
    """
    from dask import config  # comes with distributed

    _check_main()
    count = workers or os.cpu_count() or 1
    # Any free port, on this machine alone: the usual one may be another cluster's.
    given = {"distributed.scheduler.allowed-failures": _FAILURES}
    package = distributed()
    with (
        config.set(given),
        _started(package, count) as cluster,
        package.Client(cluster) as client,
    ):
        yield client


def _started(package: Any, count: int) -> Any:
    try:
        return package.LocalCluster(
            n_workers=count, threads_per_worker=1, dashboard_address="127.0.0.1:0", env={"JAX_PLATFORMS": "cpu"}
        )
    except Exception as error:
        details = ("a worker has died while it started", first_line(error))
        remedy = f"Run the job again; in a script, under `{_GUARD}`, as every worker imports the script."
        raise StreamError(message(f"the cluster of {count} workers did not start", *details, remedy=remedy)) from error


def _check_main() -> None:
    """Refuse to begin a cluster while this process imports the script of who has begun it: each would begin another."""
    own = multiprocessing.current_process()
    if not getattr(own, "_inheriting", False):
        return
    if own.name.startswith("Dask Worker process"):
        raise SystemExit(1)  # who waits for it says why
    remedy = f"Write what runs the job under `{_GUARD}`."
    raise PlanError(message("a job with engine= runs while its own script is imported anew", remedy=remedy))
