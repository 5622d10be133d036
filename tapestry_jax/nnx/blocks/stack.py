"""Layers of one structure, stacked: their parameters have a leading dimension, and one loop runs them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from combinators.arguments import read_count, read_dimension, read_function, read_list
from combinators.arrows.loops import stack
from combinators.arrows.repeated import record_loop, sliced_axis
from combinators.equations.scanned import scan
from combinators.errors import GraphError, message, spelt
from combinators.frozen import dataclass
from combinators.index_space.tensor_type import TensorType
from combinators.recording.value import Value
from tapestry_jax.nnx.modules.module import Module
from tapestry_jax.nnx.modules.symbolic import merge, state_types
from tapestry_jax.nnx.modules.written import check_complete
from tapestry_jax.nnx.options import read_rngs


class Stack(Module):
    """Layers one after the other, as one `tp.stack`: traced, planned and compiled once for all of them.

    The parameters are those of one layer with a leading dimension, `layer.attention.query.kernel` for instance with
    `(layer, embed, heads, head_dim)`. A plan may place it (`{"layer": "stage"}` is a pipeline), gather the parameters
    layer by layer (`tp.fsdp`), and compute layers again in the backward pass (`remat=`).

    Args:
      layers: modules of one structure, each from one value to one of its type; their parameters are copied.
      over: the name of the new dimension.

    Raises:
      GraphError: where the layers are none, or differ in structure, names, shapes or dtypes.

    Example:
      >>> from tapestry_jax.nnx.projections.mlp import MLP
      >>> model = Stack([MLP(4, 8, rngs=nnx.Rngs(seed)) for seed in range(3)])
      >>> model.layer.up.kernel.shape
      (3, 4, 8)
    """

    def __init__(self, layers: Any, over: str = "layer") -> None:
        self.over = read_dimension(over, "over= of Stack")
        if isinstance(layers, _Made):
            self.length, made = layers.length, layers
        else:
            listed = list(layers) if isinstance(layers, nnx.List) else read_list(layers, "layers= of Stack")
            self.length, made = len(listed), _stacked(listed)
        self.layer = _named(made, self.over)

    @classmethod
    def of(cls, make: Callable[[nnx.Rngs], Any], length: int, over: str = "layer", *, rngs: nnx.Rngs) -> Stack:
        """Make the layers in a loop, which is traced once: what a stack of many, or of large ones, begins with.

        The parameters are those of `Stack([make(rngs) for _ in range(length)])`, to the rounding of initializers; they
        never exist twice.

        Args:
          make: a layer, initialised from the random numbers that it is given.
          length: how many layers.
          over: the name of the new dimension.
          rngs: what the layers draw from, one after the other.

        Raises:
          GraphError: where `make` gives no module of ours, or `length` is not positive.
        """
        make, rngs = read_function(make, "make= of Stack.of"), read_rngs(rngs, "of Stack.of")
        length = read_count(length, "length= of Stack.of")
        return cls(_made(make, length, rngs), over)

    @property
    def signature(self) -> str | None:
        """That of a layer."""
        return self.layer.signature

    @property
    def sizes(self) -> Mapping[str, int]:
        """Those of a layer."""
        return self.layer.sizes

    def forward(self, x: Value) -> Value:
        """Run the layers one after the other."""
        graphdef, state = nnx.split(self.layer)
        variables = [variable for _, variable in nnx.to_flat_state(state)]
        values = [variable.get_raw_value() for variable in variables]
        written: list[int] = []

        def layer(carry: Value, *slices: Value) -> tuple[Value, list[Value]]:
            module = merge(graphdef, state, slices)
            y = module.forward(carry)
            after = check_complete(module, slices)
            written[:] = [at for at, (new, old) in enumerate(zip(after, slices, strict=True)) if new is not old]
            return y, [after[at] for at in written]

        loop = stack(lambda carry: carry, self.length, self.over, name="layer")
        stacked = [(value, sliced_axis(value, self.over, self.length, loop.name)) for value in values]
        tree = jax.tree.structure(tuple(values))
        y, news = record_loop(loop, layer, x, stacked, length=self.length, over=self.over, stacked_tree=tree)
        for at, new in zip(written, news, strict=True):
            variables[at].set_raw_value(new)
        return y


@dataclass(frozen=True)
class _Made:
    """One module with the parameters of all layers, each along a first dimension that has no name yet.

    Attributes:
      layer: the module.
      types: of the parameters of one layer, by path.
      length: how many layers.
    """

    layer: Any
    types: dict[str, TensorType]
    length: int


def _stacked(layers: Sequence[Any]) -> _Made:
    """Layers that exist already."""
    if not layers:
        raise _no_layers("got none")
    for layer in layers:
        _check_module(layer)
    types = _types(layers[0])
    for number, layer in enumerate(layers[1:], 1):
        _check_alike(types, layers[0], layer, number)
    graphdef, state = nnx.split(layers[0])
    arrays = zip(*(jax.tree.leaves(nnx.state(layer)) for layer in layers), strict=True)
    stacked = jax.tree.unflatten(jax.tree.structure(state), [*map(jnp.stack, arrays)])
    return _Made(nnx.merge(graphdef, stacked), types, len(layers))


def _made(make: Callable[[nnx.Rngs], Any], length: int, rngs: nnx.Rngs) -> _Made:
    """Layers that are initialised one after the other, in a loop."""
    drawing, before = nnx.split(rngs)
    seen: list[tuple[Any, dict[str, TensorType]]] = []

    def turn(numbers: Any, _: None) -> tuple[Any, Any]:
        own: Any = nnx.merge(drawing, numbers)
        layer = make(own)
        _check_module(layer)
        graphdef, state = nnx.split(layer)
        seen.append((graphdef, _types(layer)))
        return nnx.state(own), state

    after, state = scan(turn, before, length=length)
    nnx.update(rngs, after)
    graphdef, types = seen[-1]
    return _Made(nnx.merge(graphdef, state), types, length)


def _named(made: _Made, over: str) -> Any:
    """The module, whose parameters name the new dimension."""
    taken = [path for path, kind in made.types.items() if over in kind.names]
    if taken:
        raise _no_layers(
            f"`{taken[0]}` has a dimension `{over}` already", remedy="Call the new dimension otherwise: over=."
        )
    _name(made.layer, over, made.types)
    return made.layer


def _check_module(layer: Any) -> None:
    if not isinstance(layer, Module):
        raise _no_layers(f"got {type(layer).__name__}: {spelt(layer)}")


def _types(layer: Module) -> dict[str, TensorType]:
    paths = [".".join(map(str, path)) for path, _ in nnx.to_flat_state(nnx.state(layer))]
    return dict(zip(paths, jax.tree.leaves(state_types(layer)), strict=True))


def _check_alike(types: dict[str, TensorType], first: Module, layer: Module, number: int) -> None:
    own = _types(layer)
    differing = [path for path in {**types, **own} if types.get(path) != own.get(path)]
    if differing:
        path = differing[0]
        raise _no_layers(f"`{path}` is {types.get(path)} in layer 0 and {own.get(path)} in layer {number}")
    if nnx.graphdef(layer) != nnx.graphdef(first):
        raise _no_layers(f"layer {number} is built otherwise than layer 0")


def _name(module: Module, over: str, types: dict[str, TensorType]) -> None:
    """Put the new dimension before the names of all parameters that have names."""
    parts = dict(nnx.iter_modules(module))
    for path, variable in list(nnx.iter_graph(module)):
        kind = types.get(".".join(map(str, path))) if isinstance(variable, nnx.Variable) else None
        if kind is None or None in kind.names:
            continue
        variable.set_metadata(dims=(over, *kind.names))
        parent = parts.get(path[:-1])
        if isinstance(parent, Module) and isinstance(path[-1], str):
            # The module itself knows the names of its parameters, too.
            setattr(parent, path[-1], variable)


def _no_layers(
    *details: str, remedy: str = "Give modules of one structure, such as those of an nnx.List."
) -> GraphError:
    return GraphError(message("these are no layers that can be stacked", *details, remedy=remedy))
