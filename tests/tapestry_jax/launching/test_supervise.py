"""Real processes: ranks that die, are stuck, ignore signals, leave children; and a supervisor that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tapestry_jax.command import main
from tapestry_jax.launching.environment import check_alone, environment_of
from tapestry_jax.launching.launch import Launch, LaunchError
from tapestry_jax.launching.supervise import supervise

ROOT = Path(__file__).parents[3]
HEAD = """
import os, signal, subprocess, sys, time
rank, attempt, here = int(os.environ.get("JAX_PROCESS_ID", 0)), int(os.environ["TAPESTRY_ATTEMPT"]), sys.argv[1]
def mark(name): open(f"{here}/{name}", "w").write(str(os.getpid()))
def wait(name):
    while not os.path.exists(f"{here}/{name}"): time.sleep(0.01)
"""

Run = Callable[..., int]


@pytest.fixture
def launch(tmp_path: Path) -> Run:
    """Runs a script, whose first argument is an empty folder, as two processes."""

    def run(script: str, *, processes: int | None = 2, restarts: int = 0, grace: float = 5, stuck: float | None = None):
        words = sys.executable, "-S", "-c", HEAD + script, str(tmp_path)
        return supervise(Launch(words, processes, None, restarts, stuck, grace, dict(os.environ)))

    return run


def is_there(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(*processes: int) -> bool:
    """Whether none of some processes is left, soon."""
    for _ in range(200):
        if not any(is_there(each) for each in processes):
            return True
        time.sleep(0.02)
    return False


def test_lines_are_passed_on_with_the_number_of_the_rank(launch: Run, capsys: pytest.CaptureFixture[str]):
    script = r"""
if rank == 0:
    sys.stdout.write("a\nb"); sys.stdout.flush(); mark("half"); wait("other"); sys.stdout.write("c\r50%\rend")
else:
    wait("half"); sys.stdout.buffer.write(b"\xff x\r\n"); sys.stdout.flush(); sys.stderr.write("wrong\n"); mark("other")
"""
    assert launch(script) == 0
    told = capsys.readouterr()
    assert sorted(told.out.splitlines()) == ["[0] 50%", "[0] a", "[0] bc", "[0] end", "[1] \ufffd x"]
    assert told.err == "[1] wrong\n"


def test_a_signal_without_a_name_is_told_by_its_number(launch: Run, capsys: pytest.CaptureFixture[str]):
    number = signal.SIGRTMIN + 6
    assert launch(f"os.kill(os.getpid(), {number})", processes=1, restarts=1) == 128 + number
    told = capsys.readouterr().err
    assert f"rank 0 ended with signal {number}; started again" in told


@pytest.mark.parametrize("output", ["ascii", "full", "closed"])
def test_an_output_that_takes_no_more_ends_no_job(output: str, tmp_path: Path):
    done = tmp_path / "done"
    script = tmp_path / "script.py"
    script.write_text(f"import sys; sys.stdout.buffer.write(b'\\xc3\\xa4\\n\\xff\\n' * 3); open({str(done)!r}, 'w')")
    call = "import sys; from tapestry_jax.command import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", call, "launch", "--processes", "1", str(script)]
    settings = {**os.environ, "PYTHONIOENCODING": "ascii" if output == "ascii" else "utf-8", "PYTHONPATH": str(ROOT)}
    reading, writing = os.pipe()
    os.close(reading)
    with Path("/dev/full" if output == "full" else os.devnull).open("wb") as file:
        sink = {"ascii": subprocess.PIPE, "full": file, "closed": writing}[output]
        ended = subprocess.run(command, stdout=sink, stderr=subprocess.PIPE, env=settings, check=False, timeout=60)
    os.close(writing)
    assert ended.returncode == 0 and done.exists()
    if output == "ascii":
        assert ended.stdout.decode().splitlines()[:2] == ["[0] \\xe4", "[0] \\ufffd"]
    else:
        assert b"lines are lost from here on" in ended.stderr and b"Traceback" not in ended.stderr


def test_a_line_without_an_end_is_passed_on_in_parts(launch: Run, capsys: pytest.CaptureFixture[str]):
    assert launch("sys.stdout.write('x' * 200_000)", processes=1) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 1 and "".join(line.removeprefix("[0] ") for line in lines) == "x" * 200_000


def test_a_rank_that_dies_ends_the_others_and_all_start_again(
    launch: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    script = """
