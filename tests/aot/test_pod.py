"""What README shows of a pod is what the compiler says today."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("machine", ["v5p:4x4x4"], indirect=True)
@pytest.mark.usefixtures("machine")
def test_readme_prints_what_the_compiler_says() -> None:
    command = [sys.executable, str(ROOT / "examples" / "pod.py")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"```text\n(mlp on TPU.*?)```", readme, re.DOTALL)
    assert shown is not None
    if (compiler := re.search(r"libtpu [\d.]+", shown[1])) is None or compiler[0] not in done.stdout:
        pytest.skip("README tells of another version of the compiler")
    assert done.stdout == shown[1]
