"""The least that a model takes, by OR-tools: constraints over its choices, no flows, and integers for seconds.

Reads a model from standard input, and writes seconds.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any


def least(model: Any) -> float:
    """Seconds of the best choice."""
    # Not at the top: who looks at this file for doctests would have the library of this solver, and not of the other.
    cp_model: Any = import_module("ortools.sat.python.cp_model")
    unit = sum(min(seconds) for seconds, _ in model["picks"]) / 1e7
    program: Any = cp_model.CpModel()
    chosen: Any = [[program.new_bool_var("") for _ in seconds] for seconds, _ in model["picks"]]
    total: list[Any] = []
    saved: list[list[Any]] = [[] for _ in chosen]
    for (seconds, _), own in zip(model["picks"], chosen, strict=True):
        program.add_exactly_one(own)
        total += [round(each / unit) * option for each, option in zip(seconds, own, strict=True)]
    begun: list[Any] = [program.new_bool_var("") for _ in model["together"]]
    total += [round(seconds / unit) * each for seconds, each in zip(model["together"], begun, strict=True)]
    for value in model["values"]:
        total += _paid(program, value, chosen, saved, begun, unit)
    for (_, excess), own, less in zip(model["picks"], chosen, saved, strict=True):
        more = program.new_int_var(0, 10**9, "")
        taken = [round(each / unit) * option for each, option in zip(excess, own, strict=True)]
        program.add(more >= sum(taken) - sum(less))
        total.append(more)
    program.minimize(sum(total))
    solver: Any = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(program) == cp_model.OPTIMAL
    return solver.objective_value * unit


def _paid(program: Any, value: Any, chosen: Any, saved: list[list[Any]], begun: list[Any], unit: float) -> list[Any]:
    made = _labelled(program, value["labels"], chosen[value["maker"]])
    prices = {(have, want): rest for have, want, *rest in value["pairs"]}
    pairs: dict[Any, Any] = {}
    for pick, labels in value["readers"]:
        for want, reads in _labelled(program, labels, chosen[pick]).items():
            for have, lies in made.items():
                if (have, want) not in prices:
                    program.add_bool_or([lies.negated(), reads.negated()])
                    continue
                both = pairs.setdefault((have, want), program.new_bool_var(""))
                program.add_bool_or([lies.negated(), reads.negated(), both])
                for number, less in zip((value["maker"], pick), prices[have, want][1:3], strict=True):
                    if less:
                        program.add_implication(both, lies)
                        program.add_implication(both, reads)
                        saved[number].append(round(less / unit) * both)
    for pair, both in pairs.items():
        for number in prices[pair][4]:
            program.add_implication(both, begun[number])
    found = [round(prices[pair][0] / unit) * both for pair, both in pairs.items()]
    for number, seconds in enumerate(value["common"]):
        paid = program.new_bool_var("")
        for pair, both in pairs.items():
            if number in prices[pair][3]:
                program.add_implication(both, paid)
        found.append(round(seconds / unit) * paid)
    return found


def _labelled(program: Any, labels: list[int], own: list[Any]) -> dict[int, Any]:
    found: dict[int, Any] = {}
    for label in set(labels):
        found[label] = program.new_bool_var("")
        program.add(sum(each for each, at in zip(own, labels, strict=True) if at == label) == found[label])
    return found


if __name__ == "__main__":
    print(least(json.load(sys.stdin)))
