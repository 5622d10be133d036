"""What nobody needs any more is forgotten, and the files that only it had are garbage."""

from __future__ import annotations

from tapestry_jax.fabric.catalogue.chain import replace_file, sound_rows
from tapestry_jax.fabric.catalogue.connection import Connection
from tapestry_jax.fabric.catalogue.reads import check_live
from tapestry_jax.fabric.catalogue.seals import GARBAGE, seal
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
# With the versions that have it, of each file of a version.
_USERS = (
    "SELECT file, (SELECT group_concat(version) FROM blocks AS other WHERE other.file = blocks.file) "
    "FROM blocks WHERE version = ?"
)


def prune(catalogue: Connection) -> None:
    """Forget, inside of a transaction of the caller; files are named in `garbage`, to be removed after it.

    Raises:
      FormatError: where rows that keep versions alive are lost, or not as they were written: nothing is forgotten then.
    """
    needed = {number_from_row(version): int(depth) for version, depth in catalogue.ask(_NEEDED)}
    known = [number_from_row(version) for (version,) in catalogue.ask("SELECT number FROM versions")]
    gone = [version for version in known if version not in needed]
    shadows = [version for version in known if needed.get(version, 0) and _has_files(catalogue, version)]
    if not gone and not shadows:
        return
    check_live(catalogue)
    _throw_away(catalogue, gone + shadows)
    for version in shadows:
        replace_file(catalogue, [row for row in sound_rows(catalogue, version) if row[2] is not None], None)
    for statement in (
        "DELETE FROM blocks WHERE version = ?",
        "DELETE FROM version_operations WHERE version = ?",
        "DELETE FROM versions WHERE number = ?",
    ):
        catalogue.tell_each(statement, _rows(gone))
    if gone:
        _forget_operations(catalogue)


def _has_files(catalogue: Connection, version: int) -> bool:
    return bool(catalogue.ask("SELECT 1 FROM blocks WHERE version = ? AND file IS NOT NULL LIMIT 1", (version,)))


def _throw_away(catalogue: Connection, dead: list[int]) -> None:
    """The files that only dead versions have. What a row or an index that was damaged names is left where it is."""
    only, unused = {str(version) for version in dead}, set[str]()
    for version in dead:
        files = {row[2] for row in sound_rows(catalogue, version)} - {None}
        for file, text in catalogue.ask(_USERS, (version,)):
            # None where the index has lost the row itself.
            if file in files and only.issuperset(str(text).split(",")):
                unused.add(file)
    statement = f"INSERT OR REPLACE INTO garbage ({GARBAGE.asked}) VALUES (?, ?)"
    catalogue.tell_each(statement, [(file, seal(GARBAGE, (file,))) for file in sorted(unused)])


def _forget_operations(catalogue: Connection) -> None:
    unused = "operation NOT IN (SELECT operation FROM version_operations)"
    catalogue.tell(f"DELETE FROM operation_inputs WHERE {unused}")
    catalogue.tell("DELETE FROM operations WHERE number NOT IN (SELECT operation FROM version_operations)")
    catalogue.tell("DELETE FROM graphs WHERE key NOT IN (SELECT graph FROM operations WHERE graph IS NOT NULL)")


def _rows(numbers: list[int]) -> list[tuple[int]]:
    return [(number,) for number in numbers]
