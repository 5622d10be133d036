"""The base of modules whose forward pass is a program of arrows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
from flax import nnx

from combinators.arrows.arrow import Arrow
from combinators.errors import GraphError, message
from combinators.recording.value import Value
from tapestry_jax.nnx.modules.arrow import arrow_of
from tapestry_jax.nnx.modules.symbolic import is_symbolic, program_of, scope_of, split
from tapestry_jax.nnx.modules.written import check_unguarded


class Module(nnx.Module):
    """A `flax.nnx` module whose forward pass is a program, and which is an arrow itself.

    A subclass makes parameters with dimension names, `nnx.Param(array, dims=("embed", "mlp"))`, and writes `forward` on
    values: arithmetic aligned by name, leaves, other modules. `self.kernel[...]` is then the parameter as a value.
    Called on arrays, a module is traced once per structure and types and runs as an ordinary JAX function: `nnx.jit`,
    `nnx.grad`, `nnx.state`, optax and Orbax see a Flax module.

    The forward pass may write all of a variable, `self.mean[...] = mean`: it is a further result of the program. A call
    on arrays stores it, as one of Flax does; `run = plan.compile()` gives a pair, `y, written = run(nnx.state(model),
    x)`, for `nnx.update(model, written)`. To set an attribute, or to sow, is an error.

    Attributes:
      signature: what `forward` takes and gives, or None. Its names are given to axes of inputs that have none; up to
        two leading dimensions of `...` are called `batch` and `seq` where it does not use these names itself.
      sizes: sizes of names of the signature that the module fixes; they are checked when arrows are composed.
    """

    @property
    def signature(self) -> str | None:
        """What `forward` takes and gives."""
        return None

    @property
    def sizes(self) -> Mapping[str, int]:
        """Sizes of the signature's names that the module fixes."""
        return {}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The forward pass: values of a program to values of it."""
        del args, kwargs
        raise GraphError(
            message(
                f"{type(self).__name__} does not define forward",
                "a plan is made of the forward pass as a program; `__call__` runs it",
                remedy="Write def forward(self, x), and leave `__call__` to tp.nnx.Module.",
            )
        )

    def __setattr__(self, name: str, value: Any) -> None:
        check_unguarded(self, name)
        super().__setattr__(name, value)
        dims = value.get_metadata().get("dims") if isinstance(value, nnx.Variable) else None
        if isinstance(dims, tuple | list) and dims:
            # `nnx.update` with the state of another library's module drops metadata; the names stay known here.
            declared: dict[str, Any] = dict(getattr(self, "declared_dims", ())) | {name: tuple(dims)}
            super().__setattr__("declared_dims", tuple(sorted(declared.items())))

    def __call__(self, *args: Any) -> Any:
        """Apply to values of a program, inside which it makes a scope, or run on arrays."""
        if is_symbolic(self):
            program = program_of(self, args, scope_of(self))
            return program.apply(*args) if scope_of(self) else program.apply_top(*args)
        arrow = arrow_of(self)
        if any(isinstance(leaf, Value) for leaf in jax.tree.leaves(args)):
            return arrow.apply(*args)
        return arrow(*args)

    # What makes it an arrow.

    def __tapestry_arrow__(self) -> Arrow[Any, Any]:
        return arrow_of(self)

    def __tapestry_split__(self) -> tuple[Any, Callable[[Any], Any], Callable[[Any, Any, Any], Any]]:
        return split(self)

    def __rshift__(self, other: Any) -> Arrow[Any, Any]:
        return self.__tapestry_arrow__() >> other

    def __mul__(self, other: Any) -> Arrow[Any, Any]:
        return self.__tapestry_arrow__() * other

    def __and__(self, other: Any) -> Arrow[Any, Any]:
        return self.__tapestry_arrow__() & other

    def __or__(self, other: Any) -> Arrow[Any, Any]:
        return self.__tapestry_arrow__() | other

    def first(self) -> Arrow[Any, Any]:
        """`(operands of self, c) -> (self, c)`: the last operand passes through."""
        return self.__tapestry_arrow__().first()

    def second(self) -> Arrow[Any, Any]:
        """`(c, operands of self) -> (c, self)`: the first operand passes through."""
        return self.__tapestry_arrow__().second()

    def left(self) -> Arrow[Any, Any]:
        """Acts on the left case of an `Either`, and leaves the right one."""
        return self.__tapestry_arrow__().left()

    def right(self) -> Arrow[Any, Any]:
        """Acts on the right case of an `Either`, and leaves the left one."""
        return self.__tapestry_arrow__().right()

    def feedback(self, over: str) -> Arrow[Any, Any]:
        """`(x, state) -> (y, state)` becomes `(xs, state) -> (ys, final state)` along the dimension `over`."""
        return self.__tapestry_arrow__().feedback(over)

    def bind(self, *arrays: Any) -> Arrow[Any, Any]:
        """Fix the last operands of `forward`."""
        return self.__tapestry_arrow__().bind(*arrays)
