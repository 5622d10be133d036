"""The Python in README and the user documents runs as printed, and their links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
DOCUMENTS += sorted((ROOT / "docs" / "tutorials").glob("*.md"))

# Each process compiles much of what another one has compiled.
KEEP = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}

BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?:\]\(|src=\"|href=\")(?!https?:|mailto:|#)([^)\"\s#]+)")

RUNNER = """
import sys
root, path, source = sys.argv[1:]
sys.path.insert(0, root)
import jax
jax.config.update("jax_num_cpu_devices", 8)
exec(compile(source, path, "exec"), {"__name__": "__main__"})
"""


def code(document: str) -> str:
    """All Python blocks of a document as one module, each on its own lines, so that tracebacks point into it."""
    lines = [""] * document.count("\n")
    for block in BLOCK.finditer(document):
        first = document.count("\n", 0, block.start(1))
        body = block.group(1).splitlines()
        lines[first : first + len(body)] = body
    return "\n".join(lines)


def run(document: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run the blocks of a document in one namespace, on eight devices, in an empty directory."""
    source = code(document.read_text(encoding="utf-8"))
    command = [sys.executable, "-W", "error", "-c", RUNNER, str(ROOT), str(document), source]
    environment = {**os.environ, **KEEP}
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300, env=environment)


def with_code() -> list[Path]:
    return [document for document in DOCUMENTS if BLOCK.search(document.read_text(encoding="utf-8"))]


def test_readme_has_code():
    assert ROOT / "README.md" in with_code()


@pytest.mark.parametrize("document", with_code(), ids=lambda path: path.name)
def test_readme_code_runs(document: Path, tmp_path: Path):
    done = run(document, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_readme_links_exist(document: Path):
    links = LINK.findall(document.read_text(encoding="utf-8"))
    missing = [link for link in links if not (document.parent / link).exists()]
    assert missing == []


def test_readme_blocks_share_a_namespace(tmp_path: Path):
    document = tmp_path / "two.md"
    document.write_text(
        "```python\nn = 3\n```\ntext\n```python\nimport jax\nassert jax.device_count('cpu') == n + 5\n```\n"
    )
    assert run(document, tmp_path).returncode == 0


def test_readme_failure_names_the_line(tmp_path: Path):
    document = tmp_path / "bad.md"
    document.write_text("text\n\n```python\nx = 1\nraise RuntimeError(x)\n```\n")
    done = run(document, tmp_path)
    assert done.returncode != 0
    assert 'bad.md", line 5' in done.stderr


def test_readme_link_pattern_finds_links_and_pictures():
    text = '[a](docs/a.md) [b](https://b.org) <img src="docs/c.svg"> [d](#here) [e](docs/e.md#part)'
    assert LINK.findall(text) == ["docs/a.md", "docs/c.svg", "docs/e.md"]
