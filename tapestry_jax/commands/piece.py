"""What a command line names as `package.module:piece`, imported; whatever goes wrong there is told in our words."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from combinators.errors import TapestryError, message, spelt


def imported_piece(text: str, command: str, kind: type[TapestryError]) -> Any:
    """Import what `package.module:name` stands for; the working directory is looked in first.

    Args:
      text: as a user wrote it.
      command: who asks, as errors call it.
      kind: of error.

    Raises:
      TapestryError: of this kind, when the text, the module or the name is wrong.
    """
    module_name, colon, path = text.partition(":")
    if not (module_name and colon and path):
        raise kind(message(f"{command}: cannot read {text!r}.", remedy="Write it as package.module:piece."))
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    found = _imported(module_name, command, kind)
    for name in path.split("."):
        if not hasattr(found, name):
            raise kind(
                message(
                    f"{command}: {module_name} has no {path!r}.",
                    f"it has {', '.join(sorted(n for n in vars(found) if not n.startswith('_')))[:300]}",
                    remedy="Name a piece of the module.",
                )
            )
        found = getattr(found, name)
    return found


def made_piece(text: str, make: Callable[[], Any], command: str, kind: type[TapestryError]) -> Any:
    """What a user's function makes.

    Args:
      text: how the user named it.
      make: calls it.
      command: who asks, as errors call it.
      kind: of error.

    Raises:
      TapestryError: of this kind, when it raises or ends the process; its own typed errors as they are.
    """
    headline = f"{command}: `{text}` does not make its piece."
    try:
        return make()
    except TapestryError:
        raise
    except SystemExit as error:
        details = (_place_of(error), f"it called sys.exit({spelt(error.code)})")
        ended = f"{command}: a piece tried to end the process."
        raise kind(message(ended, *filter(None, details), remedy="Let the function return the piece.")) from error
    except Exception as error:
        details = (_place_of(error), f"{type(error).__name__}: {error}"[:1000])
        raise kind(message(headline, *filter(None, details), remedy="Mend the function, then ask again.")) from error


def _imported(name: str, command: str, kind: type[TapestryError]) -> Any:
    """Import a module of a user's.

    Raises:
      TapestryError: when it cannot be found, or its body raises, or ends the process.
    """
    headline, remedy = f"{command}: `{name}` cannot be imported.", "Run it where the module can be imported."
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Of `package.module` it may be the package that is not there; anything else is what the module imports.
        if not error.name or f"{name}.".startswith(f"{error.name}."):
            raise kind(message(f"{command}: {error}.", remedy=remedy)) from error
        remedy = "Install what it imports, or mend the module."
        raise kind(message(headline, *filter(None, (_place_of(error), str(error))), remedy=remedy)) from error
    except SyntaxError as error:
        text = (error.text or "").rstrip()
        caret = [text.lstrip(), f"{' ' * (max(error.offset or 1, 1) - 1 - (len(text) - len(text.lstrip())))}^"]
        place = f"{error.filename}, line {error.lineno}: {type(error).__name__}: {error.msg}"
        raise kind(message(headline, place, *(caret if text.strip() else []), remedy="Mend that line.")) from error
    except SystemExit as error:
        details = (_place_of(error), f"it called sys.exit({spelt(error.code)})")
        remedy = 'Leave that to the part of the module behind `if __name__ == "__main__":`.'
        raise kind(message(headline, *filter(None, details), remedy=remedy)) from error
    except Exception as error:
        details = (_place_of(error), f"{type(error).__name__}: {error}"[:1000])
        raise kind(message(headline, *filter(None, details), remedy="Mend the module, then ask again.")) from error


def _place_of(error: BaseException) -> str:
    """The file and line of the user's that raised: the innermost one that is not of an installed package."""
    others = ("importlib", "site-packages", "tapestry_jax/commands/", "laws/cli.py", "laws/reports/")
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not any(part in frame.filename for part in others)]
    return f"{own[-1].filename}, line {own[-1].lineno}" if own else ""
