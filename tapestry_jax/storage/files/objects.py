"""Bytes in stores of objects and on other machines, through fsspec: `s3://`, `gs://`, `memory://` and their like."""

from __future__ import annotations

from typing import Any

from combinators.errors import first_line, message
from tapestry_jax.storage.errors import StorageError, WrittenError, missing_package
from tapestry_jax.storage.files.ranges import cut_short
from tapestry_jax.storage.files.threads import THREADS
from tapestry_jax.storage.places import Place
from tapestry_jax.storage.protocols import Beside

_PIECE = 4 << 20
"""Bytes that are fetched at once: more take memory, and fewer more questions."""


class Objects:
    """A `Ranges` over a file system of fsspec, with the settings that fsspec has for it.

    Args:
      place: its address.

    Raises:
      StorageError: where the file system is not installed, there is no such object, or no answer.
    """

    def __init__(self, place: Place) -> None:
        self.where, self._asked = place.text, _Asked(place)
        self._files, self._path = self._asked(_package().url_to_fs, place.address)
        about = self._asked(self._files.info, self._path)
        self.size, self._opened = int(about.get("size") or 0), _told(about)

    def read(self, offset: int, into: memoryview) -> None:
        """As `Ranges.read`."""
        # The file system gives bytes of its own, which are copied: few of them are there at once.
        for begin in range(0, len(into), _PIECE):
            part, start = into[begin : begin + _PIECE], offset + begin
            content = self._asked(self._files.cat_file, self._path, start=start, end=start + len(part))
            if len(content) != len(part):
                raise cut_short(self.where, start + len(part), start + len(content))
            part[:] = content

    def beside(self, length: int) -> Beside:
        """As `Ranges.beside`: for each thread what is fetched at once, and what it was put together from."""
        own = 2 * THREADS * min(_PIECE, length)
        return Beside(own, f"{THREADS} pieces that are fetched", "Fetch the file first, and open it.")

    def rests_on(self, begin: int, stop: int) -> None:
        """Objects are written whole: what was opened is there as it was, or not at all."""

    def fingerprint(self) -> str:
        """What the store calls this version, of what it says: number, `ETag`, checksum, times; else its size alone.

        Raises:
          WrittenError: where it is another one than was opened.
        """
        self._files.invalidate_cache()
        found = _told(self._asked(self._files.info, self._path))
        if found != self._opened:
            raise WrittenError(self.where)
        return found

    def close(self) -> None:
        """Nothing is held."""


class Folder:
    """Files below an address.

    Args:
      place: the address.

    Raises:
      StorageError: where the file system is not installed.
    """

    def __init__(self, place: Place) -> None:
        self._asked = _Asked(place)
        self._files, path = self._asked(_package().url_to_fs, place.address)
        self._path = str(path).rstrip("/")

    def content(self, name: str) -> bytes | None:
        """All of a file; None where there is none."""
        return self._asked(self._found, f"{self._path}/{name}")

    def told(self) -> list[str]:
        """The names of all files, and what the store says of each, in order."""
        return sorted(f"{name} {_told(about)}" for name, about in self._found_below().items())

    def names(self) -> list[str]:
        """The names of all files, from the address on."""
        return [*self._found_below()]

    def _found_below(self) -> dict[str, Any]:
        self._files.invalidate_cache()
        found = self._asked(self._files.find, self._path, detail=True)
        return {name[len(self._path) :].lstrip("/"): about for name, about in found.items()}

    def _found(self, path: str) -> bytes | None:
        try:
            return bytes(self._files.cat_file(path))
        except FileNotFoundError:
            return None


class _Asked:
    """Asks a file system; its errors become ours."""

    def __init__(self, place: Place) -> None:
        self.where, self._scheme = place.text, place.scheme

    def __call__(self, call: Any, *given: Any, **named: Any) -> Any:
        try:
            return call(*given, **named)
        except ImportError as error:
            told = first_line(error)
            remedy = f"Install the file system of fsspec for {self._scheme}://."
            raise StorageError(message(f"`{self.where}` cannot be read", told, remedy=remedy)) from error
        except FileNotFoundError as error:
            remedy = "Look at the address."
            raise StorageError(message(f"`{self.where}` is not there", remedy=remedy)) from error
        except Exception as error:  # noqa: BLE001 - file systems raise errors of packages that we do not know
            # Some quote what they were asked with, a signature too: so not their text.
            told = f"{type(error).__name__} of {type(error).__module__}"
            remedy = "Look at the address, and at the settings of its file system."
            raise StorageError(message(f"`{self.where}` does not answer", told, remedy=remedy)) from None


def _told(about: Any) -> str:
    """What a store calls a version of a file, of what it says."""
    keys = ("VersionId", "version_id", "ETag", "etag", "md5Hash", "LastModified", "mtime", "modified", "created")
    return ":".join([str(about.get("size")), *(f"{about[key]}" for key in keys if about.get(key) is not None)])


def _package() -> Any:
    try:
        # An extra: few programs read such stores.
        import fsspec as found
    except ModuleNotFoundError as error:
        raise missing_package("this address", "fsspec", "objects") from error
    return found
