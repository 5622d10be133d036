"""Packages that a trainer needs for some of what it does."""

from __future__ import annotations

import importlib
from typing import Any

from combinators.errors import message
from tapestry_jax.nnx.training.errors import TrainingError


def required(module: str, package: str, purpose: str) -> Any:
    """A module that need not be installed.

    Args:
      module: what is imported.
      package: what it comes with.
      purpose: what it is needed for.

    Raises:
      TrainingError: when it is not there.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        details = (f"{type(error).__name__}: {error}"[:200],)
        headline = f"{purpose} of a trainer need {package}, which is not installed"
        raise TrainingError(message(headline, *details, remedy=f"pip install {package}")) from error
