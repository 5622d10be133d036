"""Plans that were found before, in files: each under what it was searched for, and proved again before use."""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

from combinators.errors import FormatError, PlanError, TapestryError, message, spelt
from combinators.stored.whole import read_whole, write_whole
from tapestry_jax.plan import Plan, asked_of
from tapestry_jax.plan_json import plan_to_json
from tapestry_jax.planning.asked import Asked
from tapestry_jax.searching.evaluated import Evaluated, evaluate, fits
from tapestry_jax.searching.problem import Problem


def read_directory(cache: Any) -> Path | None:
    """A directory, made where there is none; None for no cache.

    Raises:
      PlanError: for anything else.
    """
    if cache is None:
        return None
    try:
        if isinstance(cache, str) and not cache:
            raise ValueError("no path")
        found = Path(cache)
        found.mkdir(parents=True, exist_ok=True)
    except (TypeError, ValueError, OSError) as error:
        raise PlanError(
            message(
                "cache= of tp.search is no directory",
                f"got {spelt(cache)}: {error}",
                remedy="Give the path of a directory, such as 'plans/', or None.",
            )
        ) from error
    return found


def key_of(problem: Problem, method: str, seed: int, limit: float | None = None) -> str:
    """What an answer depends on: the problem, and how it was searched, for how long at most."""
    parts = {
        "plan": _content(problem, problem.fixed),
        "machine": problem.machine.to_json(),
        "memory": problem.memory,
        "grad": problem.grad,
        "remat": problem.remat,
        "method": method,
        "seed": seed,
        "limit": limit,
    }
    if problem.start is not None:  # which no answer may be dearer than
        parts["start"] = _content(problem, problem.start)
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _content(problem: Problem, asked: Asked) -> Any:
    return json.loads(plan_to_json(problem.graph, problem.mesh, asked))["content"]


def kept(directory: Path, key: str, problem: Problem) -> Evaluated | None:
    """The plan that was found before, or None where there is none.

    It has to say that it answers this question: under this name another's answer may lie. It is read as any plan is,
    proved, and held against what is fixed and against the memory: a file that fails is said in a warning, and searched
    for anew.
    """
    path = _path(directory, key)
    try:
        text = read_whole(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        return _damaged(path, str(error))
    try:
        plan = Plan.from_json(_answer(text, key), problem.graph, problem.mesh)
        plan.verify()
    except TapestryError as error:
        return _damaged(path, str(error))
    candidate = evaluate(problem, asked_of(plan))
    if not keeps(asked_of(plan), problem.fixed):
        return _damaged(path, "it changes what is fixed")
    if not isinstance(candidate, Evaluated) or not fits(problem, candidate):
        return _damaged(path, f"it does not fit into {problem.memory:,} B")
    return candidate


def _answer(text: str, key: str) -> str:
    """The plan in a file that answers a question.

    Raises:
      FormatError: for another file, or another question's.
    """
    try:
        stored = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(message("it is not JSON", str(error)[:80], remedy="Search anew.")) from error
    if not isinstance(stored, dict) or stored.get("question") != key or not isinstance(stored.get("plan"), str):
        raise FormatError(message("it answers another question", remedy="Search anew."))
    return stored["plan"]


def keep(directory: Path, key: str, plan: Plan) -> None:
    """Store a plan in one step: who reads meanwhile sees the old file, or the new one. Where it cannot, it warns."""
    try:
        write_whole(_path(directory, key), json.dumps({"question": key, "plan": plan.to_json()}))
    except (OSError, PlanError) as error:
        warnings.warn(f"tp.search: the plan found is not kept for the next time: {error}", stacklevel=2)


def keeps(asked: Asked, fixed: Asked) -> bool:
    """Whether a plan asks for all that is fixed."""
    ops = dict(asked.ops)
    parts = [(asked.entries, fixed.entries), *((ops.get(path, ()), own) for path, own in fixed.ops)]
    return (
        all(set(own) <= set(given) for given, own in parts)
        and set(fixed.inputs) <= set(asked.inputs)
        and set(fixed.remat) <= set(asked.remat)
        and (asked.outputs, asked.accumulate, asked.platforms) == (fixed.outputs, fixed.accumulate, fixed.platforms)
    )


def _path(directory: Path, key: str) -> Path:
    return directory / f"{key}.json"


def _damaged(path: Path, why: str) -> None:
    warnings.warn(f"tp.search: the plan kept in {path.name} is not used, and searched anew: {why}", stacklevel=4)
