"""Scan: the result at `t` merges everything up to `t`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from combinators.arguments import read_flag, read_name, read_optional_name
from combinators.errors import SignatureError
from combinators.frozen import dataclass
from combinators.index_space.signature import Signature, read_signature
from combinators.leaves.leaf import Leaf
from combinators.leaves.options import kernel_name, read_kernels, read_present
from combinators.leaves.reduce import read_carrier
from combinators.merging.monoid import Monoid
from combinators.operations.operation import Operation
from combinators.operations.rules import check_monoid, check_scans
from combinators.recording.current import trace_of


@dataclass(frozen=True)
class Steps:
    """The kernel of a scan whose operands are the steps themselves: one operand, or the leaves of a tuple."""

    def __call__(self, *blocks: Any) -> Any:
        """The state of every step."""
        return blocks[0] if len(blocks) == 1 else blocks


class Scan(Leaf):
    """Prefixes along one dimension, merged by a monoid.

    `y[t] = step[0] (+) ... (+) step[t]`, with `exclusive` without `step[t]`. With `reverse` suffixes, in the order of
    the steps: `y[t] = step[t] (+) ... (+) step[n - 1]`. `lax.associative_scan(reverse=True)` merges them in the
    opposite order; for that, as for a recurrence that runs backwards, swap the arguments of the monoid's `combine`.

    Args:
      monoid: merges two states; written for one cell; need not be commutative.
      signature: `operands -> results`; the scanned dimension stands on both sides.
      over: the scanned dimension.
      kernel: operand blocks to the block of the steps' states; by default the operands are the steps.
      carrier: the axes of the state's leaves where they are not those of the operands (without `kernel`) or of the
        result (with it), such as `"t row column, t entry"`. What all leaves share is mapped; a cell's own axes carry
        names that no other leaf has.
      present: state of one cell to result of one cell.
      init: the state to begin with: one number for all leaves, or a pytree like the state, of numbers and (inside a
        program) of values, which have the axes of a state without `over`.
      final: return the pair of the prefixes and the state that they end in, presented.
      reverse: merge from the end.
      exclusive: leave out the own step.
      name: for paths and errors.

    Raises:
      SignatureError: when `over` is not a dimension of both sides.

    Laws: last of scan is fold; exclusive is inclusive shifted; those of the monoid.

    Example:
      >>> import jax.numpy as jnp
      >>> from combinators import monoids
      >>> Scan(monoids.Sum, "... t -> ... t", over="t")(jnp.array([1, 2, 3])).tolist()
      [1, 3, 6]
      >>> decay = Scan(monoids.AffineRecurrence, "t, t -> t, t", over="t")  # h = a h + b
      >>> decay(jnp.full(3, 0.5), jnp.ones(3))[1].tolist()
      [1.0, 1.5, 1.75]
    """

    def __init__(
        self,
        monoid: Monoid,
        signature: str | Signature,
        over: str,
        *,
        kernel: Callable[..., Any] | None = None,
        carrier: str | None = None,
        present: Callable[..., Any] | None = None,
        init: Any = None,
        final: bool = False,
        reverse: bool = False,
        exclusive: bool = False,
        name: str | None = None,
    ) -> None:
        parsed = read_signature(signature)
        steps = kernel if kernel is not None else Steps()
        called = read_optional_name(name, "name= of tp.Scan") or (
            kernel_name(kernel, None) if kernel is not None else "scan"
        )
        where = f"tp.Scan({called})"
        over = read_name(over, f"over= of {where}", SignatureError)
        self._init, self._final = init, read_flag(final, f"final= of {where}", SignatureError)
        reverse = read_flag(reverse, f"reverse= of {where}", SignatureError)
        exclusive = read_flag(exclusive, f"exclusive= of {where}", SignatureError)
        read_kernels(steps, None, where)
        check_monoid(monoid, parsed, where)
        check_scans(parsed, over, where)
        axes = read_carrier(carrier, where)
        if axes is None and kernel is None:
            axes = tuple(o.around("...", (a.name or a.whole_name or str(a) for a in o.axes)) for o in parsed.operands)
        super().__init__(
            Operation(
                parsed,
                steps,
                monoid,
                axes,
                read_present(present, where),
                over=over,
                reverse=reverse,
                exclusive=exclusive,
                name=called,
            )
        )

    def apply(self, *values: Any) -> Any:
        """Apply the scan, with what it begins with and ends in."""
        if self._init is None and not self._final:
            return super().apply(*values)
        trace_of(values, self.name)
        # Few scans begin with a state or end in one, and what tells the structure of states is the whole room of files.
        from combinators.leaves.scan_ends import scan_with_ends

        return scan_with_ends(self.operation, values, self._init, self._final)
