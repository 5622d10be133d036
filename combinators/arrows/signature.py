"""The signature of a program: what it says of the values that come in and of those that go out.

A program is a function of values, so its signature is a claim, not a recipe. Its names bind to the names of the axes
that come in, as a leaf's do; what comes out is held against them axis by axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NoReturn

import jax

from combinators.errors import CompositionError, SignatureError, message, spelt
from combinators.index_space.axis import Axis, Term
from combinators.index_space.naming import AxisName, AxisVariable, describe, find, suggest, unify
from combinators.index_space.operand import Operand
from combinators.index_space.signature import Signature
from combinators.index_space.sizes import solve_partly, solve_sizes
from combinators.recording.renaming import give_way
from combinators.recording.value import Value


@dataclass
class Claim:
    """A signature and the axes that its names stand for.

    Attributes:
      name: of the program.
      signature: without `...`.
      depth: how many programs stand around this one; 0 where it is the whole program.
      values: what comes in.
      operands: the axes of the operands: place in the signature, axis, name of the tensor's axis, size.
      bound: the names that the bare dimensions stand for.
      known: the sizes of dimensions that are known.
      same: pairs of dimensions that the caller passed as one.
    """

    name: str
    signature: Signature
    depth: int
    values: Sequence[Value]
    operands: list[tuple[tuple[int, int], Axis, AxisName, int]] = field(default_factory=list)  # pyright: ignore[reportUnknownVariableType]
    bound: dict[str, AxisName] = field(default_factory=dict)  # pyright: ignore[reportUnknownVariableType]
    known: dict[str, int] = field(default_factory=dict)  # pyright: ignore[reportUnknownVariableType]
    same: set[tuple[str, str]] = field(default_factory=set)  # pyright: ignore[reportUnknownVariableType]

    # Coming in

    @classmethod
    def of(cls, name: str, signature: Signature, values: Sequence[Any], depth: int) -> Claim:
        """Bind the operands of a program, and name what is anonymous in them.

        Where the program is the whole one (`depth` 0) its signature names the axes; inside another it only suggests:
        two unrelated tensors may come in under one local name, and must not become one dimension.

        Raises:
          SignatureError: when number, ranks or sizes do not fit.
          CompositionError: when a dimension meets two names.
        """
        if len(values) != len(signature.operands):
            raise SignatureError(
                message(
                    f"`{name}` takes {len(signature.operands)} operands, got {len(values)}",
                    f"signature {signature}",
                    remedy="Pass one value for each operand of the signature.",
                )
            )
        signature = signature.expand(signature.ellipsis_rank([value.ndim for value in values], where=name))
        claim = cls(name, signature, depth, values)
        claim.known = solve_partly(signature, [value.shape for value in values], where=name)
        for number, (operand, value) in enumerate(zip(signature.operands, values, strict=True)):
            for at, (axis, label) in enumerate(zip(operand.axes, value.axes, strict=True)):
                claim.operands.append(((number, at), axis, label, value.shape[at]))
                if axis.name is not None and not unify(claim.bound.setdefault(axis.name, label), label):
                    claim._two_names(axis.name, number, label)
        claim._name_operands()
        claim.same = {pair for pair in combinations(claim.bound, 2) if claim._is_one(*pair)}
        return claim

    def _name_operands(self) -> None:
        taken = {found for _, _, label, _ in self.operands if isinstance(found := find(label), str)}
        for _, axis, label, _ in self.operands:
            dim = axis.name or axis.whole_name
            if self.depth == 0 and dim is not None and not dim.startswith("...") and dim not in taken:
                if isinstance(find(label), AxisVariable):
                    unify(label, dim)
            suggest(label, dim or self._receiver(axis), self.depth)

    def _receiver(self, axis: Axis) -> str | None:
        """The one dimension of the result that a window hands its name to."""
        names = [t.name for t in axis.terms if self.signature.role(t.name) == "map"] if axis.is_window else []
        return names[0] if len(names) == 1 else None

    def _two_names(self, dim: str, number: int, label: AxisName) -> NoReturn:
        raise CompositionError(
            message(
                f"`{self.name}` takes one `{dim}`: operand {number} has {describe(label)}, an earlier one "
                f"{describe(self.bound[dim])}",
                f"signature {self.signature}",
                remedy="Rename one of the operands' axes.",
            )
        )

    # Going out

    def agreed(self, result: Any) -> Any:
        """What the program returns, axes that it made and nobody named called as its signature says."""
        leaves, tree = jax.tree.flatten(result)
        if len(leaves) != len(self.signature.results):
            return result
        given = {find(label) for _, _, label, _ in self.operands}
        for number, (expected, leaf) in enumerate(zip(self.signature.results, leaves, strict=True)):
            if isinstance(leaf, Value) and leaf.ndim == len(expected.axes):
                wanted = [
                    None if find(label) in given else self.bound.get(axis.name or "")
                    for axis, label in zip(expected.axes, leaf.axes, strict=True)
                ]
                leaves[number] = give_way(leaf, wanted)
        return jax.tree.unflatten(tree, leaves)

    def check(self, result: Any) -> None:
        """Hold what the program returns against its signature: number, ranks, names, order, sizes of expressions.

        Sizes of bare dimensions belong to the tensors: after a window `y` of 8 and of 6 are one name. An axis that the
        program makes anew may be called as one of the operands only where it has its size. What an expression says that
        is read has to be what the operations between read, cell by cell.

        Raises:
          SignatureError: with carets under the axes that are false.
        """
        leaves = jax.tree.leaves(result)
        if len(leaves) != len(self.signature.results):
            raise SignatureError(
                message(
                    f"`{self.name}` returns {len(leaves)} values, its signature names {len(self.signature.results)}",
                    f"signature {self.signature}",
                    remedy="Return one value for each result of the signature.",
                )
            )
        first = len(self.signature.operands)
        for number, (expected, leaf) in enumerate(zip(self.signature.results, leaves, strict=True), first):
            if not isinstance(leaf, Value):
                remedy = "Return values computed from the arguments; a constant comes in as an argument."
                self._refuse(
                    [(number, None)], f"got {type(leaf).__name__}, which is no value of the program", remedy=remedy
                )
            if leaf.ndim != len(expected.axes):
                self._refuse(
                    [(number, None)], f"expected ({', '.join(map(str, expected.axes))}), got {spelt(leaf, 120)}"
                )
            for at, (axis, label) in enumerate(zip(expected.axes, leaf.axes, strict=True)):
                size = leaf.shape[at]
                problem = self._wrong_name(axis, label, size) or self._wrong_size(axis, size)
                if problem is not None:
                    self._refuse([(number, at)], f"got {spelt(leaf, 120)}", problem)
                suggest(label, axis.name or axis.whole_name, self.depth)
        self._check_distinct()
        self._check_windows()
        self._check_reads(leaves)

    def _wrong_name(self, axis: Axis, label: AxisName, size: int) -> str | None:
        """What is wrong with the name of a result's axis."""
        dim = axis.name
        bound = None if dim is None else self.bound.get(dim)
        if bound is not None and find(bound) == find(label):
            return None
        # It may not be an axis that the signature calls otherwise.
        owners = [(place, other) for place, other, known, _ in self.operands if find(known) == find(label)]
        if owners and not any(self._may_become(other, axis) for _, other in owners):
            (number, _), other = owners[0]
            return f"this axis is `{other}` of operand {number}, and not `{axis}`"
        if dim is not None and bound is not None and self.known.get(dim, size) != size:
            return f"this axis is a new one of size {size}, and `{axis}` has the size {self.known[dim]}"
        if bound is not None and not unify(bound, label):
            return f"`{axis}` is {describe(bound)}, and this axis is {describe(label)}"
        if dim is not None:
            self.bound[dim] = label
        return None

    def _may_become(self, operand: Axis, result: Axis) -> bool:
        """Whether an axis of an operand may come out as this axis: as itself, or a window as its dimension."""
        return str(operand) == str(result) or (result.name is not None and self._receiver(operand) == result.name)

    def _wrong_size(self, axis: Axis, size: int) -> str | None:
        """What is wrong with the size of a result's axis; a size that nothing tells is learnt."""
        if axis.name is not None and any(other.name == axis.name for _, other, _, _ in self.operands):
            return None
        unknown = [name for name in axis.names if name not in self.known]
        product = 1
        for name in axis.names:
            product *= self.known.get(name, 1)
        if len(unknown) == 1 and product and size % product == 0:
            self.known[unknown[0]] = size // product
        elif (not unknown and size != product) or (unknown and product and size % product):
            told = " * ".join(str(self.known.get(name, name)) for name in axis.names) or "1"
            return f"`{axis}` is {told}, and this axis has the size {size}"
        return None

    def _check_distinct(self) -> None:
        for pair in combinations(self.bound, 2):
            if self._is_one(*pair) and pair not in self.same:
                places = [
                    next(
                        (number, at)
                        for number, tensor in enumerate((*self.signature.operands, *self.signature.results))
                        for at, axis in enumerate(tensor.axes)
                        if axis.name == dim
                    )
                    for dim in pair
                ]
                self._refuse(places, f"`{pair[0]}` and `{pair[1]}` are one dimension, {describe(self.bound[pair[0]])}")

    def _check_windows(self) -> None:
        for place, axis, _, size in self.operands:
            is_composite = axis.kind == "composite"
            problem = self._wrong_size(axis, size) if is_composite else self._wrong_window(axis, size, self.known)
            if problem is not None:
                self._refuse([place], problem)

    def _wrong_window(self, axis: Axis, size: int, sizes: Mapping[str, int]) -> str | None:
        """What is wrong with the size of the dimension that a window becomes, where no other axis tells that."""
        dim = self._receiver(axis)
        if dim is None or dim not in sizes or any(other.name == dim for _, other, _, _ in self.operands):
            return None
        fits = sizes[dim] in self._window_sizes(axis, dim, size, sizes)
        return None if fits else f"`{dim}` is {sizes[dim]}, and `{axis}` reads {size} cells"

    def _window_sizes(self, axis: Axis, dim: str, size: int, sizes: Mapping[str, int]) -> range:
        """The sizes that a window may have: all reads exist, or boundaries answer some or all of those that do not."""
        others = {name: sizes[name] for name in axis.names if name != dim and name in sizes}
        stride = next(abs(term.coefficient) for term in axis.terms if term.name == dim)
        answered = -(-size // stride)
        if len(others) < len(axis.terms) - 1:
            return range(answered + 1)
        alone = Signature((Operand((axis,)),), (Operand((Axis("affine", (Term(dim),)),)),))
        try:
            valid = solve_sizes(alone, [(size,)], given=others)[dim]
        except SignatureError:  # it reads cells that do not exist, so a boundary answers at that end at least
            reach = sum(abs(term.coefficient) * (others.get(term.name, 1) - 1) for term in axis.terms)
            valid = max((size - 1 - reach) // stride + 1, 0)
        return range(min(valid, answered), answered + 1)

    def _check_reads(self, results: Sequence[Value]) -> None:
        """Hold the cells that expressions say are read against those that the operations read."""
        composed = any(axis.kind == "composite" for each in self.signature.results for axis in each.axes)
        told = composed or any(axis.is_window or axis.kind == "composite" for _, axis, _, _ in self.operands)
        if not results or not told:
            return
        # Here, not at the top: few programs have expressions, and a library that is imported need not load it.
        from combinators.dependence.said import Program, false_reads

        program = Program(self.name, self.signature, self.values, results, self.known)
        for place, problem, way_out in false_reads(program, self._wrong_window):
            dim = self._receiver(self.signature.operands[place[0]].axes[place[1]])
            plain = f"the plain name `{dim}`" if dim is not None else "a plain name"
            self._refuse([place], problem, remedy=f"{way_out} {plain}, which leaves it open.")

    def _is_one(self, left: str, right: str) -> bool:
        return find(self.bound[left]) == find(self.bound[right])

    def _refuse(
        self,
        places: Sequence[tuple[int, int | None]],
        *lines: str,
        remedy: str = "Mend the signature, or what the function returns.",
    ) -> NoReturn:
        raise SignatureError(
            message(
                f"`{self.name}` does not return what its signature says",
                self.signature.show(*places),
                *lines,
                remedy=remedy,
            )
        )
