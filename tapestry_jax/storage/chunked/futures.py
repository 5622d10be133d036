"""The package TensorStore, what bounds it, and its errors as ours."""

from __future__ import annotations

import re
from typing import Any

from combinators.errors import FormatError, first_line, message
from tapestry_jax.storage.errors import StorageError, missing_package

WAIT = 30.0
"""Seconds that a place may take to answer when it is opened."""


def tensorstore() -> Any:
    """The package.

    Raises:
      StorageError: where it is not installed.
    """
    try:
        # An extra, of 60 MB: files .npy are read without it.
        import tensorstore as found
    except ModuleNotFoundError as error:
        raise missing_package("this format", "tensorstore", "stream") from error
    return found


def context(threads: int = 4) -> Any:
    """What bounds one tensor: nothing is cached, and `threads` files are read or written at once."""
    return tensorstore().Context(
        {
            "cache_pool": {"total_bytes_limit": 0},
            "file_io_concurrency": {"limit": threads},
            "http_request_concurrency": {"limit": threads},
            "http_request_retries": {"max_retries": 3, "initial_delay": "100ms", "max_delay": "1s"},
        }
    )


def translated(error: Exception, what: str, where: str) -> FormatError:
    """What TensorStore said, in our words.

    Args:
      error: from TensorStore: a ValueError, or its like, whose text begins with a code.
      what: what was tried, as `cannot ...` goes on.
      where: the place.
    """
    text = _plain(first_line(error))
    if re.search(r"No space left|Disk quota|File too large|RESOURCE_EXHAUSTED", text):
        remedy = "Make room, or choose another place; what was flushed before is intact."
        return StorageError(message(f"cannot {what}: no room for `{where}`", text, remedy=remedy))
    if "NOT_FOUND" in text and "chunk {" not in text:
        return StorageError(message(f"cannot {what}: `{where}` is not there", text, remedy="Look at the path."))
    if re.search(r"UNAVAILABLE|CURL error|DEADLINE_EXCEEDED|PERMISSION_DENIED|UNAUTHENTICATED|ALREADY_EXISTS", text):
        return StorageError(message(f"cannot {what}: `{where}`", text, remedy="See to the place, and try again."))
    remedy = "Write the damaged part again, or take a copy that is intact."
    return FormatError(message(f"cannot {what}: `{where}` is damaged", text, remedy=remedy))


def _plain(text: str) -> str:
    """The first sentence, without the places in TensorStore's own sources that it appends."""
    return re.sub(r"\s*\[(tensorstore_spec|source locations)=.*", "", text)[:800]
