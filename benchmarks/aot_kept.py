"""Answers of compilers in a folder, one a line, so that a run that ends goes on where it was.

An answer is found again by what was asked and by the versions of the compilers. It knows nothing of our own code: after
a change of it, take another folder, or remove the lines of `ours`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.aot_table import versions

Answer = Mapping[str, Any]
_NAME = "answers.jsonl"


@dataclass(frozen=True)
class Kept:
    """The answers of a folder.

    Attributes:
      folder: where they are; made when the first one comes.
    """

    folder: Path

    def answers(self) -> Iterator[Answer]:
        """All that today's compilers said; of a question that was asked again, the last answer, at its first place."""
        path, found = self.folder / _NAME, dict[tuple[str, str, str], Answer]()
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            try:
                answer = json.loads(line)
            except json.JSONDecodeError:
                # A run that was ended while it wrote leaves half a line behind.
                continue
            if answer["versions"] == versions():
                found[answer["machine"], answer["row"], answer["program"]] = answer
        yield from found.values()

    def labels(self, machine: str, row: str, limit: int) -> frozenset[str]:
        """The programs of a row that need not be asked for: what ended at a lower limit may answer now."""
        return frozenset(
            each["program"]
            for each in self.answers()
            if (each["machine"], each["row"]) == (machine, row) and ("why" not in each or each["limit"] >= limit)
        )

    def add(self, answer: Answer, limit: int) -> None:
        """Keep an answer."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / _NAME).open("a", encoding="utf-8") as file:
            file.write(json.dumps({**answer, "limit": limit, "versions": versions()}) + "\n")
