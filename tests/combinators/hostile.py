"""Files that were made to do harm, and what comes of reading them; read in a process of its own (damaged_readers)."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import combinators as tp
from combinators.aggregation.functions import LiftEach
from combinators.stored import step_budget
from combinators.stored.codec import encode
from tests.combinators import hostile_kinds
from tests.combinators.hostile_parts import FOLD, dataclass, edited, graph, monoid, named, partial, signed, sized

MARK = "sys.stderr.write('RUN'); Path('harm').write_text('done')"
EVIL = f"""
import sys, dataclasses
from os import system
from pathlib import Path
{MARK}
def f(x):
    return x
@dataclasses.dataclass(frozen=True)
class Post:
    def __post_init__(self):
        sys.exit(0)
def leave(x):
    sys.exit(0)
@dataclasses.dataclass
class Open:
    pass
NUMBER = 3
"""
# Some word of the text that a reader gets, by the case in hostile.py.
TOLD: dict[str, str] = {
    "a shell command": "`os:system` is of the standard library",
    "exec": "`builtins:exec` is of the standard library",
    "an import": "is no kernel of this library",
    "a module of the working directory": 'Pass allow=("evil",) if you trust that code',
    "a class that runs when it is made": "`evil:Post` is not among what a file may name",
    "a class that is allowed and ends the process": "`evil2:Post` refuses its stored fields",
    "a module that ends the process": "SystemExit: 0",
    "a way out of what is allowed": "leads out of the packages that were allowed",
    "save": 'Pass allow=("jax.numpy:save",)',
    "a function among arguments": "a function among them",
    "a host function as a kernel": "is no kernel of this library",
    "16 GB of zeros": "returns another shape than its signature says",
    "an array for a shape": "takes an array of 2147483648 entries apart",
    "endless orders": "`order` of `MomentsMany` has a wrong value",
    "an endless loop over axes": "`rank` of `Aligned` has a wrong value",
    "numbers computed at once": "expected an operand that is no number",
    "folds in folds in folds": "asks for more work than its length explains",
    "a fold in a fold": "asks for more work than its length explains",
    "a deep list": "nested too deeply",
    "a large float": "is too large",
    "a long string": "holds a string that is too long",
    "a size past all bounds": "at most 64 pairs of a name and a size",
    "a process": "`subprocess:Popen` is of the standard library",
    "a hidden call": "leads through a name that starts with two underscores",
    "a power of integers": "`operator:pow` is not among what a file may name",
    "loops in loops": "loops inside each other",
    "a huge integer": "is too large",
    "NaN": "NaN is no JSON number",
    "a key twice": "stands twice in one object",
    "half a character": "no Unicode text",
    "a node of the future": "1 nodes stand before it",
    "truncated": "truncated?",
    "edited without a new checksum": "its checksum differs",
    "another version": "no graph of this version",
    **{name: word for name, (_, _, word) in hostile_kinds.cases().items()},
}


def nested_folds(depth: int, size: int) -> dict[str, Any]:
    """A kernel that folds by a monoid whose combine folds by a monoid ...: 40 times the work a level at 2**40."""
    kernel = encode(LiftEach(jnp.abs, tp.monoids.Sum))
    for _ in range(depth):
        outer = encode(LiftEach(jnp.abs, tp.monoids.Sum))
        grown = partial("jax.numpy:full_like", shape=[size, 3])
        outer["fields"]["monoid"]["fields"]["combine"] = dataclass(
            "combinators.aggregator:After", outer=kernel, inner=grown
        )
        kernel = outer
    return kernel


def loops(depth: int) -> str:
    program: Any = tp.Map(jnp.sin, "a -> a")
    content = json.loads(tp.trace(tp.iterate(program, 2), tp.TensorType({"a": 4})).to_json())["graph"]
    body = content
    for _ in range(depth):
        inner = json.loads(json.dumps(content))
        inner["nodes"][1]["body"] = body
        body = inner
    return signed(body)


def wide(order: int) -> str:
    return json.dumps(FOLD["graph"]).replace('"order": 4', f'"order": {order}')


def cases() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Text and what the reader allows, by name."""
    shell = "touch harm"
    one = "jax.numpy:sin"
    found: dict[str, Any] = {
        "a shell command": graph(kernel=named("os:system")),
        "a shell command in a partial": graph(kernel=partial("os:system", shell)),
        "a process": graph(kernel=partial("subprocess:Popen", shell, shell=True)),
        "exec": graph(kernel=partial("builtins:exec", MARK)),
        "open": graph(kernel=partial("builtins:open", "harm", "w")),
        "a hidden call": graph(kernel=named("jax.numpy:__builtins__.exec")),
        "an import": graph(kernel=partial("combinators.kernel_names:resolve", "os", "system")),
        "an importer": graph(kernel=partial("importlib:import_module", "evil")),
        "a module of the working directory": graph(kernel=named("evil:f")),
        "a class that runs when it is made": graph(kernel=dataclass("evil:Post")),
        "a class that is allowed and ends the process": (graph(kernel=dataclass("evil2:Post")), ("evil2",)),
        "a module that ends the process": (graph(kernel=named("ends:f")), ("ends",)),
        "a way out of what is allowed": (graph(kernel=partial("evil2:system", shell)), ("evil2",)),
        "save": graph(kernel=partial("jax.numpy:save", "harm.npy")),
        "load": graph(kernel=partial("jax.numpy:load", "/etc/passwd")),
        "fromfile": graph(kernel=partial("jax.numpy:fromfile", "/etc/passwd")),
        "a callback": graph(kernel=partial("jax:pure_callback", named("evil:f"), None)),
        "a function among arguments": graph(kernel=partial("jax.numpy:where", named(one))),
        "vectorize": graph(kernel=partial("jax.numpy:vectorize", named(one))),
        "while_loop": graph(kernel=partial("jax.lax:while_loop", named(one), named(one))),
        "exit": graph(kernel=partial("sys:exit", 0)),
        "exit in the monoid": graph(monoid=monoid(named("sys:exit")), signature="a b -> a"),
        "exit in a dense kernel": graph(dense={"$tuple": [named("os:_exit")]}),
        "exit in present": graph(present=named("os:abort")),
        "a function as a key": edited("in_tree", value={"dict": [[named("os:system"), "*"]]}),
        "a host function as a kernel": graph(kernel=dataclass("combinators.aggregator:OnHost", function=named(one))),
        "16 GB of zeros": graph(kernel=partial("jax.numpy:full_like", fill_value=0, shape=[2**31, 2])),
        "16 GB of copies": graph(kernel=partial("jax.numpy:tile", reps=2**31)),
        "16 GB of a constant": graph(kernel=partial("numpy:ones", 2**31)),
        "an array for a shape": sized(2**31, kernel=partial("jax.lax:broadcast", 1)),
        "endless orders": signed(json.loads(wide(2**40))),
        "an endless loop over axes": graph(
            kernel=dataclass(
                "combinators.arithmetic:Aligned",
                function=named(one),
                positions={"$tuple": [{"$tuple": [0, 1]}]},
                numbers={"$tuple": []},
                rank=2**62,
            )
        ),
        "numbers computed at once": graph(
            kernel=dataclass(
                "combinators.arithmetic:Aligned",
                function=named("operator:floordiv"),
                positions={"$tuple": [None, None]},
                numbers={"$tuple": [7, 2]},
                rank=2,
            )
        ),
        "a power of integers": graph(kernel=partial("operator:pow", 2**63, 2**63)),
        "a call without operands": graph(
            kernel=dataclass(
                "combinators.aggregator:Fork",
                functions={"$tuple": [partial("operator:mod", "%99999999999d", 1)]},
                counts={"$tuple": [0]},
            )
        ),
        "folds in folds in folds": sized(2**40, kernel=nested_folds(12, 2**40)),
        "a fold in a fold": sized(2**12, kernel=nested_folds(1, 2**12)),
        "a deep list": "[" * 100_000,
        "deep arguments": graph(kernel=json.loads('{"$tuple":[' * 60 + "0" + "]}" * 60)),
        "loops in loops": loops(25),
        "a huge integer": graph(sizes=0).replace('"sizes": 0', '"sizes": ' + "9" * 4000),
        "a large float": graph(pad=0.5).replace('"pad": 0.5', '"pad": 1e999'),
        "NaN": graph(pad=0.5).replace('"pad": 0.5', '"pad": NaN'),
        "Infinity": graph(pad=0.5).replace('"pad": 0.5', '"pad": -Infinity'),
        "a key twice": graph().replace('"over"', '"name": "x", "over"', 1),
        "half a character": edited("name", value="\ud800"),
        "a long string": edited("name", value="a" * 100_000),
        "colours": edited("nodes", 0, "path", value="\x1b[31mred\x1b[2J").replace('"over": null', '"over": 3'),
        "a signature without end": graph(signature=" ".join(f"a{i}" for i in range(9000)) + " -> "),
        "a huge coefficient": graph(signature="(9" + "9" * 3000 + "*a) b -> a b"),
        "a node of the future": edited("nodes", 1, "operands", value=[[1, 0]]),
        "an operand of itself": edited("nodes", 1, "operands", value=[[1, 0]]),
        "a wrong kind": edited("nodes", 1, "operands", value={"node": 0}),
        "a number for a list": edited("nodes", value=3),
        "true for a number": edited("nodes", 1, "operands", value=[[False, False]]),
        "a size past all bounds": sized(2**63),
        "truncated": graph()[:300],
        "edited without a new checksum": graph().replace('"name": "sin"', '"name": "cos"', 1),
        "no object": "[]",
        "no text": None,
        "bytes": b"{}",
        "another version": graph().replace('"version": 1', '"version": true'),
    }
    own = {name: case if isinstance(case, tuple) else (case, ()) for name, case in found.items()}
    kinds = {name: (text, allow) for name, (text, allow, _) in hostile_kinds.cases().items()}
    assert not own.keys() & kinds.keys()
    return own | kinds


def prepare() -> None:
    """Make the modules that files name, in the working directory."""
    step_budget.BASE, step_budget.PER_CHARACTER = 50_000, 10  # bounds of the same kind, and the test is done sooner
    Path("evil.py").write_text(EVIL)
    Path("evil2.py").write_text(EVIL.replace(MARK, ""))
    Path("evil22.py").write_text(EVIL)
    Path("ends.py").write_text("import sys\nsys.exit(0)\n")
    sys.path.insert(0, str(Path.cwd()))
    jax.eval_shape(jnp.sin, 1.0)


def read(text: Any, allow: tuple[str, ...]) -> tuple[str, str, float]:
    """What came of a file: the error, its text and seconds of the processor."""
    start = time.process_time()
    try:
        tp.Graph.from_json(text, allow=allow)
    except BaseException as error:  # noqa: BLE001 - SystemExit is among what may come
        return type(error).__name__, str(error), time.process_time() - start
    return "read", "", time.process_time() - start


def collected() -> dict[str, Any]:
    """What came of all files, the memory that they took, and what they left behind."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    told = {name: read(text, allow) for name, (text, allow) in cases().items()}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"told": told, "megabytes": peak // 1024, "harm": sorted(map(str, Path().glob("harm*")))}
