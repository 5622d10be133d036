"""What names stand for, all of them at once: let go, kept under a snapshot, and put back."""

from __future__ import annotations

from collections.abc import Sequence

from combinators.errors import message, spelt
from tapestry_jax.fabric.catalogue import reads, writes
from tapestry_jax.fabric.errors import FabricError
from tapestry_jax.fabric.opened import Opened
from tapestry_jax.fabric.tensors.names import read_tensor_name


def delete(opened: Opened, name: str) -> None:
    """Let a name stand for nothing, and what was begun under it go.

    Raises:
      FabricError: where it is not there.
    """
    with opened.changing():
        if reads.pending(opened.catalogue, name) is None:
            opened.version(name)
        writes.drop_pending(opened.catalogue, name)
        writes.drop_name(opened.catalogue, name)


def keep(opened: Opened, snapshot: str) -> None:
    """Keep what all names stand for now.

    Raises:
      FabricError: for a name that cannot be, or is taken.
    """
    name = read_tensor_name(snapshot, "a snapshot")
    with opened.catalogue.writing():
        if reads.snapshot(opened.catalogue, name) is not None:
            remedy = "Choose another name, or fabric.forget it first."
            raise FabricError(message(f"there is a snapshot {name!r} already", remedy=remedy))
        writes.add_snapshot(opened.catalogue, name)


def restore(opened: Opened, snapshot: str, names: Sequence[str]) -> None:
    """Let names, or all, stand for what they stood for, in one step.

    Raises:
      FabricError: where there is no such snapshot, or it does not have a name.
    """
    names = [read_tensor_name(name) for name in names]
    with opened.changing():
        kept = _kept(opened, snapshot)
        missing = [name for name in names if name not in kept]
        if missing:
            told = f"it has {', '.join(list(kept)[:12]) or 'none'}"
            headline = f"the snapshot {snapshot!r} has no {missing[0]!r}"
            raise FabricError(message(headline, told, remedy="Name one that it has."))
        for name in () if names else reads.names(opened.catalogue):
            writes.drop_name(opened.catalogue, name)
        for name in names or kept:
            writes.name_version(opened.catalogue, name, kept[name])


def forget(opened: Opened, snapshot: str) -> None:
    """Keep a snapshot no longer.

    Raises:
      FabricError: where there is none of this name.
    """
    with opened.changing():
        _kept(opened, snapshot)
        writes.drop_snapshot(opened.catalogue, snapshot)


def _kept(opened: Opened, snapshot: str) -> dict[str, int]:
    found = reads.snapshot(opened.catalogue, snapshot)
    if found is None:
        told = f"there are {', '.join(reads.snapshots(opened.catalogue)[:12]) or 'none'}"
        raise FabricError(message(f"there is no snapshot {spelt(snapshot)}", told, remedy="Name one that is there."))
    return found
