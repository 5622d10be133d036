"""What the model of a program is built of: picks with their options, where values lie, and how they are read."""

from __future__ import annotations

from dataclasses import field

from combinators.frozen import dataclass
from combinators.graphs.nodes import Apply
from tapestry_jax.planning.geometry.layout import Cut, Layout
from tapestry_jax.planning.prediction.flow import Flow
from tapestry_jax.planning.scheduling.reads import Cuts
from tapestry_jax.planning.scheduling.schedule import Repeat, Run, Scatter, Schedule
from tapestry_jax.searching.exact.classes import Classes
from tapestry_jax.searching.exact.prices import Want, Worked


class NotModelledError(Exception):
    """The program does something that the model does not know."""


class DoesNotFitError(Exception):
    """Whatever is chosen, more stays on a device than fits there."""


@dataclass(frozen=True, eq=False)
class Option:
    """One option of a pick.

    Attributes:
      cuts: of an operation.
      scatter: of an operation whose sum is scattered.
      layout: of an argument, or of what a loop carries.
    """

    cuts: Cuts = field(default_factory=dict[str, Cut])
    scatter: Scatter | None = None
    layout: Layout | None = None


@dataclass(frozen=True, eq=False)
class Chosen:
    """What a pick stands for.

    Attributes:
      kind: `operation`, `input` or `carry`.
      paths: whole paths of the operations that are placed alike, or names of inputs.
      options: in the order of the pick's.
      node: of an operation.
    """

    kind: str
    paths: tuple[str, ...]
    options: tuple[Option, ...]
    node: Apply | None = None


@dataclass(frozen=True, eq=False)
class Home:
    """Where a value lies, for each option of the pick that says so.

    Attributes:
      pick: that says so.
      layouts: by option.
      loop: of a slice of what is stacked, the turns of its loop.
      constant: whether a loop finds it the same in every turn.
      maker: the step that makes it.
      works: what its maker takes, by option.
      scattered: by option, whether it is a sum that is scattered.
      place: among the results of its maker.
      given: whether it is an argument, which stays anyway.
      near: by option, whether it stays on the chip until it is read.
      runs: how often its maker runs in a turn.
    """

    pick: int
    layouts: tuple[Layout, ...]
    loop: int = 0
    constant: bool = False
    maker: Run | None = None
    works: tuple[Worked, ...] = ()
    scattered: tuple[bool, ...] = ()
    place: int = 0
    given: bool = False
    near: tuple[bool, ...] = ()
    runs: int = 1


@dataclass(frozen=True)
class Scope:
    """A schedule inside of its loops.

    Attributes:
      schedule: of the program or of a loop's body.
      flow: in it.
      times: how often it runs.
      outside: how often what runs once before its loop does.
      again: how many loops around compute it again.
      loop: the innermost of them.
      classes: of its steps.
      turns: how often what its backward pass reads is kept; of layers one by one that are computed again one is at a
        time, so that each has its share of that.
      received: in what is computed again, how often what other devices sent is kept.
      group: the number of the loop, if something may be sent behind what it computes.
      share: of that, how much.
      sources: what its backward pass may gather again: slices of what is stacked, and arguments that one layer alone
        reads.
    """

    schedule: Schedule
    flow: Flow
    times: int = 1
    outside: int = 1
    again: int = 0
    loop: Repeat | None = None
    classes: Classes = Classes((), ())
    turns: float = 1
    received: float = 0
    group: int | None = None
    share: float = 0.0
    sources: frozenset[int] = frozenset()


@dataclass(frozen=True, eq=False)
class Reading:
    """A reader of a value, before labels are given.

    Attributes:
      pick: that reads.
      wants: how, by option.
      same: whether it reads the value as it lies.
      works: what the reader takes, by option.
      alone: whether it may run as one kernel with the maker.
      leaves: whether it is the next turn of a loop.
      place: among its operands.
      runs: how often it runs in a turn.
      needed: whether its gradient needs the value.
      live: whether anybody needs what it makes; what nobody needs, compilers drop.
    """

    pick: int
    wants: tuple[Want, ...]
    same: bool = False
    works: tuple[Worked, ...] = ()
    alone: bool = False
    leaves: bool = False
    place: int = 0
    runs: int = 1
    needed: bool = False
    live: bool = True


@dataclass(frozen=True, eq=False)
class Known:
    """An operation of a class: where its results lie, and how it reads its operands."""

    homes: tuple[Home, ...]
    readings: tuple[Reading, ...]
