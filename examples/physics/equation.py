"""What every script here does with its equation: solve it on finer and finer grids, plan it, and draw it.

A script says what it solves (a `Problem`) and calls `show`. Eight CPU devices are simulated where there are fewer.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tapestry_jax as tp


@dataclass(frozen=True)
class Problem:
    """An equation on one grid.

    Attributes:
      program: a `tp.program`.
      arguments: arrays.
      exact: what its first result should be.
      mesh: name and size of the mesh axes.
      entries: dimension to mesh axis, as `tp.plan` takes them.
    """

    program: Any
    arguments: tuple[Any, ...]
    exact: np.ndarray[Any, Any]
    mesh: Mapping[str, int]
    entries: Mapping[str, Any]


def first(result: Any) -> np.ndarray[Any, Any]:
    """The field that is compared and drawn."""
    return np.asarray(jax.tree.leaves(result)[0])


def error(problem: Problem, result: Any) -> float:
    """The root mean square of the difference from the exact solution."""
    return float(np.sqrt(np.mean((first(result) - problem.exact) ** 2)))


def orders(make: Callable[[int], Problem], sizes: Sequence[int]) -> tuple[list[float], list[float]]:
    """Errors on grids of these sizes, and the orders of convergence between each and the next."""
    problems = [make(size) for size in sizes]
    found = [error(problem, problem.program(*problem.arguments)) for problem in problems]
    pairs = zip(found, found[1:], sizes, sizes[1:], strict=False)
    return found, [float(np.log(a / b) / np.log(n / m)) for a, b, m, n in pairs]


def plan_of(problem: Problem) -> tp.Plan:
    """The plan of a problem, proved."""
    graph = tp.trace(problem.program, *problem.arguments)
    plan = tp.plan(graph, tp.mesh(**problem.mesh), problem.entries)
    plan.verify()
    return plan


def show(title: str, make: Callable[[int], Problem], sizes: Sequence[int]) -> None:
    """Print errors, orders and the plan on the last grid; with `--picture FILE` draw the solution there."""
    if jax.config.jax_num_cpu_devices != 8:
        jax.config.update("jax_num_cpu_devices", 8)
    words = argparse.ArgumentParser(description=title)
    words.add_argument("--picture", type=Path, help="a file to draw the solution on the finest grid into")
    words.add_argument("--sizes", type=int, nargs="+", default=list(sizes), help="cells along each side")
    chosen = words.parse_args()
    found, rates = orders(make, chosen.sizes)
    for size, each, rate in zip(chosen.sizes, found, [None, *rates], strict=True):
        print(f"{size:6d} cells   error {each:.2e}" + ("" if rate is None else f"   order {rate:.2f}"))
    problem = make(chosen.sizes[-1])
    plan = plan_of(problem)
    result = plan.compile()(*plan.put(*problem.arguments))
    print(f"\n{plan.explain()}\nplanned: error {error(problem, result):.2e}")
    if chosen.picture is not None:
        draw(chosen.picture, title, first(result))
        print(f"wrote {chosen.picture}")


def draw(path: Path, title: str, field: Any) -> None:
    """Draw a field of two dimensions, or the length of its vectors, into a file.

    Raises:
      ImportError: without matplotlib.
    """
    # Pictures are written on request, and nothing else needs it.
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = np.asarray(field)
    figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
    image = axes.imshow(np.linalg.norm(shown, axis=-1) if shown.ndim == 3 else shown, origin="lower")
    figure.colorbar(image)
    axes.set(title=title, xticks=(), yticks=())
    figure.savefig(path, dpi=120)
    plt.close(figure)


def grid(points: Any) -> tuple[Any, Any]:
    """Coordinates of the points of a square, float64: of rows and of columns."""
    y, x = np.meshgrid(points, points, indexing="ij")
    return y, x


def single(*fields: Any) -> tuple[Any, ...]:
    """Arrays of float32."""
    return tuple(jnp.asarray(np.asarray(field, np.float32)) for field in fields)
