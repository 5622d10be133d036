"""Writing a page: whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from combinators.errors import PlanError, message
from combinators.stored.whole import write_whole


def write_page(path: str | os.PathLike[str] | None, text: str, what: str = "plan.show") -> Path:
    """Write a page to a file, or to a new one among the temporary files.

    It is written beside the file and moved there: nobody sees half of it, and what was there stays where writing fails.
    A device, or a pipe, is written into.

    Args:
      path: where; None for a temporary file.
      text: of the page.
      what: who writes it, for messages.

    Returns:
      The file, as an absolute path.

    Raises:
      PlanError: where it cannot be written.
    """
    try:
        if path is None:
            number, name = tempfile.mkstemp(prefix=f"{what.partition('.')[0]}-", suffix=".html")
            with os.fdopen(number, "w", encoding="utf-8") as file:
                file.write(text)
            return Path(name)
        return write_whole(path, text)
    except (OSError, TypeError, ValueError) as error:
        where, example = "a temporary file" if path is None else repr(path), f"{what.partition('.')[0]}.html"
        # The name in an error of the system is that of the file beside it.
        why = getattr(error, "strerror", None) or str(error)
        raise PlanError(
            message(
                f"{what}: the page cannot be written to {where}",
                f"{type(error).__name__}: {why}",
                remedy=f"Name a file in a folder that exists and may be written to, such as {what}('{example}').",
            )
        ) from error
