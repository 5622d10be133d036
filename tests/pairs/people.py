"""Programs as people write them: leaves made in loops, of kernels in every form in which Python has functions.

A program is drawn as groups of leaves. A group has a form, such as lambdas that read the variable of a loop, and some
factors; what it must compute follows from the factors alone, in NumPy. `python -m tests.pairs.people --programs 300`
holds that against calling, tracing, planning, stacking, storing and streaming.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tapestry_jax as tp
from combinators.frozen import dataclass

Base = Callable[[Any, Any], Any]
"""Takes a factor and a block."""


def line(k: Any, a: Any) -> Any:
    return a * 0.5 + k


def wave(k: Any, a: Any) -> Any:
    return jnp.sin(a) * k


def centred(k: Any, a: Any) -> Any:
    return a - k * jnp.mean(a, -1, keepdims=True)


def summed(k: Any, a: Any) -> Any:
    return jnp.sum(a * k, 0) * 0.1


@dataclass(frozen=True)
class Frozen:
    """A kernel with a field."""

    base: Any
    k: Any

    def __call__(self, a: Any) -> Any:
        return self.base(self.k, a)


@dataclass(frozen=True)
class Held:
    """A kernel that holds another one."""

    kernel: Any

    def __call__(self, a: Any) -> Any:
        return self.kernel(a)


@dataclasses.dataclass(eq=False)
class Plain:
    """An object that may change."""

    base: Any
    k: Any

    def __call__(self, a: Any) -> Any:
        return self.base(self.k, a)

    def method(self, a: Any) -> Any:
        return self.base(self.k, a)


def helper(base: Base, k: Any) -> Callable[[Any], Any]:
    """Called with one value after the other."""

    def inner(a: Any) -> Any:
        return base(k, a)

    return lambda a: inner(a)


Kernels = Iterator[Callable[[Any], Any]]


def closures(base: Base, ks: Sequence[float]) -> Kernels:
    for k in ks:
        yield lambda a: base(k, a)  # noqa: B023 - this is what is drawn, here and below


def nested(base: Base, ks: Sequence[float]) -> Kernels:
    for k in ks:

        def outer(a: Any) -> Any:
            def inner(b: Any) -> Any:
                return base(k, b)  # noqa: B023

            return inner(a)

        yield outer


def partials(base: Base, ks: Sequence[float]) -> Kernels:
    return (functools.partial(base, k) for k in ks)


def partials_of_closures(base: Base, ks: Sequence[float]) -> Kernels:
    for k in ks:
        yield functools.partial(lambda one, a: base(k * one, a), 1.0)  # noqa: B023


def keywords(base: Base, ks: Sequence[float]) -> Kernels:
    for k in ks:
        yield functools.partial(lambda a, *, of: of(a), of=lambda a: base(k, a))  # noqa: B023


def defaults(base: Base, ks: Sequence[float]) -> Kernels:
    return (lambda a, k=k: base(k, a) for k in ks)


def default_functions(base: Base, ks: Sequence[float]) -> Kernels:
    for k in ks:

        def kernel(a: Any, own: Any = lambda a: base(k, a)) -> Any:
            return own(a)

        yield kernel


def helped(base: Base, ks: Sequence[float]) -> Kernels:
    return (helper(base, k) for k in ks)


def frozen(base: Base, ks: Sequence[float]) -> Kernels:
    return (Frozen(base, k) for k in ks)


def frozen_closures(base: Base, ks: Sequence[float]) -> Kernels:
    for k in ks:
        yield Held(lambda a: base(k, a))  # noqa: B023


def objects(base: Base, ks: Sequence[float]) -> Kernels:
    return (Plain(base, k) for k in ks)


def methods(base: Base, ks: Sequence[float]) -> Kernels:
    return (Plain(base, k).method for k in ks)


def local_classes(base: Base, ks: Sequence[float]) -> Kernels:
    for given in ks:

        class Local:
            k = given

            @classmethod
            def kernel(cls, a: Any) -> Any:
                return base(cls.k, a)

        yield Local.kernel


def wrapped(base: Base, ks: Sequence[float]) -> Kernels:
    for number, k in enumerate(ks):
        wrap: Any = (jax.jit, jax.checkpoint, functools.wraps(base))[number % 3]
        yield wrap(lambda a: base(k, a))  # noqa: B023


def jvps(base: Base, ks: Sequence[float]) -> Kernels:
    for k in ks:
        kernel = jax.custom_jvp(lambda a: base(k, a))  # noqa: B023
        kernel.defjvp(lambda p, t: jax.jvp(lambda a: base(k, a), p, t))  # noqa: B023
        yield kernel


def vjps(base: Base, ks: Sequence[float]) -> Kernels:
    for k in ks:
        kernel = jax.custom_vjp(lambda a: base(k, a))  # noqa: B023
        kernel.defvjp(
            lambda a: (base(k, a), a),  # noqa: B023
            lambda a, g: jax.vjp(lambda a: base(k, a), a)[1](g),  # noqa: B023
        )
        yield kernel


def rows_of_lambdas(base: Base, ks: Sequence[float]) -> Kernels:
    made = list[Any]()
    for k in ks:
        made.append(lambda a: base(k, a))  # noqa: B023
    yield from made  # all of them read the last one, as they do in Python


def one_list(base: Base, ks: Sequence[float]) -> Kernels:
    held = [0.0]
    for held[0] in ks:
        yield lambda a: base(held[0], a)


def one_object(base: Base, ks: Sequence[float]) -> Kernels:
    held = Plain(base, 0.0)
    for held.k in ks:
        yield held


def one_method(base: Base, ks: Sequence[float]) -> Kernels:
    held = Plain(base, 0.0)
    for held.k in ks:
        yield held.method


def one_namespace(base: Base, ks: Sequence[float]) -> Kernels:
    held = SimpleNamespace(k=0.0)
    for held.k in ks:
        yield lambda a: base(held.k, a)


def classes_in_a_loop(base: Base, ks: Sequence[float]) -> Kernels:
    for k in ks:

        class Local:
            def __call__(self, a: Any) -> Any:
                return base(k, a)  # noqa: B023

        yield Local()


def globals_in_a_loop(base: Base, ks: Sequence[float]) -> Kernels:
    for k in ks:
        globals()["_K"] = k
        yield lambda a: base(_K, a)


_K = 0.0


def loaded_again(base: Base, ks: Sequence[float]) -> Kernels:
    del base
    return (getattr(_module(f"def kernel(a): return a * 0.5 + {k}"), "kernel") for k in ks)  # noqa: B009


def globals_loaded_again(base: Base, ks: Sequence[float]) -> Kernels:
    del base
    return (getattr(_module(f"K = {k}\ndef kernel(a): return a * 0.5 + K"), "kernel") for k in ks)  # noqa: B009


def _module(text: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "written_by_people.py").write_text(text)
        sys.path.insert(0, folder)
        wrote, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            importlib.invalidate_caches()
            known = sys.modules.get("written_by_people")
            return importlib.reload(known) if known else importlib.import_module("written_by_people")
        finally:
            sys.dont_write_bytecode = wrote
            sys.path.remove(folder)


KEPT = (
    *(closures, nested, partials, partials_of_closures, keywords, defaults, default_functions, helped, frozen),
    *(frozen_closures, objects, methods, local_classes, wrapped, jvps, vjps, rows_of_lambdas),
)
"""What a plan runs as it was."""
LATE = (one_list, one_object, one_method, one_namespace, classes_in_a_loop, globals_in_a_loop)
"""What a plan refuses where the factors differ."""
LOADED = (loaded_again, globals_loaded_again)
SHARED = (globals_in_a_loop, globals_loaded_again)
"""What all groups of this form read is one variable."""
BASES = {line: None, wave: None, centred: "r [c] -> r [c]", summed: "r c -> c"}


@dataclass(frozen=True)
class Group:
    """Leaves in one form.

    Attributes:
      form: makes their kernels.
      base: what they compute.
      factors: one for each.
      at_once: whether all leaves are made before the first is applied.
    """

    form: Any
    base: Any
    factors: tuple[float, ...]
    at_once: bool

    def apply(self, x: Any) -> Any:
        """Make the leaves, and apply them."""
        leaves = map(self._leaf, self.form(self.base, self.factors))
        for leaf in list(leaves) if self.at_once else leaves:
            x = x + leaf(x) if self.base is summed else leaf(x)
        return x

    def expected(self, x: Any, factors: Sequence[float]) -> Any:
        """What they compute, in NumPy."""
        for k in factors:
            made = np.asarray(self.base(k, x))
            x = x + made if self.base is summed else made
        return x

    @property
    def read(self) -> Sequence[float]:
        """The factors that the kernels read when they are applied."""
        late = self.form is rows_of_lambdas or (self.form in LATE and self.at_once)
        return (self.factors[-1],) * len(self.factors) if late else self.factors

    def _leaf(self, kernel: Any) -> Any:
        signature = BASES[self.base]
        if signature is None:
            return tp.Map(kernel)
        return tp.Reduce(kernel, signature, tp.monoids.Sum) if self.base is summed else tp.Map(kernel, signature)


def draw(seed: str) -> list[Group]:
    """The groups of a program."""
    rng = Random(seed)
    groups = list[Group]()
    for _ in range(rng.choice((1, 2, 2, 3))):
        form = rng.choice((*KEPT, *KEPT, *LATE, *LOADED))
        base = line if form in LOADED else rng.choice(list(BASES))
        factors = tuple(rng.choice((1.0, 2.0, 3.0, 0.5)) for _ in range(rng.choice((1, 2, 3))))
        groups.append(Group(form, base, factors, rng.random() < 0.5 and form is not globals_loaded_again))
    return groups


def check(seed: str) -> list[str]:
    """What is wrong with a program; what was asked of it, behind an `=`, is left out."""
    groups, rng = draw(seed), Random(f"{seed}/plan")
    x = np.random.default_rng(len(seed)).normal(size=(rng.choice((1, 4, 5, 6)), 3)).astype(np.float32)
    expected = x
    for group in groups:
        expected = group.expected(expected, group.read)

    def program(x: Any) -> Any:
        for group in groups:
            x = group.apply(x)
        return x

    refusable = may_be_refused(groups)
    found = list[str]()

    def ask(what: str, run: Callable[[], Any], want: Any = expected, *, later: bool = True) -> None:
        try:
            got = run()
        except tp.KernelError as error:
            if not (later and refusable and "has changed since" in str(error)):
                found.append(f"{what}: {error}")
            return
        except Exception as error:  # noqa: BLE001 - any error is a finding
            found.append(f"{what}: {type(error).__name__}: {error}")
            return
        if got is not None and not np.allclose(got, want, rtol=1e-4, atol=1e-5):
            found.append(f"{what}: got {np.asarray(got).ravel()[:4]}, expected {np.asarray(want).ravel()[:4]}")

    ask("called", lambda: program(x), later=False)
    ask("called again", lambda: program(x), later=False)
    kind = tp.TensorType({"r": len(x), "c": 3})
    graph = tp.trace(tp.program(program), kind)
    ask("traced", lambda: graph(x))
    entry = rng.choice(("data", (tp.chunks(size=2),), ("data", tp.chunks(size=1))))
    plan = tp.plan(graph, tp.mesh(data=2), {"r": entry})
    ask("in blocks", lambda: plan.shards().run(x))
    if rng.random() < 0.4:
        ask("planned", lambda: plan.compile()(x))
        slope = _slope(groups, x)
        ask("gradient", lambda: jax.grad(lambda x: plan.compile()(x).sum())(x), slope)
    if rng.random() < 0.2:
        stacked = tp.trace(tp.stack(tp.program(lambda x, w: program(x) * w), 2), kind, jnp.ones(2))
        twice = expected
        for group in groups:
            twice = group.expected(twice, group.read)
        ask("stacked", lambda: stacked(x, jnp.ones(2)), twice)
    if rng.random() < 0.2 and groups[-1].base is not summed:
        ask("streamed", lambda: tp.stream(graph, {"r": tp.chunks(size=2)}, sources={"x": x}).run())
    ask("stored", lambda: _stored(graph, x))
    return found


def may_be_refused(groups: Sequence[Group]) -> bool:
    """Whether something that kernels read changes after the first of them is applied."""
    shared = {form: {k for g in groups if g.form is form for k in g.factors} for form in SHARED}
    return any(len(ks) > 1 for ks in shared.values()) or any(g.form in LATE and len({*g.factors}) > 1 for g in groups)


def _slope(groups: Sequence[Group], x: Any) -> Any:
    """The gradient of the sum of what a program gives, of plain functions."""

    def run(x: Any) -> Any:
        for group in groups:
            for k in group.read:
                x = x + group.base(k, x) if group.base is summed else group.base(k, x)
        return x.sum()

    return jax.grad(run)(x)


def _stored(graph: tp.Graph, x: Any) -> Any:
    """What the program gives after it was stored; None where its kernels have no names."""
    try:
        text = graph.to_json()
    except tp.KernelError:
        return None
    return tp.Graph.from_json(text, allow=("tests", "written_by_people"))(x)


def main() -> int:
    """Draw, check, and say what was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.pairs.people", description=__doc__)
    parser.add_argument("--seed", default="0", help="any text")
    parser.add_argument("--programs", type=int, default=300)
    options = parser.parse_args()
    start, forms, wrong = time.process_time(), Counter[str](), 0
    for number in range(options.programs):
        seed = f"{options.seed}/{number}"
        forms.update(group.form.__name__ for group in draw(seed))
        for text in check(seed):
            wrong += 1
            told = [(g.form.__name__, g.base.__name__, g.factors, g.at_once) for g in draw(seed)]
            print(f"{seed}: {text}\n  {told}", flush=True)
    print(f"{options.programs} programs, {wrong} findings, {time.process_time() - start:.0f} s of CPU, {dict(forms)}")
    return int(wrong > 0)


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    # What `python -m` runs has no name that can be imported.
    sys.exit(importlib.import_module("tests.pairs.people").main())
