"""A planned program that takes arguments of any sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from combinators.arguments import read_dimension, read_flag
from combinators.arrows.arrow import Arrow
from combinators.arrows.tracing import trace
from combinators.errors import GraphError, PlanError, message, spelt
from combinators.graphs.evaluate import flatten_arguments
from combinators.graphs.graph import Graph
from combinators.index_space.tensor_type import TensorType, type_of
from combinators.kernels.immutable import Immutable
from tapestry_jax.lifting.lift import lift
from tapestry_jax.lowering.compiled import Compiled
from tapestry_jax.plan import Plan
from tapestry_jax.resizing.replan import replan


def planned(
    plan: Plan,
    program: Any,
    *specs: Any,
    names: str | Mapping[str, Any] | None = None,
    state: bool = False,
    stack: str | None = None,
    maps: bool = False,
) -> Planned:
    """Run a plan on arguments of other sizes too: the last batch of an epoch, evaluation, other lengths.

    The first call with new sizes traces the program again, plans it with what the plan was asked for, by hand or by
    search, proves that plan and compiles it; nothing is searched. Calls with sizes that were there before run at once.

    Args:
      plan: for some sizes.
      program: what its graph was made of: an arrow, a `tp.program` or a module of `tp.nnx`, which is traced; or a
        function or module that is lifted.
      specs: as `tp.trace` and `tp.lift` were given them; names of axes and modules are taken from them, no sizes.
      names: as `tp.lift` was given them.
      state: as `tp.lift` was given it.
      stack: as `tp.lift` was given it.
      maps: as `tp.lift` was given it.

    Returns:
      A function of the arguments that `plan.compile()` takes.

    Raises:
      PlanError: when `plan` is none.

    Example:
      >>> from jax.sharding import AbstractMesh
      >>> import tapestry_jax as tp
      >>> product = tp.einsum("i k, k n -> i n")
      >>> types = tp.TensorType({"i": 8, "k": 4}), tp.TensorType({"k": 4, "n": 6})
      >>> plan = tp.plan(tp.trace(product, *types), AbstractMesh((2,), ("data",)), {"i": "data"})
      >>> last = planned(plan, product, *types).plan(jax.numpy.ones((5, 4)), jax.numpy.ones((4, 6)))
      >>> print(last.graph.inputs[0].results[0], last.entries == plan.entries)
      float32(i=5, k=4) True
    """
    if not isinstance(plan, Plan):  # pyright: ignore[reportUnnecessaryIsInstance]
        details = f"got {type(plan).__name__}: {spelt(plan)}"
        raise PlanError(message("tp.planned takes a plan first", details, remedy="Write tp.planned(plan, f, *specs)."))
    if not callable(program) and not isinstance(program, Arrow):
        details = f"got {type(program).__name__}: {spelt(program)}"
        remedy = "Pass the arrow, module or function that the graph of the plan was made of."
        raise PlanError(message("tp.planned traces a program again for other sizes", details, remedy=remedy))
    for spec in specs:
        _check_spec(spec)
    if names is not None and not isinstance(names, str | Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        details = ("expected a signature, or a mapping of inputs to names", f"got {spelt(names)}")
        raise PlanError(message("names= of tp.planned", *details, remedy="Write them as for tp.lift."))
    lifted = {
        "names": names,
        "state": read_flag(state, "state= of tp.planned"),
        "stack": None if stack is None else read_dimension(stack, "stack= of tp.planned"),
        "maps": read_flag(maps, "maps= of tp.planned"),
    }
    return Planned(plan, program, specs, lifted)


def _check_spec(spec: Any) -> None:
    """Refuse what is a leaf of no arguments: neither has it a shape, nor is it a number or a module."""
    for leaf in jax.tree.leaves(spec):
        is_type = hasattr(leaf, "shape") or isinstance(leaf, bool | int | float | complex | str)
        if not is_type and type(leaf) is object:
            details = f"got {type(leaf).__name__}: {spelt(leaf)}"
            remedy = "Pass a jax.ShapeDtypeStruct, a tp.TensorType or an array."
            raise PlanError(message("tp.planned takes the types of the arguments", details, remedy=remedy))


class Planned(Immutable):
    """What `planned` returns; `again` is how it plans other sizes."""

    def __init__(
        self,
        plan: Plan,
        program: Any,
        specs: Sequence[Any],
        lifted: Mapping[str, Any],
        again: Callable[[Plan, Graph], Plan] = replan,
    ) -> None:
        self._first, self._program, self._specs, self._lifted = plan, program, tuple(specs), lifted
        self._again = again
        self._plans: dict[Any, Plan] = {_sizes([node.results[0] for node in plan.graph.inputs]): plan}
        self._compiled: dict[Any, Compiled] = {}

    def __call__(self, *args: Any) -> Any:
        """Run the program on arrays; `grad` and an enclosing `jit` work.

        Raises:
          GraphError: for a wrong number, structure or rank of arguments.
          PlanError: for sizes at which it is another program, or that cannot be planned so.
          MeshError: when the mesh has no devices.
        """
        key, plan = self._find(args)
        if key not in self._compiled:
            self._compiled[key] = plan.compile()
        return self._compiled[key](*args)

    def plan(self, *args: Any) -> Plan:
        """The plan for arguments of these sizes, with what each of them is asked for by the first.

        Args:
          args: arrays or `jax.ShapeDtypeStruct`s.
        """
        return self._find(args)[1]

    def _find(self, args: Sequence[Any]) -> tuple[Any, Plan]:
        kinds = [type_of(leaf, "an argument") for leaf in flatten_arguments(self._first.graph, args)]
        key = _sizes(kinds)
        if key not in self._plans:
            _check_ranks(self._first.graph, kinds)
            self._plans[key] = self._again(self._first, self._retraced(args))
        return key, self._plans[key]

    def _retraced(self, args: Sequence[Any]) -> Graph:
        own = args[len(args) - len(self._specs) :]
        specs = [_resized(spec, arg) for spec, arg in zip(self._specs, own, strict=True)]
        if isinstance(self._program, Arrow) or hasattr(self._program, "__tapestry_arrow__"):
            return trace(self._program, *specs)
        return lift(self._program, *specs, **self._lifted)

    def __repr__(self) -> str:
        return f"tp.planned({self._first!r}, ...)"


def _check_ranks(graph: Graph, kinds: Sequence[TensorType]) -> None:
    """Refuse arguments that have another number of axes: sizes may be others, and nothing else."""
    wrong = [
        f"{node.name}: expected {node.results[0]} in any sizes, got {kind.dtype.name}{kind.shape}"
        for node, kind in zip(graph.inputs, kinds, strict=True)
        if len(node.results[0].shape) != len(kind.shape)
    ]
    if wrong:
        remedy = "Pass arrays with as many axes; a program of other axes has a plan of its own."
        raise GraphError(message(f"`{graph.name}` was planned for arguments of other ranks", *wrong, remedy=remedy))


def _sizes(types: Sequence[TensorType]) -> Any:
    return tuple((kind.shape, kind.dtype) for kind in types)


def _resized(spec: Any, arg: Any) -> Any:
    """What was traced for, with the sizes of an argument; modules, which have their own, stay."""
    leaves, tree = jax.tree.flatten(spec, is_leaf=_is_type)
    given = jax.tree.leaves(arg)
    if hasattr(spec, "__tapestry_split__") or callable(spec) or len(leaves) != len(given):
        return spec
    return jax.tree.unflatten(tree, [_like(old, new) for old, new in zip(leaves, given, strict=True)])


def _like(old: Any, new: Any) -> Any:
    if isinstance(old, TensorType):
        return TensorType.make(old.names, jax.numpy.shape(new), old.dtype)
    if not hasattr(old, "shape"):
        return old
    return jax.ShapeDtypeStruct(jax.numpy.shape(new), old.dtype)


def _is_type(leaf: Any) -> bool:
    return isinstance(leaf, TensorType)
