"""What a call writes to nnx modules: a further result where that is wanted, and else refused."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax

from combinators.errors import GraphError, message
from combinators.graphs.graph import Graph
from combinators.recording.function import label_of
from tapestry_jax.lifting.callables.arguments import is_nnx
from tapestry_jax.lifting.callables.layers import layers_of
from tapestry_jax.lifting.callables.passed import origin

HELD = "params"
"""What the arrays are called that are lifted with their module."""


def modules_of(lifted: Any, args: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    """The nnx modules that a call can write, by name: the lifted one, and those among its arguments."""
    found = {HELD: lifted} if is_nnx(lifted) else {}
    for name, arg in zip(names, args, strict=True):
        leaves = jax.tree_util.tree_flatten_with_path(arg, is_leaf=is_nnx)[0]
        found |= {label_of(name, path): leaf for path, leaf in leaves if is_nnx(leaf)}
    return found


class Watch:
    """Sees the variables of modules before a call, and what was written after it.

    Args:
      modules: by name.
      name: of what is called.
      is_wanted: whether what is written becomes a result.
      decided: of variables that hold other arrays after a call, whether these are others: transformations of nnx put
        back what they were given.
    """

    def __init__(self, modules: Mapping[str, Any], name: str, is_wanted: bool, decided: Mapping[str, bool]) -> None:
        self._modules, self._is_wanted, self._decided = modules, is_wanted, decided
        self._before = {label: _variables(module) for label, module in modules.items()}
        if is_wanted and not modules:
            raise GraphError(
                message(
                    f"state=True of tp.lift: `{name}` has no module to write to",
                    "what is written are variables of modules of flax.nnx, and collections of linen",
                    remedy="Lift a module, or a function of one; leave state= out where the function returns it.",
                )
            )

    def open(self) -> dict[str, Any]:
        """The arrays after a call, by input, of which nobody has decided whether they were written."""
        found = {
            _input(label, path): _array(variable)
            for label in self._modules
            for path, variable in self._written(label).items()
            if path in self._before[label]
        }
        return {label: array for label, array in found.items() if label not in self._decided}

    def after(self, result: Any) -> tuple[Any, list[str]]:
        """The results, with what was written behind them where that is wanted; and counts that are lost.

        Raises:
          GraphError: for what is written, not wanted, and not among the results.
        """
        written = {label: self._written(label) for label in self._modules}
        if self._is_wanted:
            states = {label: _state(written[label]) for label in self._modules}
            return (result, states[HELD] if list(states) == [HELD] else states), []
        returned = {id(leaf) for leaf in jax.tree.leaves(result)}
        lost: list[str] = []
        for label, module in self._modules.items():
            for path, variable in written[label].items():
                if id(_array(variable)) in returned:
                    continue
                if not _is_count(variable) or path not in self._before[label]:
                    raise _lost(".".join(map(str, path)), type(module).__name__, is_parameter=_is_parameter(variable))
                lost.append(_input(label, path))
        return result, lost

    def _written(self, label: str) -> dict[tuple[Any, ...], Any]:
        before = {path: id(leaf) for path, leaf in self._before[label].items()}
        after = _flat(self._modules[label])
        return {
            path: found
            for path, found in after
            if before.get(path) != id(_array(found)) and self._decided.get(_input(label, path), True)
        }


def decide(jaxpr: Any, labels: Sequence[str], inputs: Sequence[str]) -> dict[str, bool]:
    """For each variable whether the last results of a jaxpr, one for each, are others than its inputs."""
    results = jaxpr.outvars[len(jaxpr.outvars) - len(labels) :]
    found = [origin(jaxpr, result) for result in results]
    return {label: at is None or inputs[at] != label for label, at in zip(labels, found, strict=True)}


def check_counts(graph: Graph, counts: Iterable[str]) -> None:
    """Refuse counts of random numbers that are lost where a result depends on them: each call would draw the same.

    Raises:
      GraphError: naming the first one.
    """
    read = {ref for node in graph.nodes for ref in node.operands}
    inputs = [
        node.name for at, node in enumerate(graph.nodes) if node in graph.inputs and any(r.node == at for r in read)
    ]
    used = {own for name in inputs for own in layers_of(name) or [name]}
    for label in counts:
        if label in used:
            root, _, path = label.partition("/")
            raise _lost(path.replace("/", "."), graph.name if root == HELD else f"`{root}`")


def _input(label: str, path: Sequence[Any]) -> str:
    return "/".join(map(str, (label, *path)))


def _lost(path: str, module: str, *, is_parameter: bool = False) -> GraphError:
    remedy = "Take it as a second result, tp.lift(..., state=True)"
    # What normalises a parameter in its place, as nnx.WeightNorm does, writes when a model is evaluated as well.
    remedy += "." if is_parameter else "; or call model.eval() first."
    return GraphError(
        message(f"the call writes `{path}` of a module, which a graph would lose", f"got {module}", remedy=remedy)
    )


def _flat(module: Any) -> list[tuple[tuple[Any, ...], Any]]:
    nnx: Any = sys.modules["flax.nnx"]
    return list(nnx.to_flat_state(nnx.state(module)))


def _variables(module: Any) -> dict[tuple[Any, ...], Any]:
    return {path: _array(variable) for path, variable in _flat(module)}


def _array(variable: Any) -> Any:
    """What identifies what a variable holds: its array, or the first of several."""
    return next(iter(jax.tree.leaves(variable)), None)


def _is_parameter(variable: Any) -> bool:
    nnx: Any = sys.modules["flax.nnx"]
    kind = getattr(variable, "type", type(variable))
    return isinstance(kind, type) and issubclass(kind, nnx.Param)


def _is_count(variable: Any) -> bool:
    nnx: Any = sys.modules["flax.nnx"]
    return isinstance(variable, nnx.RngCount) or getattr(variable, "type", None) is nnx.RngCount


def _state(written: Mapping[tuple[Any, ...], Any]) -> Any:
    nnx: Any = sys.modules["flax.nnx"]
    return nnx.from_flat_state(written.items())
