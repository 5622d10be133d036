"""The devices of a mesh in one process: a value is one array, or one for each device, and collectives read several."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

Lanes = list[Any]
"""One array where all devices hold the same; else one for each device, in the order of the mesh."""


class DivergenceError(AssertionError):
    """Only some devices reach a collective: on real ones the program would wait forever."""


@dataclass
class Devices:
    """The devices of a mesh.

    Attributes:
      sizes: of the mesh axes, in order; empty outside of `shard_map`.
      diverged: whether devices are on different ways through a condition or a loop.
    """

    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    diverged: bool = False

    @cached_property
    def places(self) -> list[dict[str, int]]:
        """The coordinates of every device."""
        ranges = itertools.product(*(range(size) for size in self.sizes.values()))
        return [dict(zip(self.sizes, place, strict=True)) for place in ranges]

    def spread(self, value: Lanes) -> Lanes:
        """One array for each device."""
        return value * len(self.places) if len(value) == 1 else value

    def group(self, device: int, axes: Sequence[str]) -> list[int]:
        """The devices that differ from one along `axes` alone, the outermost of `axes` first."""
        groups = self._groups(tuple(axes))
        return groups[device]

    def _groups(self, axes: tuple[str, ...]) -> list[list[int]]:
        cache = self.__dict__.setdefault("_known", {})
        if axes not in cache:
            others = [axis for axis in self.sizes if axis not in axes]
            found: dict[tuple[int, ...], list[int]] = {}
            order = sorted(range(len(self.places)), key=lambda d: tuple(self.places[d][axis] for axis in axes))
            for device in order:
                found.setdefault(tuple(self.places[device][axis] for axis in others), []).append(device)
            cache[axes] = [found[tuple(place[axis] for axis in others)] for place in self.places]
        return cache[axes]

    def index(self, device: int, axes: Sequence[str]) -> int:
        """The position of a device in its group."""
        return self.group(device, axes).index(device)


def is_collective(equation: Any) -> bool:
    """Whether it reads several devices, or says which one this is; `jax.vmap` leaves some over axes of one array."""
    axes = equation.params.get("axes", ())
    is_of_array = bool(axes) and all(isinstance(axis, int) for axis in axes)
    return equation.primitive.name in COLLECTIVES and not is_of_array


def run_collective(equation: Any, devices: Devices, operands: Sequence[Lanes]) -> list[Lanes]:
    """The results of a collective, or of `axis_index`."""
    if devices.diverged and equation.primitive.name != "axis_index":
        raise DivergenceError(f"only some devices reach {equation}")
    results = COLLECTIVES[equation.primitive.name](devices, equation.params, [devices.spread(o) for o in operands])
    avals = [variable.aval for variable in equation.outvars]
    return [
        [np.asarray(array, aval.dtype).reshape(aval.shape) for array in lanes]
        for lanes, aval in zip(results, avals, strict=True)
    ]


def _names(axes: Any) -> tuple[str, ...]:
    return tuple(axes) if isinstance(axes, tuple | list) else (axes,)


def reduced(function: Callable[..., Any]) -> Callable[..., list[Lanes]]:
    """The collective that merges what the devices of a group have: `function(stacked, axis)`."""

    def run(devices: Devices, params: Mapping[str, Any], operands: Sequence[Lanes]) -> list[Lanes]:
        axes = _names(params["axes"])
        assert params.get("axis_index_groups") is None
        found: list[Lanes] = []
        for lanes in operands:
            sums: dict[tuple[int, ...], Any] = {}
            own: Lanes = []
            for device in range(len(lanes)):
                group = tuple(devices.group(device, axes))
                if group not in sums:
                    sums[group] = function(np.stack([lanes[other] for other in group]), axis=0)
                own.append(sums[group])
            found.append(own[:1] if set(axes) == set(devices.sizes) else own)
        return found

    return run


def _all_gather(devices: Devices, params: Mapping[str, Any], operands: Sequence[Lanes]) -> list[Lanes]:
    axes, axis = _names(params["axis_name"]), params["all_gather_dimension"]
    join = np.concatenate if params["tiled"] else np.stack
    return [
        [join([lanes[other] for other in devices.group(device, axes)], axis) for device in range(len(lanes))]
        for lanes in operands
    ]


def _reduce_scatter(devices: Devices, params: Mapping[str, Any], operands: Sequence[Lanes]) -> list[Lanes]:
    axes, axis = _names(params["axis_name"]), params["scatter_dimension"]
    found: list[Lanes] = []
    for lanes in operands:
        own: Lanes = []
        for device in range(len(lanes)):
            group = devices.group(device, axes)
            total = np.sum(np.stack([lanes[other] for other in group]), axis=0)
            own.append(np.split(total, len(group), axis)[group.index(device)])
        found.append(own)
    return found


def _all_to_all(devices: Devices, params: Mapping[str, Any], operands: Sequence[Lanes]) -> list[Lanes]:
    axes, source, target = _names(params["axis_name"]), params["split_axis"], params["concat_axis"]
    assert params["tiled"]
    found: list[Lanes] = []
    for lanes in operands:
        count = len(devices.group(0, axes))
        pieces = [np.split(array, count, source) for array in lanes]
        found.append(
            [
                np.concatenate(
                    [pieces[other][devices.index(device, axes)] for other in devices.group(device, axes)], target
                )
                for device in range(len(lanes))
            ]
        )
    return found


def _ppermute(devices: Devices, params: Mapping[str, Any], operands: Sequence[Lanes]) -> list[Lanes]:
    axes = _names(params["axis_name"])
    # JAX counts in the order of the mesh, in whatever order the axes are listed.
    ordered = tuple(axis for axis in devices.sizes if axis in axes)
    senders = {target: source for source, target in params["perm"]}
    found: list[Lanes] = []
    for lanes in operands:
        own: Lanes = []
        for device, array in enumerate(lanes):
            source = senders.get(devices.index(device, ordered))
            group = devices.group(device, ordered)
            own.append(np.zeros_like(array) if source is None else lanes[group[source]])
        found.append(own)
    return found


def _axis_index(devices: Devices, params: Mapping[str, Any], _: Sequence[Lanes]) -> list[Lanes]:
    axes = _names(params["axis_name"])
    return [[np.int32(devices.index(device, axes)) for device in range(len(devices.places))]]


COLLECTIVES: dict[str, Callable[[Devices, Mapping[str, Any], Sequence[Lanes]], list[Lanes]]] = {
    **dict.fromkeys(("psum", "psum_invariant"), reduced(np.sum)),
    **dict.fromkeys(("pmax", "pmax_invariant"), reduced(np.max)),
    **dict.fromkeys(("pmin", "pmin_invariant"), reduced(np.min)),
    **dict.fromkeys(("all_gather", "all_gather_invariant"), _all_gather),
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "ppermute": _ppermute,
    "axis_index": _axis_index,
}
