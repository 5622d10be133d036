"""Where a tensor lies: a path or an address, read and held against what may stand in one."""

from __future__ import annotations

import re
from dataclasses import field
from os import PathLike, fspath
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from combinators.errors import FormatError, message, spelt
from combinators.frozen import dataclass

POSTGRES = ("postgresql", "postgres")
"""Schemes of databases."""
OBJECTS = ("memory", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "sftp", "ftp", "hdfs", "webhdfs")
"""Schemes whose bytes fsspec reads, by a file system that the user has installed and set up."""
_HARMLESS = {
    "connect_timeout",
    "sslmode",
    "application_name",
    "options",
    "target_session_attrs",
    "host",
    "port",
    "user",
}
"""What an address of a database may hold behind its `?` that is no secret."""
_REMEDY = 'Pass a path, or "http://host/name": tp.open("x.npy").'


@dataclass(frozen=True)
class Place:
    """A path of this machine, or an address.

    Attributes:
      text: for people: a path as it was given, an address without what may be secret in it.
      path: on this machine, or None.
      address: as it was given, without a `/` at its end, or None. It may hold a password: no text may hold it.
    """

    text: str
    path: Path | None
    address: str | None = field(repr=False)

    @property
    def name(self) -> str:
        """What the path ends in."""
        if self.path:
            return self.path.name
        parts = urlsplit(str(self.address))
        return PurePosixPath(unquote(f"{parts.netloc if self.scheme in OBJECTS else ''}{parts.path}")).name

    @property
    def scheme(self) -> str:
        """What an address begins with; `""` of a path."""
        return str(self.address).partition("://")[0].lower() if self.address else ""

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
    """A path, or an address: `file://`, `http(s)://`, `postgresql://`, or what fsspec reads.

    Raises:
      FormatError: for anything else.
    """
    text = fspath(path) if isinstance(path, str | PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise FormatError(message(f"{what} takes a path", f"got {spelt(path)}", remedy=_REMEDY))
    if "://" not in text:
        return Place(text, Path(text), None)
    shown = shown_address(text)
    scheme, parts = text.partition("://")[0].lower(), _split(text, what)
    if scheme == "file" and parts.netloc in ("", "localhost") and parts.path:
        return Place(text, Path(unquote(parts.path)), None)
    if scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc:
        return Place(shown, None, text.rstrip("/"))
    if scheme in POSTGRES or (scheme in OBJECTS and (parts.netloc or parts.path.strip("/"))):
        return Place(shown, None, text.rstrip("/"))
    raise FormatError(message(f"{what} does not know this address", f"got {shown:.200}", remedy=_REMEDY))


def shown_address(address: str) -> str:
    """An address for people, and for what is remembered: without user, password, query and fragment.

    A text without `://` is a path, and stays as it is.
    """
    scheme, colon, rest = address.partition("://")
    if not colon:
        return address
    # A password may hold a `/`, `?` or `#` that nobody has quoted.
    return f"{scheme}://{re.split(r'[?#]', rest.rpartition('@')[2], maxsplit=1)[0]}"


def has_secret(address: str) -> bool:
    """Whether an address holds a password, or a key behind a `?`: it is not handed on to other processes."""
    scheme, colon, rest = address.partition("://")
    if not colon:
        return False
    asked = [name.lower() for name, _ in parse_qsl(rest.partition("?")[2], keep_blank_values=True)]
    # As far as the last `@`: a password may hold a `/` that nobody has quoted.
    is_known = scheme.lower() in POSTGRES and {*asked} <= _HARMLESS
    return ":" in rest.rpartition("@")[0] or (bool(asked) and not is_known)


def _split(text: str, what: str) -> SplitResult:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        # Not what urllib says: it may quote a password.
        shown = f"got {shown_address(text):.200}"
        raise FormatError(message(f"{what} cannot read this address", shown, remedy=_REMEDY)) from None
    return parts


def read_inner(name: Any, what: str) -> str:
    """The name of a tensor in a file or folder: relative, without `..`, backslashes or empty parts.

    Raises:
      FormatError: for anything else: a name never leads out of its place.
    """
    is_right = isinstance(name, str) and bool(name) and "\\" not in name and name.isprintable()
    if is_right and not any(part in ("", ".", "..") for part in name.split("/")) and ":" not in name:
        return str(name)
    remedy = "Write a relative name such as 'layer/weight'."
    raise FormatError(message(f"{what} is no name of a tensor", f"got {spelt(name)}", remedy=remedy))
