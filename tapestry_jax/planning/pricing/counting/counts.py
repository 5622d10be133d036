"""What running a kernel once on one block takes, whatever the machine."""

from __future__ import annotations

from combinators.frozen import dataclass

TRANSCENDENTAL_WEIGHT = 4.0
"""How many other operations an exponential, logarithm or root stands for."""


@dataclass(frozen=True)
class Counts:
    """Counts of one block.

    Attributes:
      products: FLOP of matrix products and convolutions by dtype of their operands; a product and its sum are two.
      other: FLOP of all else, one for each element of a result (of a reduction: of its operand).
      transcendental: elements of exponentials, logarithms, roots and the like.
      repeated: of elementwise work that is fused with several readers, and done for each of them, what is done beyond
        once; transcendentals by their weight.
      inner: bytes of values inside of the kernel that are written to memory and read again.
      largest: bytes of the largest of these values: what is small stays on the chip.
      outer: bytes that a backward pass reads of what the forward pass has made, and writes.
      kept: bytes that a backward pass reads of what the forward pass has made inside of the kernel, each once.
      reads: for every operand how often it is read from memory.
      heads: for every result what makes it: `product`, `reduced`, `apart` (a sort, a loop), `fused` (elementwise work),
        `given` (an operand).
      kernels: how many pieces of code run one after the other.
      idle: FLOP that a TPU's arrays of 128 x 128 could do meanwhile, where products are narrower than they.
      slow: operations that sines and the like take there beyond those of other transcendentals.
      beside: bytes that memory would move while kernels on a TPU do what is neither reading nor writing (`passes.py`).
      stacked: bytes that a loop keeps of what the forward pass has made inside of the kernel, where its turns are not
        computed again: elementwise work of one turn is not done again in another.
    """

    products: tuple[tuple[str, float], ...] = ()
    other: float = 0.0
    transcendental: float = 0.0
    repeated: float = 0.0
    inner: float = 0.0
    largest: float = 0.0
    outer: float = 0.0
    kept: float = 0.0
    reads: tuple[float, ...] = ()
    heads: tuple[str, ...] = ()
    kernels: int = 0
    idle: float = 0.0
    slow: float = 0.0
    beside: float = 0.0
    stacked: float = 0.0

    @property
    def flops(self) -> float:
        """FLOP as XLA counts them: products and all else, without transcendentals."""
        return sum(flops for _, flops in self.products) + self.other

    @property
    def numbers(self) -> tuple[float, ...]:
        """What grows with the block."""
        arithmetic = self.other, self.transcendental, self.repeated, self.idle, self.slow
        moved = self.inner, self.largest, self.outer, self.kept, self.beside, self.stacked
        return (*(flops for _, flops in self.products), *arithmetic, *moved)

    @property
    def form(self) -> tuple[object, ...]:
        """What does not."""
        return tuple(dtype for dtype, _ in self.products), self.reads, self.heads, self.kernels

    def of(self, numbers: tuple[float, ...]) -> Counts:
        """The counts of a block of another size: the same form, other numbers."""
        products = tuple((dtype, flops) for (dtype, _), flops in zip(self.products, numbers, strict=False))
        other, transcendental, repeated, idle, slow, inner, largest, outer, kept, *last = numbers[len(products) :]
        grown = products, other, transcendental, repeated, inner, largest, outer, kept
        return Counts(*grown, self.reads, self.heads, self.kernels, idle, slow, *last)


def added(first: Counts, second: Counts, times: float = 1.0) -> Counts:
    """Counts of the one and, so many times, the other, which is inside of it: all that the other moves is inner."""
    products = dict(first.products)
    for dtype, flops in second.products:
        products[dtype] = products.get(dtype, 0.0) + times * flops
    return Counts(
        tuple(sorted(products.items())),
        first.other + times * second.other,
        first.transcendental + times * second.transcendental,
        first.repeated + times * second.repeated,
        first.inner + times * second.inner,
        max(first.largest, second.largest),
        first.outer + times * second.outer,
        first.kept + times * second.kept,
        first.reads,
        first.heads,
        first.kernels + int(times * second.kernels),
        first.idle + times * second.idle,
        first.slow + times * second.slow,
        first.beside + times * second.beside,
        first.stacked + times * second.stacked,
    )
