"""Between a fabric and files of others: load and export, a box at a time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from combinators.errors import FormatError, GraphError, message, spelt
from combinators.index_space.tensor_type import TensorType
from tapestry_jax.fabric.drafts import Origin, check_free, commit, discard, kind_of, write_draft
from tapestry_jax.fabric.errors import FabricError
from tapestry_jax.fabric.moving.reading import read_version
from tapestry_jax.fabric.opened import Opened
from tapestry_jax.fabric.placing import read_layout
from tapestry_jax.fabric.tensors.boxes import BLOCK_BYTES, blocks_of, choose_chunks
from tapestry_jax.storage.creating import create
from tapestry_jax.storage.errors import WrittenError
from tapestry_jax.storage.files.pieces import read
from tapestry_jax.storage.in_memory import InMemory, stored
from tapestry_jax.storage.opening import open as open_stored
from tapestry_jax.storage.places import shown_address
from tapestry_jax.storage.protocols import Stored

_LEAST_BLOCK = 2**16


def load(
    opened: Opened,
    name: str,
    source: Any,
    tensor: str | None,
    format: str | None,
    names: Any,
    layout: Any,
    overwrite: bool,
) -> None:
    """Bring a stored tensor, or an array, into the fabric.

    Raises:
      FabricError: for a name that is taken, or axes whose names a tensor cannot have.
      FormatError: where storage cannot read it.
    """
    where = f"load {name!r}"
    check_free(opened, [name], overwrite, where)
    found, origin = open_source(source, tensor, format, names)
    try:
        type = _type(found, where)
        kind = kind_of(opened, type, _chunks(found), read_layout(layout, type, opened.mesh, where))
        before = _before(found, origin)
        draft = write_draft(opened, name, kind, lambda box: read(found, box))
        if before is not None and _is_another(found, before):
            discard(opened, draft.files)
            remedy = "Load it again once nobody writes it."
            raise FabricError(message(f"{where}: {found.where} was written while it was read", remedy=remedy))
    finally:
        # What the caller has opened stays open.
        if not isinstance(source, Stored):
            found.close()
    commit(opened, {name: draft}, overwrite, origin, where)


def _before(found: Stored, origin: Origin | None) -> str | None:
    """What tells whether it is written while it is read; None of arrays, which are the caller's."""
    if isinstance(found, InMemory):
        return None
    return found.fingerprint() if origin is None else str(origin.detail["fingerprint"])


def _is_another(found: Stored, before: str) -> bool:
    try:
        return found.fingerprint() != before
    except WrittenError:
        return True


def open_source(source: Any, tensor: str | None, format: str | None, names: Any) -> tuple[Stored, Origin | None]:
    """What is stored under a path or address, or an array; and what is remembered of where it is from.

    Raises:
      FormatError: where storage cannot open it.
    """
    if isinstance(source, str | os.PathLike):
        path = os.fspath(source)
        found = open_stored(path, tensor, format=format, names=names)
        # Where this process stands is not known to the next one; what may be secret in an address it need not know.
        place = shown_address(path) if "://" in path else os.path.abspath(path)  # noqa: PTH100, an address is no Path
        detail = {"path": place, "tensor": tensor, "format": format, "fingerprint": found.fingerprint()}
        return found, Origin("load", detail)
    if tensor is not None or format is not None:
        given = f"tensor={spelt(tensor, 40)}" if tensor is not None else f"format={spelt(format, 40)}"
        headline = "tensor= and format= say what is read of a file, and this is none"
        details = f"got {given} beside {type(source).__name__}"
        raise FormatError(message(headline, details, remedy="Leave it out, or pass the path of a file."))
    if isinstance(source, Stored):
        return source, None
    return stored(source, names=names), None


def export(opened: Opened, name: str, path: Any, format: str | None, chunks: Any, overwrite: bool) -> None:
    """Write a tensor to a file of another format.

    Raises:
      FabricError: where it is not there, or blocks are lost.
      FormatError: where storage cannot write it.
    """
    with opened.pinned([name]) as (version,):
        type = version.kind.type
        place = create(path, format=format, chunks=chunks, overwrite=overwrite)
        names = type.names if any(type.names) else None
        cut = chunks if chunks is not None else _own_chunks(opened, version.kind.chunks, type)
        sink = place.make(type.shape, type.dtype, names, cut)
        try:
            under_way: list[Future[None]] = []
            for piece in blocks_of(type.shape, cut):
                under_way.append(sink.write(piece.block, read_version(opened, name, version, piece.block)))
                if len(under_way) > 2:
                    under_way.pop(0).result()
            for each in under_way:
                each.result()
            sink.finish().close()
        except BaseException:
            sink.close()
            raise


def _own_chunks(opened: Opened, chunks: tuple[int, ...], type: TensorType) -> tuple[int, ...]:
    """Those of the tensor: on devices it has none, and gets what it would have in files."""
    return choose_chunks(type.shape, type.dtype.itemsize) if opened.blocks.keeps_whole else chunks


def _chunks(found: Stored) -> tuple[int, ...] | None:
    """Those of what is stored, so that it is read once; neither files of a few cells nor of many megabytes."""
    size = int(np.prod(found.chunks, dtype=object)) * found.dtype.itemsize
    return tuple(found.chunks) if _LEAST_BLOCK <= size <= 8 * BLOCK_BYTES else None


def _type(found: Stored, where: str) -> TensorType:
    names: Sequence[str | None] = (None,) * len(found.shape) if found.names is None else found.names
    try:
        return TensorType.make(names, found.shape, found.dtype)
    except GraphError as error:
        remedy = 'Name the axes: names=("row", "column"), None for one without a name.'
        raise FabricError(message(f"{where}: {found.where} is no tensor", str(error), remedy=remedy)) from error
