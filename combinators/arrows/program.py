"""Programs: arrows written with names, as a function of values (the proc notation of arrows)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, overload

import jax

from combinators.arrows.arrow import Arrow
from combinators.arrows.faces import Face
from combinators.arrows.signature import Claim
from combinators.errors import SignatureError, message
from combinators.index_space.signature import Signature, read_signature
from combinators.kernels.kernel import short_name
from combinators.recording.current import trace_of


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
            return self._run(values)

    def apply_top(self, *values: Any) -> Any:
        """Run the function without a scope: it is the whole program, and its signature names its inputs."""
        return self._run(values)

    def _run(self, values: Sequence[Any]) -> Any:
        if self.signature is None:
            return self.function(*values)
        claim = Claim.of(self.name, self.signature, values, trace_of(values, self.name).depth)
        result = claim.agreed(self.function(*values))
        claim.check(result)
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
      >>> from combinators import Map
      >>> from combinators import einsum
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
