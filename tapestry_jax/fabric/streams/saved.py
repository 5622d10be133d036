"""Exports into formats that are written whole: tables, databases, files of several tensors."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from combinators.errors import message, spelt
from tapestry_jax.fabric.errors import FabricError
from tapestry_jax.fabric.opened import Opened
from tapestry_jax.fabric.streams.sources import FabricSource
from tapestry_jax.storage.saving import save


def export_whole(opened: Opened, name: str, path: Any, format: str | None, chunks: Any, overwrite: bool) -> None:
    """Write a tensor under its own name: a column, a table or a member.

    Raises:
      FabricError: where it is not there, blocks are lost, or chunks are asked for.
      FormatError: where storage cannot write it.
    """
    if chunks is not None:
        remedy = "Leave chunks= out, or export to .zarr."
        raise FabricError(message(f"export {name!r}: this format has no chunks", f"got {spelt(chunks)}", remedy=remedy))
    with closing(FabricSource.pinned(opened, name)) as source:
        save(path, {name: source}, format=format, overwrite=overwrite)
