"""A cluster of this machine, for as long as a job runs."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from combinators.errors import PlanError, message

_FAILURES = 10
"""Deaths of workers that a task may see. Dask gives a task up after three, whoever is to blame for them."""


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
    """A client of a cluster of processes, one to a core, none of which looks at an accelerator."""
    from dask import config  # comes with distributed

    count = workers or os.cpu_count() or 1
    # Any free port, on this machine alone: the usual one may be another cluster's.
    given = {"distributed.scheduler.allowed-failures": _FAILURES}
    package = distributed()
    with (
        config.set(given),
        package.LocalCluster(
            n_workers=count, threads_per_worker=1, dashboard_address="127.0.0.1:0", env={"JAX_PLATFORMS": "cpu"}
        ) as cluster,
        package.Client(cluster) as client,
    ):
        yield client
