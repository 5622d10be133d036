"""What is opened in folders that others write to is asked whether it is a file: a pipe there would be waited for."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "tapestry_jax"
ROOMS = ("storage", "streaming", "fabric", "nnx", "searching")
# `open_regular` looks for itself. A handle of a folder cannot be a pipe's, nor that of a file that is made; what is
# opened for reading and writing waits for nobody, and is locked or mapped, which pipes cannot be.
SAFE = ("O_NONBLOCK", "O_DIRECTORY", "O_EXCL", "O_RDWR", "_FOLDER")
WAITING = ("open", "read_text", "read_bytes", "write_text", "write_bytes")
KNOWN = {
    "nnx/models/published/hugging_face.py": {"path.open"},  # asked in the line before
    "nnx/training/saving/sums.py": {
        "read_text",
        "read_bytes",
        "file.open",
        "partial.open",
    },  # of files that `is_file` lists
    "searching/question/kept.py": {"read_text"},  # asked before
    "storage/opening.py": {"open", "find_format(place, format, 'tp.open').open"},  # the library's own
    "storage/saving.py": {"written.open"},  # in a folder that was made for it
    "storage/chunked/zarr.py": {"write_bytes"},  # into a folder that was made for it
    "streaming/fits/allowed.py": {"read_text"},  # the system's own
    "streaming/measured/resident.py": {"read_text"},
}


def calls(text: str) -> Iterator[tuple[int, str]]:
    """Calls that wait where a pipe lies, by line and as they are written."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            written, called = ast.unparse(node), ast.unparse(node.func)
            last = called.rpartition(".")[2]
            is_ours = called in ("os.open", "open") or (last in WAITING and not called.startswith(("self.", "_")))
            is_made = any(isinstance(each, ast.Constant) and each.value in ("x", "xb") for each in node.args)
            is_handle = called == "open" and bool(node.args) and _is_handle(node.args[0])
            if is_ours and not (is_made or is_handle or any(word in written for word in SAFE)):
                yield node.lineno, called if last == "open" else last


def _is_handle(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) == "open_regular"
    return isinstance(node, ast.Name) and node.id in ("handle", "file")


def test_no_file_is_opened_that_may_be_a_pipe():
    # What libraries open was looked at before.
    others = ("tensorstore()", "archive.")
    found = list[str]()
    for path in sorted(each for room in ROOMS for each in (SOURCES / room).rglob("*.py")):
        name = path.relative_to(SOURCES).as_posix()
        found += [
            f"{name}:{line} {called}"
            for line, called in calls(path.read_text())
            if called not in KNOWN.get(name, ()) and not called.startswith(others)
        ]
    assert found == []


def test_what_would_wait_is_found():
    text = 'os.open(a, os.O_RDONLY)\nplace.open("rb")\nplace.open("w")\nopen(path)\npath.read_bytes()'
    assert [line for line, _ in calls(text)] == [1, 2, 3, 4, 5]
    assert [*calls('os.open(a, os.O_RDONLY | os.O_DIRECTORY)\nplace.open("xb")\nopen(open_regular(path), "rb")')] == []
