"""The structure of a pytree as JSON: dicts, lists, tuples, None and leaves.

Nodes of other types (named tuples, flax states) are stored as nested dicts by key path: a stored graph must be readable
where their classes are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import jax

from combinators.errors import FormatError, KernelError, message, spelt
from combinators.stored.codec import decode, encode
from combinators.stored.json import REMEDY

_LEAF = "*"


def tree_to_json(tree: Any) -> Any:
    """Turn a tree structure into what the `json` module writes.

    Args:
      tree: a `jax.tree_util.PyTreeDef`.

    Returns:
      `"*"` for a leaf, None for None, else a dict with the one key `list`, `tuple` or `dict`.
    """
    return _stored(tree, _leaf_paths(tree), 0)


def tree_from_json(stored: Any, where: str) -> Any:
    """Read a tree structure back.

    Args:
      stored: what `tree_to_json` returned.
      where: what it is the structure of, as an error names it.

    Returns:
      A `jax.tree_util.PyTreeDef`.

    Raises:
      FormatError: when it is no structure.
    """
    skeleton = _skeleton(stored, where)
    try:
        return jax.tree.structure(skeleton)
    except (TypeError, ValueError) as error:  # JAX sorts the keys of a dict
        details = ("expected keys of one kind in every dict", str(error)[:200])
        raise FormatError(message(f"{where} is no structure of arguments.", *details, remedy=REMEDY)) from error


def _skeleton(stored: Any, where: str) -> Any:
    if stored is None:
        return None
    if stored == _LEAF:
        return 0
    if isinstance(stored, dict) and len(cast("dict[str, Any]", stored)) == 1:
        ((kind, parts),) = cast("dict[str, Any]", stored).items()
        build = _BUILDERS.get(kind)
        if build is not None and isinstance(parts, list):
            return build(cast("list[Any]", parts), where)
    raise FormatError(
        message(
            f"{where} is no structure of arguments.",
            "expected a leaf `*`, null, or one of list, tuple, dict",
            f"got {spelt(stored)}",
            remedy=REMEDY,
        )
    )


def _dict(pairs: list[Any], where: str) -> dict[Any, Any]:
    built: dict[Any, Any] = {}
    for number, pair in enumerate(pairs):
        if not isinstance(pair, list) or len(cast("list[Any]", pair)) != 2:
            raise FormatError(
                message(f"{where}[{number}] is no pair of key and part.", f"got {spelt(pair)}", remedy=REMEDY)
            )
        key, part = cast("list[Any]", pair)
        found = decode(key, f"{where}[{number}]", None)
        try:
            is_new = found not in built and found == found
        except TypeError:
            is_new = False
        if not is_new:
            details = ("expected a key that can be hashed, and stands once", f"got {spelt(key)}")
            raise FormatError(message(f"{where}[{number}] is no pair of key and part.", *details, remedy=REMEDY))
        built[found] = _skeleton(part, f"{where}[{number}]")
    return built


_BUILDERS: dict[str, Callable[[list[Any], str], Any]] = {
    "list": lambda parts, where: [_skeleton(part, f"{where}[{i}]") for i, part in enumerate(parts)],
    "tuple": lambda parts, where: tuple(_skeleton(part, f"{where}[{i}]") for i, part in enumerate(parts)),
    "dict": _dict,
}


def _leaf_paths(tree: Any) -> list[tuple[Any, ...]]:
    """The key path of every leaf; of no use, and empty, where a node of the user's refuses to be rebuilt."""
    count = tree.num_leaves
    try:
        paths, _ = jax.tree_util.tree_flatten_with_path(jax.tree.unflatten(tree, list(range(count))))
    except Exception:  # noqa: BLE001 - the class is the user's and may raise anything
        return [()] * count
    return [path for path, _ in paths] if len(paths) == count else [()] * count


def _stored(tree: Any, paths: Sequence[tuple[Any, ...]], depth: int) -> Any:
    """Store a node; `paths` are the key paths of its leaves, `depth` the number of nodes above it."""
    data, children = tree.node_data(), tree.children()
    if data is None:
        return _LEAF
    kind, keys = data
    if kind is type(None):
        return None
    firsts: list[tuple[Any, ...]] = []
    parts: list[Any] = []
    position = 0
    for child in children:
        inside = paths[position : position + child.num_leaves]
        position += child.num_leaves
        firsts.append(inside[0] if inside else ())
        parts.append(_stored(child, inside, depth + 1))
    if kind in (list, tuple) and keys is None:
        return {kind.__name__: parts}
    names = list(keys) if kind is dict else _ordered([_key(path, depth) for path in firsts])
    try:
        return {"dict": [[encode(name), part] for name, part in zip(names, parts, strict=True)]}
    except KernelError:
        # Keys that cannot be stored, such as enums, give way to their order.
        return {"dict": [[number, part] for number, part in enumerate(parts)]}


def _key(path: tuple[Any, ...], depth: int) -> Any:
    entry = path[depth] if depth < len(path) else None
    for attribute in ("key", "name", "idx"):
        if hasattr(entry, attribute):
            return getattr(entry, attribute)
    return ""


def _ordered(names: list[Any]) -> list[Any]:
    """The names, changed where a dict of them would not flatten in this order, since JAX sorts the keys of dicts."""
    same_kind = all(type(name) is str for name in names) or all(type(name) is int for name in names)
    if same_kind and names == sorted(set(names)):
        return names
    width = len(str(len(names)))
    return [f"{number:0{width}}_{name}".rstrip("_") for number, name in enumerate(names)]
