"""Where the dimensions of every operation go, and whether they can go there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from combinators.errors import PlanError, message
from combinators.graphs.nodes import Apply, Loop
from combinators.graphs.scopes import above
from combinators.operations.shaped import Shaped
from tapestry_jax.planning.entries.items import Chunks, Halo, Item, Padded, Ring, Striped, axes_of
from tapestry_jax.planning.entries.loop_rules import check_chunks, check_loops
from tapestry_jax.planning.entries.read import Entries
from tapestry_jax.planning.entries.stage_rules import no_microbatches, turns_in_loops
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.geometry.time_axis import chunk_axis, in_space, ring_axis, ring_of

Placement = dict[str, tuple[str, ...]]
_Found = tuple[str, str | None, tuple[Item, ...]]
"""The name of a dimension, the exception that holds for it (None for the plan, "" for nothing), and its items."""


@dataclass
class Placer:
    """Applies a plan's entries to operations and remembers which of them cut anything.

    Attributes:
      mesh: the mesh.
      entries: for all operations.
      ops: exceptions: path (of an operation or a scope) and entries.
      used: exception (None is the plan itself) and name of all that cuts anything.
      rings: name and mesh axis of all that goes round.
      single: name and path of all that an entry takes in one chunk, which is no loop.
      stopped: path of a repetition, and why no chunks flow through its turns.
    """

    mesh: MeshShape
    entries: Entries
    ops: tuple[tuple[str, Entries], ...]
    used: set[tuple[str | None, str]] = field(default_factory=set[tuple[str | None, str]])
    rings: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    single: dict[tuple[str, str], None] = field(default_factory=dict[tuple[str, str], None])
    stopped: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    _found: dict[str, list[tuple[str, Entries]]] = field(
        default_factory=dict[str, list[tuple[str, Entries]]], init=False, repr=False, compare=False
    )

    def place(self, node: Apply, shaped: Shaped, path: str) -> Placement:
        """The mesh axes of each dimension of an operation; dimensions that are not cut are left out.

        Raises:
          PlanError: when two dimensions want the same mesh axis, or an exception cannot hold.
        """
        found = {dim: (name, *self._wanted(name, path)) for dim, name in node.names}
        if not self.is_in_space:
            return self._used(found, self._placed(node, shaped, path, found))
        # Loops and halos speak of paths; mesh axes say the same of all equal layers, whatever candidate names them.
        said = ((dim, name, origin and "ops", items) for dim, (name, origin, items) in found.items())
        key = "placed", self.mesh.axes, tuple(said)
        if key not in shaped.known:
            shaped.known[key] = self._placed(node, shaped, path, found)
        return self._used(found, shaped.known[key])

    def _used(self, found: Mapping[str, _Found], placed: Placement) -> Placement:
        """What is cut; all that entries place is used."""
        self.used.update((found[dim][1], found[dim][0]) for dim in placed)
        return {dim: axes for dim, axes in placed.items() if axes}

    def _placed(self, node: Apply, shaped: Shaped, path: str, found: Mapping[str, _Found]) -> Placement:
        """The mesh axes of all dimensions that entries place and that can be cut, also where there are none."""
        placed: Placement = {}
        cuttable = {dim: items for dim, (_, _, items) in found.items() if why_whole(shaped, dim) is None}
        plain = {axis for dim, items in cuttable.items() if _cells(shaped, dim) > 1 for axis in axes_of(items)}
        listed = {axis for items in cuttable.values() for axis in axes_of(items)}
        for dim, (name, origin, items) in found.items():
            if origin == "" or not items:
                continue
            reason = why_whole(shaped, dim)
            if reason is not None:
                if origin is not None:
                    raise PlanError(
                        message(
                            f"ops[{origin!r}] places `{name}`, which `{path}` cannot cut",
                            f"signature {shaped.signature}",
                            reason,
                            remedy=f"Leave `{name}` out, or write None for it.",
                        )
                    )
                continue
            size = _cells(shaped, dim)
            axes = self._axes(name, path, items, size, plain) if size else ()
            # Less than two cells have no pieces, and none goes round, whatever an entry says of them.
            placed[dim] = axes if size > 1 else ()
            self.rings |= {
                (name, item.axis) for item in items if isinstance(item, Ring) and (size < 2 or item.axis in listed)
            }
        self._check_once(node, shaped, path, placed)
        check_loops(shaped, node.bound, path, placed)
        return placed

    def _axes(self, name: str, path: str, items: tuple[Item, ...], size: int, plain: set[str]) -> tuple[str, ...]:
        """Mesh axes and loops of a dimension; `plain` are the mesh axes of the operation's dimensions."""
        axes: list[str] = []
        for item in items:
            match item:
                case str() | Striped():
                    axes.extend(axes_of((item,)))
                case Ring(axis):
                    # Where nothing else lies on the ring's axis, the dimension lies there itself.
                    axes.append(ring_axis(name, axis, self.mesh.size((axis,))) if axis in plain else axis)
                case Chunks(count, largest):
                    block = -(-size // self.mesh.size(axes))
                    turns = count if count is not None else -(-block // (largest or 1))
                    check_chunks(name, path, turns, block)
                    axes.append(chunk_axis(name, max(turns, 1)))
                    if turns <= 1:
                        self.single[name, path] = None
                case Halo() | Padded():
                    pass
        return self.mesh.real(axes)

    def place_turns(self, node: Loop, path: str, stopped: tuple[str, ...] | None) -> tuple[str, ...]:
        """The mesh axes on which the turns of a repetition lie; none where they run one after the other everywhere.

        Args:
          node: the repetition.
          path: of the repetition.
          stopped: None where chunks of some dimension flow through its turns, else what stops them.

        Raises:
          PlanError: when an exception places turns through which none flow, or for anything but mesh axes.
        """
        if node.over is None:
            return ()
        origin, items = self._wanted(node.over, path)
        listed = tuple(item for item in items if isinstance(item, str))
        if len(listed) < len(items) and (listed or origin is not None):
            raise turns_in_loops(node, path, items)
        axes = self.mesh.real(listed) if node.length else ()
        if listed and (stopped is None or not axes):
            self.used.add((origin, node.over))
            return axes
        if stopped is not None:
            single = dict.fromkeys(name for name, place in self.single if place.startswith(f"{path}/"))
            self.stopped[path] = (*stopped, *(f"`{name}` is one chunk, where stages need two" for name in single))
            if axes and origin is not None:
                raise no_microbatches(node, path, self.stopped[path])
        return ()

    def striped(self, node: Apply, shaped: Shaped, path: str, placed: Placement) -> frozenset[str]:
        """The dimensions that lie in stripes: by their entry, or going round the axes of one that does.

        Stripes are dealt to devices: where a dimension has one, that holds blocks, of which chunks are a part. What
        lies on mesh axes and also goes round another one stays in blocks: pieces that are sent round, and pieces that
        are sliced where they do not lie on the ring, would be stripes of different devices.
        """
        if not self._has_stripes:
            return frozenset()
        free = [
            (dim, self._wanted(node.bound[dim], path)[1])
            for dim, axes in placed.items()
            if _keeps_no_order(shaped, dim) and not (in_space(axes) and any(ring_of(axis) for axis in axes))
        ]
        dealt = {dim for dim, items in free if in_space(placed[dim]) and any(isinstance(i, Striped) for i in items)}
        axes = {axis for dim in dealt for axis in placed[dim]}
        return frozenset(dim for dim, _ in free if dim in dealt or any(ring_of(axis) in axes for axis in placed[dim]))

    def is_free(self, name: str, path: str) -> bool:
        """Whether no entry speaks of a dimension at an operation, not even to leave it whole."""
        return self._wanted(name, path)[0] == ""

    def asked(self, name: str, path: str) -> tuple[Item, ...]:
        """What the entries say of a name at an operation or repetition; empty where it stays whole."""
        return self._wanted(name, path)[1]

    def mesh_axes(self, name: str, path: str) -> tuple[str, ...]:
        """The mesh axes that the entries give to a name at an operation."""
        return axes_of(self._wanted(name, path)[1])

    def is_divided(self, name: str, path: str) -> bool:
        """Whether the entries cut a name at an operation, over mesh axes with several devices or in chunks."""
        in_chunks = any(isinstance(item, Chunks) for item in self._wanted(name, path)[1])
        return in_chunks or bool(self.mesh.real(self.mesh_axes(name, path)))

    def halo(self, name: str, path: str) -> int | None:
        """The depth of the halo that the entries give to a name at an operation; None where they give none."""
        return next((item.depth for item in self._wanted(name, path)[1] if isinstance(item, Halo)), None)

    @property
    def dims(self) -> tuple[str, ...]:
        """The names that the plan places, in its order: loops of the first are outermost."""
        return tuple(dict.fromkeys(dim for entries in (self.entries, *(e for _, e in self.ops)) for dim, _ in entries))

    @cached_property
    def is_in_space(self) -> bool:
        """Whether the entries name mesh axes alone: no loops in time, halos or stripes."""
        return all(isinstance(item, str) for item in self._items)

    @cached_property
    def _has_stripes(self) -> bool:
        return any(isinstance(item, Striped) for item in self._items)

    @property
    def _items(self) -> Iterator[Item]:
        """All that the entries say, wherever."""
        for entries in (self.entries, *(own for _, own in self.ops)):
            for _, items in entries:
                yield from items

    def _wanted(self, name: str, path: str) -> tuple[str | None, tuple[Item, ...]]:
        """The exception (its path) or the general entry (None) that holds for a name; `""` where none does."""
        best: tuple[str | None, tuple[Item, ...]] = ("", ())
        for dim, axes in self.entries:
            if dim == name:
                best = (None, axes)
        depth = -1
        for scope, entries in self._excepted(path):
            if len(scope) > depth:
                for dim, axes in entries:
                    if dim == name:
                        best, depth = (scope, axes), len(scope)
                        if not axes:
                            self.used.add((scope, name))
        return best

    def _excepted(self, path: str) -> list[tuple[str, Entries]]:
        """The exceptions that hold at a path, in their order: found by its scopes, as most stand elsewhere."""
        if path not in self._found:
            numbers = (number for scope in (*above(path), path) for number in self._numbers.get(scope, ()))
            self._found[path] = [self.ops[number] for number in sorted(numbers)]
        return self._found[path]

    @cached_property
    def _numbers(self) -> dict[str, list[int]]:
        """The numbers of the exceptions by their scopes."""
        numbers: dict[str, list[int]] = {}
        for number, (scope, _) in enumerate(self.ops):
            numbers.setdefault(scope, []).append(number)
        return numbers

    def _check_once(self, node: Apply, shaped: Shaped, path: str, placed: Placement) -> None:
        owner: dict[str, str] = {}
        for dim, axes in placed.items():
            for axis in axes:
                if axis in owner:
                    first, second = node.bound[owner[axis]], node.bound[dim]
                    raise PlanError(
                        message(
                            f"`{path}` has both `{first}` and `{second}` on the mesh axis `{axis}`",
                            f"signature {shaped.signature}",
                            remedy=f'Except one of them: ops={{"{path}": {{"{second}": None}}}}.',
                        )
                    )
                owner[axis] = dim


def _cells(shaped: Shaped, dim: str) -> int:
    """How many cells of a dimension there are to divide: none where it shares an axis with an empty dimension.

    A composition with an empty dimension has no cells, and a window of an empty dimension reads none.
    """
    if 0 not in shaped.sizes.values():
        return shaped.sizes[dim]
    axes = (axis for operand in (*shaped.signature.operands, *shaped.signature.results) for axis in operand.axes)
    shared = (axis.names for axis in axes if dim in axis.names)
    return 0 if any(shaped.sizes[name] == 0 for names in shared for name in names) else shaped.sizes[dim]


def _keeps_no_order(shaped: Shaped, dim: str) -> bool:
    """Whether an operation takes the cells of a dimension in any order: their coordinates are all it knows of it."""
    signature, operation = shaped.signature, shaped.operation
    ordered = operation.monoid is not None and not operation.monoid.commutative
    if operation.over == dim or (ordered and dim in signature.fold_dims):
        return False
    axes = (axis for operand in (*signature.operands, *signature.results) for axis in operand.axes)
    return all(axis.name == dim for axis in axes if dim in axis.names)


def why_whole(shaped: Shaped, dim: str) -> str | None:
    """Why an operation cannot cut a dimension; None where it can."""
    key = "whole", dim
    if key not in shaped.known:
        shaped.known[key] = _why_whole(shaped, dim)
    return shaped.known[key]


def _why_whole(shaped: Shaped, dim: str) -> str | None:
    signature, operation = shaped.signature, shaped.operation
    if signature.role(dim) == "whole":
        return f"its kernel sees all of `[{dim}]`"
    for operand in (*signature.operands, *signature.results):
        inside = [axis for axis in operand.axes if any(term.name == dim for term in axis.terms)]
        if len(inside) > 1:
            return f"`{dim}` stands twice in one operand"
        for axis in inside:
            if axis.kind == "composite" and axis.terms[0].name != dim:
                return f"`{dim}` is inner in the composition `{axis}`, of which only the outermost can be cut"
    if signature.role(dim) == "fold":
        monoid = operation.monoid
        if monoid is not None and not monoid.commutative and signature.fold_dims[0] != dim:
            return f"the monoid is not commutative, so of several folds only the outermost, `{signature.fold_dims[0]}`"
        return None
    if any(dim not in {term.name for axis in result.axes for term in axis.terms} for result in signature.results):
        return f"not every result carries `{dim}`"
    return None
