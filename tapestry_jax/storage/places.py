"""Where a tensor lies: a path or an address, read and held against what may stand in one."""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from combinators.errors import FormatError, message
from combinators.frozen import dataclass


@dataclass(frozen=True)
class Place:
    """A path of this machine, or an address.

    Attributes:
      text: as it was given.
      path: on this machine, or None.
      address: that begins with `http://` or `https://`, without a `/` at its end, or None.
    """

    text: str
    path: Path | None
    address: str | None

    @property
    def name(self) -> str:
        """What the path ends in."""
        return self.path.name if self.path else PurePosixPath(unquote(urlsplit(self.text).path)).name

    def local(self, what: str) -> Path:
        """The path.

        Raises:
          FormatError: for an address: only Zarr and plain bytes are read from there.
        """
        if self.path is None:
            remedy = "Fetch it first, and open the file."
            raise FormatError(message(f"{what} is not read from an address", f"got {self.text}", remedy=remedy))
        return self.path


def read_place(path: Any, what: str) -> Place:
    """A path, `file://` address or `http(s)://` address.

    Raises:
      FormatError: for anything else.
    """
    text = fspath(path) if isinstance(path, str | PathLike) else None
    remedy = 'Pass a path, or "http://host/name": tp.open("x.npy").'
    if not isinstance(text, str) or not text or "\0" in text:
        raise FormatError(message(f"{what} takes a path", f"got {path!r:.80}", remedy=remedy))
    scheme, _, rest = text.partition("://")
    if not rest and "://" not in text:
        return Place(text, Path(text), None)
    scheme = scheme.lower()
    parts = urlsplit(text)
    if scheme == "file" and parts.netloc in ("", "localhost") and parts.path:
        return Place(text, Path(unquote(parts.path)), None)
    if scheme in ("http", "https") and parts.hostname:
        return Place(text, None, text.rstrip("/"))
    raise FormatError(message(f"{what} does not know this address", f"got {text:.200}", remedy=remedy))


def read_inner(name: Any, what: str) -> str:
    """The name of a tensor in a file or folder: relative, without `..`, backslashes or empty parts.

    Raises:
      FormatError: for anything else: a name never leads out of its place.
    """
    is_right = isinstance(name, str) and bool(name) and "\\" not in name and name.isprintable()
    if is_right and not any(part in ("", ".", "..") for part in name.split("/")) and ":" not in name:
        return str(name)
    remedy = "Write a relative name such as 'layer/weight'."
    raise FormatError(message(f"{what} is no name of a tensor", f"got {name!r:.80}", remedy=remedy))