mark(f"{attempt}-{rank}")
if attempt == 2: print("done"); sys.exit(0)
if rank == 1:
    wait(f"{attempt}-0"); os.kill(os.getpid(), signal.SIGKILL)
signal.signal(signal.SIGTERM, signal.SIG_IGN) if attempt else None
time.sleep(60)
"""
    begun = time.monotonic()
    assert launch(script, restarts=2, grace=0.2) == 0
    assert time.monotonic() - begun < 30
    told = capsys.readouterr()
    assert sorted(told.out.splitlines()) == ["[0] done", "[1] done"]
    assert [line for line in told.err.splitlines() if "started again" in line] == [
        "tapestry launch: rank 1 ended with SIGKILL; started again, 1 more times at most",
        "tapestry launch: rank 1 ended with SIGKILL; started again, 0 more times at most",
    ]
    assert gone(*(int(path.read_text()) for path in tmp_path.iterdir()))


@pytest.mark.parametrize(("end", "status"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", 137), ("1 / 0", 1)])
def test_the_status_is_that_of_the_rank_that_failed(launch: Run, end: str, status: int):
    assert launch(f"if rank == 1: {end}\nif rank == 0: time.sleep(60)", restarts=1, grace=0.2) == status


def test_a_rank_that_ends_well_is_not_missed(launch: Run, capsys: pytest.CaptureFixture[str]):
    assert launch("if rank == 1: time.sleep(0.3); print('late')") == 0
    assert capsys.readouterr().out == "[1] late\n"


def test_a_stuck_rank_says_where_and_signs_of_life_count(
    launch: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    script = """
def stands_here():
    wait("what never comes")
mark(f"{attempt}-{rank}")
for turn in range(60):
    time.sleep(0.05)
    if rank == 0: os.utime(os.environ["TAPESTRY_HEARTBEAT"])
    if rank == 1: print(turn)
    if rank == 1 and turn == 30 and not attempt: stands_here()
"""
    assert launch(script, restarts=0, stuck=2) == 124
    told = capsys.readouterr()
    assert "[1] 30\n" in told.out and "[1] 31\n" not in told.out
    assert "tapestry launch: rank 1 gave no sign of life for 2 seconds; it is asked where it stands\n" in told.err
    assert "in stands_here\n" in told.err
    assert gone(*(int(path.read_text()) for path in tmp_path.iterdir()))
    (tmp_path / "what never comes").touch()
    assert launch(script, restarts=0, stuck=2) == 0


@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_signals_are_handed_on(launch: Run, capsys: pytest.CaptureFixture[str], name: str, status: int):
    assert threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    script = f"""
def end(number, _): print("ends cleanly"); sys.exit(0)
signal.signal(signal.{name}, end)
mark(f"{{rank}}")
if rank == 0: wait("1"); os.kill(os.getppid(), signal.{name})
time.sleep(60)
"""
    assert launch(script, restarts=3) == status
    told = capsys.readouterr()
    assert sorted(told.out.splitlines()) == ["[0] ends cleanly", "[1] ends cleanly"]
    assert told.err == f"tapestry launch: {name}\n" and signal.getsignal(signal.SIGINT) is before


def test_what_the_shell_has_it_ignore_stops_no_group(launch: Run, capsys: pytest.CaptureFixture[str]):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        assert launch("os.kill(os.getppid(), signal.SIGHUP); print('runs on')", processes=None) == 0
        assert capsys.readouterr().out == "runs on\n" and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("again", [False, True])
def test_who_does_not_end_is_killed_with_what_it_has_started(
    launch: Run, tmp_path: Path, again: bool, capsys: pytest.CaptureFixture[str]
):
    script = f"""
