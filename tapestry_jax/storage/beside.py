"""What reading and writing take beside the arrays of who asks: memory that a plan has to count."""

from __future__ import annotations

from combinators.frozen import dataclass


@dataclass(frozen=True)
class Beside:
    """Memory that reading or writing takes at most beside the arrays of the caller.

    Attributes:
      bytes: in all, for whatever is under way at once and kept for the next box; 0 for what goes straight into arrays.
      what: takes them, for people, such as `"pages of 1.0 MiB"`.
      less: what would need less, as a sentence for people.
    """

    bytes: int = 0
    what: str = ""
    less: str = ""


NOTHING = Beside()
"""Of what is read straight into the arrays of the caller, or written straight from them."""


def shown(count: int) -> str:
    """Bytes for people: `64.0 MiB`."""
    size, units = float(count), ("B", "KiB", "MiB", "GiB")
    for unit in units:
        if size < 1024 or unit == units[-1]:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{count} B"
