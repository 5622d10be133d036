"""Lines of several processes as one text: each begins with the number of its rank, and none is torn by another."""

from __future__ import annotations

import os
from typing import IO, TextIO

from tapestry_jax.outputs import tell, to_nowhere

_LONGEST = 2**16  # bytes of a line that are held back
_AT_ONCE = 2**16


class Lines:
    """What one rank writes to one of its outputs.

    Args:
      source: the reading end of a pipe.
      sink: where the lines go.
      prefix: what each begins with.
    """

    def __init__(self, source: IO[bytes], sink: TextIO, prefix: str) -> None:
        self.source, self._sink, self._prefix, self._rest = source, sink, prefix, b""
        os.set_blocking(source.fileno(), False)

    def pass_on(self) -> int | None:
        """Pass on all whole lines that are there.

        Returns:
          How many bytes there were; None at the end.
        """
        try:
            read = os.read(self.source.fileno(), _AT_ONCE)
        except BlockingIOError:
            return 0
        if not read:
            self.flush()
            return None
        # A bar of progress ends its lines by going back to their beginning.
        lines = (self._rest + read).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > _LONGEST:
            lines, self._rest = [*lines, self._rest], b""
        self._write(lines)
        return len(read)

    def flush(self) -> None:
        """Pass on what has no end of line yet."""
        if self._rest:
            rest, self._rest = self._rest, b""
            self._write([rest])

    def _write(self, lines: list[bytes]) -> None:
        if not lines:
            return
        text = "".join(f"{self._prefix}{line.decode(errors='replace')}\n" for line in lines)
        encoding = self._sink.encoding or "utf-8"
        try:
            # What the sink has no letters for does not end a job.
            self._sink.write(text.encode(encoding, "backslashreplace").decode(encoding))
            self._sink.flush()
        except OSError as error:
            # Nor does a full disk, or a reader who has gone: the job goes on, and its lines are lost.
            to_nowhere(self._sink)
            tell(f"tapestry launch: lines are lost from here on: {error.strerror}")
