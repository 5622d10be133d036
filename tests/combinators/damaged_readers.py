"""Damages to the readers of graphs, and for each the hostile file that sees it.

Reads the whole collection in a process of its own, then every damaged reader in a fork of that, since some end it;
prints as JSON what came of it. Thorough: all damages; otherwise every fourth.
"""

from __future__ import annotations

import json
import os
import resource
import warnings
from pathlib import Path
from typing import Any

from combinators.graphs import check as graph_check
from combinators.graphs import json as graph_json
from combinators.operations import json as operation_json
from combinators.stored import codec as kernel_codec
from combinators.stored import fields as kernel_fields
from combinators.stored import json as stored_json
from combinators.stored import readable, step_budget
from combinators.stored import trees as tree_json
from combinators.stored.sealed import Sealed
from tests.combinators import hostile
from tests.damaged import damaged
from tests.thoroughly import thoroughly

Damage = tuple[Any, str, str, str]
Reader = readable.Readable
# By what is damaged: the function, a piece of its source, what stands there instead, and the file that sees it.
DAMAGES: dict[str, Damage] = {
    # Bounds of the text.
    "any length": (stored_json.read_json, "len(text) > LARGEST_TEXT", "False", "more characters than are read"),
    "any kind of text": (stored_json.read_json, "not isinstance(text, str)", "False", "bytes"),
    "any nesting": (stored_json.read_json, "not _is_flat_enough(bare)", "False", "a deep list"),
    "any integer": (stored_json._integer, "len(digits) > 21 or not", "False and", "a large integer"),
    "any float": (stored_json._finite, 'in (float("inf"), float("-inf"))', "is None", "a large float"),
    "NaN": (stored_json._refuse_constant, 'raise ValueError(f"{name} is no JSON number")', "return float(name)", "NaN"),
    "keys twice": (stored_json._without_repeats, "name in found", "False", "a key twice"),
    "any string": (stored_json._check_strings, "len(part) > LONGEST_STRING", "False", "a long string"),
    "strings of keys": (stored_json._parts, "isinstance(step[0], str)", "False", "half a character in a key"),
    "strings in lists": (stored_json._inside, "isinstance(part, list | tuple)", "False", "a long string in a list"),
    "long by its look": (stored_json._is_plain, "<= LONGEST_STRING", "< 2**62", "a long string"),
    "escaped strings": (stored_json._is_refused, "not is_printable", "False", "colours in a key"),
    "many digits": (stored_json._parsed, "_LONG_NUMBER.search(bare)", "None", "a large integer"),
    "exponents": (stored_json._parsed, "_MAY_OVERFLOW.search(bare)", "None", "a large float"),
    "surrogates": (stored_json._check_strings, "_SURROGATE.search(part)", "False", "half a character"),
    "any key": (stored_json.entries, "!= set(keys)", "== set()", "something more in a graph"),
    "numbers below nothing": (stored_json.integer, "stored < 0", "False", "a negative number"),
    "true for a number": (stored_json.integer, "type(stored) is not int", "False", "true for a number"),
    "colours": (stored_json.read_json, "not any_text and", "False and", "colours in the name of an operation"),
    "colours in keys": (stored_json._parts, "isinstance(step[0], str)", "False", "colours in a key"),
    "long lines": (stored_json.readable_errors, "len(line) <= _LONGEST_LINE", "True", "loops in loops"),
    # Head and checksum.
    "no checksum": (Sealed.open, 'head["sha256"] != (found :=', "None is (found :=", "edited without a new checksum"),
    "any version": (Sealed.open, "version != self.version", "False", "another version of the format"),
    "any format": (Sealed.open, 'head["format"] != self.format', "False", "another format"),
    "no look at types": (graph_json._read, "check_graph(graph)", "pass", "another type"),
    "no budget": (graph_json._read, "bounded_steps(len(text))", "readable_errors()", "a fold in a fold"),
    "endless loops": (graph_json._Reader.graph, "depth > DEEPEST_LOOPS", "False", "loops in loops"),
    "any operation": (graph_json._Reader.node, "number >= len(operations)", "False", "an operation that is not there"),
    "any number of axes": (graph_json.type_from_json, "len(dims) > _MOST_AXES", "False", "more axes than there are"),
    "any size": (graph_json._is_dim, "pair[1] < _LARGEST_SIZE", "True", "a size past all bounds"),
    "any label": (graph_json._label, "len(label) > _LONGEST_LABEL", "False", "a label past all bounds"),
    # Names.
    "no look at the list": (
        Reader.find,
        'not self._allows(name.partition(":")[0])',
        "False",
        "a module of the working directory",
    ),
    "the standard library": (Reader.find, "(reason := forbidden(name)) is not None", "False", "exec"),
    "any name": (Reader.find, "not _is_name(name)", "False", "a name that is none"),
    "references anywhere": (Reader.find, "is_reference and ", "", "a reference for a kernel"),
    "ways out": (Reader.find, "callable(found) and not self._allows(home)", "False", "a way out of what is allowed"),
    "modules": (Reader.find, "isinstance(found, type(sys)) or", "", "a module that was imported"),
    "packages by their first letters": (Reader._allows, 'f"{package}."', "package", "a package of a longer name"),
    "what leads through underscores": (readable.forbidden, '.startswith("__")', " is None", "the way to the globals"),
    "the module that runs": (readable.forbidden, '== "__main__"', "is None", "what the process runs"),
    "what importing raises": (readable._imported, "SystemExit", "KeyError", "a module that ends the process"),
    # Values.
    "functions among arguments": (
        kernel_codec._Decoder._partial,
        "any(map(_holds_function",
        "not all(map(callable",
        "a function among arguments",
    ),
    "functions deep among arguments": (
        kernel_codec._holds_function,
        "isinstance(value, dict)",
        "False",
        "a function deep among arguments",
    ),
    "dataclasses among arguments": (
        kernel_codec._holds_function,
        "callable(value) or dataclasses.is_dataclass(value)",
        "type(value).__name__ == 'function'",
        "a dataclass among arguments",
    ),
    "classes that are not frozen": (
        kernel_codec._Decoder._dataclass,
        "not _is_frozen(cls)",
        "False",
        "a dataclass that is not frozen",
    ),
    "any class": (
        kernel_codec._Decoder._dataclass,
        "not dataclasses.is_dataclass(cls)",
        "False",
        "a class that is none of data",
    ),
    "what constructors raise": (
        kernel_codec._Decoder._dataclass,
        "SystemExit",
        "KeyError",
        "a class that is allowed and ends the process",
    ),
    "any field": (
        kernel_codec._Decoder._dataclass,
        "not needed <= stored.keys() <= {",
        "not needed <= stored.keys() | {",
        "a field too many",
    ),
    "any type of a field": (kernel_fields.check_fields, "not _fits(value, hint)", "False", "a number for a monoid"),
    "any integer in a field": (kernel_fields.check_fields, "name not in _UNBOUNDED", "False", "endless orders"),
    "numbers alone": (kernel_fields.check_fields, "positions is not None", "False", "numbers computed at once"),
    "integers in tuples": (kernel_fields._integers, "isinstance(value, tuple | list)", "False", "endless calls"),
    "any word": (kernel_fields._fits, "origin is typing.Literal", "origin is None", "a word that is none of them"),
    "any union": (kernel_fields._fits, "any(_fits(value, each) for each in arguments)", "True", "a text for a count"),
    "any tuple": (kernel_fields._fits, "all(_fits(item, arguments[0]) for item in items)", "True", "a text in a tuple"),
    "tuples of any length": (kernel_fields._fits, "len(items) == len(arguments)", "True", "three for a pair"),
    "any kind in a pair": (kernel_fields._fits, "all(map(_fits, items, arguments))", "True", "a text for a size"),
    "pairs of one kind": (kernel_fields._fits, "arguments[1:] == (...,)", "arguments", "three texts for a pair"),
    "true for an integer": (kernel_fields._fits, "type(value) is kind", "isinstance(value, kind)", "true for an order"),
    "any dtype": (kernel_codec._decode_dtype, "dtype.name != name", "False", "another name of a dtype"),
    "dtypes of objects": (kernel_codec._is_named, "not dtype.hasobject", "True", "objects"),
    "no kinds of an operation": (operation_json._check_operation, "if not fits", "if False", "a text for reverse"),
    "any part of an operation": (
        operation_json.operation_from_json,
        "entries.keys() != known",
        "False",
        "something less in an operation",
    ),
    "any field of a monoid": (
        operation_json._monoid_from_json,
        "if strange or missing",
        "if False",
        "a monoid of more",
    ),
    "no fields of a monoid": (
        operation_json._monoid_from_json,
        "check_fields(Monoid, values, where)",
        "pass",
        "a text for a law of a monoid",
    ),
    "true for a rank": (operation_json._signature_from_json, "type(rank) is int and", "", "true for a rank"),
    "any name of a monoid": (
        operation_json._monoid_from_json,
        "isinstance(known, str) and",
        "",
        "a list for the name of a monoid",
    ),
    "anything for fields of a monoid": (
        operation_json._monoid_from_json,
        "not isinstance(inner, dict)",
        "False",
        "a list for the fields of a monoid",
    ),
    "any rank": (operation_json._signature_from_json, "0 <= rank <= 64", "0 <= rank", "a signature of another rank"),
    # Structure.
    "keys of trees twice": (tree_json._dict, "found not in built", "True", "a key of a tree twice"),
    "NaN as a key": (tree_json._dict, "found == found", "True", "NaN for a key"),
    "trees that name": (
        tree_json._dict,
        'decode(key, f"{where}[{number}]", None)',
        "decode(key)",
        "a listed function as a key",
    ),
    "references to the future": (graph_check._check_ref, "0 <= ref.node < before", "True", "a node of the future"),
    "any output": (graph_check._check_ref, "0 <= ref.output < count", "True", "an output of the past"),
    "any type": (graph_check._check_type, "expected == got", "True", "another size"),
    "any names": (graph_check._check_apply, "node.names == expected", "True", "other dimensions"),
    "what kernels raise": (graph_check._check_apply, "SystemExit", "KeyError", "a kernel that ends the process"),
    "any structure": (graph_check._check_count, "expected == got", "True", "more inputs than there are"),
    "any order": (graph_check.check_graph, "index < len(graph.inputs)", "True", "an input behind an operation"),
    "any slices": (graph_check._without, "_require(fits,", "_require(True,", "slices that are not there"),
    "any turns": (graph_check._check_loop, "<= MOST_TURNS", "< 2**64", "a loop past all counting"),
    "any carries": (graph_check._check_loop, "carries + stacked <= len(operands)", "True", "a loop of fewer carries"),
    # The budget.
    "steps without end": (step_budget.bounded_steps, "left -= 1", "left -= 0", "a fold in a fold"),
    "arrays taken apart": (
        step_budget.bounded_steps,
        "_entries(frame) > _MOST_ENTRIES",
        "False",
        "an array for a shape",
    ),
}
# Read in forks without any damage: what sees damages does not see them everywhere.
FORKED = ("a module that ends the process", "a fold in a fold", "a long string")
MOST_MEMORY, MOST_SECONDS = 4 * 2**30, 12


