"""What came of checking laws: passed, failed, known to fail, or not checked, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from laws.errors import LawError


@final
@dataclass(frozen=True)
class Checked:
    """What came of one law on one subject.

    Attributes:
      law: its name.
      subject: name and types of what it was checked on.
      examples: how many arguments it held on; 0 where it was not checked.
      why_not: why it was not checked; None where it was.
      error: the counterexample, where it failed.
      known: the declared reason, where it failed as `known_failing` says.
    """

    law: str
    subject: str
    examples: int
    why_not: str | None = None
    error: LawError | None = None
    known: str | None = None

    @property
    def holds(self) -> bool:
        """Whether it was checked, and held."""
        return self.why_not is None and self.error is None and self.known is None

    def __str__(self) -> str:
        if self.known is not None:
            outcome = f"fails, as known ({self.known})"
        elif self.error is not None:
            outcome = "FAILED"
        else:
            outcome = f"held ({self.examples} examples)" if self.why_not is None else f"not checked ({self.why_not})"
        return f"{self.law:<28} {outcome}"


@final
@dataclass(frozen=True)
class Report:
    """Every law that was asked for.

    Attributes:
      checked: one entry for each law and subject.
    """

    checked: tuple[Checked, ...]

    @property
    def held(self) -> tuple[str, ...]:
        """The names of the laws that were checked, and held on everything that they were checked on."""
        broken = {entry.law for entry in self.checked if entry.error is not None or entry.known is not None}
        return tuple(dict.fromkeys(entry.law for entry in self.checked if entry.holds and entry.law not in broken))

    @property
    def failed(self) -> dict[str, LawError]:
        """The first counterexample of every law that failed and was not known to."""
        found: dict[str, LawError] = {}
        for entry in self.checked:
            if entry.error is not None:
                found.setdefault(entry.law, entry.error)
        return found

    @property
    def known(self) -> dict[str, str]:
        """The laws that failed as declared, and the declared reasons."""
        return {entry.law: entry.known for entry in self.checked if entry.known is not None}

    @property
    def not_checked(self) -> dict[str, str]:
        """The names of the laws that were checked on no subject, and why."""
        done = {entry.law for entry in self.checked if entry.why_not is None}
        reasons = {entry.law: entry.why_not for entry in self.checked if entry.law not in done}
        return {law: why for law, why in reasons.items() if why is not None}

    @property
    def summary(self) -> str:
        """The outcomes apart: passed, failed, failing as known, not checked."""
        counts = dict.fromkeys(self.held, 0)
        for entry in self.checked:
            if entry.law in counts:
                counts[entry.law] += entry.examples
        sections = [
            ("passed", [f"{law} ({count} examples)" for law, count in counts.items()]),
            ("FAILED", list(self.failed)),
            ("failing as known", [f"{law} ({why})" for law, why in self.known.items()]),
            ("not checked", [f"{law} ({why})" for law, why in self.not_checked.items()]),
        ]
        lines = [
            line
            for title, names in sections
            if names
            for line in (f"{title}: {len(names)}", *(f"  {n}" for n in names))
        ]
        return "\n".join([*lines, *("\n" + str(error) for error in self.failed.values())])

    def __str__(self) -> str:
        return "\n".join(map(str, self.checked))
