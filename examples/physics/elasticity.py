"""Linear elasticity by finite elements: a square of bilinear elements, matrix-free conjugate gradients.

    -div(lambda div(w) I + mu (grad w + grad w^T)) = f

Every element reads the displacements of its four nodes and gives the forces on them: a map over elements. A node adds
up the forces of its four elements: a fold. The matrix never exists. The square is clamped at its left and lower side
and free at the others; the solution `w = (1, 1/2) g(x) g(y)` with `g = x (1 - x)^2` was chosen first, and leaves no
force on a free side.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from equation import Problem, grid, show, single

import tapestry_jax as tp

LAMBDA, MU = 1.0, 0.5
SHARES = (1.0, 0.5)
GAUSS = np.array([-1, 1]) / np.sqrt(3)
SIGNS = np.array([-1.0, 1.0])


def gradients(s: float, t: float) -> tuple[Any, Any, Any]:
    """Shape functions of the nodes `[q, p]` of an element of width 2 and their slopes along `y` and `x`."""
    low, across = (1 + SIGNS * t) / 2, (1 + SIGNS * s) / 2
    return np.outer(low, across), np.outer(SIGNS / 2, across), np.outer(low, SIGNS / 2)


def stiffness() -> Any:
    """Forces of an element on its nodes by displacements of its nodes: `[q, p, c, b, a, d]`; any width, in a plane."""
    found = np.zeros((2, 2, 2, 2, 2, 2))
    for t in GAUSS:
        for s in GAUSS:
            _, along_y, along_x = gradients(s, t)
            slopes = np.stack([along_x, along_y])  # [component, q, p]
            found += LAMBDA * np.einsum("cqp,dba->qpcbad", slopes, slopes)
            found += MU * np.einsum("eqp,eba,cd->qpcbad", slopes, slopes, np.eye(2))
            found += MU * np.einsum("dqp,cba->qpcbad", slopes, slopes)
    return found


def forces_of_elements(w: Any, k: Any) -> Any:
    """Forces on the nodes of each element; the block of nodes is one longer than that of elements."""
    rows, columns = w.shape[0] - 1, w.shape[1] - 1
    parts = [
        jnp.einsum("yxc,cbad->yxbad", w[q : q + rows, p : p + columns], k[q, p]) for q in range(2) for p in range(2)
    ]
    return sum(parts)


def at_nodes(forces: Any) -> Any:
    """What is added up at each node: of the element above as its lower node, of the one below as its upper one."""
    high, wide = forces.shape[2], forces.shape[3]
    rows, columns = forces.shape[0] - high + 1, forces.shape[1] - wide + 1
    parts = [
        forces[high - 1 - b : high - 1 - b + rows, wide - 1 - a : wide - 1 - a + columns, b, a]
        for b in range(high)
        for a in range(wide)
    ]
    return sum(parts)


# Node `y` is the upper one of element `y`; below the first node lies the clamped side, where displacements are 0.
stiff = tp.Map(
    forces_of_elements,
    "(y+[q]-1) (x+[p]-1) [c], [q] [p] [c] [b] [a] [d] -> y x [b] [a] [d]",
    boundary="zero",
)
# Behind the last element there is none: what it would add is 0.
assemble = tp.Reduce(at_nodes, "(y-b+1) (x-a+1) b a d -> y x d", tp.monoids.Sum, boundary="zero")
dot = tp.einsum("y x c, y x c -> ")


@tp.program("y x c, q p c b a d -> y x c, , ")
def solve(load: Any, k: Any) -> Any:
    """Displacements of the nodes, the steps that were taken, and whether that was enough."""

    def times(w: Any) -> Any:
        return assemble(stiff(w, k)).rename(d="c")

    def step(w: Any, r: Any, p: Any, rr: Any) -> Any:
        q = times(p)
        length = rr / dot(p, q)
        w, r = w + length * p, r - length * q
        after = dot(r, r)
        return w, r, r + after / rr * p, after

    small = 1e-10 * dot(load, load)
    found = tp.iterate(step, until=lambda w, r, p, rr: rr <= small, at_most=400)(0 * load, load, load, dot(load, load))
    return found.state[0], found.steps, found.converged


def g(x: Any) -> tuple[Any, Any, Any]:
    """`x (1 - x)^2`, its slope and its bend."""
    return x * (1 - x) ** 2, (1 - x) * (1 - 3 * x), 6 * x - 4


def body_force(y: Any, x: Any) -> Any:
    """What holds the chosen displacements, `[..., component]`."""
    (gx, sx, bx), (gy, sy, by) = g(x), g(y)
    second = {"xx": bx * gy, "yy": gx * by, "xy": sx * sy}
    u, v = SHARES
    along_x = (LAMBDA + 2 * MU) * u * second["xx"] + MU * u * second["yy"] + (LAMBDA + MU) * v * second["xy"]
    along_y = (LAMBDA + 2 * MU) * v * second["yy"] + MU * v * second["xx"] + (LAMBDA + MU) * u * second["xy"]
    return -np.stack([along_x, along_y], -1)


def load_of(size: int) -> Any:
    """The force on each node, `(size, size, 2)`."""
    width = 1 / size
    corner_y, corner_x = grid(np.arange(size) * width)
    whole = np.zeros((size + 1, size + 1, 2))
    for t in GAUSS:
        for s in GAUSS:
            shape, _, _ = gradients(s, t)
            force = body_force(corner_y + (1 + t) * width / 2, corner_x + (1 + s) * width / 2) * width**2 / 4
            for q in range(2):
                for p in range(2):
                    whole[q : q + size, p : p + size] += shape[q, p] * force
    return whole[1:, 1:]


def problem(size: int) -> Problem:
    """A square with `size` elements along each side."""
    y, x = grid(np.arange(1, size + 1) / size)
    exact = np.stack([share * g(x)[0] * g(y)[0] for share in SHARES], -1)
    entries = {"y": "row", "x": "column"}
    return Problem(solve, single(load_of(size), stiffness()), exact, {"row": 2, "column": 2}, entries)


if __name__ == "__main__":
    show("linear elasticity", problem, (8, 16, 32))
