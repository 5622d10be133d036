"""Places that hold several tensors: which one is meant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar, cast

from combinators.errors import FormatError, message, spelt
from combinators.stored.json import shown, text_of

_MOST_TOLD = 20
_Found = TypeVar("_Found")


def choose(found: Iterable[str], tensor: str | None, where: str) -> str:
    """The tensor that was named, or the only one.

    Raises:
      FormatError: where there is none of the name, or several and no name, or the only one is not printable.
    """
    names = [*found]
    if tensor is None and len(names) == 1:
        return text_of(names[0], f"the name of the tensor in `{where}`")
    if isinstance(tensor, str) and tensor in names:
        return tensor
    told = ", ".join(f"`{shown(name[:60])}`" for name in names[:_MOST_TOLD]) or "nothing"
    more = f" and {len(names) - _MOST_TOLD} more" * (len(names) > _MOST_TOLD)
    got = "got no name" if tensor is None else f"got {spelt(tensor)}"
    headline = f"`{where}` holds no such tensor" if tensor is not None else f"`{where}` holds several tensors"
    headline = headline if names else f"`{where}` holds no tensor"
    remedy = "Name one of them: tp.open(path, name)." if names else "Look at the path."
    raise FormatError(message(headline, f"it holds {told}{more}", got, remedy=remedy))


def named(found: _Found, tensor: str) -> _Found:
    """A tensor that knows what it is called in its place: by its name, and by none, it is the same."""
    cast("Any", found).tensor = tensor
    return found
