"""Folds of one long row of float32 by aggregators, beside plain `jax.numpy`; and how exact they are beside NumPy."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tapestry_jax as tp
from benchmarks.costs import counts
from benchmarks.row import Row
from benchmarks.timing import paired

TIME, TOGETHER, ACCURACY = 1.5, 1.3, 4.0
SIZE = 64_000_000
BINS, ENDS, BEST, GROUP, FEATURES = 256, (-4.0, 4.0), 64, 1024, 16

agg = tp.aggregators
Program = Callable[[Any], Any]


def two_pass(x: Any) -> Any:
    """Moments by their definitions: the mean, then means of powers of deviations."""
    mean = jnp.mean(x)
    deviations = x - mean
    return mean, *(jnp.mean(deviations**p) for p in (2, 3, 4))


def raw_sums(x: Any) -> Any:
    """Moments from sums of powers: fast, and wrong far from zero."""
    first, second, third, fourth = (jnp.mean(x**p) for p in (1, 2, 3, 4))
    variance = second - first**2
    skew = third - 3 * first * second + 2 * first**3
    return first, variance, skew, fourth - 4 * first * third + 6 * first**2 * second - 3 * first**4


def shifted_exponentials(x: Any) -> Any:
    """Log-sum-exp by its definition."""
    top = jnp.max(x)
    return top + jnp.log(jnp.sum(jnp.exp(x - top)))


def scattered(x: Any) -> Any:
    """A histogram by one multiplication and one scatter; numbers near an edge may fall on its other side."""
    low, high = ENDS
    place = jnp.clip((x - low) * (BINS / (high - low)), -1, BINS).astype(jnp.int32)
    return jnp.zeros(BINS + 2, jnp.int32).at[place + 1].add(1)


def counted(x: Any) -> Any:
    """The same by `jnp.bincount`."""
    low, high = ENDS
    place = jnp.clip((x - low) * (BINS / (high - low)), -1, BINS).astype(jnp.int32)
    return jnp.bincount(place + 1, length=BINS + 2)


def best(x: Any) -> Any:
    """The largest by `lax.top_k`."""
    return jax.lax.top_k(x, BEST)


def best_of_groups(x: Any) -> Any:
    """The largest among the groups with the largest maxima; equals in any order, and NaN anywhere."""
    groups = x[: x.shape[0] // GROUP * GROUP].reshape(-1, GROUP)
    chosen = jax.lax.top_k(jnp.max(groups, axis=1), BEST)[1]
    rest = x[groups.size :]
    value, place = jax.lax.top_k(jnp.concatenate([groups[chosen].ravel(), rest]), BEST)
    inside = chosen[jnp.minimum(place // GROUP, BEST - 1)] * GROUP + place % GROUP
    return value, jnp.where(place < BEST * GROUP, inside, place - BEST * GROUP + groups.size)


def ends(x: Any) -> Any:
    """Both extrema; NaN is dropped."""
    return jnp.min(x), jnp.max(x)


def centred(x: Any) -> Any:
    """A covariance matrix by its definition."""
    deviations = x - jnp.mean(x, axis=0)
    return deviations.T @ deviations / x.shape[0]


@dataclass(frozen=True)
class Case:
    """A fold and its peers.

    Attributes:
      aggregator: of the fold.
      peers: the same results in plain `jax.numpy`.
      signature: of the fold.
      columns: features of each element; 0 where elements are numbers.
    """

    aggregator: tp.Aggregator
    peers: Mapping[str, Program]
    signature: str = "n -> "
    columns: int = 0


CASES: Mapping[str, Case] = {
    "Moments": Case(agg.Moments(), {"two passes": two_pass, "sums of powers": raw_sums}),
    "LogSumExp": Case(agg.LogSumExp(), {"jax.nn.logsumexp": jax.nn.logsumexp, "definition": shifted_exponentials}),
    f"TopK({BEST})": Case(agg.TopK(BEST), {"lax.top_k": best, "groups": best_of_groups}, "n, @n -> "),
    f"Histogram({BINS})": Case(agg.Histogram(BINS, ENDS), {"scatter": scattered, "jnp.bincount": counted}),
    f"Histogram({BINS}), edges that are no multiples": Case(
        agg.Histogram(BINS, (-4.0, 4.1)), {"scatter": scattered, "jnp.bincount": counted}
    ),
    "Sum": Case(agg.Sum(), {"jnp.sum": jnp.sum}),
    "Mean": Case(agg.Mean(), {"jnp.mean": jnp.mean}),
    "Max": Case(agg.Max(), {"jnp.max": jnp.max}),
    "MinMax": Case(agg.MinMax(), {"jnp.min, jnp.max": ends}),
    f"Covariance, {FEATURES} features": Case(
        agg.Covariance(), {"definition": centred}, "n [feature] -> ", columns=FEATURES
    ),
}
FIVES = (
    (agg.Sum(), agg.Mean(), agg.Min(), agg.Max(), agg.MinMax()),
    (agg.Moments(), agg.Sum(), agg.Mean(), agg.MinMax(), agg.Max()),
    (agg.Moments(), agg.LogSumExp(), agg.MinMax(), agg.Mean(), agg.Sum()),
)


def compiled(program: Any, x: Any) -> Any:
    """A function of one array, traced by the library where it is an arrow, and compiled."""
    kind = tp.TensorType((("n", x.shape[0]), *(("feature", size) for size in x.shape[1:])), x.dtype)
    function = tp.trace(program, kind) if isinstance(program, tp.Arrow) else program
    return jax.jit(function).lower(x).compile()


def rows(rounds: int = 5, size: int = SIZE) -> list[Row]:
    """Times of folds, of five folds in one, and errors.

    Args:
      rounds: turns of each timing.
      size: of the row.
    """
    x = jnp.asarray(np.random.default_rng(0).standard_normal(size, np.float32))
    return [*times(x, rounds), *(together(five, x, rounds) for five in FIVES), *errors()]


def times(x: Any, rounds: int) -> list[Row]:
    """Each aggregator beside the fastest of its peers, and how often it reads its input."""
    found: list[Row] = []
    for name, case in CASES.items():
        given = x[: x.size // case.columns * case.columns].reshape(-1, case.columns) if case.columns else x
        ours = compiled(tp.fold(case.aggregator, case.signature), given)
        turns = {
            peer: paired(lambda f=ours, x=given: f(x), lambda f=f, x=given: f(x), rounds=rounds)
            for peer, f in ((peer, compiled(function, given)) for peer, function in case.peers.items())
        }
        peer, fastest = max(turns.items(), key=lambda turn: turn[1].ratio)
        found.append(
            Row(f"{name} beside {peer}", fastest.ours * 1e3, fastest.peer * 1e3, "ms", TIME, compared=fastest.ratio)
        )
        found += _read(name, ours, x)
    return found


def together(five: Sequence[tp.Aggregator], x: Any, rounds: int) -> Row:
    """Five aggregators in one fold beside the slowest of them alone."""
    ours = compiled(tp.fold(functools.reduce(operator.and_, five), "n -> "), x)
    alone = {each.name: compiled(tp.fold(each, "n -> "), x) for each in five}
    turns = {name: paired(lambda: ours(x), lambda f=f: f(x), rounds=rounds) for name, f in alone.items()}
    name, slowest = min(turns.items(), key=lambda turn: turn[1].ratio)
    case = f"{', '.join(str(each.name) for each in five)} in one fold beside {name} alone"
    return Row(case, slowest.ours * 1e3, slowest.peer * 1e3, "ms", TOGETHER, compared=slowest.ratio)


def _read(name: str, ours: Any, x: Any) -> list[Row]:
    """How often a fold reads its input, where there is no loop, of which XLA counts one turn; and what it holds."""
    temporaries = ours.memory_analysis().temp_size_in_bytes / (4 * x.size)
    found = [Row(f"{name}: temporaries, in inputs", temporaries, 0, "inputs", None, compare="value")]
    if " while(" not in ours.as_text():
        passes = counts(ours)["bytes"] / (4 * x.size)
        found.append(Row(f"{name}: bytes by XLA's count, in inputs", passes, 0, "inputs", None, compare="value"))
    return found


def adversarial(size: int) -> dict[str, Any]:
    """Data that floats find hard, as float32 `(size,)`."""
    source = np.random.default_rng(1)
    normal = source.standard_normal(size)
    return {
        "1e8 with spread 1e-8": np.float32(1e8 + 1e-8 * normal),
        "1e8 with spread 100": np.float32(1e8 + 100 * normal),
        "1e4 with spread 1": np.float32(1e4 + normal),
        "mixed magnitudes": np.float32(normal * 10.0 ** source.uniform(-8, 8, size)),
        "sorted": np.sort(normal).astype(np.float32),
    }


def errors(size: int = 10_000_000) -> list[Row]:
    """Errors of float32 results against float64, beside those of NumPy in float32, two passes each.

    An error below one rounding of the result counts as one rounding: less is chance.
    """
    found: list[Row] = []
    for case, x in adversarial(size).items():
        wide = x.astype(np.float64)
        moments = jax.jit(agg.Moments(2).run)(x)
        found.append(_error(f"mean, {case}", moments["mean"], x.mean(), wide.mean(), np.abs(wide).mean()))
        found.append(_error(f"variance, {case}", moments["variance"], x.var(), wide.var(), wide.var()))
        found.append(_logsumexp(case, x / np.max(np.abs(x)) * np.float32(20)))
        found.append(_covariance(case, x[: size - size % 2].reshape(-1, 2)))
    return found


def _logsumexp(case: str, x: Any) -> Row:
    wide, top = x.astype(np.float64), x.max()
    exact = top + np.log(np.sum(np.exp(wide - top)))
    numpy = top + np.log(np.sum(np.exp(x - top)))
    ours = jax.jit(agg.LogSumExp().run)(x)
    return _error(f"log-sum-exp, {case}, scaled to 20", ours, numpy, exact, 1 + abs(exact))


def _covariance(case: str, x: Any) -> Row:
    wide = x.astype(np.float64)
    ours = jax.jit(agg.Covariance().run)(x)["covariance"][0, 1]
    # Column by column, where NumPy adds pairwise; along the rows of a matrix it does not.
    first, second = np.ascontiguousarray(x.T)
    numpy = np.mean((first - first.mean()) * (second - second.mean()))
    exact = np.cov(wide.T, ddof=0)
    return _error(f"covariance, {case}", ours, numpy, exact[0, 1], np.sqrt(exact[0, 0] * exact[1, 1]))


def _error(case: str, ours: Any, numpy: Any, exact: float, scale: float) -> Row:
    rounding = float(np.finfo(np.float32).eps) / 2 * float(scale)
    off, peer = (max(abs(float(value) - float(exact)), rounding) for value in (ours, numpy))
    unit = float(scale) if scale else 1.0
    ratio = off / peer if peer else float(off > 0) * float("inf") if off else 1.0
    return Row(f"error: {case}", off / unit, peer / unit, "relative", ACCURACY, compared=ratio)
