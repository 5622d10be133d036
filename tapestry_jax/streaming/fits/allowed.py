"""What a process may have of memory: the limit of its control group, of either version, and that of the system."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from combinators.errors import PlanError, message
from combinators.frozen import dataclass
from tapestry_jax.streaming.fits.budget import shown

_NO_LIMIT = 1 << 60
"""Version 1 says so by a number of pages that no machine has."""


@dataclass(frozen=True)
class Allowed:
    """A limit.

    Attributes:
      bytes: that all processes under it may have together.
      where: the file that says so.
    """

    bytes: int
    where: str


def allowed(root: Path = Path("/")) -> Allowed | None:
    """The least limit that this process is under, of its control groups and those above them; None where none is known.

    Args:
      root: of the system's files.
    """
    found = [*_of_groups(root), *_of_system(root)]
    return min(found, key=lambda each: each.bytes, default=None)


def check_allowed(memory: int | None, most: Allowed | None) -> None:
    """Refuse memory that the process will never be given.

    Raises:
      PlanError: where `memory` is more than the limit.
    """
    if memory is None or most is None or memory <= most.bytes:
        return
    details = (f"memory=   {shown(memory)}", f"the limit {shown(most.bytes)}, in {most.where}")
    remedy = f"Give less than memory={most.bytes}: the process itself needs some; or raise the limit."
    raise PlanError(message("the stream may not have so much memory as it is given", *details, remedy=remedy))


def _of_groups(root: Path) -> Iterator[Allowed]:
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        kinds, _, group = rest.partition(":")
        if not kinds:
            yield from _upwards(root / "sys/fs/cgroup", group, "memory.max")
        elif "memory" in kinds.split(","):
            yield from _upwards(root / "sys/fs/cgroup/memory", group, "memory.limit_in_bytes")


def _upwards(top: Path, group: str, name: str) -> Iterator[Allowed]:
    """The limits of a group and of those that it lies in; in a container only the top may be there."""
    below = Path(group.lstrip("/"))
    if ".." in below.parts:
        below = Path()
    for each in (below, *below.parents):
        said = _text(top / each / name).strip()
        if said.isdecimal() and int(said) < _NO_LIMIT:
            yield Allowed(int(said), str(top / each / name))


def _of_system(root: Path) -> Iterator[Allowed]:
    for line in _text(root / "proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name == "MemTotal" and rest.split()[:1] and rest.split()[0].isdecimal():
            yield Allowed(int(rest.split()[0]) * 1024, str(root / "proc/meminfo"))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
