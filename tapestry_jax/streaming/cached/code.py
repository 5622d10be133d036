"""What functions may do beside what was traced of them, as a text: their code, and what all of it reads.

A kernel may take another way for blocks of other sizes, on which it calls functions that no trace has met. So the code
of all that it can reach belongs to what it computes, and the numbers, texts and arrays that this code reads.
"""

from __future__ import annotations

import dis
import hashlib
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType

from combinators.errors import KernelError, first_line
from combinators.kernels.fingerprint import code_text, plain_text
from combinators.kernels.reachable import Read, is_library, reached


class NoKeyError(Exception):
    """Nothing tells what a program computes."""


def code_of(function: object) -> str:
    """A checksum of the code that a function can reach, and of what that reads.

    Raises:
      NoKeyError: where something of it cannot be told.
    """
    found = reached(function, "kernel")
    if not found.is_whole:
        raise NoKeyError("it reads too much")
    digest = hashlib.sha256()
    for each in found.reads:
        digest.update(f"{each.expression}{each.place}: {_told(each)}\n".encode())
    return digest.hexdigest()


def _told(each: Read) -> str:
    value = each.value
    if isinstance(value, FunctionType):
        return "" if is_library(value.__globals__.get("__name__")) else _function(value)
    try:
        plain = plain_text(value)
    except KernelError as error:
        raise NoKeyError(first_line(error)) from error
    return f"{type(value).__module__}:{type(value).__qualname__}" if plain is None else plain


def _function(function: FunctionType) -> str:
    for name in _imported(function.__code__):
        if not (is_library(name) or name.partition(".")[0] in sys.stdlib_module_names):
            raise NoKeyError(f"`{function.__name__}` imports {name} when it runs")
    return code_text(function.__code__)


def _imported(code: CodeType) -> Iterator[str]:
    """What a function imports when it runs; of what stands beside it nothing but a dot."""
    level = 0
    for each in dis.get_instructions(code):
        if each.opname == "LOAD_CONST" and type(each.argval) is int:
            level = each.argval
        elif each.opname == "IMPORT_NAME":
            yield "." * level + str(each.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _imported(constant)
