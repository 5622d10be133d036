"""The polyhedral signature of a kernel: which cells of every operand and result a box of the index space touches.

`"b (2*y+[dy]) c, [dy] c o -> b y o"` names the dimensions of an index space and says, axis by axis, how each tensor is
indexed by them. Its names are local; `parser` reads the text and `sizes` solves the sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from functools import cached_property, lru_cache
from typing import Literal

from combinators.errors import SignatureError, message
from combinators.frozen import dataclass
from combinators.index_space.axis import Axis, Span, Term
from combinators.index_space.operand import Operand, canonical, unique
from combinators.index_space.parser import check_text, read
from combinators.index_space.tokens import underline
from combinators.kernels.immutable import Immutable

Role = Literal["map", "fold", "whole", "generated"]


@dataclass(frozen=True)
class Signature(Immutable):
    """Operands and results over one index space.

    Two signatures are equal where they mean the same axes, however they were spaced. `str` gives the canonical text,
    and `Signature.parse(str(s)) == s`.

    Args:
      operands: in the order in which the kernel takes them.
      results: at least one.
      text: the text it was read from, for error messages; no part of its value.
    """

    operands: tuple[Operand, ...]
    results: tuple[Operand, ...]
    text: str = field(default="", compare=False, repr=False)

    @staticmethod
    def parse(text: str) -> Signature:
        """Read `operands -> results`.

        Args:
          text: at most 4096 characters.

        Returns:
          The signature, with every dimension that is whole in one place whole everywhere.

        Raises:
          SignatureError: when the text is no signature; a caret points at the offending character.
        """
        check_text(text)
        return _parsed(text)

    @cached_property
    def dims(self) -> tuple[str, ...]:
        """All dimensions, in order of first appearance."""
        return unique(
            name
            for tensor in (*self.operands, *self.results)
            for name in ((tensor.coordinate,) if tensor.coordinate is not None else tensor.names)
        )

    @cached_property
    def whole_dims(self) -> tuple[str, ...]:
        """The dimensions written `[c]` anywhere, in order of first appearance; they may not be cut."""
        tensors = (*self.operands, *self.results)
        whole = {term.name for tensor in tensors for axis in tensor.axes for term in axis.terms if term.whole}
        return tuple(name for name in self.dims if name in whole)

    @cached_property
    def map_dims(self) -> tuple[str, ...]:
        """The dimensions on both sides and not whole, in order of appearance in the results."""
        left = set(self._left)
        return tuple(name for name in self._right if name in left and name not in self.whole_dims)

    @cached_property
    def fold_dims(self) -> tuple[str, ...]:
        """The dimensions of operands alone and not whole, in order of appearance, the outermost first."""
        right = set(self._right)
        return tuple(name for name in self._left if name not in right and name not in self.whole_dims)

    @cached_property
    def generated_dims(self) -> tuple[str, ...]:
        """The dimensions of results alone and not whole; a coordinate `@q` does not count as an operand's axis."""
        left = set(self._left)
        return tuple(name for name in self._right if name not in left and name not in self.whole_dims)

    def role(self, name: str) -> Role:
        """Say what a cut along a dimension means.

        Args:
          name: one of `dims`.

        Returns:
          `"map"`, `"fold"`, `"whole"` or `"generated"`.

        Raises:
          SignatureError: when the signature has no such dimension.
        """
        if name in self.whole_dims:
            return "whole"
        if name in self.map_dims:
            return "map"
        if name in self.fold_dims:
            return "fold"
        if name in self.generated_dims:
            return "generated"
        raise SignatureError(
            message(
                f"`{self}` has no dimension `{name}`.",
                f"its dimensions are {', '.join(self.dims) or '(none)'}",
                remedy="Use one of them.",
            )
        )

    @property
    def has_ellipsis(self) -> bool:
        """Whether an operand or a result has `...`."""
        return any(tensor.ellipsis for tensor in (*self.operands, *self.results))

    def expand(self, rank: int) -> Signature:
        """Replace every `...` by plain axes named `...0`, `...1`, in its place.

        Args:
          rank: how many dimensions `...` stands for; ignored where there is none.

        Returns:
          A signature without `...`; its carets still point at the `...` of the text.

        Raises:
          SignatureError: when `rank` is negative.
        """
        if rank < 0:
            raise SignatureError(
                message(f"`...` of `{self}` cannot stand for {rank} axes.", remedy="Give a rank of at least 0.")
            )
        if not self.has_ellipsis:
            return self
        return replace(
            self,
            operands=tuple(_expand(operand, rank) for operand in self.operands),
            results=tuple(_expand(result, rank) for result in self.results),
        )

    def ellipsis_rank(self, ranks: Sequence[int | None], *, where: str = "") -> int:
        """Solve how many axes `...` stands for.

        Args:
          ranks: the number of axes of every operand; entries of coordinates are ignored.
          where: the operation, for error messages.

        Returns:
          The rank, 0 where no operand has `...`.

        Raises:
          SignatureError: when an operand has too few or too many axes, or two operands disagree.
        """
        check_count(self, len(ranks), where)
        solved: tuple[int, int] | None = None
        for index, (operand, rank) in enumerate(zip(self.operands, ranks, strict=True)):
            if operand.coordinate is not None:
                continue
            least = len(operand.axes)
            expected = f"{least}{' or more' if operand.ellipsis else ''} axes"
            if rank is None or rank < least or (rank > least and not operand.ellipsis):
                raise SignatureError(
                    message(
                        f"operand {index}{_of(where)} does not have the axes of its signature.",
                        self.show((index, None)),
                        f"expected {expected}, got {'no shape' if rank is None else rank}",
                        remedy=f"Pass an operand with {expected}, or change the signature.",
                    )
                )
            if not operand.ellipsis:
                continue
            if solved is not None and solved[1] != rank - least:
                raise SignatureError(
                    message(
                        f"the operands{_of(where)} disagree on the number of axes of `...`.",
                        self.show((solved[0], None), (index, None)),
                        f"operand {solved[0]} has {solved[1]}, operand {index} has {rank - least}",
                        remedy="Give all operands with `...` the same axes there.",
                    )
                )
            solved = solved or (index, rank - least)
        return 0 if solved is None else solved[1]

    def show(self, *places: tuple[int, int | None]) -> str:
        """Show the text with carets under some axes.

        Args:
          places: pairs of a tensor, the operands numbered first and the results after them, and one of its axes, or
            None for the tensor as a whole.

        Returns:
          Two lines, the text and the carets.
        """
        located = self
        if not self.text or any(self._span(place) is None for place in places):
            try:
                located = Signature.parse(str(self))
            except SignatureError:  # built by hand against the rules of the grammar
                return str(self)
        return underline(located.text, *(span for place in places if (span := located._span(place)) is not None))

    def __str__(self) -> str:
        """Give the canonical text."""
        return canonical(self.operands, self.results)

    def _span(self, place: tuple[int, int | None]) -> Span | None:
        tensor = (*self.operands, *self.results)[place[0]]
        return tensor.span if place[1] is None else tensor.axes[place[1]].span

    @cached_property
    def _left(self) -> tuple[str, ...]:
        return unique(name for operand in self.operands for name in operand.names)

    @cached_property
    def _right(self) -> tuple[str, ...]:
        return unique(name for result in self.results for name in result.names)


def check_count(signature: Signature, count: int, where: str = "") -> None:
    """Check that there is one shape for every operand.

    Raises:
      SignatureError: when there are more or fewer.
    """
    if count != len(signature.operands):
        raise SignatureError(
            message(
                f"wrong number of operands{_of(where)}.",
                f"`{signature}` has {len(signature.operands)}, got {count}",
                remedy="Pass one shape for every operand, coordinates included.",
            )
        )


def read_signature(signature: str | Signature) -> Signature:
    """A signature from its text."""
    return signature if isinstance(signature, Signature) else Signature.parse(signature)


# The layers of a model repeat the same few signatures.
@lru_cache(maxsize=1024)
def _parsed(text: str) -> Signature:
    operands, results = read(text)
    return Signature(operands, results, text)


def _of(where: str) -> str:
    return f" of `{where}`" if where else ""


def _expand(operand: Operand, rank: int) -> Operand:
    if not operand.ellipsis:
        return operand
    stands = tuple(Axis("affine", (Term(f"...{index}"),), span=operand.ellipsis_span) for index in range(rank))
    axes = operand.axes[: operand.lead] + stands + operand.axes[operand.lead :]
    return replace(operand, axes=axes, ellipsis=False, lead=0)
