"""One collective of a program: what is predicted, and compared with what is compiled."""

from __future__ import annotations

from dataclasses import replace

from combinators.frozen import dataclass


@dataclass(frozen=True)
class Collective:
    """One collective of the compiled program.

    Attributes:
      kind: `all-reduce`, `all-gather`, `reduce-scatter`, `all-to-all` or `collective-permute`.
      axes: the mesh axes.
      bytes: per device and execution: the larger of operand and result.
      path: the operation that causes it.
      times: how often it runs, those that are alike together.
      backward: whether it belongs to the gradient.
      bound: whether it may run less often: what is the same in every turn of a loop may be moved out of it, and equal
        values are sent once.
      part: of gathers and reduce-scatters, the shape of one device's part, the dimension that is cut first; empty where
        that is not known.
      perhaps: another kind that a compiler may run it as, of the same bytes.
      alike: for how many of these, one behind the other, it stands.
      again: whether it goes round a ring once more, as layers are computed again; `backward` as well.
    """

    kind: str
    axes: tuple[str, ...]
    bytes: int
    path: str
    times: int = 1
    backward: bool = False
    bound: bool = False
    part: tuple[int, ...] = ()
    perhaps: str = ""
    alike: int = 1
    again: bool = False

    def at_most(self, is_bound: bool) -> Collective:
        """The same, which is a bound if it was one or `is_bound`."""
        return replace(self, bound=True) if is_bound and not self.bound else self

    def __str__(self) -> str:
        repeated = f" x{self.times}" if self.times > 1 else ""
        return f"{self.kind} over {'+'.join(self.axes)}: {self.bytes:,} B{repeated}, {self.path}{self.remark}"

    @property
    def remark(self) -> str:
        """What tables say behind it: whether it belongs to the gradient, and whether it is a bound."""
        return f"{' (gradient)' if self.backward else ''}{', at most' if self.bound else ''}"
