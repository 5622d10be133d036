"""Making a cache smaller: what was asked for last stays."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from combinators.errors import FormatError, PlanError, first_line, message, spelt
from tapestry_jax.storage.errors import mended
from tapestry_jax.storage.unfinished.partial import remove
from tapestry_jax.streaming.cached.entries import bytes_of, entries, is_own, own_tensor, read_cache
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.fits.budget import read_memory
from tapestry_jax.streaming.frozen.lock import locked


def prune_cache(folder: str | os.PathLike[str], keep: Any = 0) -> int:
    """Remove values from the folder of `tp.stream(..., cache=folder)`, those that nobody has asked for longest first.

    What was damaged, and what jobs that were killed have left, goes in any case. Files of the user's are not touched,
    whether values lie in them, of which the cache has the names, or they lie in its folder.

    Args:
      folder: of the cache.
      keep: bytes that may stay, such as `"10GiB"`; by default nothing stays.

    Returns:
      The bytes that are left.

    Raises:
      StreamError: while a job uses the cache, and where its files cannot be read or removed.
      PlanError: for what is no folder or no number of bytes.

    Example:
      >>> import tempfile, numpy as np, tapestry_jax as tp
      >>> total = tp.fold(tp.aggregators.Sum(), "row c -> c")
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     job = tp.stream(total, {"row": tp.chunks(size=2)}, np.ones((4, 2), np.float32), cache=folder)
      ...     job.run().tolist(), tp.prune_cache(folder, "1MiB") > 0, tp.prune_cache(folder)
      ([4.0, 4.0], True, 0)
    """
    most = 0 if type(keep) is int and keep == 0 else read_memory(keep, "keep", "tp.prune_cache")
    place = read_cache(os.fspath(folder)) if isinstance(folder, str | os.PathLike) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    if place is None or not _is_folder(place) or most is None:
        told = f"got {spelt(folder)}, which is no folder"
        raise PlanError(message("prune_cache takes the folder of a cache", told, remedy="Name one."))
    with locked(place):
        try:
            return _pruned(place, most)
        except OSError as error:
            remedy = f"{mended(error)}, and prune it again."
            headline = f"the cache in {place} cannot be made smaller"
            raise StreamError(message(headline, first_line(error), remedy=remedy)) from error


def _is_folder(place: Path) -> bool:
    try:
        return place.is_dir()
    except (OSError, ValueError):  # a name too long, or with a NUL
        return False


def _pruned(folder: Path, most: int) -> int:
    newest_first = sorted(entries(folder), key=lambda pair: pair[1].stat().st_mtime_ns, reverse=True)
    kept, left = {folder / "lock"}, 0
    for _, entry in newest_first:
        try:
            tensor = own_tensor(folder, entry)
        except FormatError:
            continue
        paths = [entry] if tensor is None else [entry, tensor]
        if not all(path.exists() for path in paths):
            continue
        size = sum(map(bytes_of, paths))
        if left + size <= most:
            left += size
            kept.update(paths)
    for path in folder.iterdir():
        # By the names that a cache gives: sources and results of the user's may lie there as well.
        if path not in kept and is_own(path):
            remove(path)
    return left