def is_seen(outcome: tuple[str, str, float], told: str) -> bool:
    """Whether the test of the collection fails where this comes of a file."""
    kind, text, seconds = outcome
    lines = text.split("\n")
    fits = len(lines) > 1 and text.replace("\n", "").isprintable() and max(map(len, lines)) <= 400
    return kind != "FormatError" or told not in text or not fits or seconds > 5 or any(Path().glob("harm*"))


def seen(damage: Damage, files: Any, told: str) -> bool:
    """Read the file of a damage in a fork, where it may do what it likes; a fork that dies has seen it."""
    function, old, new, case = damage
    child = os.fork()
    if child == 0:
        # Not counted: what the library has mapped already.
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        try:
            with damaged(function, old, new):
                os._exit(0 if is_seen(hostile.read(*files[case]), told) else 3)
        except BaseException:  # noqa: BLE001 - nothing of the parent runs in the child
            os._exit(4)
    _, status = os.waitpid(child, 0)
    for left in Path().glob("harm*"):
        left.unlink()
    return os.waitstatus_to_exitcode(status) not in (3, 4)


def main() -> None:
    warnings.simplefilter("ignore")  # JAX warns of forks, and these only trace
    hostile.prepare()
    files = hostile.cases()
    found = hostile.collected()
    damages = {name: each for number, (name, each) in enumerate(DAMAGES.items()) if thoroughly() or number % 4 == 0}
    unseen = [name for name, damage in damages.items() if not seen(damage, files, hostile.TOLD.get(damage[3], ""))]
    whole = {case for *_, case in DAMAGES.values() if is_seen(found["told"][case], hostile.TOLD.get(case, ""))}
    forked = {case for case in FORKED if seen((stored_json.read_json, "is_flat", "is_flat", case), files, "")}
    print(
        json.dumps(found | {"damages": len(DAMAGES), "unseen": unseen, "seen without damage": sorted(whole | forked)})
    )


if __name__ == "__main__":
    main()
