"""`tapestry launch`: how its words are read, and what is said of those that are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tapestry_jax.command import main


def test_the_arguments_of_a_script_are_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    script = tmp_path / "script.py"
    script.write_text("import os, sys; print(sys.argv[1:], os.environ.get('JAX_NUM_CPU_DEVICES'))")
    assert main(["launch", "--devices", "2", str(script), "--processes", "3", "-m", "--", "x"]) == 0
    assert capsys.readouterr().out == "['--processes', '3', '-m', '--', 'x'] 2\n"


def test_a_module_is_run(capsys: pytest.CaptureFixture[str]):
    assert main(["launch", "--processes", "1", "-m", "json.tool", "--help"]) == 0
    assert capsys.readouterr().out.startswith("[0] usage: ")


def test_a_script_that_is_not_there(capsys: pytest.CaptureFixture[str]):
    assert main(["launch", "no-such.py"]) == 2
    assert capsys.readouterr().err == (
        "tapestry launch: there is no file 'no-such.py'.\n"
        "  Name a script, or a module after -m; options of launch come before it.\n"
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--processes", "0"], "'0' is no whole number from 1 to 4096"),
        (["--processes", "two"], "'two' is no whole number"),
        (["--restarts", "-1"], "'-1' is no whole number from 0 to"),
        (["--stuck", "0"], "'0' is no number of seconds above 0"),
        (["--grace", "nan"], "'nan' is no number of seconds"),
    ],
)
def test_wrong_words_are_told(words: list[str], told: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        main(["launch", *words, "script.py"])
    assert told in capsys.readouterr().err
