"""Imports of a user's object that a command line names as MODULE:NAME."""

from __future__ import annotations

import difflib
import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from strandline.errors import InvalidInput, StrandlineError, invalid, shown, text_of


def object_of(text: str, kind: str) -> Any:
    """Import a name from a module of this folder or of the path; `kind` says what it should be."""
    module, colon, name = text.partition(":")
    allowed = f"MODULE:NAME of {kind}, importable from here"
    if not colon or not module or not name:
        raise invalid("option", "MODULE:NAME", "not a name in a module", allowed=allowed, got=text)
    if module.endswith(".py") or "/" in module:
        meant = module.removesuffix(".py").strip("./").replace("/", ".")
        hint = f"write {meant}:{name}"
        raise invalid("option", "MODULE:NAME", "a path, not a module", allowed=allowed, got=text, hint=hint)
    sys.path.insert(0, str(Path.cwd()))
    found: Any = _imported(module, allowed)
    for part in name.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(part, [known for known in dir(found) if known[0] != "_"], n=1)
            hint = f"did you mean {module}:{near[0]}?" if near else ""
            wrong = f"there is no {shown(part)} in {shown(module)}"
            raise invalid("option", "MODULE:NAME", wrong, allowed=allowed, got=text, hint=hint)
        found = getattr(found, part)
    return found


def _imported(module: str, allowed: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except StrandlineError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            hint = f"is {error.name.replace('.', '/')}.py in the folder that you are in, or on PYTHONPATH?"
            raise invalid(
                "option", "MODULE:NAME", str(error), allowed=allowed, got=module, hint=hint
            ) from None  # fmt: skip
        raise _failed(module, error) from error
    except (Exception, SystemExit) as error:
        raise _failed(module, error) from error


def _failed(module: str, error: BaseException) -> InvalidInput:
    """Return the error for a module that exists but raises when it is imported."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    at = f" at {frames[-1].filename}:{frames[-1].lineno}" if len(frames) > 1 else ""
    said = shown(": ".join(filter(None, (type(error).__name__, text_of(error)))), 300)
    return InvalidInput(
        f"MODULE:NAME: {shown(module)} cannot be imported: {said}{at}",
        code="option",
        hint=f"mend it; `python -c 'import {shown(module)}'` shows the whole traceback",
        field="MODULE:NAME",
    )
