"""Bytes at an address, asked for by ranges (RFC 9110, section 14); each answer is held against the first."""

from __future__ import annotations

import http.client
import re
import time
import urllib.error
import urllib.request
from typing import Any

from combinators.errors import FormatError, first_line, message
from tapestry_jax.storage.errors import StorageError
from tapestry_jax.storage.protocols import NOTHING, Beside

_SECONDS = 30.0
_PAUSES = (0.1, 0.5, None)
"""Seconds until the next attempt; the last one has none."""


class Address:
    """A `Ranges` over `http://` or `https://`.

    Args:
      address: which is asked.
      where: for people: the address without its query, which may sign for somebody.
    """

    def __init__(self, address: str, where: str) -> None:
        self._address, self.where = address, where
        # Redirects stay with these two: nothing that a server says opens a file of this machine.
        self._opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.ProxyHandler(),
            urllib.request.HTTPHandler(),
            urllib.request.HTTPSHandler(),
            urllib.request.HTTPRedirectHandler(),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
            urllib.request.UnknownHandler(),
        ):
            self._opener.add_handler(handler)
        self.size, self._version = 0, ""
        self.size, self._version = self._asked(0, memoryview(bytearray(1)))

    def read(self, offset: int, into: memoryview) -> None:
        """As `Ranges.read`."""
        if not len(into):
            return
        size, version = self._asked(offset, into)
        if (size, version) != (self.size, self._version):
            details = (f"expected {self.size} bytes, {self._version}", f"got {size} bytes, {version}")
            headline = f"`{self.where}` has changed since it was opened"
            raise FormatError(message(headline, *details, remedy="Open it anew."))

    def beside(self, length: int) -> Beside:
        """What comes is read from the socket straight into `into`."""
        del length
        return NOTHING

    def rests_on(self, begin: int, stop: int) -> None:
        """Of another version nothing is read."""

    def fingerprint(self) -> str:
        """Size, `ETag` and time of change, as the server says now; a server that says none tells the size alone."""
        size, version = self._asked(0, memoryview(bytearray(1)))
        return f"{size}:{version}"

    def close(self) -> None:
        """Nothing is held."""

    def _asked(self, offset: int, into: memoryview) -> tuple[int, str]:
        """Fill `into` with the range from there on; the size of all, and what the server calls this version."""
        told = ""
        for pause in _PAUSES:
            try:
                return self._once(offset, into)
            except urllib.error.HTTPError as error:
                if error.code == 416:
                    return self._beyond(error, offset)
                told = f"the server says {error.code} {error.reason}"
                if error.code < 500:
                    break
            except (urllib.error.URLError, OSError, http.client.HTTPException) as error:
                told = first_line(error)
            if pause is not None:
                time.sleep(pause)
        remedy = "Look at the address, and whether the server runs."
        raise StorageError(message(f"`{self.where}` does not answer", told, remedy=remedy))

    def _once(self, offset: int, into: memoryview) -> tuple[int, str]:
        length, got = len(into), 0
        headers = {"Range": f"bytes={offset}-{offset + length - 1}", "Accept-Encoding": "identity"}
        request = urllib.request.Request(self._address, headers=headers)
        with self._opener.open(request, timeout=_SECONDS) as answer:
            said = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", answer.headers.get("Content-Range", ""))
            if answer.status != 206 or said is None or int(said[1]) != offset:
                remedy = "Fetch the file first and open it, or serve it by a server that knows ranges."
                details = (f"asked for bytes {offset} to {offset + length}", f"got status {answer.status}")
                raise FormatError(message(f"`{self.where}` is not served by ranges", *details, remedy=remedy))
            while got < length and (more := answer.readinto(into[got:])):
                got += more
            if got != int(said[2]) + 1 - offset or answer.read(1):
                raise http.client.IncompleteRead(b"", length - got)
            return int(said[3]), _version(answer.headers)

    def _beyond(self, error: Any, offset: int) -> tuple[int, str]:
        said = re.fullmatch(r"bytes \*/(\d+)", error.headers.get("Content-Range", ""))
        size = int(said[1]) if said else 0
        if offset:
            headline = f"`{self.where}` is truncated"
            details = (f"expected bytes from {offset} on", f"got {size}")
            raise FormatError(message(headline, *details, remedy="It was cut off: write it again."))
        return size, _version(error.headers)


def _version(headers: Any) -> str:
    return f"{headers.get('ETag', '')} {headers.get('Last-Modified', '')}".strip()
