"""Programs of tests are lowered in contexts of MLIR that are there already.

JAX makes a context, with all its dialects, for each program, a fourth of what a program of one operation costs.
JAX has no public names for it: where those that are looked for are not there, it does what it does.
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable
from typing import Any


class SharedContext:
    """A context of MLIR that programs of the main thread share, one after the other.

    While XLA compiles, what is lowered gets a context of its own: a partitioner may ask for a program in the middle of
    it (`custom_partitioning`), and XLA works on the shared one. So gets what every other thread lowers.

    Args:
      make: a context.
      most: programs of one context: constants of programs stay in it as long as it lives.
    """

    def __init__(self, make: Callable[[], Any], most: int = 100) -> None:
        self._make, self._most = make, most
        self._context: Any = None
        self._asked = 0
        self._compiling = 0

    def context(self) -> Any:
        """The one for what is lowered now."""
        if self._compiling or threading.current_thread() is not threading.main_thread():
            return self._make()
        context = self._context  # another thread may take it away
        if context is None or self._asked >= self._most:
            context, self._asked = self._make(), 0
        self._context, self._asked = context, self._asked + 1
        return context

    def compiled(self, compile_and_load: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What `compile_and_load` gives, and contexts of their own for what is lowered in the middle of it."""
        if threading.current_thread() is not threading.main_thread():
            # What it compiles may have been lowered in the shared context, by the main thread.
            self._context = None
            return compile_and_load(*args, **kwargs)
        self._compiling += 1
        try:
            return compile_and_load(*args, **kwargs)
        finally:
            self._compiling -= 1


def share_contexts() -> None:
    """From here on in this process programs are lowered in one context after another, not in one each."""
    mlir: Any = importlib.import_module("jax._src.interpreters.mlir")
    compiler: Any = importlib.import_module("jax._src.compiler")
    make = getattr(mlir, "make_ir_context", None)
    compile_and_load = getattr(compiler, "backend_compile_and_load", None)
    if make is None or compile_and_load is None:
        return
    kept = SharedContext(make)
    mlir.make_ir_context = kept.context
    compiler.backend_compile_and_load = functools.partial(kept.compiled, compile_and_load)
