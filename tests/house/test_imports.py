"""What `import tapestry_jax` costs: no optional library, no room that few need, no socket, no device."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

HEAVY = ("flax", "hypothesis", "pytest", "optax", "matplotlib", "orbax", "tensorstore")
# `jax.extend` loads Pallas; the others are rooms of ours that most programs do without.
ROOMS = (
    "aot",
    "commands",
    "hlo",
    "inference",
    "machines",
    "nnx",
    "planning.prediction",
    "planning.pricing",
    "report",
    "searching",
)
LATE = ("jax.extend", "combinators.aggregators", "combinators.stored", *(f"tapestry_jax.{room}" for room in ROOMS))
# Beyond those of `import jax`. Each text is compiled in the time of a module: most of our classes share theirs.
MOST_MODULES = 288
MOST_TEXTS = 200

# An audit hook sees every socket, whoever opens it. Setting the number of devices fails once a backend is up. Each
# statement has a process of its own, forked where JAX is imported and nothing of ours is.
PROBE = """
import json, os, sys, warnings
sockets = []
sys.addaudithook(lambda event, args: sockets.append(event) if event in ("socket.__new__", "socket.connect") else None)
import jax

def observe(statement, late):
    texts, known = [], {*sys.modules}
    # From Python 3.13 on the standard library writes a text without methods for each class: next to nothing.
    nothing = b"def __create_fn__():\\n\\n return ()"
    watched = lambda event, args: event == "compile" and args[1] == "<string>" and args[0] != nothing
    sys.addaudithook(lambda event, args: texts.append(0) if watched(event, args) else None)
    exec(compile(statement, "statement", "exec"), {"__name__": "__main__", "jax": jax, "sys": sys})
    loaded, compiled = sorted({name.partition(".")[0] for name in sys.modules}), len(texts)
    loaded += [name for name in late if name in sys.modules]
    modules = len(sys.modules.keys() - known)
    try:
        jax.config.update("jax_num_cpu_devices", 3)
        touched = jax.device_count("cpu") != 3
    except RuntimeError:
        touched = True
    seen = {"loaded": loaded, "sockets": sockets, "touched": touched, "texts": compiled, "modules": modules}
    print(json.dumps(seen), flush=True)

late, *statements = json.loads(sys.argv[1])
for statement in statements:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads, which there are none of before a device is looked at
        child = os.fork()
    if child == 0:
        observe(statement, late)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, statement
"""

PLANTED = (
    # What is counted, and what is looked at after it, apart: a library would be seen by both.
    {
        "for _ in range(500): exec('x = 1')": "compiles texts",
        "sys.modules.update({f'planted{i}': sys for i in range(300)})": "loads many modules",
    },
    {
        "import socket; socket.socket().close()": "opens a socket",
        "jax.devices()": "touches a device",
        "import jax.extend": "loads jax.extend",
    },
    {
        "import hypothesis": "loads hypothesis",
        "import orbax.checkpoint": "loads orbax",
        "import tapestry_jax as tp; tp.topology": "loads tapestry_jax.aot",
    },
)
STATEMENTS = ("import combinators", "import tapestry_jax", *("\n".join(planted) for planted in PLANTED))


@pytest.fixture(scope="module")
def seen() -> dict[str, dict[str, object]]:
    """What each statement loads, opens and touches in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROBE, json.dumps([LATE, *STATEMENTS])],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return dict(zip(STATEMENTS, told, strict=True))


def faults(seen: dict[str, object]) -> list[str]:
    loaded = seen["loaded"]
    assert isinstance(loaded, list)
    found = [f"loads {name}" for name in (*HEAVY, *LATE) if name in loaded]
    found += ["opens a socket"] if seen["sockets"] else []
    found += ["touches a device"] if seen["touched"] else []
    texts, modules = seen["texts"], seen["modules"]
    assert isinstance(texts, int) and isinstance(modules, int)
    found += ["compiles texts"] if texts > MOST_TEXTS else []
    found += ["loads many modules"] if modules > MOST_MODULES else []
    return found


@pytest.mark.parametrize("package", ["combinators", "tapestry_jax"])
def test_import_is_light(seen: dict[str, dict[str, object]], package: str):
    assert faults(seen[f"import {package}"]) == []


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: ", ".join(planted.values()))
def test_import_probe_sees_faults(seen: dict[str, dict[str, object]], planted: dict[str, str]):
    found = faults(seen["\n".join(planted)])
    assert {*planted.values()} <= {*found}
    # Of numbers, sockets and devices only what was planted: each of these two is seen by itself.
    counted = {"compiles texts", "loads many modules", "opens a socket", "touches a device"}
    assert "loads orbax" in found or {*found} & counted == {*planted.values()} & counted
