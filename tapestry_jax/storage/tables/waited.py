"""Tables of PostgreSQL that others hold: waited for some time, and then told with who holds them."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from combinators.errors import message
from tapestry_jax.storage.errors import StorageError
from tapestry_jax.storage.tables.sql import quoted

SECONDS = "10"
"""Until a table that others hold is given up, where neither the address nor the server says."""
WAITING = f"SELECT set_config('lock_timeout', '{SECONDS}s', true) WHERE current_setting('lock_timeout') = '0'"
"""Has a transaction wait so long for a lock, unless another time is set."""
PATIENCE = "SELECT current_setting('lock_timeout')"
"""How long it waits."""
CODE = "55P03"
"""What the server says of a lock that did not come in time."""


def own_name() -> str:
    """What connections are called, so that others can be told who holds a table."""
    return f"tapestry_jax, process {os.getpid()} on {socket.gethostname()}"[:63]


def holders(table: str | None) -> str:
    """The question who holds a table, or any that somebody writes where it is None."""
    text = "" if table is None else quoted(table).replace("'", "''")
    which = "l.mode = 'AccessExclusiveLock'" if table is None else f"l.relation = to_regclass('{text}')"
    return f"""
      SELECT DISTINCT coalesce(nullif(a.application_name, ''), 'somebody') || ' (process ' || a.pid || ' of the server)'
      FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE {which} AND l.granted AND l.pid <> pg_backend_pid()
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) ORDER BY 1 LIMIT 3"""


def in_use(where: str, table: str | None, patience: str, held: Sequence[str]) -> StorageError:
    """The error of a table that others hold.

    Args:
      where: the database.
      table: that is asked for, or None for those of a query.
      patience: for how long it was waited for.
      held: by whom, as `holders` tells it.
    """
    is_own = any(each.startswith(f"{own_name()} ") for each in held)
    named = "a table of the query" if table is None else f"the table `{table}`"
    details = (f"waited {patience} for {', '.join(held) or 'somebody who has let it go since'}",)
    remedy = "Close what this process has open of it, x.close(), and try again." if is_own else _REMEDY
    return StorageError(message(f"{named} of `{where}` is in use", *details, remedy=remedy))


_REMEDY = (
    "Try again when they have closed it; to wait longer, write ?options=-c%20lock_timeout%3D60s behind the address."
)
