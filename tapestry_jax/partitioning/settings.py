"""What JAX is set to where a program is called: XLA's partitioner asks for it elsewhere, where settings are others."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from combinators.frozen import dataclass
from combinators.settings import settings, under


@dataclass(frozen=True)
class Settings:
    """The settings of JAX that values depend on.

    Attributes:
      values: their names, and what they are set to.
    """

    values: tuple[tuple[str, Any], ...]

    @classmethod
    def here(cls) -> Settings:
        """Those of this thread now, `with` statements around included."""
        return cls(tuple(settings().items()))

    def entered(self) -> AbstractContextManager[None]:
        """Trace under these settings."""
        return under(dict(self.values))