signal.signal(signal.SIGINT, signal.SIG_IGN)
deaf = "import signal, time; signal.signal(2, signal.SIG_IGN); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-S", "-c", deaf])
open(f"{{here}}/child-{{rank}}", "w").write(str(child.pid))
mark(f"{{rank}}")
if rank == 0:
    wait("1"); wait("child-1"); os.kill(os.getppid(), signal.SIGINT); time.sleep(0.3)
    if {again}: os.kill(os.getppid(), signal.SIGINT)
time.sleep(60)
"""
    begun = time.monotonic()
    assert launch(script, grace=30 if again else 1) == 130
    assert time.monotonic() - begun < 20
    assert "tapestry launch: SIGINT; 2 did not end and are killed\n" in capsys.readouterr().err
    processes = [int(path.read_text()) for path in tmp_path.iterdir()]
    assert len(processes) == 4 and gone(*processes)


def test_nothing_outlives_a_supervisor_that_is_killed(tmp_path: Path):
    script = tmp_path / "rank.py"
    script.write_text(
        HEAD
        + 'child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])\n'
        + 'mark(f"rank-{rank}"); open(f"{here}/child-{rank}.part", "w").write(str(child.pid))\n'
        + 'os.rename(f"{here}/child-{rank}.part", f"{here}/child-{rank}"); time.sleep(60)\n'
    )
    words = [sys.executable, "-c", "from tapestry_jax.command import main; main()"]
    words += ["launch", "--processes", "2", str(script), str(tmp_path)]
    supervisor = subprocess.Popen(words, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL)
    try:
        for _ in range(2000):
            if len([*tmp_path.glob("child-?")]) == 2:
                break
            time.sleep(0.02)
        processes = [int(path.read_text()) for path in (*tmp_path.glob("rank-*"), *tmp_path.glob("child-?"))]
        guardian = [os.getpgid(process) for process in processes]
        assert len(processes) == 4 and all(is_there(each) for each in (*processes, *guardian))
    finally:
        supervisor.kill()
        supervisor.wait()
    assert gone(*processes, *guardian)


def test_jax_joins_the_ranks_and_they_go_on_after_a_death(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    script = Path(__file__).with_name("one_of_a_group.py")
    words = ["launch", "--processes", "2", "--devices", "1", "--restarts", "1", str(script), str(tmp_path / "kept")]
    assert main(words) == 0
    told = capsys.readouterr()
    lines = [line for line in told.out.splitlines() if "Gloo" not in line]
    assert sorted(lines) == [
        "[0] begins at 0 as 0 of 2 with 1",
        "[0] begins at 3 as 0 of 2 with 1",
        "[0] total 25",
        "[1] begins at 0 as 1 of 2 with 1",
        "[1] begins at 3 as 1 of 2 with 1",
        "[1] total 25",
    ]
    assert "tapestry launch: rank 1 ended with SIGKILL; started again, 0 more times at most\n" in told.err


def test_a_cluster_is_left_to_jax(launch: Run, capsys: pytest.CaptureFixture[str]):
    script = """
names = [name for name in os.environ if name.startswith(("JAX_COORD", "JAX_NUM_P", "JAX_PROC", "OMPI_"))]
print(names)
"""
    assert launch(script, processes=None) == 0
    assert capsys.readouterr().out == "[]\n"
    check_alone({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, 2)
    with pytest.raises(LaunchError) as caught:
        check_alone({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4"}, 2)
    assert str(caught.value) == (
        "tapestry launch: Slurm has started this process as one of 4.\n"
        "  --processes 2 would start a group beside each of them\n"
        "  Leave --processes out: each is watched, and JAX finds the others itself."
    )


def test_ranks_keep_what_the_environment_says():
    asked = Launch(("x",), 2, None, 0, 5.0, 1.0, {"JAX_CPU_COLLECTIVES_IMPLEMENTATION": "mpi", "MINE": "1"})
    told = environment_of(asked, 1, 4321, 2, "beat")
    assert (told["JAX_CPU_COLLECTIVES_IMPLEMENTATION"], told["MINE"], told["TAPESTRY_ATTEMPT"]) == ("mpi", "1", "2")
    assert told["PYTHONFAULTHANDLER"] == "1" and "JAX_NUM_CPU_DEVICES" not in told
