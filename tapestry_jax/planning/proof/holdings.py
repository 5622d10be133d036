"""What a slot holds: a value of the graph, or something on the way to one."""

from __future__ import annotations

from dataclasses import dataclass

from combinators.graph import Ref


@dataclass(frozen=True)
class Value:
    """A value of the graph."""

    ref: Ref

    def __str__(self) -> str:
        return f"value {self.ref.output} of node {self.ref.node}"


@dataclass(frozen=True)
class State:
    """A leaf of the state of a fold; `left` are the mesh axes and loops over which it is still in pieces, in order."""

    node: int
    leaf: int
    left: tuple[str, ...]

    def __str__(self) -> str:
        return f"leaf {self.leaf} of the state of node {self.node}, in pieces over ({', '.join(self.left)})"


@dataclass(frozen=True)
class Total:
    """A leaf of the total of a scan before, or after, a turn of `loop`.

    `own` totals begin with the first step of this device, the others with the first step of all.
    """

    node: int
    leaf: int
    loop: str
    own: bool
    after: bool

    def __str__(self) -> str:
        begin = "of this device alone" if self.own else "of all steps"
        return (
            f"leaf {self.leaf} of the total of node {self.node} {begin}, {'after' if self.after else 'before'} a turn"
        )


@dataclass(frozen=True)
class OfDevice:
    """A leaf of the total of all steps of one device."""

    node: int
    leaf: int

    def __str__(self) -> str:
        return f"leaf {self.leaf} of the total of node {self.node} on this device"


@dataclass(frozen=True)
class Start:
    """A leaf of the total of all devices before this one."""

    node: int
    leaf: int

    def __str__(self) -> str:
        return f"leaf {self.leaf} of the total of node {self.node} before this device"


@dataclass(frozen=True)
class OwnPrefix:
    """A result of a scan that began with the first step of this device: of no use but for its total."""

    node: int

    def __str__(self) -> str:
        return f"a scan of node {self.node} that leaves out the devices before"


@dataclass(frozen=True)
class Entering:
    """In a pipeline, what a stage takes in: `ref` at the first stage, what the stage before made at the others."""

    ref: Ref

    def __str__(self) -> str:
        return f"value {self.ref.output} of node {self.ref.node} on its way through the stages"


@dataclass(frozen=True)
class Leaving:
    """What a stage makes of it; `ref` at the last stage."""

    ref: Ref

    def __str__(self) -> str:
        return f"what a stage makes of value {self.ref.output} of node {self.ref.node}"


@dataclass(frozen=True)
class OfLastStage:
    """A value of the graph on the last device along `stages` alone."""

    ref: Ref
    stages: tuple[str, ...]

    def __str__(self) -> str:
        return f"value {self.ref.output} of node {self.ref.node}, on the last stage alone"


Holding = Value | State | Total | OfDevice | Start | OwnPrefix | Entering | Leaving | OfLastStage
