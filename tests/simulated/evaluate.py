"""Running a JAX program without compiling it: its jaxpr, equation by equation, on all devices of a mesh at once.

Compiling a planned program and its gradient takes a second and more; tracing it takes a tenth of that, and running what
was traced in NumPy, on arrays of some dozen cells, about as long. What is run is what XLA would be given: the same
collectives, loops, conditions and derivatives. What XLA makes of it is not seen, so a sample is compiled as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core

from combinators.kernels.jaxprs import scan_parts
from tapestry_jax.shards.numeric.primitives import run_primitive
from tests.simulated.devices import Devices, Lanes, is_collective, run_collective

MOST_TURNS = 10_000


def simulated(function: Callable[..., Any], *args: Any) -> Any:
    """What `function(*args)` gives, run in NumPy; it may hold `jax.shard_map` over any mesh.

    Args:
      function: traceable by JAX.
      args: pytrees of arrays.

    Returns:
      NumPy arrays in the structure of the result.

    Raises:
      DivergenceError: where only some devices reach a collective.
    """
    closed, out = jax.make_jaxpr(function, return_shape=True)(*args)
    leaves = [[np.asarray(leaf)] for leaf in jax.tree.leaves(args)]
    with np.errstate(all="ignore"):
        results = _closed(closed, leaves, Devices())
    return jax.tree.unflatten(jax.tree.structure(out), [lanes[0] for lanes in results])


def _closed(closed: Any, operands: Sequence[Lanes], devices: Devices) -> list[Lanes]:
    return _jaxpr(closed.jaxpr, [[_constant(c)] for c in closed.consts], operands, devices)


def _constant(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, jax.Array | np.generic | int | float | bool) else value


def _jaxpr(jaxpr: Any, constants: Sequence[Lanes], operands: Sequence[Lanes], devices: Devices) -> list[Lanes]:
    values: dict[Any, Lanes] = dict(zip(jaxpr.constvars, constants, strict=True))
    values.update(zip(jaxpr.invars, operands, strict=True))

    def read(atom: Any) -> Lanes:
        return [np.asarray(atom.val, atom.aval.dtype)] if isinstance(atom, core.Literal) else values[atom]

    for equation in jaxpr.eqns:
        results = _equation(equation, [read(atom) for atom in equation.invars], devices)
        values.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _equation(equation: Any, operands: list[Lanes], devices: Devices) -> list[Lanes]:
    name = equation.primitive.name
    if name in CONTROL:
        return CONTROL[name](equation, operands, devices)
    if is_collective(name):
        return run_collective(equation, devices, operands)
    if all(len(lanes) == 1 for lanes in operands):
        return [[result] for result in run_primitive(equation, [lanes[0] for lanes in operands])]
    rows = zip(*(devices.spread(lanes) for lanes in operands), strict=True)
    return [list(lanes) for lanes in zip(*(run_primitive(equation, row) for row in rows), strict=True)]


def _call(equation: Any, operands: list[Lanes], devices: Devices) -> list[Lanes]:
    params = equation.params
    inner = params.get("jaxpr", params.get("call_jaxpr"))
    if hasattr(inner, "consts"):
        return _closed(inner, operands, devices)
    return _jaxpr(inner, [], operands, devices)


def _scan(equation: Any, operands: list[Lanes], devices: Devices) -> list[Lanes]:
    params = equation.params
    fixed, carries = scan_parts(equation)
    constants, carry, slices = operands[:fixed], operands[fixed : fixed + carries], operands[fixed + carries :]
    length = params["length"]
    made: list[list[Lanes]] = []
    turns = range(length - 1, -1, -1) if params["reverse"] else range(length)
    for turn in turns:
        pieces = [[array[turn] for array in lanes] for lanes in slices]
        outputs = _closed(params["jaxpr"], [*constants, *carry, *pieces], devices)
        carry = outputs[:carries]
        made.append(outputs[carries:])
    if params["reverse"]:
        made.reverse()
    kinds = params["jaxpr"].out_avals[carries:]
    stacked = [_stacked([turn[place] for turn in made], kind, devices) for place, kind in enumerate(kinds)]
    return [*carry, *stacked]


def _stacked(turns: list[Lanes], kind: Any, devices: Devices) -> Lanes:
    if not turns:
        return [np.zeros((0, *kind.shape), kind.dtype)]
    if all(len(lanes) == 1 for lanes in turns):
        return [np.stack([lanes[0] for lanes in turns])]
    return [np.stack(arrays) for arrays in zip(*(devices.spread(lanes) for lanes in turns), strict=True)]


def _while(equation: Any, operands: list[Lanes], devices: Devices) -> list[Lanes]:
    params = equation.params
    asked = params["cond_nconsts"]
    fixed = asked + params["body_nconsts"]
    of_condition, of_body, carry = operands[:asked], operands[asked:fixed], operands[fixed:]
    for _ in range(MOST_TURNS):
        (going,) = _closed(params["cond_jaxpr"], [*of_condition, *carry], devices)
        if not any(going):
            return carry
        within = devices if all(going) else Devices(devices.sizes, diverged=True)
        after = _closed(params["body_jaxpr"], [*of_body, *carry], within)
        carry = after if all(going) else [_chosen(going, [a, b], devices) for a, b in zip(carry, after, strict=True)]
    raise AssertionError(f"a loop took more than {MOST_TURNS} turns")


def _cond(equation: Any, operands: list[Lanes], devices: Devices) -> list[Lanes]:
    params = equation.params
    index, rest = operands[0], operands[1:]
    branches = params["branches"]
    taken = [min(max(int(i), 0), len(branches) - 1) for i in index]
    if len(set(taken)) == 1:
        return _closed(branches[taken[0]], rest, devices)
    within = Devices(devices.sizes, diverged=True)
    results = {which: _closed(branches[which], rest, within) for which in sorted(set(taken))}
    return [
        [devices.spread(results[which][place])[device] for device, which in enumerate(taken)]
        for place in range(len(branches[0].out_avals))
    ]


def _chosen(which: Lanes, cases: Sequence[Lanes], devices: Devices) -> Lanes:
    spread = [devices.spread(case) for case in cases]
    return [spread[int(i)][device] for device, i in enumerate(devices.spread(which))]


def _shard_map(equation: Any, operands: list[Lanes], devices: Devices) -> list[Lanes]:
    params = equation.params
    assert not devices.sizes, "a shard_map inside of another"
    within = Devices(dict(params["mesh"].shape))
    pieces = [_cut(lanes[0], spec, within) for lanes, spec in zip(operands, params["in_specs"], strict=True)]
    results = _jaxpr(params["jaxpr"], [], pieces, within)
    return [[_whole(lanes, spec, within)] for lanes, spec in zip(results, params["out_specs"], strict=True)]


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


def _whole(lanes: Lanes, spec: Any, devices: Devices) -> Any:
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
            assert np.array_equal(written[place], piece, equal_nan=piece.dtype.kind in "fc"), "devices disagree"
            continue
        written[place] = piece
        whole[tuple(slice(i * n, (i + 1) * n) for i, n in zip(place, piece.shape, strict=True))] = piece
    return whole


CONTROL: dict[str, Callable[[Any, list[Lanes], Devices], list[Lanes]]] = {
    **dict.fromkeys(
        ("jit", "pjit", "closed_call", "core_call", "eval_jaxpr", "remat", "remat2", "checkpoint", "custom_jvp_call"),
        _call,
    ),
    **dict.fromkeys(("custom_vjp_call", "custom_vjp_call_jaxpr", "custom_lin"), _call),
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "shard_map": _shard_map,
}
