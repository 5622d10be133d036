"""What nobody needs any more is forgotten, and the files that only it had are garbage."""

from __future__ import annotations

from tapestry_jax.fabric.catalogue.connection import Connection
from tapestry_jax.fabric.tensors.records import number_from_row

GENERATIONS = 16
"""How far back lineage is remembered past what is there: `x = step(x)` for ever is not a list for ever."""

_LIVE = (
    "SELECT version FROM tensors UNION SELECT version FROM snapshot_tensors UNION SELECT version FROM pins "
    "UNION SELECT version FROM pending"
)
# What is computed from is remembered as it was (types and checksums), so that it can be computed again, too.
_NEEDED = f"""
WITH RECURSIVE live (version) AS ({_LIVE}),
reached (version, depth) AS (
  SELECT version, 0 FROM live
  UNION
  SELECT operation_inputs.version, depth + 1
  FROM reached JOIN version_operations ON version_operations.version = reached.version
  JOIN operation_inputs ON operation_inputs.operation = version_operations.operation
  WHERE depth < {GENERATIONS}
)
SELECT version, MIN(depth) FROM reached GROUP BY version
"""


def prune(catalogue: Connection) -> None:
    """Forget, inside of a transaction of the caller; files are named in `garbage`, to be removed after it."""
    needed = {number_from_row(version): int(depth) for version, depth in catalogue.ask(_NEEDED)}
    known = [number_from_row(version) for (version,) in catalogue.ask("SELECT number FROM versions")]
    gone = [version for version in known if version not in needed]
    shadows = [version for version in known if needed.get(version, 0)]
    _throw_away(catalogue, gone + shadows)
    catalogue.tell_each("UPDATE blocks SET file = NULL WHERE version = ? AND file IS NOT NULL", _rows(shadows))
    for statement in (
        "DELETE FROM blocks WHERE version = ?",
        "DELETE FROM version_operations WHERE version = ?",
        "DELETE FROM versions WHERE number = ?",
    ):
        catalogue.tell_each(statement, _rows(gone))
    if gone:
        _forget_operations(catalogue)


def _throw_away(catalogue: Connection, dead: list[int]) -> None:
    """The files that only dead versions have."""
    if not dead:
        return
    files = {str(f) for v in dead for (f,) in catalogue.ask("SELECT file FROM blocks WHERE version = ?", (v,)) if f}
    dead_set = set(dead)
    for file in files:
        rows = catalogue.ask("SELECT version FROM blocks WHERE file = ?", (file,))
        users = {number_from_row(version) for (version,) in rows}
        if users <= dead_set:
            catalogue.tell("INSERT OR IGNORE INTO garbage (file) VALUES (?)", (file,))


def _forget_operations(catalogue: Connection) -> None:
    unused = "operation NOT IN (SELECT operation FROM version_operations)"
    catalogue.tell(f"DELETE FROM operation_inputs WHERE {unused}")
    catalogue.tell("DELETE FROM operations WHERE number NOT IN (SELECT operation FROM version_operations)")
    catalogue.tell("DELETE FROM graphs WHERE key NOT IN (SELECT graph FROM operations WHERE graph IS NOT NULL)")


def _rows(numbers: list[int]) -> list[tuple[int]]:
    return [(number,) for number in numbers]
