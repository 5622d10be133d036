"""What streams raise."""

from __future__ import annotations

from combinators.errors import TapestryError


class StreamError(TapestryError):
    """A stream that cannot be run, or cannot go on where it was."""
