"""JSON text from elsewhere, within bounds: what every reader of ours looks at before it interprets anything.

Nothing is looked up, imported or called here. The bounds are far above what programs need and far below what hurts: the
largest text that is read takes less than a gigabyte once it is parsed.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np

from combinators.errors import FormatError, GraphError, TapestryError, message, spelt

LARGEST_TEXT = 32 * 2**20  # characters
DEEPEST = 128  # lists and objects inside each other
LONGEST_STRING = 2**16  # characters
LARGEST_INTEGER = 2**64  # in magnitude, exclusive: seeds are 64 bits wide
_LONGEST_LINE, _MOST_LINES = 400, 20  # of an error
_LONGEST_WAY = 200
REMEDY = "Restore the file from what `to_json` wrote."

NOT_PRINTABLE = "holds line breaks or control characters"

# What is once read is not given back: a text without an end would fill the memory with places to go back to.
_STRINGS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"')
_LONG_NUMBER = re.compile(r"\d{20}")  # with fewer digits none reaches a bound
_MAY_OVERFLOW = re.compile(r"\d[eE]|\d{300}")
_SPACES = dict.fromkeys(map(ord, "\t\n\r"))
_STEPS = np.zeros(256, np.int8)
_STEPS[[ord(each) for each in "[{"]], _STEPS[[ord(each) for each in "]}"]] = 1, -1
"""How much deeper a letter leads."""
_SURROGATE = re.compile("[\ud800-\udfff]")


def read_json(
    text: object,
    what: str,
    remedy: str = REMEDY,
    no_json: str | None = None,
    *,
    any_number: bool = False,
    any_text: bool = False,
) -> Any:
    """Parse a text that may have been cut, edited or made to do harm.

    Args:
      text: of any origin.
      what: what it is, as an error names it: `"the file"`.
      remedy: of every error but one: of what is no text.
      no_json: the headline where it is no JSON, instead of one that says from where on.
      any_number: whether infinities and NaN are numbers as well, as Python writes them.
      any_text: whether strings may hold line breaks and what steers a terminal. Names reach it as they are: who reads
        any text takes those out of it with `text_of`.

    Returns:
      None, booleans, integers below 2**64, finite floats, strings, lists and dicts of these.

    Raises:
      FormatError: when it is no text, longer than `LARGEST_TEXT`, nested deeper than `DEEPEST`, no JSON; or holds a key
        twice, a number that is not finite or too large, or a string that is too long, no valid Unicode, or not
        printable.
    """
    if not isinstance(text, str):
        unread = "Pass the text that `to_json` gave; of a file, `Path(...).read_text()`."
        raise _refused(f"{what} is no text.", unread, f"got {type(text).__name__}: {spelt(text)}")
    if len(text) > LARGEST_TEXT:
        raise _refused(f"{what} is too large to be read.", remedy, f"{len(text)} characters, at most {LARGEST_TEXT}")
    bare = _STRINGS.sub("", text)
    if not _is_flat_enough(bare):
        raise _refused(f"{what} is nested too deeply to be read.", remedy, f"at most {DEEPEST} levels")
    try:
        content = _parsed(text, bare, any_number=any_number)
    except json.JSONDecodeError as error:
        headline = no_json or f"{what} is no JSON, from line {error.lineno}, column {error.colno} on: truncated?"
        raise _refused(headline, remedy, str(error)[:200]) from error
    except (ValueError, RecursionError) as error:
        raise _refused(f"{what} holds what no file of ours holds.", remedy, str(error)[:200]) from error
    if not _is_plain(text) and any(_is_refused(found[0], any_text=any_text) for found in _STRINGS.finditer(text)):
        _check_strings(content, what, remedy)
        if not any_text and (place := unprintable(content)) is not None:
            where, got = place
            raise _refused(f"{what}{where} {NOT_PRINTABLE}.", remedy, f"got {spelt(got, 120)}")
    return content


def unprintable(content: Any) -> tuple[str, str] | None:
    """The first string of parsed JSON, key or value, with line breaks or what steers a terminal: where it is, and it.

    Files are written and read without: `print(graph)`, errors and reports show names as they are.
    """
    found = ((part, way) for part, way in _parts(content) if isinstance(part, str) and not part.isprintable())
    return next(((_spelled(way), part) for part, way in found), None)


def check_storable(content: Any, what: str, error: type[TapestryError] = GraphError) -> None:
    """Refuse to write what `read_json` would refuse to read: bounds of files are those of what is written, too.

    Args:
      content: what will stand in an object of the file.
      what: it is, as an error names it.
      error: its class.

    Raises:
      TapestryError: for what is not printable, or beyond a bound; where it is, and which.
    """
    for part, way in _parts(content):
        told, remedy = "", "Leave it out, or write it another way."
        match part:
            case str() if not part.isprintable():
                told, remedy = f"it {NOT_PRINTABLE}", "Give it a name without line breaks and control characters."
            case str() if len(part) > LONGEST_STRING:
                told, remedy = (
                    f"it has {len(part)} characters, a file at most {LONGEST_STRING}",
                    "Give it a shorter name.",
                )
            case int() if abs(part) >= LARGEST_INTEGER:
                told = f"it is no integer below 2**64 in magnitude, as those of files are: {spelt(part)}"
            case dict() | list() | tuple() if len(way) + 1 >= DEEPEST:
                told, remedy = f"it is nested deeper than {DEEPEST} levels", "Nest it less deeply."
            case _:
                continue
        got = [f"got {spelt(part, 120)}"] if isinstance(part, str) else []
        where = _spelled(way)
        where = where if len(where) <= _LONGEST_WAY else f"{where[:_LONGEST_WAY]}..."
        raise error(message(f"{what} cannot be stored{where}", told, *got, remedy=remedy))


def check_length(text: str, what: str, error: type[TapestryError]) -> str:
    """A text that will be written, where it is no longer than what is read.

    Raises:
      TapestryError: of the class `error`, where it is.
    """
    if len(text) <= LARGEST_TEXT:
        return text
    told = f"it takes {len(text)} characters, a file at most {LARGEST_TEXT}"
    raise error(message(f"{what} cannot be stored", told, remedy="Store a smaller program, or a part of this one."))


def _parts(content: Any) -> Iterator[tuple[Any, list[Any]]]:
    """Every part of parsed JSON, keys too, in the order of the text.

    Yields:
      It, and the keys and positions that lead to it, or to what holds a key: a list that changes when one goes on.
    """
    way: list[Any] = []
    yield content, way
    waiting = [_inside(content)]
    while waiting:
        step = next(waiting[-1], None)
        if step is None:
            waiting.pop()
            del way[-1:]
            continue
        if isinstance(step[0], str):
            yield step[0], way
        way.append(step[0])
        yield step[1], way
        if step[1] and isinstance(step[1], dict | list | tuple):
            waiting.append(_inside(step[1]))
        else:
            way.pop()


def _inside(part: Any) -> Iterator[tuple[Any, Any]]:
    """What stands directly in a part of parsed JSON, by its key or its position."""
    if isinstance(part, dict):
        return iter(cast("dict[str, Any]", part).items())
    return iter(enumerate(cast("Sequence[Any]", part) if isinstance(part, list | tuple) else ()))


def checksum(content: Any, separators: tuple[str, str] | None = (",", ":")) -> str:
    """The SHA-256 of parsed JSON in one fixed spelling, in hexadecimal.

    It finds what was damaged or edited by hand. It proves nothing about who wrote a text: who edits can sign.

    Args:
      content: what `read_json` gave, or what will be written.
      separators: of the spelling, as `json.dumps` takes them.
    """
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=separators).encode()).hexdigest()


def entries(stored: Any, keys: Sequence[str], where: str, later: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """An object of exactly these keys.

    Args:
      stored: what is read.
      keys: that it has to have.
      where: the place in the file, as an error names it.
      later: keys that came to the format later, and what stands for them in older files.

    Raises:
      FormatError: for anything else.
    """
    found = cast("dict[str, Any]", stored) if isinstance(stored, dict) else {}
    filled = {**(later or {}), **found}
    if found.keys() - set(later or ()) != set(keys):
        raise malformed(where, f"an object of {', '.join(keys)}", sorted(found) if found else stored)
    return filled


def listed(stored: Any, where: str) -> list[Any]:
    """A list.

    Raises:
      FormatError: for anything else.
    """
    if not isinstance(stored, list):
        raise malformed(where, "a list", stored)
    return cast("list[Any]", stored)


def text_of(stored: Any, where: str) -> str:
    """A string that can be printed.

    Raises:
      FormatError: for anything else.
    """
    if not isinstance(stored, str):
        raise malformed(where, "a text", stored)
    if not stored.isprintable():
        raise malformed(where, "a text without line breaks and control characters", stored)
    return stored


def integer(stored: Any, where: str) -> int:
    """An integer that is not negative.

    Raises:
      FormatError: for anything else.
    """
    if type(stored) is not int or stored < 0:
        raise malformed(where, "a non-negative integer", stored)
    return stored


def boolean(stored: Any, where: str) -> bool:
    """True or false.

    Raises:
      FormatError: for anything else.
    """
    if type(stored) is not bool:
        raise malformed(where, "true or false", stored)
    return stored


def shown(label: str) -> str:
    """A label from a file as an error prints it: short, and without characters that steer a terminal."""
    short = label if len(label) <= 120 else f"{label[:120]}..."
    return short if short.isprintable() else repr(short)


@contextlib.contextmanager
def readable_errors() -> Generator[None]:
    """Shorten the lines of a `FormatError`, and spell out what would steer a terminal: they quote what a file holds."""
    try:
        yield
    except FormatError as error:
        lines = str(error).split("\n")
        told = [line if line.isprintable() else line.encode("unicode_escape").decode() for line in lines[:_MOST_LINES]]
        short = [line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 3]}..." for line in told]
        if short == lines:
            raise
        raise FormatError("\n".join(short)) from error.__cause__


def malformed(where: str, expected: str, got: object) -> FormatError:
    """The error for content of another kind than was written."""
    return FormatError(
        message(f"{where} cannot be read.", f"expected {expected}", f"got {spelt(got, 120)}", remedy=REMEDY)
    )


def _is_flat_enough(bare: str) -> bool:
    """Count brackets before parsing: where the recursion limit was raised, deep nesting would end the process.

    Args:
      bare: the text without its strings.
    """
    letters = np.frombuffer(bare.encode("utf-8", "surrogatepass"), np.uint8)
    steps = _STEPS[letters]
    return not np.any(np.cumsum(steps[steps != 0], dtype=np.int32) > DEEPEST)


def _parsed(text: str, bare: str, *, any_number: bool) -> Any:
    """Parse a text; numbers are looked at one by one only where some may be beyond the bounds.

    Raises:
      ValueError: for what `read_json` does not read, and what is no JSON.
    """
    collects = gc.isenabled()
    gc.disable()  # of all that is made here nothing is let go of, and collecting it again and again takes longest
    try:
        return json.loads(
            text,
            parse_int=_integer if _LONG_NUMBER.search(bare) else None,
            parse_float=_finite if _MAY_OVERFLOW.search(bare) else None,
            parse_constant=float if any_number else _refuse_constant,
            object_pairs_hook=_without_repeats,
        )
    finally:
        if collects:
            gc.enable()


def _is_plain(text: str) -> bool:
    """Whether every string of a text can be seen to be short and printable from the text alone, as nearly all can."""
    if "\\" in text or not text.translate(_SPACES).isprintable():
        return False
    strings = text.split('"')[1::2]  # where nothing is escaped every other quotation mark ends one
    return max(map(len, strings), default=0) <= LONGEST_STRING


def _integer(digits: str) -> int:
    if len(digits) > 21 or not -LARGEST_INTEGER < (value := int(digits)) < LARGEST_INTEGER:
        raise ValueError(f"the integer {digits[:24]}... is too large")
    return value


def _finite(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"the number {digits[:24]} is too large")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {spelt(name, 60)} stands twice in one object")
        found[name] = value
    return found


def _is_refused(raw: str, *, any_text: bool) -> bool:
    """Whether a string, as it stands in a text with its quotation marks, is longer or another than files hold."""
    if len(raw) <= LONGEST_STRING and "\\" not in raw and raw.isprintable():
        return False
    string = json.loads(raw)
    is_printable = any_text or string.isprintable()
    return len(string) > LONGEST_STRING or _SURROGATE.search(string) is not None or not is_printable


def _check_strings(content: Any, what: str, remedy: str) -> None:
    for part, _ in _parts(content):
        if isinstance(part, str):
            if len(part) > LONGEST_STRING:
                details = (f"{len(part)} characters, at most {LONGEST_STRING}", f"got {spelt(part, 60)}")
                raise _refused(f"{what} holds a string that is too long to be read.", remedy, *details)
            if not part.isascii() and _SURROGATE.search(part):
                raise _refused(f"{what} holds a string that is no Unicode text.", remedy, f"got {spelt(part, 60)}")


def _spelled(way: Sequence[Any]) -> str:
    """Where a string is: `, graph, nodes[1]`. A way is the keys and positions that lead there."""
    return "".join(f"[{step}]" if isinstance(step, int) else f", {shown(step)}" for step in way)


def _refused(headline: str, remedy: str, *details: str) -> FormatError:
    return FormatError(message(headline, *details, remedy=remedy))
