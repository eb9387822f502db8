"""Commands made from the signatures of methods: a verb is a method, and its command takes the method's parameters.

A parameter without a default becomes an argument, any other one an option. A noun opens the object that the method is
called on, and says how a shell gives each parameter. Parameters that the noun does not know are left out of the
command. `tell` prints the answer.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Annotated, Any, NamedTuple

import typer

from strandline.cli.arguments import confirm
from strandline.cli.options import Options
from strandline.values.written import whole_number

Values = Mapping[str, Any]


class ShellParameter(NamedTuple):
    """The form in which a shell gives a parameter."""

    metavar: str
    help: str
    read: Callable[[str, str, Any], Any] = lambda text, field, on: text
    """Reads the value from the text. The second argument names it in errors, the third is the object of the method."""
    option: str | None = None
    """The name of the option, if it differs from the parameter's."""


class Noun(NamedTuple):
    """Opens an object, and knows the parameters of its methods."""

    open: Callable[..., AbstractContextManager[Any]]
    """Opens the object, from the common options and the parameters in `takes` and `may_take`."""
    parameters: Mapping[str, ShellParameter]
    takes: tuple[str, ...] = ()
    may_take: tuple[str, ...] = ()
    """Parameters that may be left out; they are None then."""


class Verb(NamedTuple):
    """A command that is one call."""

    call: Callable[..., Any]
    help: str
    example: str
    tell: Callable[[Options, Any, Values], None]
    """Prints the answer; the mapping has the arguments that were given."""
    asks: Callable[[Values], str] | None = None
    """Returns what the verb will do, if it asks for confirmation."""
    hides: tuple[str, ...] = ()
    """Parameters of the method that the command does not take."""
    name: str | None = None
    """The command's name, if it differs from the method's."""


def number(code: str, allowed: str) -> Callable[[str, str, Any], int]:
    """Return a reader of a whole number."""
    return lambda text, field, on: whole_number(text, field, code=code, allowed=allowed)


def command(noun: Noun, verb: Verb) -> Callable[..., None]:
    """Return the function of a command, as the parser of command lines wants it."""
    known = noun.parameters
    every = inspect.signature(verb.call).parameters.values()
    own = [one for one in every if one.name in known and one.name not in verb.hides]

    fields = {one.name: _field(one, known[one.name]) for one in own}

    def run(options: Options, **given: Any) -> None:
        sure = given.pop("yes", False)
        opened = {name: given.pop(name) for name in (*noun.takes, *noun.may_take)}
        with noun.open(options, **opened) as on:
            values = {
                name: value if isinstance(value, bool) else known[name].read(value, fields[name], on)
                for name, value in given.items()
                if value is not None
            }
            if verb.asks is not None:
                confirm(verb.asks({**opened, **values}), yes=sure)
            answer = verb.call(on, **values)
        verb.tell(options, answer, {**opened, **values})

    taken = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in noun.takes]
    may = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in noun.may_take]
    run.__signature__ = inspect.Signature(list(_signature([*taken, *own, *may], known, verb)))  # type: ignore[attr-defined]
    run.__name__ = verb.name or verb.call.__name__
    run.__doc__ = f"{verb.help}\n\nExample: strandline {verb.example} --url sqlite:orders"
    return run


def _signature(
    own: list[inspect.Parameter], known: Mapping[str, ShellParameter], verb: Verb
) -> Iterator[inspect.Parameter]:
    yield inspect.Parameter("options", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Options)
    for one in own:
        kind, default = _kind(one, known[one.name])
        yield one.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)
    if verb.asks is not None:
        yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
        yield inspect.Parameter("yes", inspect.Parameter.KEYWORD_ONLY, annotation=yes, default=False)


def _field(one: inspect.Parameter, how: ShellParameter) -> str:
    """Return the name of a parameter on the command line and in errors."""
    if one.default is inspect.Parameter.empty and how.option is None:
        return how.metavar
    return how.option or f"--{one.name.replace('_', '-')}"


def _kind(one: inspect.Parameter, how: ShellParameter) -> tuple[Any, Any]:
    """Return the type of a parameter as the parser knows it, and its default."""
    name, required = _field(one, how), one.default is inspect.Parameter.empty
    if isinstance(one.default, bool):
        return Annotated[bool, typer.Option(name, help=how.help)], one.default
    if not name.startswith("--"):
        return Annotated[str, typer.Argument(metavar=how.metavar, help=how.help)], one.default
    option = typer.Option(name, metavar=how.metavar, help=how.help)
    if required:
        return Annotated[str, option], one.default
    default = None if one.default is None else str(one.default)
    return Annotated[str | None, option], default
