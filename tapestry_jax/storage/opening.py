"""`tp.open`: a tensor that lies in a file, a folder, a table or at an address."""

from __future__ import annotations

from os import PathLike
from typing import Any, cast

from combinators.frozen import dataclass
from tapestry_jax.storage.formats import find_format
from tapestry_jax.storage.places import read_place
from tapestry_jax.storage.protocols import Stored


@dataclass(frozen=True)
class Opened:
    """How a tensor was opened: what another process opens it by.

    Attributes:
      path: absolute, or an address.
      tensor: which one, or None.
      format: what the suffix does not say, or None.
    """

    path: str
    tensor: str | None = None
    format: str | None = None

    def again(self) -> Stored:
        """Open it once more."""
        return open(self.path, self.tensor, format=self.format)


def open(
    path: str | PathLike[str], tensor: str | None = None, *, format: str | None = None, names: Any = None
) -> Stored:
    """Open a tensor for reading box by box; nothing but its header is read.

    Args:
      path: a path, or an address that begins with `file://`, `http://` or `https://`.
      tensor: which one, where the place holds several.
      format: what the suffix does not say.
      names: what the axes are called; by default what is stored, if that says.

    Returns:
      A `Stored`: shape, dtype, names, chunks, and `read(box, into)`. `tp.trace` takes it as a spec.

    Raises:
      StorageError: where it is not there or does not answer.
      FormatError: where its format is not known, or what it says cannot be so.

    Example:
      >>> import tempfile, numpy as np, tapestry_jax as tp
      >>> folder = tempfile.TemporaryDirectory()
      >>> np.save(f"{folder.name}/x.npy", np.arange(12.0).reshape(4, 3))
      >>> x, rows = tp.open(f"{folder.name}/x.npy", names=("row", "column")), np.empty((2, 3))
      >>> x.read(((1, 3), (0, 3)), rows).result()
      >>> x.shape, x.names, rows.tolist()
      ((4, 3), ('row', 'column'), [[3.0, 4.0, 5.0], [6.0, 7.0, 8.0]])
      >>> x.close(), folder.cleanup()
      (None, None)
    """
    place = read_place(path, "tp.open")
    found = find_format(place, format, "tp.open").open(place, tensor, names)
    text = str(place.path.absolute()) if place.path else str(place.address)
    cast("Any", found).opened = Opened(text, tensor, format)
    return found


def opened(source: Stored) -> Opened | None:
    """How a source was opened; None for one that `open` did not give."""
    found = getattr(source, "opened", None)
    return found if isinstance(found, Opened) else None
