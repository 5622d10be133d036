"""What each rank is told by its environment: where it is in the group, so that JAX joins it with the others.

`jax.distributed.initialize()` without arguments asks the launchers that JAX knows. It reads the variables of Open MPI
first, so a rank is told its number in those, beside names that say what they are.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

from combinators.errors import message
from tapestry_jax.launching.launch import Launch, LaunchError

HEARTBEAT = "TAPESTRY_HEARTBEAT"
"""Names the file of a rank whose time of change says that it lives."""
ATTEMPT = "TAPESTRY_ATTEMPT"
"""How often the group was started before."""


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def environment_of(launch: Launch, rank: int, port: int, attempt: int, heartbeat: str) -> dict[str, str]:
    """The environment of a rank.

    Args:
      launch: what was asked for.
      rank: its number.
      port: where rank 0 listens, on this machine alone.
      attempt: how often the group was started before.
      heartbeat: the file of its heartbeat.
    """
    told = {**launch.environment, HEARTBEAT: heartbeat, ATTEMPT: str(attempt)}
    told.setdefault("PYTHONUNBUFFERED", "1")  # a line is read when it is printed, not when a buffer is full
    if launch.stuck is not None:
        told.setdefault("PYTHONFAULTHANDLER", "1")  # who is stuck says where, when it is aborted
    if launch.devices is not None:
        told["JAX_NUM_CPU_DEVICES"] = str(launch.devices)
    if launch.processes is None:
        return told
    address = f"127.0.0.1:{port}"
    told |= {
        "JAX_COORDINATOR_ADDRESS": address,
        "JAX_COORDINATOR_BIND_ADDRESS": address,
        "JAX_NUM_PROCESSES": str(launch.processes),
        "JAX_PROCESS_ID": str(rank),
        "OMPI_MCA_orte_hnp_uri": f"0.0;tcp://{address}",
        "OMPI_COMM_WORLD_SIZE": str(launch.processes),
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
    }
    told.setdefault("JAX_CPU_COLLECTIVES_IMPLEMENTATION", "gloo")
    return told


def check_alone(environment: Mapping[str, str], processes: int) -> None:
    """Raise where a cluster has started this process as one of several: each would start a group of its own.

    Raises:
      LaunchError: there.
    """
    for name, size in (("Slurm", "SLURM_STEP_NUM_TASKS"), ("Open MPI", "OMPI_COMM_WORLD_SIZE")):
        if environment.get(size, "1") != "1":
            raise LaunchError(
                message(
                    f"tapestry launch: {name} has started this process as one of {environment[size]:.20}.",
                    f"--processes {processes} would start a group beside each of them",
                    remedy="Leave --processes out: each is watched, and JAX finds the others itself.",
                )
            )
