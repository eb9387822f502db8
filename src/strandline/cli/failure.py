"""How a command fails: one line and a hint on stderr, or one JSON object; the exit code of the error's class."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple

from strandline.cli.masking import masked
from strandline.cli.output import printable
from strandline.errors import InvalidInput, StrandlineError, Unavailable, shown, text_of, unknown
from strandline.values.json_form import json_form

EXIT_BUG = 1
EXIT_INTERRUPTED = 130
TRACEBACK = "STRANDLINE_TRACEBACK"


def usage_error(error: Any) -> InvalidInput:
    """Translate an error of the option parser."""
    ctx = error.ctx
    path = ctx.command_path if ctx is not None else "strandline COMMAND"
    see = f"see `{path} --help`"
    kind = type(error).__name__
    if kind == "NoSuchOption" and ctx is not None:
        known = _options(ctx.command, ctx)
        if error.option_name not in known and error.option_name in _options_of_commands(ctx.command, ctx):
            return InvalidInput(
                f"{error.option_name}: stands before a command",
                code="option",
                hint=f"options follow the command: `{path} COMMAND {error.option_name} …`",
                field=error.option_name,
            )
        return unknown("option", error.option_name, known, seen=see)
    if kind == "MissingParameter" and error.param is not None:
        name = error.param.opts[0] if error.param.opts[0].startswith("-") else error.param.metavar or error.param.name
        return InvalidInput(f"{name}: missing", code="option", hint=see, field=name)
    message = error.format_message().strip().rstrip(".")
    if found := re.fullmatch(r"Option '(--[\w-]+)' (.+)", message):
        return InvalidInput(f"{found[1]}: {found[2]}", code="option", hint=see, field=found[1])
    if "extra argument" in message and "--url" in _options(ctx.command, ctx):
        see = f"a journal is named by --url; {see}"
    return InvalidInput(f"{path}: {message[:1].lower()}{message[1:]}", code="option", hint=see)


def _options(command: Any, ctx: Any) -> list[str]:
    return [name for parameter in command.get_params(ctx) for name in parameter.opts if name.startswith("-")]


def _options_of_commands(group: Any, ctx: Any) -> set[str]:
    """Return the options that the commands of a group take, and those of the groups in it."""
    inner = getattr(group, "commands", {}).values()
    return {name for command in inner for name in (*_options(command, ctx), *_options_of_commands(command, ctx))}


class Spoken(NamedTuple):
    """An error in the words of the command line: with options instead of Python's arguments."""

    message: str
    hint: str
    facts: dict[str, Any]


def spoken(error: StrandlineError) -> Spoken:
    """Return an error in the words of the command line."""
    message, hint, facts = error.message, error.hint, error.facts
    if error.name == "SchemaMismatch.no_schema":
        hint = "is the URL right? `strandline append` and `group submit` make a new one, and `pipeline run --create`"
    for words, said in _ARGUMENTS:
        message, hint = words.sub(said, message), words.sub(said, hint)
    field = facts.get("field")
    if field in _FIELDS and message.startswith(f"{field}:"):
        option = "--" + field.strip("_").replace("_", "-")
        message, facts = option + message.removeprefix(field), {**facts, "field": option}
    return Spoken(message, _ACCEPT.sub("--set accept_power_loss=true", hint), facts)


_ARGUMENTS = (
    (re.compile(r"(?<![\w?&-])(url|log|store)=URL\b"), r"--\1 URL"),
    (re.compile(r"(?<![\w?&-])(url|log|store|work)=(?=[ ;,]|$)"), r"--\1"),
    (re.compile(r'(?<![\w?&-])schema="(\w+)"'), r"--set schema=\1"),
    (re.compile(r"\babove to;"), "above --to;"),
    (re.compile(r"\b(dead|entries)\(\) lists them"), r"`strandline work \1` lists them"),
    (re.compile(r"\bgive a new expiration_date\b"), "give a new --expiration-date"),
    (re.compile(r"\ba UUID, or its text\b"), "a UUID"),
)
_FIELDS = frozenset(
    "url log store from_ from to expected first append_id limit id slices on orders rounds case folder "
    "process_date expiration_date insertion_date priority owner".split()
)
"""Names of Python arguments that are options on the command line."""
_ACCEPT = re.compile(r"\baccept_power_loss(=[Tt]rue)?\b")


def report(error: StrandlineError, *, as_json: bool) -> int:
    """Print an error on stderr, and return the exit code."""
    message, hint, facts = spoken(error)
    if as_json:
        problem = {
            "title": type(error).__name__,
            "code": error.code,
            "detail": masked(message),
            "hint": masked(hint, ours=True),
            "applied": error.applied,
            "retryable": error.retryable,
            "exit_code": error.exit_code,
            "facts": _told(json_form(facts)),
        }
        _write(json.dumps(problem))
        return error.exit_code
    outcome = "; the outcome is unknown" if error.applied == "unknown" else ""
    first, *more = [message] if "problems" not in facts else [message.partition("\n")[0], *facts["problems"]]
    _write(f"error: {masked(printable(first))} [{error.name}{outcome}]")
    for line in more:
        _write(f"  {masked(printable(str(line)))}")
    if hint:
        _write(f"hint: {masked(printable(hint), ours=True)}")
    return error.exit_code


def report_bug(error: BaseException, *, as_json: bool) -> int:
    """Report a bug of Strandline, without a traceback unless one is asked for."""
    what = shown(": ".join(filter(None, (type(error).__name__, text_of(error)))), 300)
    hint = f"run it again with {TRACEBACK}=1 and report what it prints"
    if os.environ.get(TRACEBACK, "") not in ("", "0"):
        _write(masked("".join(traceback.format_exception(error)).rstrip("\n")))
    if as_json:
        problem = {"title": "Bug", "code": "bug", "detail": what, "hint": hint, "exit_code": EXIT_BUG}
        _write(json.dumps(_told(problem)))
    else:
        _write(masked(f"error: this is a bug: {what}"))
        _write(f"hint: {hint}")
    return EXIT_BUG


def of_system(error: Exception) -> StrandlineError | None:
    """Return our error for an error of the operating system that is not a bug, such as a full disk; None for the
    others.
    """
    if not isinstance(error, OSError):
        return None
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Unavailable(f"no space: {error.strerror}", code="no_space", hint="free some space, then call again")
    if error.errno == errno.EADDRINUSE:
        return Unavailable("the port is in use", code="away", hint="stop who uses it, or choose another port")
    return None


def refuse_bad_text(argv: Sequence[str]) -> None:
    """Raise `InvalidInput.invalid_unicode` for an argument that is not UTF-8."""
    for place, argument in enumerate(argv, 1):
        try:
            argument.encode()
        except UnicodeEncodeError:
            got = shown(argument.encode("utf-8", "surrogateescape"))
            raise InvalidInput(
                f"argument {place}: not UTF-8; allowed UTF-8; got {got}",
                code="invalid_unicode",
                hint="write it in UTF-8",
                field=f"argument {place}",
            ) from None


def _told(value: Any) -> Any:
    """Return a value for the JSON of an error: texts without secrets, and only numbers that JSON has."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, dict):
        return {name: _told(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_told(member) for member in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _write(line: str) -> None:
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):  # stderr is closed; the exit code still tells of the error
        return
