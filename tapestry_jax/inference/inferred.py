"""A signature that was found for a kernel, and what could not be told of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from combinators.arrows.arrow import Arrow
from combinators.frozen import dataclass
from combinators.leaves.map import Map
from combinators.leaves.reduce import Reduce
from combinators.leaves.scan import Scan
from combinators.merging.monoid import Monoid


@final
@dataclass(frozen=True)
class Inferred:
    """A proposal: what a kernel seems to read, by what it was seen to do.

    Attributes:
      kernel: the kernel.
      signature: the proposed signature.
      monoid: what merges its folds, or its steps where it is a scan; None for a map.
      over: the scanned dimension; None where nothing is scanned.
      reverse: whether the scan begins at the end.
      sizes: sizes that the operands do not tell, as they were seen.
      untold: what could not be told, a sentence each.
      name: of the kernel.
    """

    kernel: Callable[..., Any]
    signature: str
    monoid: Monoid | None = None
    over: str | None = None
    reverse: bool = False
    sizes: tuple[tuple[str, int], ...] = ()
    untold: tuple[str, ...] = ()
    name: str = "kernel"

    @property
    def kind(self) -> str:
        """`map`, `reduce` or `scan`."""
        return "map" if self.monoid is None else "scan" if self.over is not None else "reduce"

    @property
    def arrow(self) -> Arrow[Any, Any]:
        """The leaf that is proposed; `tp.laws.assert_lawful(found.arrow, specs)` tests it."""
        sizes = dict(self.sizes) or None
        if self.monoid is None:
            return Map(self.kernel, self.signature, sizes=sizes, name=self.name)
        if self.over is not None:
            return Scan(self.monoid, self.signature, over=self.over, reverse=self.reverse)
        return Reduce(self.kernel, self.signature, self.monoid, carrier=self.carrier, sizes=sizes, name=self.name)

    @property
    def carrier(self) -> str | None:
        """The axes of the state of a reduce, where its results have different ones."""
        results = [result.replace("()", "").strip() for result in self.signature.partition("->")[2].split(",")]
        return ", ".join(results) if self.kind == "reduce" and len(set(results)) > 1 else None

    def __str__(self) -> str:
        how = "" if self.monoid is None else f", {self.monoid.name}"
        over = "" if self.over is None else f", over={self.over!r}" + (", reverse=True" if self.reverse else "")
        carrier = "" if self.carrier is None else f", carrier={self.carrier!r}"
        sizes = f", sizes={dict(self.sizes)}" if self.sizes else ""
        lines = [f'{self.name}: {self.kind} "{self.signature}"{how}{over}{carrier}{sizes}']
        return "\n".join([*lines, *(f"  not told: {sentence}" for sentence in self.untold)])
