"""Blocks one by one, on drawn pairs: `python -m tests.pairs.blocks --seed 0 --programs 100 --damages 2`.

The sharded graph of every plan is proved and run, and gives what the program gives, both in NumPy. Then one field of
its file is changed at random: what the proof still accepts has to give the same.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import tapestry_jax as tp
from tests.pairs.features import count, features, lacking

PLANS = 4
"""Plans of one program."""
CLEARED = 100
"""Programs after which what JAX has traced is forgotten."""
BROKEN = ("alarm", "wrong", "error", "accepted and different", "accepted and not run", "other error")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.pairs.blocks", description=__doc__)
    parser.add_argument("--seed", default="0", help="of everything; any text")
    parser.add_argument("--programs", type=int, default=100, help=f"how many; {PLANS} plans for each")
    parser.add_argument("--first", type=int, default=0, help="the number of the first program")
    parser.add_argument("--damages", type=int, default=0, help="changed files of every plan")
    parser.add_argument("--seconds", type=float, default=600, help="of CPU, after which no other program is drawn")
    parser.add_argument("--only", default="", help="steps to draw from, with commas between them")
    parser.add_argument("--edition", type=int, default=2, help="of what is drawn; 1 for pairs recorded before")
    options = parser.parse_args(arguments)
    found: Counter[str] = Counter()
    drawn = Drawn(Counter(), Counter())
    spent: Counter[str] = Counter()
    chosen = {"edition": options.edition, "only": tuple(filter(None, options.only.split(",")))}
    for index in range(options.first, options.first + options.programs):
        if time.process_time() > options.seconds:
            print(f"stopped before program {index}")
            break
        seed = f"{options.seed}/{index}"
        for verdict, text in checked(seed, options.damages, spent, drawn=drawn, **chosen):
            found[verdict] += 1
            if verdict in BROKEN:
                print(f"{verdict}: {text}", flush=True)
        _forget(index)
    print(f"seed {options.seed}: {dict(found)}")
    print(", ".join(f"{what} {seconds:.1f} s" for what, seconds in spent.items()), "of CPU")
    print("features:", dict(drawn.alone.most_common()))
    missing = lacking(drawn.met, drawn.alone)
    print(f"{len(drawn.met)} pairs of features have met; {len(missing)} have not:", "; ".join(missing))
    return int(any(found[broken] for broken in BROKEN))


@dataclass(frozen=True)
class Drawn:
    """How often each feature was drawn, and each two in one pair."""

    alone: Counter[str]
    met: Counter[tuple[str, str]]


def checked(
    seed: str,
    damages: int,
    spent: Counter[str],
    plans: Sequence[int] = range(PLANS),
    drawn: Drawn | None = None,
    **chosen: Any,
) -> Iterator[tuple[str, str]]:
    """Check the plans of one program, and damaged files of them: verdicts, and what they are about."""
    from tests.pairs.pair import draw_pair
    from tests.pairs.plans import repaired

    clock = _Clock(spent)
    placings = draw_pair(seed, PLANS, **chosen)
    clock("drawing")
    program = placings[0][0]
    args, want = _unplanned(program)
    clock("the programs")
    for number in plans:
        pair, (_, placing) = f"{seed}/{number}", placings[number]
        placing, plan, _ = repaired(placing, program.graph, pair)
        clock("planning")
        if plan is None:
            yield "refused by planning", pair
            continue
        shards = plan.shards()
        clock("writing")
        if drawn is not None:
            count(features(placing, program.graph, program.taken, shards), drawn.alone, drawn.met)
            clock("counting")
        verdict, text = _proved(shards, program.graph)
        clock("proving")
        if not verdict:
            verdict, text = compared(shards, args, want)
        clock("running")
        yield verdict, f"{pair} {text}"
        if verdict == "equal" and damages:
            yield from damages_of(shards, program.graph, args, want, pair, damages)
        clock("damage")


def _unplanned(program: Any) -> tuple[list[Any], list[Any]]:
    import jax

    from tests.simulated.evaluate import simulated

    args = program.args()
    return args, simulated(lambda args: jax.tree.leaves(program.graph(*args)), args)


def damages_of(
    shards: Any, graph: tp.Graph, args: Sequence[Any], want: Sequence[Any], seed: str, count: int
) -> Iterator[tuple[str, str]]:
    """Verdicts on files of a sharded graph with one field changed."""
    from tests.pairs.damaging_json import damaged, read

    try:
        text = shards.to_json()
    except tp.KernelError as error:
        yield "no file", str(error).splitlines()[0]
        return
    whole, rng = read(text), Random(f"{seed}/damage")
    for _ in range(count):
        what, changed = damaged(text, rng)
        try:
            other = read(changed)
        except tp.FormatError:
            yield "refused as a file", what
            continue
        if (other.shared, other.program) == (whole.shared, whole.program):
            yield "the same", what
            continue
        verdict, told = _proved(other, graph)
        if verdict == "alarm":
            yield "refused", what
        elif verdict:
            yield "other error", f"{seed} {what}: {told}"
        else:
            verdict, told = compared(other, args, want)
            named = {"equal": "accepted and equal", "wrong": "accepted and different"}
            yield named.get(verdict, "accepted and not run"), f"{seed} {what}: {told}"


def _proved(shards: Any, graph: tp.Graph) -> tuple[str, str]:
    try:
        shards.verify(graph)
    except tp.PlanError as error:
        return "alarm", str(error)[:300]
    except Exception as error:  # noqa: BLE001, any other error is a finding
        return "error", repr(error)[:300]
    return "", ""


def compared(shards: Any, args: Sequence[Any], want: Sequence[Any]) -> tuple[str, str]:
    """`equal`, `wrong` or `error`, and what differs."""
    import jax

    from tests.pairs.pair import TOLERANCES, difference

    try:
        got = jax.tree.leaves(shards.run(*args))
    except Exception as error:  # noqa: BLE001, any error is a finding
        return "error", repr(error)[:600]
    kinds = [str(each.dtype) for each in args]
    tolerance = max(TOLERANCES.get(kind, 0.0) for kind in kinds)
    if len(got) != len(want):
        return "wrong", f"{len(got)} outputs, expected {len(want)}"
    off = [difference(one, other, tolerance) for one, other in zip(got, want, strict=True)]
    return ("wrong", str(off)) if any(off) else ("equal", "")


class _Clock:
    """Adds the CPU seconds since the last call to a name."""

    def __init__(self, spent: Counter[str]) -> None:
        self._spent, self._last = spent, time.process_time()

    def __call__(self, name: str) -> None:
        now = time.process_time()
        self._spent[name] += now - self._last  # pyright: ignore[reportArgumentType]
        self._last = now


def _forget(index: int) -> None:
    import jax

    if index % CLEARED == CLEARED - 1:
        jax.clear_caches()


if __name__ == "__main__":
    import jax

    jax.config.update("jax_num_cpu_devices", 8)
    jax.config.update("jax_enable_x64", True)
    sys.exit(main())
