"""Check many pairs of programs and plans: `python -m tests.pairs --seed 0 --pairs 10000`.

What was checked is written down line by line, so that a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.pairs.pair import Compare

PLANS = 4
"""Plans of one program: its unplanned results are computed once."""
FINDINGS = ("wrong", "gradient", "error", "alarm", "names")
CLEARED = 50
"""Programs after which what JAX has traced is forgotten, so that memory does not grow."""


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.worker is None and options.jobs > 1:
        _started(options)
    else:
        _work(options)
    return 0 if options.worker is not None else _report(options)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.pairs", description=__doc__)
    parser.add_argument("--seed", default="0", help="of everything; any text")
    parser.add_argument("--pairs", type=int, default=10_000, help=f"how many; {PLANS} plans for each program")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--worker", type=int, help="of these processes the one to be (set by the tool itself)")
    parser.add_argument("--only", default="", help="steps to draw from, with commas between them")
    parser.add_argument("--folder", type=Path, default=Path(".pytest_cache/pairs"), help="where results are kept")
    parser.add_argument("--compiled", action="store_true", help="by XLA, in float32, and not by NumPy")
    parser.add_argument("--way", choices=("second", "forward", "twice", "mapped"), help="these derivatives alone")
    parser.add_argument("--again", help="one pair, such as 0/31/2: check it, make it smaller, and print it")
    return parser.parse_args(arguments)


def _started(options: argparse.Namespace) -> None:
    own = list(sys.argv[1:])
    workers = [
        subprocess.Popen([sys.executable, "-m", "tests.pairs", *own, "--worker", str(number)])
        for number in range(options.jobs)
    ]
    for worker in workers:
        worker.wait()


def _file(options: argparse.Namespace, worker: int) -> Path:
    way = "-compiled" if options.compiled else f"-{options.way}" if options.way else ""
    return options.folder / f"{options.seed}{way}-{worker}-of-{options.jobs}.jsonl"


def _work(options: argparse.Namespace) -> None:
    import jax

    if options.again:
        _again(options.again, *_way(options))
        return
    worker = options.worker or 0
    path = _file(options, worker)
    done = {row["pair"] for row in _rows([path])}
    with path.open("a") as file:
        for index in range(worker, options.pairs // PLANS, options.jobs):
            seed = f"{options.seed}/{index}"
            if f"{seed}/{PLANS - 1}" in done:
                continue
            only = tuple(filter(None, options.only.split(",")))
            for row in _checked(seed, only, *_way(options)):
                if row["pair"] not in done:
                    file.write(json.dumps(row) + "\n")
                if row["verdict"] in FINDINGS:
                    print(f"{row['pair']}: {row['verdict']}\n{row['text']}", flush=True)
            file.flush()
            if index // options.jobs % CLEARED == CLEARED - 1:
                jax.clear_caches()


def _way(options: argparse.Namespace) -> tuple[dict[str, Any], Compare | None]:
    """What programs are drawn with, and how they are compared."""
    if options.way:
        from tests.pairs.ways import compare_by

        return {"edition": 3}, compare_by(options.way)
    if not options.compiled:
        return {}, None
    from tests.pairs.compiled import CHOSEN, compare_compiled

    return CHOSEN, compare_compiled


def _checked(seed: str, only: tuple[str, ...], chosen: dict[str, Any], by: Compare | None) -> Iterator[dict[str, Any]]:
    """Check all plans of one program."""
    from tests.pairs.pair import check, draw_pair

    for number, (program, placing) in enumerate(draw_pair(seed, PLANS, only=only, **chosen)):
        start = time.process_time()
        placing, outcome = check(program, placing, f"{seed}/{number}", by=by)
        yield {
            "pair": f"{seed}/{number}",
            "verdict": outcome.verdict,
            "steps": program.taken,
            "plan": str(placing),
            "text": f"{program.graph.show()}\n{placing}\n{outcome.text}" if outcome.text else "",
            "refusals": [text.splitlines()[0] for text in outcome.refusals],
            "seconds": round(time.process_time() - start, 3),
        }


def _again(pair: str, chosen: dict[str, Any], by: Compare | None) -> None:
    from tests.pairs.pair import check, draw_pair
    from tests.pairs.smaller import smaller

    seed, number = pair.rsplit("/", 1)
    program, placing = draw_pair(seed, PLANS, **chosen)[int(number)]
    placing, outcome = check(program, placing, pair, by=by)
    print(f"{program.graph.show()}\n{placing}\n{outcome.verdict}: {outcome.text}")
    if outcome.verdict in FINDINGS:
        program, placing, outcome = smaller(program, placing, outcome, by)
        print(f"smaller:\n{program.graph.show()}\n{placing}\n{outcome.verdict}: {outcome.text}")


def _rows(paths: Iterable[Path]) -> Iterator[dict[str, Any]]:
    for path in paths:
        if path.exists():
            yield from map(json.loads, path.read_text().splitlines())


def _report(options: argparse.Namespace) -> int:
    rows = list(_rows(_file(options, worker) for worker in range(options.jobs)))
    verdicts = Counter(row["verdict"] for row in rows)
    compared = sum(count for verdict, count in verdicts.items() if verdict not in ("refused", "trivial"))
    print(f"seed {options.seed}: {len(rows)} drawn, {compared} compared: {dict(verdicts)}")
    print(f"{sum(row['seconds'] for row in rows):.0f} s of CPU")
    print("steps:", dict(Counter(step for row in rows for step in row["steps"]).most_common()))
    for row in rows:
        if row["verdict"] in FINDINGS:
            print(f"  {row['verdict']}: --again {row['pair']}")
    return int(any(verdicts[finding] for finding in FINDINGS))


def _configured(compiled: bool) -> None:
    """Settings of a process of its own, which a test that calls `main` must not leave behind."""
    import jax

    # Rounding must not hide what is wrong: numbers are float64, and differences small. Compiled is what users run.
    jax.config.update("jax_enable_x64", not compiled)
    jax.config.update("jax_num_cpu_devices", 8)
    gc.set_threshold(100_000, 50, 100)


if __name__ == "__main__":
    _configured("--compiled" in sys.argv)
    sys.exit(main())
