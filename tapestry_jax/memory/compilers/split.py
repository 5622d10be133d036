"""Products that XLA for GPUs cuts along what they sum over: their parts stand in memory, and are added behind them.

A product of few rows and columns would leave most of a GPU idle; cut into parts along the summed dimension it does not.
XLA weighs that by a small model of its own, and takes the cheapest of the powers of two.

Source: XLA, `xla/backends/gpu/transforms/splitk_rewriter.cc`, its weights for Hopper.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tapestry_jax.memory.program import OPAQUE, REDUCED, Node, Program, Value

_TILE = 128
_PROCESSORS = 132
"""Of an H100."""
_FLOP, _BYTE, _ADDED_BYTE, _KERNEL = 100.0, 0.194136, 193.1384, 4.36e7
"""What XLA takes a FLOP, a byte, a byte of the parts that are added, and one more kernel to cost."""
_WORD = 4
"""Bytes of an element in which parts are summed."""


def split(program: Program) -> Program:
    """The same program, with the parts of products; in loops and branches too."""
    values, nodes = list(program.values), list[Node]()
    for node in program.nodes:
        node = replace(node, bodies=tuple(map(split, node.bodies))) if node.bodies else node
        parts = _parts(node, values)
        if parts == 1:
            nodes.append(node)
            continue
        batch, rows, columns, _ = node.extents
        values.append(Value(parts * batch * rows * columns * _WORD, f"float32[{parts},{batch},{rows},{columns}]"))
        summed = len(values) - 1
        nodes.append(replace(node, kind=OPAQUE, results=(summed,)))
        nodes.append(Node(REDUCED, (summed,), node.results, node.path, node.backward))
    return replace(program, values=tuple(values), nodes=tuple(nodes))


def _parts(node: Node, values: list[Value]) -> int:
    """How many parts are cheapest."""
    if not node.extents:
        return 1
    batch, rows, columns, inner = node.extents
    read = sum(values[number].bytes for number in node.operands)
    made = values[node.results[0]].bytes
    return min(
        (2**power for power in range(12)), key=lambda parts: _cost(batch, rows, columns, inner, read, made, parts)
    )


def _cost(batch: int, rows: int, columns: int, inner: int, read: int, made: int, parts: int) -> float:
    height, width = min(rows, _TILE), min(columns, _TILE)
    tiles = parts * batch * math.ceil(rows / _TILE) * math.ceil(columns / _TILE)
    waves = max(1.0, tiles * height * width / (_PROCESSORS * _TILE * _TILE))
    computing = _FLOP * waves * 2 * height * width * math.ceil(inner / parts)
    written = made if parts == 1 else parts * batch * rows * columns * _WORD
    product = max(computing, _BYTE * (read + written))
    return product if parts == 1 else product + _KERNEL + _ADDED_BYTE * (written + made)
