"""States that were cut, changed or written by someone else, each signed anew where the damage is not the signature."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from typing import Any

from combinators.stored.json import checksum

MAGIC = b"tapestry-frozen\n"


def parts(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a state, and what follows it."""
    (length,) = struct.unpack_from("<Q", data, 16)
    return json.loads(data[24 : 24 + length]), data[24 + length :]


def signed(header: dict[str, Any], body: bytes) -> bytes:
    """A state that whoever edits can write: all its sums are right."""
    kept = {key: value for key, value in header.items() if key != "checksum"}
    kept["content"] = hashlib.sha256(body).hexdigest() if "content" in kept else kept.get("content")
    return packed({**kept, "checksum": checksum(kept)}, body)


def packed(header: dict[str, Any], body: bytes) -> bytes:
    text = json.dumps(header).encode()
    return MAGIC + struct.pack("<Q", len(text)) + text + body


def with_part(name: str, value: Any) -> Callable[[bytes], bytes]:
    def edit(data: bytes) -> bytes:
        header, body = parts(data)
        return signed({**header, name: value}, body)

    return edit


def flipped(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] if at >= 0 else flipped(len(data) + at)(data)


HOSTILE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda _: b"", "does not begin as the state of a job does"),
    "cut in the magic": (lambda data: data[:9], "does not begin as"),
    "cut in the length": (lambda data: data[:20], "does not begin as"),
    "cut in the header": (lambda data: data[:60], "ends after the file"),
    "cut in the arrays": (lambda data: data[:-9], "ends after the file: truncated?"),
    "more behind": (lambda data: data + b"x" * 16, "follow its header"),
    "a pickle": (lambda _: b"\x80\x04cos\nsystem\n(S'true'\ntR.", "does not begin as"),
    "a length of 2**63": (lambda data: data[:16] + struct.pack("<Q", 2**63) + data[24:], "ends after the file"),
    "a bit of the header": (flipped(70), "state-"),
    "a bit of the arrays": (flipped(-17), "its arrays do not have their checksum"),
    "no text": (lambda _: MAGIC + struct.pack("<Q", 2) + b"\xff\xfe", "its header is no text"),
    "no JSON": (lambda _: MAGIC + struct.pack("<Q", 2) + b"{x", "is no JSON"),
    "a list": (lambda _: MAGIC + struct.pack("<Q", 2) + b"[]", "expected an object of version"),
    "unsigned": (lambda data: packed({**parts(data)[0], "checksum": "0" * 64}, parts(data)[1]), "does not have its"),
    "a part more": (with_part("run", "rm -rf"), "expected an object of version"),
    "a version of text": (with_part("version", "1"), "expected 1\n  got '1'"),
    "a job of numbers": (with_part("job", {"graph": 3}), "expected texts by name"),
    "a job of colours": (with_part("job", {"\x1b[2Jgraph": "a"}), "job, a name cannot be read"),
    "an array of colours": (with_part("arrays", [["\x1b[2J", "int8", [1]]]), "a text without line breaks"),
    "no job": (with_part("job", None), "expected texts by name"),
    "a negative position": (with_part("position", [0, -1, False]), "expected a non-negative integer"),
    "a true position": (with_part("position", [True, 1, False]), "expected a non-negative integer"),
    "a short position": (with_part("position", [0]), "expected a step, a count of cells"),
    "finished in numbers": (with_part("position", [0, 1, 1]), "expected true or false"),
    "objects": (with_part("arrays", [["a", "object", [1]]]), "expected a dtype of JAX"),
    "times": (with_part("arrays", [["a", "datetime64[s]", [1]]]), "expected a dtype of JAX"),
    "a petabyte": (with_part("arrays", [["a", "float32", [2**30, 2**18]]]), "ends after the file"),
    "an overflow": (with_part("arrays", [["a", "float64", [2**30, 2**30, 2**30]]]), "ends after the file"),
    "a size of 2**32": (with_part("arrays", [["a", "float32", [2**32, 0]]]), "sizes below 2**31"),
    "a hundred axes": (with_part("arrays", [["a", "float32", [0] * 100]]), "at most 64 sizes"),
    "a size of text": (with_part("arrays", [["a", "float32", ["1"]]]), "expected a non-negative integer"),
    "a negative size": (with_part("arrays", [["a", "float32", [-1]]]), "expected a non-negative integer"),
    "a name twice": (with_part("arrays", [["a", "bool", [0]], ["a", "bool", [0]]]), "expected each name once"),
    "a row of two": (with_part("arrays", [["a", "bool"]]), "expected a name, a dtype and a shape"),
    "arrays by name": (with_part("arrays", {"a": 1}), "expected a list"),
    "other booleans": (
        lambda data: signed({**parts(data)[0], "arrays": [["a", "bool", [16]]]}, b"\x02" * 16),
        "is of booleans, and holds others",
    ),
}
