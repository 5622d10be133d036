"""What a slot holds: a value of the graph, or something on the way to one. `path` is for the errors alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from combinators.graph import Ref
from tapestry_jax.planning.proof.pieces import Piece


@dataclass(frozen=True)
class Value:
    """A value of the graph."""

    ref: Ref
    path: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"result {self.ref.output} of `{self.path}`"


@dataclass(frozen=True)
class State:
    """A leaf of the state of a fold.

    Attributes:
      node: the fold.
      leaf: of its state.
      left: the mesh axes and loops over which it is still in pieces, the outermost first.
      folded: what each device has folded in each turn, of every dimension that is folded.
      path: of the fold.
    """

    node: int
    leaf: int
    left: tuple[str, ...]
    folded: tuple[Piece, ...] = field(default=(), compare=False)
    path: str = field(default="", compare=False)

    def __str__(self) -> str:
        left = f"in pieces over ({', '.join(self.left)})" if self.left else "complete"
        return f"leaf {self.leaf} of the state of `{self.path}`, {left}"


@dataclass(frozen=True)
class Total:
    """A leaf of the total of a scan before, or after, a turn of a loop.

    Attributes:
      node: the scan.
      leaf: of its total.
      loop: that carries it.
      own: whether it begins with the first step of this device, and not with the first of all.
      after: the turn.
      backwards: whether the loop takes the last chunk first.
      ends: whether the loop looks for totals alone.
      path: of the scan.
    """

    node: int
    leaf: int
    loop: str
    own: bool
    after: bool
    backwards: bool
    ends: bool
    path: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"leaf {self.leaf} of the total of `{self.path}` {'after' if self.after else 'before'} a turn"


@dataclass(frozen=True)
class OfDevice:
    """A leaf of the total of all steps of one device."""

    node: int
    leaf: int
    path: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"leaf {self.leaf} of the total of `{self.path}` on each device"


@dataclass(frozen=True)
class Start:
    """A leaf of the total of all devices before this one."""

    node: int
    leaf: int
    path: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"leaf {self.leaf} of the total of `{self.path}` before each device"


@dataclass(frozen=True)
class OwnPrefix:
    """A result of a scan that began with the first step of this device: of no use but for its total."""

    node: int
    path: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"the scan `{self.path}` without the devices before"


@dataclass(frozen=True)
class Entering:
    """In a pipeline, what a stage takes in: `ref` at the first stage, what the stage before made at the others."""

    ref: Ref
    path: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"what a stage takes in, at the first one result {self.ref.output} of `{self.path}`"


@dataclass(frozen=True)
class Leaving:
    """What a stage makes of it; `ref` at the last stage."""

    ref: Ref
    path: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"what a stage hands on, at the last one result {self.ref.output} of `{self.path}`"


@dataclass(frozen=True)
class OfLastStage:
    """A value of the graph on the last device along `stages` alone."""

    ref: Ref
    stages: tuple[str, ...]
    path: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"result {self.ref.output} of `{self.path}`, on the last stage alone"


Holding = Value | State | Total | OfDevice | Start | OwnPrefix | Entering | Leaving | OfLastStage
