"""What leaves of arguments and results are called: by their paths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from combinators.errors import GraphError, message


def keys_of(path: Sequence[Any]) -> list[str]:
    """The keys of a path of JAX's trees as texts."""
    keys = [str(getattr(entry, "key", getattr(entry, "idx", getattr(entry, "name", entry)))) for entry in path]
    # Containers of one array, such as the parameters of flax, keep it in a `value`.
    return keys[:-1] if len(keys) > 1 and keys[-1] == "value" else keys


def label_of(root: str, path: Sequence[Any]) -> str:
    """What a leaf is called: that of which it is a part, and its keys."""
    return "/".join([root, *keys_of(path)])


def check_labels(labels: Sequence[str], name: str) -> None:
    """Refuse two inputs of one name: neither a plan nor a user could say which is meant.

    Raises:
      GraphError: naming the first such name.
    """
    again = [label for label, count in Counter(labels).items() if count > 1]
    if again:
        raise GraphError(
            message(
                f"two arguments of `{name}` are called `{again[0]}`",
                "keys are joined by `/`, so a key with a `/` in it may stand for two",
                remedy="Call one of the keys otherwise.",
            )
        )
