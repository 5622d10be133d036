"""Mixed precision: which parameters and arguments a program computes with in which dtype, stated by path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from combinators.arguments import read_name
from combinators.errors import message, spelt
from combinators.frozen import dataclass
from combinators.index_space.tensor_type import TensorType
from combinators.operations.widening import float_dtype
from tapestry_jax.nnx.training.errors import TrainingError
from tapestry_jax.nnx.training.results import by_path


@dataclass(frozen=True)
class Precision:
    """Dtypes by path; everything is stored as it is, and turned into them where a program reads it.

    Attributes:
      rules: path and dtype; None leaves what lies there as it is. `""` is everything, and of several the longest that
        fits holds. A name in a path may be a pattern, as file names are: `decoder.*.mlp`.
    """

    rules: tuple[tuple[str, str | None], ...]

    def held(self, held: Any) -> Any:
        """The state of a model as a program computes with it: its parameters, but no running statistics."""
        flat = zip(nnx.to_flat_state(held), by_path(held), strict=True)
        return nnx.from_flat_state(
            [
                (at, variable.replace(self._cast(variable.get_value(), path)) if _is_param(variable) else variable)
                for (at, variable), path in flat
            ]
        )

    def batch(self, names: Sequence[str], batch: Sequence[Any]) -> list[Any]:
        """The arguments of a batch, arrays or their types, by their names."""
        return [
            jax.tree.map(lambda leaf, name=name: self._cast(leaf, name), given, is_leaf=_is_type)
            for name, given in zip(names, batch, strict=True)
        ]

    @property
    def scales(self) -> bool:
        """Whether gradients may be too small for a dtype."""
        return any(dtype == "float16" for _, dtype in self.rules)

    def check(self, params: Any, names: Sequence[str]) -> None:
        """Every path means something.

        Raises:
          TrainingError: listing all that do not.
        """
        known = [*by_path(params), *names]
        lost = [path for path, _ in self.rules if not any(_fits(path, each) for each in known)]
        if lost:
            details = ("nothing is at " + ", ".join(f"`{path}`" for path in lost), f"there is {', '.join(known[:8])}")
            remedy = "Name parameters, modules around them, or arguments of the loss."
            raise TrainingError(message("precision= of a trainer names what is not there", *details, remedy=remedy))

    def _cast(self, leaf: Any, path: str) -> Any:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf
        fitting = [(len(rule.split(".")) * bool(rule), dtype) for rule, dtype in self.rules if _fits(rule, path)]
        dtype = max(fitting, key=lambda rule: rule[0], default=(0, None))[1]
        if dtype is None or leaf.dtype == dtype:
            return leaf
        if isinstance(leaf, TensorType):
            return TensorType.make(leaf.names, leaf.shape, dtype)
        return jax.ShapeDtypeStruct(leaf.shape, dtype) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf.astype(dtype)


def read_precision(precision: Any) -> Precision:
    """Read `dtype | {path: dtype | None}`.

    Raises:
      TrainingError: for what is no dtype of floats.
    """
    if precision is None:
        return Precision(())
    if not isinstance(precision, Mapping):
        return Precision((("", _read(precision, "precision=")),))
    found: dict[Any, Any] = dict(precision)  # pyright: ignore[reportUnknownArgumentType]
    return Precision(
        tuple(
            (
                "" if path == "" else read_name(path, "a path in precision=", TrainingError),
                None if dtype is None else _read(dtype, f"precision[{path!r}]"),
            )
            for path, dtype in found.items()
        )
    )


def _read(dtype: Any, where: str) -> str:
    found = float_dtype(dtype)
    if found is None or found.itemsize < 2:
        details = (f"got {spelt(dtype)}",)
        remedy = "Pass one that programs compute in, such as jnp.bfloat16, or a mapping from paths to it."
        raise TrainingError(message(f"{where} of a trainer is no dtype of floats", *details, remedy=remedy))
    return found.name


def _fits(rule: str, path: str) -> bool:
    """Whether a path lies at a rule, or inside of it."""
    parts, names = rule.split(".") if rule else [], path.split(".")
    return len(parts) <= len(names) and all(map(fnmatchcase, names, parts))


def _is_param(variable: Any) -> bool:
    return isinstance(variable, nnx.Param)


def _is_type(leaf: Any) -> bool:
    return isinstance(leaf, TensorType)
