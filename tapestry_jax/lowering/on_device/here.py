"""Where the program is: on which device of the mesh, and in which turn of every loop around it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import jax.numpy as jnp
from jax import lax

from combinators.frozen import dataclass
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.geometry.time_axis import is_time, ring_of, turns_of

_ASKED = "asked"
"""Among the counters, with which it goes wherever these go."""


@dataclass(frozen=True, eq=False)
class Here(MeshShape):
    """A mesh as one device sees it in one turn.

    Attributes:
      counters: loop (a time axis) to the number of its turn.
      platforms: of the devices, as lowering names them; empty where they are not known.
      torn: whether padding is not everywhere a copy of a row (`padding/valid.py`).
      anew: for every loop around the nodes of the scans that began with nothing there, and not behind other devices.
      older: whether loops go on from what an older run has come to, in their first turn too.
      goes_on: whether somebody goes on from what scans come to behind their last turn.
      since: for scans that begin with nothing in a later turn, by node, their loop and the number of that turn.
      ends: by loop and node the scans of which nothing is read but what they come to behind the loop.
    """

    counters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    platforms: tuple[str, ...] = ()
    torn: bool = False
    anew: Mapping[str, frozenset[int]] = field(default_factory=dict[str, frozenset[int]])
    older: Any = False
    goes_on: bool = False
    since: Mapping[int, tuple[str, Any]] = field(default_factory=dict[int, tuple[str, Any]])
    ends: frozenset[tuple[str, int]] = frozenset()

    def index(self, axes: Sequence[str]) -> Any:
        """The position of this device and turn along `axes`, the outermost first; an int32 scalar."""
        if axes and not any(map(is_time, axes)):
            return lax.axis_index(tuple(axes))
        position: Any = jnp.int32(0)
        for axis in axes:
            position = position * self.size((axis,)) + self._along(axis)
        return position

    def _along(self, axis: str) -> Any:
        if not is_time(axis):
            return lax.axis_index(axis)
        ring = ring_of(axis)
        if ring is None:
            return self.counters[axis]
        # In turn t a device holds what the device t places behind it held at first.
        return (lax.axis_index(ring) - self.counters[axis]) % turns_of(axis)

    def turning(self, axis: str, counter: Any) -> Here:
        """The same place inside a loop."""
        return self.at({**self.counters, axis: counter})

    def asking(self, asked: Any) -> Here:
        """The same place in a turn that computes what is asked for, or, where `asked` is 0, what nobody reads."""
        return self.at({**self.counters, _ASKED: asked * self.counters.get(_ASKED, 1)})

    @property
    def asked(self) -> Any:
        """Whether somebody reads what this turn computes, an int32 scalar; None where somebody always does."""
        return self.counters.get(_ASKED)

    @property
    def loops(self) -> list[str]:
        """The loops around."""
        return [axis for axis in self.counters if axis != _ASKED]

    def beginning(self, axis: str, nodes: frozenset[int]) -> Here:
        """The same place, before a loop in which the scans `nodes` begin with nothing."""
        return replace(self, anew={**self.anew, axis: nodes})

    def ending(self, axis: str, node: int) -> Here:
        """The same place, before a loop that only finds what a scan comes to, for the devices behind this one."""
        return replace(self, ends=self.ends | {(axis, node)})

    def finds_total(self, node: int, loops: Iterable[str]) -> bool:
        """Whether nothing but what a scan comes to behind one of its `loops` is read."""
        return any((loop, node) in self.ends for loop in loops)

    def begun(self, node: int, axes: Sequence[str]) -> Sequence[str]:
        """Of the `axes` along which a scan runs those along which it has met what was before it."""
        found = [number for number, axis in enumerate(axes) if node in self.anew.get(axis, ())]
        return axes[found[-1] :] if found else axes

    def begins_now(self, node: int) -> Any:
        """Whether this is the turn in which a scan begins with nothing though others come before; False of most."""
        loop, turn = self.since.get(node, ("", None))
        return False if turn is None else self.counters[loop] == turn

    def at(self, counters: Mapping[str, Any]) -> Here:
        """The same device in these turns."""
        return replace(self, counters=counters)
