"""What a machine is told by: numbers with their sources, links, and measured tables."""

from __future__ import annotations

from combinators.frozen import dataclass


@dataclass(frozen=True)
class Figure:
    """A number with its source.

    Attributes:
      value: in the unit that its place says.
      source: a vendor's page, or what it was measured on.
      estimate: whether no source says it: then `source` says where it comes from.
    """

    value: float
    source: str
    estimate: bool = False


@dataclass(frozen=True)
class Link:
    """What connects devices.

    Attributes:
      kind: `torus`: links to the neighbours along each axis; `switch`: every device reaches every other equally.
      bandwidth: bytes per second that a device sends: along one direction of one axis of a torus, or into the switch.
      latency: seconds of one hop.
    """

    kind: str
    bandwidth: Figure
    latency: Figure


@dataclass(frozen=True)
class Table:
    """Measured times of one kind of collective over mesh axes.

    Attributes:
      kind: as in `Collective`.
      axes: the mesh axes.
      points: bytes per device (as `Collective` counts them) and seconds, by ascending bytes.
    """

    kind: str
    axes: tuple[str, ...]
    points: tuple[tuple[float, float], ...]
