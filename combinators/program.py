"""Programs: arrows written with names, as a function of values (the proc notation of arrows)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, overload

import jax

from combinators.arrow import Arrow
from combinators.arrow_types import Face
from combinators.errors import CompositionError, SignatureError, message
from combinators.kernels import short_name
from combinators.leaf import read_signature
from combinators.naming import AxisName, AxisVariable, describe, find, unify
from combinators.signature import Signature
from combinators.sizes import solve_sizes
from combinators.trace import trace_of
from combinators.value import Value


class Program(Arrow[Any, Any]):
    """A function of values, as an arrow; see `program`."""

    def __init__(self, function: Callable[..., Any], signature: Signature | None) -> None:
        self.function, self.signature = function, signature
        self.name = short_name(function)
        functools.update_wrapper(self, function)

    @property
    def arity(self) -> int | None:
        """The operands of the signature, or the parameters of the function."""
        if self.signature is not None:
            return len(self.signature.operands)
        try:
            parameters = inspect.signature(self.function).parameters.values()
        except (TypeError, ValueError):
            return None
        kinds = {p.kind for p in parameters}
        if kinds - {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}:
            return None
        return len(list(parameters))

    def takes(self) -> Sequence[Face] | None:
        """The operands of the signature."""
        return None if self.signature is None else [Face.of(operand, {}) for operand in self.signature.operands]

    def gives(self) -> Sequence[Face] | None:
        """The results of the signature."""
        return None if self.signature is None else [Face.of(result, {}) for result in self.signature.results]

    def apply(self, *values: Any) -> Any:
        """Run the function inside the program that `values` belong to, in a scope of its own."""
        with trace_of(jax.tree.leaves(values), self.name).scope(self.name):
            return self._run(values, whole=False)

    def apply_top(self, *values: Any) -> Any:
        """Run the function without a scope: it is the whole program, and its signature names its inputs."""
        return self._run(values, whole=True)

    def _run(self, values: Sequence[Any], *, whole: bool) -> Any:
        if self.signature is None:
            return self.function(*values)
        signature, bound = _bind(self.name, self.signature, values, names_inputs=whole)
        result = self.function(*values)
        _check_results(self.name, signature, bound, result)
        return result

    def __repr__(self) -> str:
        return f"Program({self.name}{'' if self.signature is None else ': ' + str(self.signature)})"


@overload
def program(signature: Callable[..., Any]) -> Program: ...
@overload
def program(signature: str | Signature | None = None) -> Callable[[Callable[..., Any]], Program]: ...
def program(signature: Any = None) -> Any:
    """Make an arrow of a function of values: `@tp.program("b e, e m -> b m")` or plain `@tp.program`.

    Args:
      signature: what the function takes and gives. Its names are local, and name what is anonymous in the inputs.

    Raises:
      SignatureError: when the signature cannot be read, or takes coordinates.

    Example:
      >>> import jax.numpy as jnp
      >>> from combinators import Map, einsum
      >>> @program("batch embed, embed mlp -> batch mlp")
      ... def layer(x, w):
      ...     return Map(jnp.tanh)(einsum("b e, e m -> b m")(x, w))
      >>> layer(jnp.zeros((2, 3)), jnp.ones((3, 4))).shape
      (2, 4)
    """
    if callable(signature):
        return Program(signature, None)
    parsed = None if signature is None else _checked(read_signature(signature))
    return lambda function: Program(function, parsed)


def _checked(signature: Signature) -> Signature:
    at = next((operand.coordinate for operand in signature.operands if operand.coordinate is not None), None)
    if at is not None:
        raise SignatureError(
            message(
                f"a program takes no coordinates, and its signature has `@{at}`",
                f"signature {signature}",
                remedy=f'Take them inside, by tp.index("{at}", like=x) or by a leaf with `@{at}`.',
            )
        )
    return signature


def _bind(
    name: str, signature: Signature, values: Sequence[Any], *, names_inputs: bool
) -> tuple[Signature, dict[str, AxisName]]:
    trace_of(values, name)
    if len(values) != len(signature.operands):
        raise SignatureError(
            message(
                f"`{name}` takes {len(signature.operands)} operands, got {len(values)}",
                f"signature {signature}",
                remedy="Pass one value for each operand of the signature.",
            )
        )
    signature = signature.expand(signature.ellipsis_rank([value.ndim for value in values], where=name))
    known = Signature(signature.operands, (), str(signature))
    solve_sizes(known, [value.shape for value in values], where=name)
    bound: dict[str, AxisName] = {}
    for number, (operand, value) in enumerate(zip(signature.operands, values, strict=True)):
        for axis, label in zip(operand.axes, value.axes, strict=True):
            dim = axis.name or axis.whole_name
            if dim is None:
                continue
            found = find(label)
            if isinstance(found, AxisVariable) and found.hint is None and not dim.startswith("..."):
                found.hint = dim
            # Inside another program a name is only suggested: two unrelated tensors may come in under one local name.
            if names_inputs and not dim.startswith("...") and dim not in value.names:
                unify(label, dim) if isinstance(find(label), AxisVariable) else None
            if axis.name is not None and not unify(bound.setdefault(dim, label), label):
                raise CompositionError(
                    message(
                        f"`{name}` takes one `{dim}`: operand {number} has {describe(label)}, an earlier one "
                        f"{describe(bound[dim])}",
                        f"signature {signature}",
                        remedy="Rename one of the operands' axes.",
                    )
                )
    return signature, bound


def _check_results(name: str, signature: Signature, bound: dict[str, AxisName], result: Any) -> None:
    leaves = jax.tree.leaves(result)
    if len(leaves) != len(signature.results):
        raise SignatureError(
            message(
                f"`{name}` returns {len(leaves)} values, its signature names {len(signature.results)}",
                f"signature {signature}",
                remedy="Return one value for each result of the signature.",
            )
        )
    for axes, leaf in zip((r.axes for r in signature.results), leaves, strict=True):
        fits = isinstance(leaf, Value) and leaf.ndim == len(axes)
        if fits:
            for axis, label in zip(axes, leaf.axes, strict=True):
                if axis.name is not None:
                    fits = fits and unify(bound.setdefault(axis.name, label), label)
                elif axis.whole_name is not None and isinstance(found := find(label), AxisVariable):
                    # Whole axes of one name may be several axes, so the name is only suggested.
                    found.hint = found.hint or axis.whole_name
        if not fits:
            raise SignatureError(
                message(
                    f"`{name}` does not return what its signature says",
                    f"signature {signature}",
                    f"expected ({', '.join(map(str, axes))}), got {leaf!r:.120}",
                    remedy="Mend the signature, or what the function returns.",
                )
            )
