"""Programs drawn at random: a few steps, each an operation of the library on what the steps before gave.

Everything follows from a seed: the types of the inputs from the seed, every step from the seed and its number, so that
a program with a step left out is a smaller program of the same kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import Any

import jax.numpy as jnp
import numpy as np

import tapestry_jax as tp
from tests.pairs import kernels
from tests.pairs.steps import NEWER, STEPS, Pool

SIZES = {0: 2, 1: 7, 2: 12, 3: 16, 4: 14, 5: 12, 6: 6, 7: 8, 8: 8, 11: 3}
DTYPES = {"float64": 12, "float32": 2, "bfloat16": 1}
KEYS, TRIES = 3, 2
EDITION = 2
"""Of what is drawn. What has been recorded by its seed was drawn from the steps and items of the first one."""


@dataclass(frozen=True)
class Program:
    """A program that was drawn.

    Attributes:
      seed: of the inputs and of all steps.
      steps: the numbers of the steps.
      dtype: of the floating inputs; None draws it.
      only: names of the steps to draw from; empty for all.
      sizes: of dimensions that are not drawn.
      edition: of the steps that are drawn from; in the third a smooth function has a derivative of its author's.
    """

    seed: str
    steps: tuple[int, ...]
    dtype: str | None = None
    only: tuple[str, ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()
    edition: int = 1

    @cached_property
    def types(self) -> dict[str, tp.TensorType]:
        """The inputs."""
        rng = Random(f"{self.seed}/types")
        dtype = weighted(rng, DTYPES)
        dtype = self.dtype or dtype
        sizes = {name: weighted(rng, SIZES) for name in "abcd"} | dict(self.sizes)
        names = rng.sample("abc", rng.choice((1, 2, 2, 2, 3)))
        found = {"x": named(names, sizes, dtype)}
        if rng.random() < 0.5:
            found["y"] = named(rng.sample(names, rng.randint(1, len(names))), sizes, dtype)
        if rng.random() < 0.5:
            found["w"] = named([rng.choice(names), "d"], sizes, dtype)
        if rng.random() < 0.5:
            found["labels"] = named([rng.choice(names)], sizes, "int32")
        if rng.random() < 0.4:
            layers = {**sizes, "layer": rng.choice((0, 1, 2, 3, 4, 5))}
            found["layers"] = named(["layer", *rng.sample(names, rng.randint(0, 1))], layers, dtype)
        if self.edition > 1 and rng.random() < 0.4:
            found["key"] = tp.TensorType([("word", 2)], jnp.dtype("uint32"))
        return found

    @cached_property
    def taken(self) -> list[str]:
        """The names of the steps that were taken when the program was traced last."""
        return []

    @cached_property
    def graph(self) -> tp.Graph:
        """The traced program."""
        self.taken.clear()
        return tp.trace(self._run, *self.types.values())

    def args(self) -> list[Any]:
        """Numbers for the inputs, the same in every run."""
        rng = np.random.default_rng(abs(hash_of(f"{self.seed}/args")))
        return [_numbers(rng, kind) for kind in self.types.values()]

    def without(self, number: int) -> Program:
        """The program without one of its steps."""
        return replace(self, steps=tuple(step for step in self.steps if step != number))

    def _run(self, *inputs: Any) -> Any:
        smooth = jnp.tanh if self.edition < 3 else kernels.told
        pool = Pool(dict(zip(self.types, inputs, strict=True)), smooth)
        for number in self.steps:
            rng = Random(f"{self.seed}/step {number}")
            for _ in range(TRIES):
                chosen = rng.choice(self.only or (STEP_NAMES if self.edition == 1 else ALL_NAMES))
                try:
                    made = {**STEPS, **NEWER}[chosen][1](rng, pool)
                except (tp.TapestryError, LookupError):
                    # What does not fit these values is no step: another one is drawn.
                    continue
                self.taken.append(chosen)
                pool.add(made)
                break
        return pool.outputs(Random(f"{self.seed}/outputs"))


STEP_NAMES = tuple(name for name, (weight, _) in STEPS.items() for _ in range(weight))
ALL_NAMES = (*STEP_NAMES, *(name for name, (weight, _) in NEWER.items() for _ in range(weight)))


def draw_program(seed: str, **chosen: Any) -> Program:
    """A program of one to five steps."""
    return Program(seed, tuple(range(weighted(Random(f"{seed}/length"), {1: 5, 2: 6, 3: 3, 4: 1, 5: 1}))), **chosen)


def weighted(rng: Random, weights: dict[Any, int]) -> Any:
    return rng.choices(list(weights), list(weights.values()))[0]


def named(names: Sequence[str], sizes: dict[str, int], dtype: str) -> tp.TensorType:
    return tp.TensorType([(name, sizes[name]) for name in names], jnp.dtype(dtype))


def hash_of(text: str) -> int:
    return Random(text).getrandbits(48)


def _numbers(rng: np.random.Generator, kind: tp.TensorType) -> Any:
    if kind.dtype == np.uint32:
        return rng.integers(0, 2**32, kind.shape, np.uint32)
    if kind.dtype == np.int32:
        return rng.integers(-1, KEYS + 1, kind.shape).astype(np.int32)
    return rng.normal(size=kind.shape).astype(kind.dtype)


Step = Callable[[Random, Pool], Any]
