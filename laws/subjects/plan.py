"""A plan and its arguments: what the laws of plans speak about, and what of a run they compare."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol, final

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis.strategies import SearchStrategy

from combinators.graphs.evaluate import evaluate
from combinators.graphs.graph import Graph
from laws.draws.operands import Operands, Values, arrays, build_arrays, is_exact_recipe, show_arrays
from laws.draws.ties import TIES
from laws.law import Law
from laws.quickly import quick_options
from laws.subject import Recipe, Subject
from laws.subjects.arrow import graph_depth
from laws.subjects.streamed import Streamed
from laws.verdicts.conditioning import coarsest
from laws.verdicts.rounded import FLOAT32

Run = Callable[..., Any]


class Planned(Protocol):
    """What is needed of a plan: its graph, and something to run."""

    @property
    def graph(self) -> Graph:
        """The program."""
        ...

    def compile(self) -> Run:
        """Arrays in, arrays out; differentiable; nests in `jit`."""
        ...


@final
class PlanSubject(Subject):
    """A plan.

    Args:
      plan: whose laws are checked.
      name: what messages call it.
      values: arguments of the program to use instead of drawn ones, one tuple each.
      engine: whose workers turn its chunks; None for none.
    """

    def __init__(self, plan: Planned, name: str, values: Values = None, engine: Any = None) -> None:
        super().__init__(name)
        self.graph, self.values = plan.graph, values
        self.inputs: list[Any] = [node.results[0] for node in self.graph.inputs]
        self.outputs = [self.graph.type_of(ref) for _, ref in self.graph.outputs]
        self.drawn = Operands(tuple(self.inputs), values)
        self.depth_of_graph = graph_depth(self.graph)
        self.plan, self.as_stream = plan, Streamed(plan, engine, name)
        self._run: Run | None = None

    @cached_property
    def shards(self) -> Any:
        """The plan written out block by block; AttributeError where it has none."""
        plan: Any = self.plan
        return plan.shards()

    @property
    def families(self) -> tuple[str, ...]:
        """The laws of plans."""
        return ("plan",)

    @property
    def types(self) -> str:
        """The types of the inputs."""
        return ", ".join(map(str, self.inputs))

    @property
    def is_composed(self) -> bool:
        """A program of steps."""
        return True

    @property
    def depth(self) -> float:
        """That of the graph, for the plan and for what it is compared with."""
        return 2 * self.depth_of_graph + 2

    @property
    def pieces(self) -> int:
        """Devices times turns of loops; of what has no shards, those of a small machine."""
        if not callable(getattr(self.plan, "shards", None)):
            return super().pieces
        return math.prod(self.shards.shared.counts.values())

    def planned(self, leaves: Sequence[Any]) -> list[Any]:
        """Run the plan on the flat list of its arguments."""
        if self._run is None:
            self._run = self.plan.compile()
        results = jax.tree.leaves(self._run(*jax.tree.unflatten(self.graph.in_tree, list(leaves))))
        if not getattr(self.plan, "outputs", ()):
            return results
        # Who asks for padded storage of a result gets it.
        return [_of_size(result, kind.shape) for result, kind in zip(results, self.outputs, strict=True)]

    def block_by_block(self, leaves: Sequence[Any]) -> list[Any]:
        """Run the plan's blocks one by one on the flat list of its arguments: nothing is lowered, nothing compiled."""
        return jax.tree.leaves(self.shards.run(*jax.tree.unflatten(self.graph.in_tree, list(leaves))))

    def unplanned(self, leaves: Sequence[Any]) -> list[Any]:
        """Run the graph on the flat list of its arguments, in whatever precision these have."""
        return evaluate(self.graph, leaves)

    @cached_property
    def at_once(self) -> Run:
        """The same as one program."""
        return jax.jit(self.unplanned, compiler_options=quick_options())

    @cached_property
    def is_coarse(self) -> bool:
        """Whether a step of the program rounds to less than float32."""
        kinds = [jax.ShapeDtypeStruct(kind.shape, kind.dtype) for kind in self.inputs]
        return coarsest(self.unplanned, (kinds,), cache=self.cache, key="unplanned") > FLOAT32

    def first(self, law: Law, seed: int) -> list[list[Recipe]]:
        """Arguments that tie, for gradients: what random numbers do seldom, and evenly."""
        if law.name != "plan.gradients" or self.values is not None:
            return []
        return [[[domain, seed], ["nonzero", seed]] for domain in TIES]

    def wide(self, law: Law) -> tuple[Any, str]:
        """The unplanned side alone, which is that of several laws: a plan runs in the dtypes that it was made for."""
        outcome = OUTCOMES[law.name]
        return lambda *arguments: (outcome(self.unplanned, *arguments),), outcome.__name__

    def strategy(self, kind: str, domain: str) -> SearchStrategy[Recipe]:
        """Draw `arguments`, or `cotangents` for the results."""
        return self.drawn.strategy(domain) if kind == "arguments" else arrays(domain)

    def build(self, kind: str, recipe: Recipe) -> Any:
        """Fill the arrays."""
        return self.drawn.build(recipe) if kind == "arguments" else build_arrays(self.outputs, recipe)

    def show(self, kind: str, recipe: Recipe) -> str:
        """Domain, seed and types."""
        return self.drawn.show(recipe) if kind == "arguments" else show_arrays(self.outputs, recipe)

    def simplest(self, kind: str, recipe: Recipe, fails: Callable[[Recipe], bool]) -> Recipe:
        """Write small operands out, and make them simpler."""
        return self.drawn.simplest(recipe, fails) if kind == "arguments" else recipe

    def is_exact(self, kind: str, recipe: Recipe) -> bool:
        """Whether the arrays are small integers."""
        return self.drawn.is_exact(recipe) if kind == "arguments" else is_exact_recipe(recipe)


