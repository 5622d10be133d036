"""Children of this process, forked from it: what they do, and how they end."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping


def child(work: Callable[[], object], statuses: Mapping[type[BaseException], int] | None = None) -> int:
    """A process that does some work and ends with 0, or with 1 and a trace on its error output.

    Args:
      work: what it does.
      statuses: errors after which it ends with another status, and without a trace.

    Returns:
      Its number.
    """
    with warnings.catch_warnings():
        # JAX warns of its threads: whoever forks has none, or needs none of them.
        warnings.simplefilter("ignore")
        process = os.fork()
    if process:
        return process
    status = 1
    try:
        work()
        status = 0
    except BaseException as error:  # noqa: BLE001, the process ends here
        known = [own for kind, own in (statuses or {}).items() if isinstance(error, kind)]
        if known:
            status = known[0]
        else:
            sys.excepthook(*sys.exc_info())  # pyright: ignore[reportArgumentType]
            sys.stderr.flush()
    finally:
        os._exit(status)
