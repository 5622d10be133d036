"""What is opened to be read may be a pipe that somebody has put there: it is not waited for."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OPENED = re.compile(r"os\.open\([^\n]*O_RDONLY[^\n]*")


def test_what_is_opened_to_be_read_is_waited_for_by_nobody() -> None:
    files = sorted((ROOT / "tapestry_jax").rglob("*.py"))
    found = {path: OPENED.findall(path.read_text(encoding="utf-8")) for path in files}
    waiting = [f"{path}: {line}" for path, lines in found.items() for line in lines if not _ends_at_once(line)]
    assert sum(map(len, found.values())) > 5 and waiting == []


def _ends_at_once(line: str) -> bool:
    return "O_NONBLOCK" in line or "O_DIRECTORY" in line
