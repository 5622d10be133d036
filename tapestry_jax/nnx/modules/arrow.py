"""A module as an arrow: its parameters become named inputs of every graph that it is traced into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import jax
from flax import nnx

from combinators.arrows.arrow import Arrow
from combinators.arrows.faces import Face
from combinators.arrows.part import Holder
from combinators.arrows.program import Program
from combinators.graphs.graph import Graph
from combinators.index_space.operand import Operand
from combinators.index_space.signature import Signature
from combinators.recording.current import trace_of
from tapestry_jax.nnx.modules.symbolic import label, merge, program_of, state_types
from tapestry_jax.nnx.modules.written import check_complete, store, written_state

if TYPE_CHECKING:
    from tapestry_jax.nnx.modules.module import Module


class ModuleArrow(Holder, Arrow[Any, Any]):
    """The arrow of a module; `held` is its `nnx.state`, whose inputs are called `params/<path of attributes>`."""

    def __init__(self, module: Module, graphdef: Any) -> None:
        self.module, self.graphdef, self.name = module, graphdef, label(module)
        self._known: dict[Any, tuple[Graph, tuple[int, ...]]] = {}
        self._is_settled = _is_hashable(graphdef)

    @property
    def graphs(self) -> dict[Any, tuple[Graph, tuple[int, ...]]]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The graphs that calls traced; none are kept where attributes change in their places, as lists do."""
        return self._known if self._is_settled else {}

    @property
    def held_name(self) -> str:
        """`params`."""
        return "params"

    @property
    def function(self) -> Callable[..., Any]:
        """The forward pass, whose parameters name the inputs of a graph."""
        return self.module.forward

    def held(self) -> Any:
        """The module's state as it is now."""
        return nnx.state(self.module)

    def held_types(self) -> Any:
        """The types of the state, with dimension names."""
        return state_types(self.module)

    @property
    def arity(self) -> int | None:
        """The operands of the declared signature, or the parameters of `forward`."""
        return Program(self.module.forward, self._signature()).arity

    def takes(self) -> Sequence[Face] | None:
        """The operands of the declared signature."""
        signature = self._signature()
        return None if signature is None else self._faces(signature.operands)

    def gives(self) -> Sequence[Face] | None:
        """The results of the declared signature."""
        signature = self._signature()
        return None if signature is None else self._faces(signature.results)

    def apply(self, *values: Any) -> Any:
        """Run the forward pass inside the program that `values` belong to, in a scope called after the class."""
        return self._run(values, whole=False)

    def apply_top(self, *values: Any) -> Any:
        """Run the forward pass as the whole program: its signature names the inputs."""
        return self._run(values, whole=True)

    def _run(self, values: Sequence[Any], *, whole: bool) -> Any:
        recording = trace_of(jax.tree.leaves(values), self.name)
        held = recording.held(self)
        module = merge(self.graphdef, held, held)
        program = program_of(module, values, self.name)
        result = program.apply_top(*values) if whole else program.apply(*values)
        after = check_complete(module, held)
        if any(new is not old for new, old in zip(after, jax.tree.leaves(held), strict=True)):
            recording.write(self, jax.tree.unflatten(jax.tree.structure(held), after))
        return result

    def written(self, before: Any, after: Any, result: Any) -> Any:
        """The state of the variables that were written."""
        return written_state(nnx.state(self.module), before, after, result)

    def store(self, written: Any) -> None:
        """Write the variables of the module."""
        store(self.module, written)

    def _signature(self) -> Signature | None:
        text = self.module.signature
        return None if text is None else Signature.parse(text)

    def _faces(self, operands: Sequence[Operand]) -> list[Face]:
        return [Face.of(operand, dict(self.module.sizes)) for operand in operands]

    def __repr__(self) -> str:
        return f"ModuleArrow({type(self.module).__name__})"


def arrow_of(module: Module) -> ModuleArrow:
    """The arrow of a module, the same one for as long as somebody holds it and the module keeps its structure."""
    graphdef = nnx.graphdef(module)
    known = _ARROWS.get(id(module))
    if known is None or known.graphdef != graphdef:
        known = _ARROWS[id(module)] = ModuleArrow(module, graphdef)
    return known


# An arrow holds its module, so an id cannot be given out again while the arrow is here.
_ARROWS: WeakValueDictionary[int, ModuleArrow] = WeakValueDictionary()


def _is_hashable(graphdef: Any) -> bool:
    """Whether a structure stays what it is: attributes such as lists of numbers may change, and have no hash."""
    try:
        hash(graphdef)
    except TypeError:
        return False
    return True
