"""What is said where a compiler is not installed, or does not fit."""

from __future__ import annotations

from importlib import metadata

from combinators.errors import MeshError, message

INSTALL = "pip install 'tapestry-jax[aot]'"


def missing(package: str, machine: object) -> MeshError:
    """The error where a compiler's package is not there."""
    return MeshError(
        message(
            f"the compiler for {machine} is not installed",
            f"it comes with the package {package}",
            remedy=f"Install it, best in an environment of its own: {INSTALL}",
        )
    )


def refused(package: str, machine: object, error: Exception) -> MeshError:
    """The error where a compiler does not load, or does not know a machine."""
    said = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return MeshError(
        message(
            f"the compiler of {package} {version(package)} gives no devices of {machine}",
            f"it says: {said:.200}",
            f"jaxlib is {version('jaxlib')}",
            remedy=f"Name another shape; or install compilers that belong to this jaxlib: {INSTALL}",
        )
    )


def version(package: str) -> str:
    """The version of an installed package; empty where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
