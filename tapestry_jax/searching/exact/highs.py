"""HiGHS: it solves a linear program or an integer one, within a time, until it is done or interrupted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from combinators.errors import PlanError, message
from combinators.frozen import dataclass
from tapestry_jax.searching.exact.program import Rows

_LOOKS = 0.1
"""Seconds after which an interrupt is seen."""


@dataclass(frozen=True, eq=False)
class Run:
    """What a run of the solver found.

    Attributes:
      values: of all variables; empty where it found no solution.
      price: of them, in the units of the program.
      bound: no solution has less; infinite where there is none at all.
      prices: of the rows, where a linear program was solved to its end: what one more of its sum would take.
      is_interrupted: whether an interrupt (`KeyboardInterrupt`) ended it.
    """

    values: Any
    price: float
    bound: float
    prices: Any
    is_interrupted: bool = False


def run(rows: Rows, *, most: Any, limit: float, is_integral: bool = False, gap: float = 0.0, start: Any = None) -> Run:
    """Run the solver.

    Args:
      rows: the program.
      most: of each variable the most that it may be.
      limit: seconds after which it ends with what it has.
      is_integral: whether what is 0 or 1 has to be so.
      gap: the share of the price by which a solution may miss the least.
      start: values of a solution that is known.
    """
    highspy = _highspy()
    solver: Any = highspy.Highs()
    # Preparing pays where a tree is searched: a linear program with most of its variables free takes less without.
    options: Mapping[str, Any] = {"output_flag": False, "threads": 1, "mip_rel_gap": gap}
    # Restarts separate the same cuts again, three times over where memory is short, and end at the same solution.
    options = {**options, **({"mip_allow_restart": False} if is_integral else {"presolve": "off"})}
    for name, value in options.items():
        solver.setOptionValue(name, value)
    if limit < math.inf:
        solver.setOptionValue("time_limit", max(float(limit), 0.0))
    solver.passModel(_program(highspy, rows, most, is_integral=is_integral))
    if start is not None:
        known = highspy.HighsSolution()
        known.col_value = list(start)
        solver.setSolution(known)
    is_interrupted = _runs(solver)
    status, info = solver.getModelStatus(), solver.getInfo()
    is_solution = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    is_done = status == highspy.HighsModelStatus.kOptimal
    if status == highspy.HighsModelStatus.kInfeasible:
        return Run(np.empty(0), math.inf, math.inf, np.empty(0), is_interrupted)
    found = solver.getSolution()
    values = np.array(found.col_value) if is_solution and (is_done or is_integral) else np.empty(0)
    return Run(
        values,
        info.objective_function_value if len(values) else math.inf,
        max(info.mip_dual_bound, 0.0) if is_integral else 0.0,
        np.array(found.row_dual) if is_done and not is_integral else np.empty(0),
        is_interrupted,
    )


def _runs(solver: Any) -> bool:
    """Run it beside this thread, which takes interrupts, and say whether one came."""
    solver.HandleUserInterrupt = True
    solver.startSolve()
    is_interrupted = False
    while True:
        try:
            while not solver.wait(_LOOKS)[0]:
                pass
            return is_interrupted
        except KeyboardInterrupt:
            is_interrupted = True
            solver.cancelSolve()


def _program(highspy: Any, rows: Rows, most: Any, *, is_integral: bool) -> Any:
    program, count = highspy.HighsLp(), len(rows.cost)
    program.num_col_, program.num_row_ = count, len(rows.lower)
    program.col_cost_ = np.array(rows.cost)
    program.col_lower_, program.col_upper_ = np.zeros(count), np.asarray(most)
    program.row_lower_, program.row_upper_ = np.array(rows.lower), np.array(rows.upper)
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_ = np.array(rows.starts)
    program.a_matrix_.index_ = np.array(rows.indices)
    program.a_matrix_.value_ = np.array(rows.values)
    if is_integral:
        kinds = [highspy.HighsVarType.kContinuous] * count
        for each in rows.integral:
            kinds[each] = highspy.HighsVarType.kInteger
        program.integrality_ = kinds
    return program


def is_installed() -> bool:
    """Whether the solver is there."""
    return find_spec("highspy") is not None


def _highspy() -> Any:
    if not is_installed():
        raise PlanError(
            message(
                'tp.search(method="milp") needs the solver HiGHS, which is not installed',
                remedy="pip install 'tapestry-jax[search]', or take another method.",
            )
        )
    return import_module("highspy")
