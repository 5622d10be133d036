"""Running a jaxpr on all devices of a mesh at once, without compiling it: equation by equation, `shard_map` included.

What is run is what XLA would be given: the same collectives, loops and conditions. What an equation means is the
caller's: numbers, or which cells each cell is made of.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, final

import jax.numpy as jnp
import numpy as np

from combinators.equations.evaluate import constant
from combinators.equations.primitives import run_primitive
from combinators.frozen import dataclass
from combinators.kernels.jaxprs import is_literal, scan_parts
from tapestry_jax.shards.numeric.devices import Devices, Lanes, is_collective, run_collective

MOST_TURNS = 10_000
CALLS = frozenset(
    (
        *("jit", "pjit", "closed_call", "core_call", "eval_jaxpr", "remat", "remat2", "checkpoint"),
        *("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "custom_lin"),
    )
)
"""Names of equations that do what the program inside of them does."""


class EndlessError(AssertionError):
    """A loop turned too often for anybody to wait for it."""


class DisagreementError(AssertionError):
    """Devices that hold copies of one piece hold different ones."""


class Meaning(ABC):
    """What equations mean. Values are arrays of any kind that has shapes and slices."""

    @abstractmethod
    def run(self, equation: Any, row: Sequence[Any]) -> list[Any]:
        """The results of one equation on one device."""

    @abstractmethod
    def collective(self, equation: Any, devices: Devices, operands: Sequence[Lanes]) -> list[Lanes]:
        """The results of an equation that reads several devices, or says which one this is."""

    @abstractmethod
    def number(self, value: Any) -> int | None:
        """A scalar that decides which way is taken; None where it is not known."""

    @abstractmethod
    def alike(self, arrays: Sequence[Any]) -> list[Any]:
        """Arrays that are parts of one."""

    @abstractmethod
    def either(self, cases: Sequence[Any], chosen: Any) -> Any:
        """One of several arrays, where it is not known which."""

    def agree(self, one: Any, other: Any, aval: Any) -> bool:
        """Whether two arrays may be copies of one, of a type."""
        del aval
        # NumPy does not know that bfloat16 is a float.
        return np.array_equal(one, other, equal_nan=bool(jnp.issubdtype(one.dtype, np.inexact)))


@final
class Numbers(Meaning):
    """Numbers."""

    def run(self, equation: Any, row: Sequence[Any]) -> list[Any]:
        """In NumPy."""
        return run_primitive(equation, row)

    def collective(self, equation: Any, devices: Devices, operands: Sequence[Lanes]) -> list[Lanes]:
        """In NumPy."""
        return run_collective(equation, devices, operands)

    def number(self, value: Any) -> int | None:
        """What it is."""
        return int(value)

    def alike(self, arrays: Sequence[Any]) -> list[Any]:
        """As they are."""
        return list(arrays)

    def either(self, cases: Sequence[Any], chosen: Any) -> Any:
        """Never asked."""
        raise AssertionError(chosen)


@dataclass(frozen=True)
class Simulation:
    """A run of jaxprs.

    Attributes:
      meaning: of equations.
    """

    meaning: Meaning

    def closed(self, closed: Any, operands: Sequence[Lanes], devices: Devices | None = None) -> list[Lanes]:
        """What a closed jaxpr gives; outside of `shard_map` every value is one array.

        Raises:
          DivergenceError: where only some devices reach a collective.
        """
        constants = [[constant(each)] for each in closed.consts]
        return self.jaxpr(closed.jaxpr, constants, operands, devices or Devices())

    def jaxpr(self, jaxpr: Any, constants: Sequence[Lanes], operands: Sequence[Lanes], devices: Devices) -> list[Lanes]:
        """What a jaxpr gives."""
        values: dict[Any, Lanes] = dict(zip(jaxpr.constvars, constants, strict=True))
        values.update(zip(jaxpr.invars, operands, strict=True))

        def read(atom: Any) -> Lanes:
            return [np.asarray(atom.val, atom.aval.dtype)] if is_literal(atom) else values[atom]

        for equation in jaxpr.eqns:
            results = self._equation(equation, [read(atom) for atom in equation.invars], devices)
            values.update(zip(equation.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _equation(self, equation: Any, operands: list[Lanes], devices: Devices) -> list[Lanes]:
        name = equation.primitive.name
        if name in CALLS:
            return self._call(equation, operands, devices)
        control = {"scan": self._scan, "while": self._while, "cond": self._cond, "shard_map": self._shard_map}
        if name in control:
            return control[name](equation, operands, devices)
        if is_collective(equation):
            return self.meaning.collective(equation, devices, operands)
        if all(len(lanes) == 1 for lanes in operands):
            return [[result] for result in self.meaning.run(equation, [lanes[0] for lanes in operands])]
        rows = zip(*(devices.spread(lanes) for lanes in operands), strict=True)
        return [list(lanes) for lanes in zip(*(self.meaning.run(equation, row) for row in rows), strict=True)]

    def _call(self, equation: Any, operands: list[Lanes], devices: Devices) -> list[Lanes]:
        params = equation.params
        inner = params.get("jaxpr", params.get("call_jaxpr"))
        if hasattr(inner, "consts"):
            return self.closed(inner, operands, devices)
        return self.jaxpr(inner, [], operands, devices)

    def _scan(self, equation: Any, operands: list[Lanes], devices: Devices) -> list[Lanes]:
        params = equation.params
        fixed, carries = scan_parts(equation)
        constants, carry, slices = operands[:fixed], operands[fixed : fixed + carries], operands[fixed + carries :]
        length = params["length"]
        made: list[list[Lanes]] = []
        turns = range(length - 1, -1, -1) if params["reverse"] else range(length)
        for turn in turns:
            pieces = [[np.asarray(array[turn]) for array in lanes] for lanes in slices]
            outputs = self.closed(params["jaxpr"], [*constants, *carry, *pieces], devices)
            carry = outputs[:carries]
            made.append(outputs[carries:])
        if params["reverse"]:
            made.reverse()
        kinds = params["jaxpr"].out_avals[carries:]
        stacked = [self._stacked([turn[place] for turn in made], kind, devices) for place, kind in enumerate(kinds)]
        return [*carry, *stacked]

    def _stacked(self, turns: list[Lanes], kind: Any, devices: Devices) -> Lanes:
        if not turns:
            return [np.zeros((0, *kind.shape), kind.dtype)]
        if all(len(lanes) == 1 for lanes in turns):
            return [np.stack(self.meaning.alike([lanes[0] for lanes in turns]))]
        listed = zip(*(devices.spread(lanes) for lanes in turns), strict=True)
        return [np.stack(self.meaning.alike(arrays)) for arrays in listed]

    def _while(self, equation: Any, operands: list[Lanes], devices: Devices) -> list[Lanes]:
        params = equation.params
        asked = params["cond_nconsts"]
        fixed = asked + params["body_nconsts"]
        of_condition, of_body, carry = operands[:asked], operands[asked:fixed], operands[fixed:]
        for _ in range(MOST_TURNS):
            (condition,) = self.closed(params["cond_jaxpr"], [*of_condition, *carry], devices)
            going = [self.meaning.number(each) for each in condition]
            if None in going:
                return [[self.meaning.either(lanes, condition[0])] for lanes in carry]
            if not any(going):
                return carry
            within = devices if all(going) else Devices(devices.sizes, diverged=True)
            after = self.closed(params["body_jaxpr"], [*of_body, *carry], within)
            carry = (
                after if all(going) else [_chosen(going, [a, b], devices) for a, b in zip(carry, after, strict=True)]
            )
        raise EndlessError(f"a loop took more than {MOST_TURNS} turns")

    def _cond(self, equation: Any, operands: list[Lanes], devices: Devices) -> list[Lanes]:
        index, rest = operands[0], operands[1:]
        branches = equation.params["branches"]
        numbers = [self.meaning.number(each) for each in index]
        if None in numbers:
            cases = [self.closed(branch, rest, devices) for branch in branches]
            return [self._either(list(made), index, devices) for made in zip(*cases, strict=True)]
        taken = [min(max(number or 0, 0), len(branches) - 1) for number in numbers]
        if len(set(taken)) == 1:
            return self.closed(branches[taken[0]], rest, devices)
        within = Devices(devices.sizes, diverged=True)
        results = {which: self.closed(branches[which], rest, within) for which in sorted(set(taken))}
        return [
            [devices.spread(results[which][place])[device] for device, which in enumerate(taken)]
            for place in range(len(branches[0].out_avals))
        ]

    def _either(self, cases: list[Lanes], index: Lanes, devices: Devices) -> Lanes:
        if all(len(lanes) == 1 for lanes in (*cases, index)):
            return [self.meaning.either([lanes[0] for lanes in cases], index[0])]
        rows = zip(*map(devices.spread, (*cases, index)), strict=True)
        return [self.meaning.either(row[:-1], row[-1]) for row in rows]

    def _shard_map(self, equation: Any, operands: list[Lanes], devices: Devices) -> list[Lanes]:
        params = equation.params
        if devices.sizes:  # a region inside of another, in which each device computes of its own blocks
            assert not any(any(_axes(spec, 0)) for spec in (*params["in_specs"], *params["out_specs"]))
            return self.jaxpr(params["jaxpr"], [], operands, devices)
        within = Devices(dict(params["mesh"].shape))
        pieces = [_cut(lanes[0], spec, within) for lanes, spec in zip(operands, params["in_specs"], strict=True)]
        results = self.jaxpr(params["jaxpr"], [], pieces, within)
        return [
            [_whole(self.meaning.alike(lanes), spec, within, self.meaning, variable.aval)]
            for lanes, spec, variable in zip(results, params["out_specs"], equation.outvars, strict=True)
        ]


def _chosen(which: Sequence[int | None], cases: Sequence[Lanes], devices: Devices) -> Lanes:
    spread = [devices.spread(case) for case in cases]
    return [spread[int(i or 0)][device] for device, i in enumerate(devices.spread(list(which)))]


def _axes(spec: Any, rank: int) -> list[tuple[str, ...]]:
    found = [() if part is None else part if isinstance(part, tuple) else (part,) for part in spec]
    return [*found, *[()] * (rank - len(found))]


def _cut(array: Any, spec: Any, devices: Devices) -> Lanes:
    axes = _axes(spec, array.ndim)
    if not any(axes):
        return [array]
    lanes: Lanes = []
    for device in range(len(devices.places)):
        piece = array
        for axis, names in enumerate(axes):
            if names:
                count = len(devices.group(device, names))
                piece = np.split(piece, count, axis)[devices.index(device, names)]
        lanes.append(piece)
    return lanes


def _whole(lanes: Lanes, spec: Any, devices: Devices, meaning: Meaning, aval: Any) -> Any:
    axes = _axes(spec, lanes[0].ndim)
    if len(lanes) == 1 and not any(axes):
        return lanes[0]
    lanes = devices.spread(lanes)
    shape = [size * len(devices.group(0, names)) for size, names in zip(lanes[0].shape, axes, strict=True)]
    whole = np.zeros(shape, lanes[0].dtype)
    written: dict[tuple[int, ...], Any] = {}
    for device, piece in enumerate(lanes):
        place = tuple(devices.index(device, names) if names else 0 for names in axes)
        if place in written:
            if not meaning.agree(written[place], piece, aval):
                raise DisagreementError("devices disagree")
            continue
        written[place] = piece
        whole[tuple(slice(i * n, (i + 1) * n) for i, n in zip(place, piece.shape, strict=True))] = piece
    return whole
