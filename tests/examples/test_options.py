"""The command line of the quickstart, without running it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def read(example: Any) -> Any:
    return example("settings").read_options


@pytest.mark.parametrize(
    ("text", "mesh"),
    [
        ("", {"data": 2, "model": 4}),
        ("--mesh data=8", {"data": 8}),
        ("--mesh data=2,model=4", {"data": 2, "model": 4}),
        ("--mesh model=2 --devices 2", {"model": 2}),
        ("--devices 1", {"data": 1, "model": 1}),
        ("--devices 6", {"data": 3, "model": 2}),
    ],
)
def test_options_make_the_mesh(read: Any, text: str, mesh: dict[str, int]) -> None:
    assert read(text.split()).mesh == mesh


def test_options_defaults(read: Any) -> None:
    options = read([])
    assert (options.steps, options.resume, options.out) == (None, False, Path("runs/quickstart"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("--mesh rows=2", "argument --mesh: 'rows=2' in 'rows=2'; write axes as data=2,model=4 (only data and model)"),
        ("--mesh data", "argument --mesh: 'data' in 'data'"),
        ("--mesh data=0", "argument --mesh: 0 is below 1"),
        ("--mesh data=2,data=4", "argument --mesh: the axis data stands twice in 'data=2,data=4'"),
        ("--mesh data=8 --devices 4", "argument --devices: the mesh data=8 has 8 devices, not 4"),
        ("--devices none", "argument --devices: 'none' is not a whole number"),
        ("--steps 0", "argument --steps: 0 is below 1"),
        ("--seed -1", "argument --seed: -1 is below 0"),
        ("--temperature 0", "argument --temperature: 0 is not above zero"),
        ("--learning-rate nan", "argument --learning-rate: nan is not above zero"),
        ("--heads 5", "argument --heads: 5 heads do not divide --embed 192"),
        ("--length 4", "argument --length: 4 bytes; a window has 8 to 1024"),
        ("--stepz 3", "unrecognized arguments: --stepz 3"),
    ],
)
def test_options_that_cannot_be_are_refused(
    read: Any, capsys: pytest.CaptureFixture[str], text: str, told: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        read(text.split())
    assert stopped.value.code == 2
    assert told in capsys.readouterr().err


def test_options_help_names_every_option(read: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        read(["--help"])
    assert stopped.value.code == 0
    told = capsys.readouterr().out
    for option in (
        "--steps",
        "--resume",
        "--mesh",
        "--devices",
        "--out",
        "--seed",
        "--temperature",
        "--machine",
        "--batch",
    ):
        assert option in told
