"""The collective contract on drawn pairs: `python -m tests.pairs.contract --seed 0 --programs 100`.

Never less than is compiled is predicted; and what is predicted beyond it is told by entries that say they are bounds.
With `--machine v5e:2x4` or `h100:1x8` a production compiler is asked, where it is installed.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import tapestry_jax as tp
from tapestry_jax.hlo.collectives import compiled_collectives
from tapestry_jax.lowering.pinned import lower_pinned
from tests.contract import table

if TYPE_CHECKING:
    from tests.pairs.plans import Placing

PLANS = 2
"""Plans of one program, each of which XLA compiles twice: forward, and with its gradient."""
CLEARED = 20
"""Programs after which what JAX has traced is forgotten."""


def differences(plan: tp.Plan, grad: bool) -> dict[str, tuple[int, int, int]]:
    """Kinds and mesh axes of which not all that is predicted is compiled, or more.

    Returns:
      For each the bytes predicted, those compiled, and of the predicted those that are no bound; XLA compiles the plan.
    """
    listed = plan.collectives(grad)
    predicted, least = table(listed), table(each for each in listed if not each.bound)
    text = lower_pinned(plan.schedule, plan.mesh, grad).compile().as_text()
    sent = table(compiled_collectives(text, plan.mesh))
    return {
        f"{key[0]} over {'+'.join(sorted(key[1]))}": (predicted.get(key, 0), sent.get(key, 0), least.get(key, 0))
        for key in {**predicted, **sent}
        if predicted.get(key, 0) != sent.get(key, 0)
    }


def differences_there(plan: tp.Plan, grad: bool) -> dict[str, tuple[int, int, int]]:
    """The same of a plan for devices that are not here: what their compiler runs, by `tests.aot.held`."""
    import jax

    from tests.aot.held import assert_held

    # At their usual precision TPUs round the operands of a product before they send them: half is sent.
    with jax.default_matmul_precision("highest"):
        seen = plan.compile_only(grad=grad)
    try:
        assert_held(seen)
    except AssertionError as broken:
        predicted, sent = (sum(each.bytes * each.times for each in some) for some in (seen.predicted, seen.collectives))
        return {str(broken): (predicted, sent, predicted if predicted != sent else sent + 1)}
    return {}


def verdict(found: dict[str, tuple[int, int, int]]) -> str:
    """`equal`, `bound` (more is predicted, and said to be a bound), or what is broken: `less` or `more`."""
    if any(predicted < compiled for predicted, compiled, _ in found.values()):
        return "less"
    if any(compiled < least for _, compiled, least in found.values()):
        return "more"
    return "bound" if found else "equal"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.pairs.contract", description=__doc__)
    parser.add_argument("--seed", default="0", help="of everything; any text")
    parser.add_argument("--programs", type=int, default=100, help=f"how many; {PLANS} plans for each")
    parser.add_argument("--first", type=int, default=0, help="the number of the first program")
    parser.add_argument("--only", default="", help="steps to draw from, with commas between them")
    parser.add_argument("--dtype", default="float32", help="of what is floating: float32, bfloat16")
    parser.add_argument("--machine", default="", help="of eight devices, that are not here: v5e:2x4, h100:1x8")
    parser.add_argument("--seconds", type=float, default=300, help="of CPU, after which no other program is drawn")
    options = parser.parse_args(arguments)
    verdicts: Counter[str] = Counter()
    for text, found in _checked(options):
        verdicts[found] += 1
        if found in ("less", "more", "error"):
            print(text, flush=True)
    print(f"seed {options.seed}: {sum(verdicts.values())} phases: {dict(verdicts)}; {time.process_time():.0f} s of CPU")
    return int(any(verdicts[broken] for broken in ("less", "more", "error")))


def _checked(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    import jax

    from tests.pairs.pair import draw_pair
    from tests.pairs.plans import repaired

    only = tuple(filter(None, options.only.split(",")))
    devices = list(tp.topology(options.machine, all=8).devices.flat) if options.machine else None
    for index in range(options.first, options.first + options.programs):
        if time.process_time() > options.seconds:
            print(f"stopped before program {index}")
            return
        for number, (program, placing) in enumerate(
            draw_pair(f"{options.seed}/{index}", PLANS, dtype=options.dtype, only=only)
        ):
            pair = f"{options.seed}/{index}/{number}"
            placing, plan, _ = repaired(_over_eight(placing) if devices else placing, program.graph, pair)
            if plan is not None and plan.collectives(True):
                shown, compared = f"{program.graph.show()}\n{placing}", differences
                if devices:
                    plan, compared = placing.plan(program.graph, tp.mesh(devices, **placing.mesh)), differences_there
                yield from ((f"{pair} {phase}: {d}\n{shown}", v) for phase, d, v in _phases(plan, compared))
        if index % CLEARED == CLEARED - 1:
            jax.clear_caches()


def _over_eight(placing: Placing) -> Placing:
    """The same with the sizes of its mesh axes changed where they do not multiply to eight."""
    if math.prod(placing.mesh.values()) == 8:
        return placing
    sizes = {1: (8,), 2: (2, 4), 3: (2, 2, 2)}[len(placing.mesh)]
    return replace(placing, mesh=dict(zip(placing.mesh, sizes, strict=True)))


def _phases(plan: tp.Plan, compared: Callable[..., Any]) -> Iterator[tuple[str, Any, str]]:
    for phase, grad in (("forward", False), ("gradient", True)):
        try:
            found = compared(plan, grad)
        except Exception as error:  # noqa: BLE001, any error is a finding
            yield phase, repr(error)[:800], "error"
            return
        yield phase, found, verdict(found)


def _configured() -> None:
    """Settings of a process of its own: devices, and the compiler's cheapest way."""
    flags = (
        "--xla_backend_optimization_level=0",
        "--xla_llvm_disable_expensive_passes=true",
        "--xla_cpu_use_fusion_emitters=false",
        "--xla_cpu_parallel_codegen_split_count=1",
    )
    os.environ["XLA_FLAGS"] = " ".join((os.environ.get("XLA_FLAGS", ""), *flags))
    import jax

    jax.config.update("jax_num_cpu_devices", 8)


if __name__ == "__main__":
    _configured()
    sys.exit(main())
