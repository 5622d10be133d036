"""Whether the program of a kernel can be run while it is traced, and how: it only computes, and takes few numbers.

Most are run in NumPy, equation by equation: compiling a program of a thousand equations may take half a minute. What
runs many equations, as a long `scan` does, is compiled if there are few to compile. Loops that may never end run in
NumPy alone, where their turns are counted.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from combinators.declared.drawn import is_key
from combinators.equations.callbacks import PURE, SILENT
from combinators.equations.callbacks import is_acting as is_acting_itself
from combinators.equations.effort import cost, work
from combinators.equations.evaluate import CONTROL
from combinators.equations.primitives import PRIMITIVES
from combinators.kernels.jaxprs import programs_inside

# What runs code that nobody can look into, or waits for other devices.
_FOREIGN = ("io_callback", "ffi", "custom_call", "triton", "partitioning", "shard_map", "feed")
# Kernels of their own for some hardware, which an interpreter runs on any.
PALLAS = "pallas_call"
# The most cells of operands and results, numbers that are computed on the way, and equations that are compiled.
_CELLS, _WORK, _EQUATIONS = 1 << 21, 1 << 26, 1024
# What one run in NumPy may take, loops that may not end turned once, in small equations: a tenth of a second.
_INTERPRETED = 1 << 14
INTERPRETED, COMPILED = "interpreted", "compiled"


class RaisesError(Exception):
    """A program that is run to be looked at raises, as a kernel for another machine does: of it nothing is known."""


@contextmanager
def raising() -> Generator[None]:
    """What is raised inside is a `RaisesError`; what else is raised, where numbers are compared, is our fault."""
    try:
        yield
    except Exception as error:
        raise RaisesError from error


def ways(programs: Collection[Any], share: float = 1) -> list[str]:
    """How closed jaxprs can be run, all of them alike, the best way first; none of those that cannot.

    Args:
      programs: of None, which could not be traced, nothing can be run.
      share: of what may be run, how much each may take.
    """
    known = [_ways(program, share) for program in programs]
    ordered = known[0] if known else []
    return [way for way in ordered if all(way in each for each in known)]


def _ways(program: Any, share: float) -> list[str]:
    if program is None or never_runs(program) or excess(program) > share:
        return []
    equations = list(_equations(program.jaxpr, 1))
    names = {equation.primitive.name for equation, _ in equations}
    called_back = SILENT | {PURE}
    compiled = "while" not in names and names.isdisjoint(called_back) and len(equations) <= _EQUATIONS
    # What XLA compiles by itself there, may be a loop without an end.
    takes_turns = PALLAS not in names or "while" not in names
    interpreted = takes_turns and sum(times * cost(equation) for equation, times in equations) <= _INTERPRETED * share
    found = [INTERPRETED] * interpreted + [COMPILED] * compiled
    # Each equation that NumPy does not know is compiled by itself.
    return found if names <= PRIMITIVES.keys() | CONTROL.keys() | called_back else found[::-1]


def never_runs(program: Any) -> bool:
    """Whether a closed jaxpr cannot be run of however few cells: it acts, or is of what nobody can look into."""
    avals = (*program.in_avals, *program.out_avals)
    if is_acting(program) or not all(isinstance(aval.dtype, np.dtype) or is_key(aval.dtype) for aval in avals):
        return True
    names = {equation.primitive.name for equation, _ in _equations(program.jaxpr, 1)}
    return any(part in name for name in names for part in _FOREIGN)


def is_known(program: Any) -> bool:
    """Whether a closed jaxpr holds nothing but what NumPy does as well: no callback, no random bits."""
    names = {equation.primitive.name for equation, _ in _equations(program.jaxpr, 1)}
    return names <= PRIMITIVES.keys() | CONTROL.keys() | {"reduce"}


def equations_in(program: Any) -> int:
    """How many equations a closed jaxpr holds, inner programs included: at least one."""
    return 1 + sum(1 for _ in _equations(program.jaxpr, 1))


def excess(program: Any) -> float:
    """How many times more cells a closed jaxpr takes and gives, or computes, than are run."""
    computed = sum(times * work(equation) for equation, times in _equations(program.jaxpr, 1))
    return max(cells_of(program) / _CELLS, computed / _WORK)


def is_acting(program: Any) -> bool:
    """Whether a closed jaxpr does something beside computing, but for what is printed of it."""
    return bool(program.effects) and any(
        is_acting_itself(each) for each, _ in _equations(program.jaxpr, 1) if not any(programs_inside(each))
    )


def is_large(program: Any) -> bool:
    """Whether a closed jaxpr takes and gives more cells than are run, or computes more."""
    return excess(program) > 1


def takes_many(types: Iterable[Any]) -> bool:
    """Whether operands of these types are more cells than are run by themselves: any program of them `is_large`."""
    return _cells(types) > _CELLS


def cells_of(program: Any) -> int:
    """The cells of the operands and the results of a closed jaxpr."""
    return _cells((*program.in_avals, *program.out_avals))


def _cells(types: Iterable[Any]) -> int:
    return sum(math.prod(each.shape) for each in types)


def _equations(jaxpr: Any, times: int) -> Iterator[tuple[Any, int]]:
    """Every equation, and how often it is run; what a `while` holds once."""
    for equation in jaxpr.eqns:
        yield equation, times
        often = times * _turns(equation)
        for inner in programs_inside(equation):
            yield from _equations(getattr(inner, "jaxpr", inner), often)


def _turns(equation: Any) -> int:
    if equation.primitive.name == PALLAS:
        return max(1, math.prod(size for size in equation.params["grid_mapping"].grid if isinstance(size, int)))
    return max(1, int(equation.params.get("length", 1))) if equation.primitive.name == "scan" else 1


@contextmanager
def apart() -> Generator[None]:
    """Beside the program: on the CPU, where there is one; its NaN and transfers are not those that are forbidden."""
    with jax.debug_nans(False), jax.debug_infs(False), jax.transfer_guard("allow"):
        if jax.default_backend() == "cpu":
            yield
            return
        try:
            cpu = jax.local_devices(backend="cpu")[0]
        except RuntimeError:  # JAX was told to use other platforms alone
            cpu = None
        with jax.default_device(cpu):
            yield