def outputs(run: Run, leaves: Sequence[Any]) -> list[Any]:
    """The results."""
    return run(leaves)


def both_ways(run: Run, leaves: Sequence[Any]) -> list[Any]:
    """The results, then those of the arguments turned around."""
    return [*run(leaves), *run([jnp.flip(leaf) for leaf in leaves])]


def slopes(run: Run, leaves: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """The gradient of the results' product with the cotangents, by every inexact argument."""
    inexact = [is_inexact(leaf) for leaf in leaves]

    def flat(xs: list[Any]) -> list[Any]:
        given = iter(xs)
        results = run([next(given) if chosen else leaf for leaf, chosen in zip(leaves, inexact, strict=True)])
        return [leaf for leaf in results if is_inexact(leaf)]

    values, pull = jax.vjp(flat, [jnp.asarray(leaf) for leaf, chosen in zip(leaves, inexact, strict=True) if chosen])
    weights = [leaf for leaf in cotangents if is_inexact(leaf)]
    return pull([jnp.asarray(w, value.dtype) for w, value in zip(weights, values, strict=True)])[0]


OUTCOMES: dict[str, Callable[..., list[Any]]] = {
    "plan.values": outputs,
    "plan.blocks": outputs,
    "plan.gradients": slopes,
    "plan.nesting": outputs,
    "plan.retry": outputs,
    "plan.mapping": both_ways,
    "plan.blocking": outputs,
    "plan.streamed": outputs,
    "plan.clustered": outputs,
}


def _of_size(result: Any, shape: Sequence[int]) -> Any:
    """A result without the padding that a plan may store it with, and without any gradient of that."""
    fits = np.ndim(result) == len(shape) and all(size >= known for size, known in zip(result.shape, shape, strict=True))
    return result[tuple(map(slice, shape))] if fits and result.shape != tuple(shape) else result


def is_inexact(leaf: Any) -> bool:
    """Whether an array or a type has numbers that can be differentiated by."""
    return bool(jnp.issubdtype(jnp.result_type(leaf), jnp.inexact))
