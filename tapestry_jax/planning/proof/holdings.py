"""What a slot holds: a value of the graph, or something on the way to one. `path` is for the errors alone."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, final

from combinators.frozen import dataclass
from combinators.graphs.nodes import Ref
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.proof.pieces import Piece

NamedCuts = tuple[tuple[str, Cut], ...]
"""How the dimensions of an operation are cut, as its step says it."""


@dataclass(frozen=True)
class _OfValue:
    """What is known by a value of the graph; holdings of two kinds are never equal."""

    ref: Ref
    path: str = field(default="", compare=False)
    words: ClassVar[str]

    def __str__(self) -> str:
        return self.words.format(f"result {self.ref.output} of `{self.path}`")


@final
class Value(_OfValue):
    """A value of the graph."""

    words = "{}"


@final
class Entering(_OfValue):
    """In a pipeline, what a stage takes in: `ref` at the first stage, what the stage before made at the others."""

    words = "what a stage takes in, at the first one {}"


@final
class Leaving(_OfValue):
    """What a stage makes of it; `ref` at the last stage."""

    words = "what a stage hands on, at the last one {}"


@dataclass(frozen=True)
class State:
    """A leaf of the state of a fold.

    Attributes:
      node: the fold.
      leaf: of its state.
      left: the mesh axes and loops over which it is still in pieces, the outermost first.
      folded: what each device has folded in each turn, of every dimension that is folded.
      cuts: of the step that made it, to which its end is held.
      path: of the fold.
    """

    node: int
    leaf: int
    left: tuple[str, ...]
    folded: tuple[Piece, ...] = field(default=(), compare=False)
    cuts: NamedCuts = field(default=(), compare=False)
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
      cuts: of the steps that made it; None before the first of them.
      path: of the scan.
    """

    node: int
    leaf: int
    loop: str
    own: bool
    after: bool
    backwards: bool
    ends: bool
    cuts: NamedCuts | None = field(default=None, compare=False)
    path: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"leaf {self.leaf} of the total of `{self.path}` {'after' if self.after else 'before'} a turn"


@dataclass(frozen=True)
class _OverDevices:
    """A leaf of a total of a scan that is cut over devices; `cuts` are those of the steps that made it."""

    node: int
    leaf: int
    cuts: NamedCuts = field(default=(), compare=False)
    path: str = field(default="", compare=False)
    words: ClassVar[str]

    def __str__(self) -> str:
        return f"leaf {self.leaf} of the total of `{self.path}` {self.words}"


@final
class OfDevice(_OverDevices):
    """A leaf of the total of all steps of one device."""

    words = "on each device"


@final
class Start(_OverDevices):
    """A leaf of the total of all devices before this one."""

    words = "before each device"


@dataclass(frozen=True)
class OwnPrefix:
    """A result of a scan that began with the first step of this device: of no use but for its total."""

    node: int
    path: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"the scan `{self.path}` without the devices before"


@dataclass(frozen=True)
class OfLastStage:
    """A value of the graph on the last device along `stages` alone."""

    ref: Ref
    stages: tuple[str, ...]
    path: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"result {self.ref.output} of `{self.path}`, on the last stage alone"


Holding = Value | State | Total | OfDevice | Start | OwnPrefix | Entering | Leaving | OfLastStage
