"""Fields of configurations: what each should be, all that are wrong told at once."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from combinators.arguments import is_real, is_whole, read_flag
from combinators.errors import GraphError, message, spelt
from tapestry_jax.nnx.options import read_dtypes


def read_fields(
    config: Any,
    sizes: Collection[str],
    *,
    derived: Collection[str] = (),
    positive: Collection[str] = (),
    flags: Collection[str] = (),
) -> None:
    """Hold fields of a frozen configuration against what they should be, and keep them as Python's own numbers.

    Args:
      config: whose fields `dtype` and `param_dtype` are read, too.
      sizes: whole numbers from 1 on.
      derived: of these, those that may be None.
      positive: numbers above 0.
      flags: True or False.

    Raises:
      GraphError: where some are not.
    """
    own, wrong = type(config).__name__, list[str]()
    for name in sizes:
        size: Any = getattr(config, name)
        if is_whole(size) and size >= 1:
            object.__setattr__(config, name, int(size))
        elif size is not None or name not in derived:
            wrong.append(f"{name} is {spelt(size, 40)}, expected at least 1")
    for name in positive:
        number: Any = getattr(config, name)
        if is_real(number) and 0 < number < float("inf"):
            object.__setattr__(config, name, float(number))
        else:
            wrong.append(f"{name} is {spelt(number, 40)}, expected a positive number")
    check(own, wrong)
    for name in flags:
        object.__setattr__(config, name, read_flag(getattr(config, name), f"{name}= of {own}"))
    read_dtypes(config.dtype, config.param_dtype, f"of {own}")


def check(own: str, wrong: Collection[str]) -> None:
    """Tell all that is wrong.

    Raises:
      GraphError: where there is something.
    """
    if wrong:
        raise GraphError(message(f"{own}: no such model", *wrong, remedy="Choose other sizes."))


def check_divides(config: Any, *pairs: tuple[str, str]) -> None:
    """The first field of each pair divides the second one.

    Raises:
      GraphError: where one does not.
    """
    wrong = list[str]()
    for name, whole in pairs:
        part, total = getattr(config, name), getattr(config, whole)
        if total % part:
            wrong.append(f"{name} is {part}, which does not divide {whole}, {total}")
    check(type(config).__name__, wrong)


def read_config(config: Any, kind: type, example: str) -> None:
    """Refuse what is no configuration of a model.

    Raises:
      GraphError: then.
    """
    if not isinstance(config, kind):
        details = (f"expected a {kind.__name__}", f"got {type(config).__name__}: {spelt(config)}")
        own = kind.__name__.removesuffix("Config")
        raise GraphError(message(f"config= of {own} is not what it should be", *details, remedy=f"Pass {example}."))
