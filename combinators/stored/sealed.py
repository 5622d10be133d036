"""What every file of ours says of itself before its content: which format, which version, and a checksum."""

from __future__ import annotations

from typing import Any, cast

from combinators.errors import FormatError, message, spelt
from combinators.frozen import dataclass
from combinators.stored.json import REMEDY, check_storable, checksum, entries, read_json


@dataclass(frozen=True)
class Sealed:
    """One kind of file.

    Attributes:
      what: what the file is, as errors name it: `graph`.
      format: as files name it: `tapestry-graph`.
      version: of the format.
      key: of the content.
      again: how to make the file anew, for the remedy of a file of another version.
      by_hand: whether people write such files, which then need no checksum.
    """

    what: str
    format: str
    version: int
    key: str
    again: str
    by_hand: bool = False

    def seal(self, content: Any) -> dict[str, Any]:
        """What is written: the content behind its head.

        Raises:
          GraphError: where a string of it is not printable.
        """
        check_storable(content, f"the {self.what}")
        return {"format": self.format, "version": self.version, "sha256": checksum(content), self.key: content}

    def open(self, text: object) -> Any:
        """The content of a text of any origin; nothing of it is interpreted yet.

        Raises:
          FormatError: when it is no text, no JSON within bounds, no such file, of another version, or was edited.
        """
        named = ("format", "version", self.key)
        stored = read_json(text, "the file")
        if isinstance(stored, dict):
            self._check_kind(cast("dict[str, Any]", stored))
        if self.by_hand:
            head = entries(stored, named, "the file", {"sha256": None})
        else:
            head = entries(stored, ("format", "version", "sha256", self.key), "the file")
        version = head["version"]
        if head["format"] != self.format or type(version) is not int or version != self.version:
            newer = head["format"] == self.format and type(version) is int and version > self.version
            raise FormatError(
                message(
                    f"the file is no {self.what} of this version.",
                    f"expected {self.format} {self.version}",
                    f"got {head['format']!r:.40} {spelt(version, 40)}{', newer than this library reads' * newer}",
                    remedy=f"Read it with the release that wrote it, or {self.again}.",
                )
            )
        is_unsealed = self.by_hand and head["sha256"] is None
        if not is_unsealed and head["sha256"] != (found := checksum(head[self.key])):
            raise FormatError(
                message(
                    f"`{self.key}` was edited: its checksum differs.",
                    f"expected {head['sha256']!r:.80}",
                    f"got      {found!r}",
                    remedy='Restore the file, or leave "sha256" out if it was edited on purpose.'
                    if self.by_hand
                    else REMEDY,
                )
            )
        return head[self.key]

    def _check_kind(self, stored: dict[str, Any]) -> None:
        """Refuse a file that says to be of another kind, before its keys are held against those of this one."""
        found = stored.get("format")
        if isinstance(found, str) and found.startswith("tapestry-") and found != self.format:
            raise FormatError(
                message(
                    f"the file is no {self.what}.",
                    f"expected {self.format}",
                    f"got {spelt(found, 40)}",
                    remedy=f"Pass what `to_json` of a {self.what} gave.",
                )
            )
