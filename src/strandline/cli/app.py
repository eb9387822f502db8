"""The commands in their groups, and the handling of errors, Ctrl-C and a closed stdout around each."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from strandline import __version__
from strandline.cli import (
    archive,
    backup,
    bench,
    demo,
    doctor,
    export,
    group,
    group_code,
    look,
    pipeline,
    plan,
    projections,
    prove,
    queries,
    reconcile,
    record,
    repartition,
    schema,
    serve,
    servers,
    status,
    token,
    work,
)
from strandline.cli.elsewhere import of_a_checkout
from strandline.cli.failure import (
    EXIT_INTERRUPTED,
    of_system,
    refuse_bad_text,
    report,
    report_bug,
    usage_error,
)
from strandline.cli.masking import forget, refuse_tokens, remember
from strandline.cli.options import URL_VARIABLE, with_options
from strandline.cli.output import note, say
from strandline.errors import StrandlineError, unknown
from strandline.extras import IN_CHECKOUT, not_installed

PROGRAM = "strandline"
COMPLETE_VARIABLE = "_STRANDLINE_COMPLETE"
# The base class of the parser's own errors; its module depends on the version.
_USAGE_ERROR: type[Exception] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "UsageError")


class Command(TyperCommand):
    """A command whose help shows no value for flags: they take none."""

    def get_params(self, ctx: Any) -> Any:
        return _flags_without_value(super().get_params(ctx))


class Commands(TyperGroup):
    """A group of commands. For an unknown command it suggests the nearest one, or says that only a checkout has it."""

    def get_params(self, ctx: Any) -> Any:
        return _flags_without_value(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            if (elsewhere := of_a_checkout(ctx.command_path, args[0])) is not None:
                raise elsewhere
            raise unknown("command", args[0], self.list_commands(ctx), seen=f"see `{ctx.command_path} --help`")
        return super().resolve_command(ctx, args)


def _flags_without_value(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


def _group(help_: str) -> typer.Typer:
    return typer.Typer(
        cls=Commands, help=help_, no_args_is_help=True, rich_markup_mode="rich", pretty_exceptions_enable=False
    )


def _add(to: typer.Typer, panel: str, *functions: Callable[..., int | None], common: bool = True) -> None:
    for function in functions:
        name = function.__name__.strip("_").replace("_", "-")
        to.command(name, cls=Command, rich_help_panel=panel)(with_options(function) if common else function)


@cache
def app() -> typer.Typer:
    """Return the command line with all its commands."""
    top = _group("An event journal: record events, carry them into a store, read them.")
    top.callback()(_top)
    _add(top, "Record", record.append, look.read, look.head, record.mark, record.delete, record.purge)
    carrying = _group("Carry the log into the store, on Spark; resolve what failed.")
    _add(carrying, "Carry", pipeline.run, pipeline.replay, export.export, archive.archive, archive.sweep)
    _add(carrying, "Look after", pipeline.quarantine, pipeline.resolve, pipeline.rebuild, reconcile.reconcile)
    _add(carrying, "Look after", pipeline.purge_expired)
    _add(carrying, "Look after", pipeline.prepare, common=False)
    top.add_typer(carrying, name="pipeline", rich_help_panel="Carry")
    _add(top, "Carry", status.status)
    working = _group("Work journals: add and claim entries, look after them, run a worker.")
    _add(working, "Hand out", work.declare, work.run)
    _add(working, "By hand", work.claim)
    for panel, verbs in work.verbs().items():
        _add(working, panel, *verbs)
    top.add_typer(working, name="work", rich_help_panel="Act")
    grouping = _group("Event groups: statements on databases that succeed, or are undone, as a whole.")
    _add(grouping, "Run", group.submit, group.run, group.explain)
    for panel, verbs in group.verbs().items():
        _add(grouping, panel, *verbs)
    _add(grouping, "Look after", group.answer)
    _add(grouping, "Code versions", group_code.handlers)
    top.add_typer(grouping, name="group", rich_help_panel="Act")
    projecting = _group("Projections: run and rebuild them, see how far they are, look after what failed.")
    _add(projecting, "Run", projections.run, projections.rebuild)
    for panel, verbs in projections.verbs().items():
        _add(projecting, panel, *verbs)
    top.add_typer(projecting, name="projections", rich_help_panel="Act")
    _add(top, "Serve", serve.serve)
    access = _group("Tokens of the HTTP server: who may call it, and what they may do.")
    _add(access, "Look after", token.create, token.list_, token.revoke)
    top.add_typer(access, name="token", rich_help_panel="Serve")
    _add(top, "Query", queries.by_tag, queries.by_slices)
    _add(top, "Look after", look.keys)
    keeping = _group("Show or upgrade the schema; say who may do what; give the store another log.")
    _add(keeping, "Look after", schema.show, schema.upgrade, schema.roles, repartition.repartition)
    top.add_typer(keeping, name="schema", rich_help_panel="Look after")
    _add(top, "Look after", plan.plan, common=False)
    _add(top, "Look after", backup.backup, backup.restore, backup.verify, doctor.doctor)
    _add(top, "Try", prove.prove, common=False)
    if IN_CHECKOUT:
        _add(top, "Try", demo.demo, bench.bench, servers.servers, common=False)
    return top


@cache
def parser() -> Any:
    """Return the parser of command lines. It is made once, because that takes as long as some commands."""
    return typer.main.get_command(app())


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code. Without `argv` take the arguments and the streams of the process."""
    if argv is None:
        _settle_streams()
        argv = sys.argv[1:]
    as_json = "--json" in argv and argv[:1] not in (["bench"], ["prove"])  # which take a file there
    forget()
    remember([*argv, os.environ.get(URL_VARIABLE, "")])
    try:
        try:
            refuse_bad_text(argv)
            refuse_tokens(argv)
            return _call(argv)
        finally:
            sys.stdout.flush()  # the answer comes before the error
    except BrokenPipeError:
        _let_go_of_stdout()  # `strandline read … | head` is no error
        return 0
    except StrandlineError as error:
        return report(error, as_json=as_json)
    except KeyboardInterrupt:
        note("interrupted")
        return EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 (the last place that can say it in one line)
        if isinstance(error, OSError):
            _let_go_of_stdout()
        told = of_system(error) or not_installed(error)
        return report(told, as_json=as_json) if told is not None else report_bug(error, as_json=as_json)


def _call(argv: Sequence[str]) -> int:
    command = parser()
    if os.environ.get(COMPLETE_VARIABLE):
        command.main(args=list(argv), prog_name=PROGRAM, complete_var=COMPLETE_VARIABLE)
    try:
        with command.make_context(PROGRAM, list(argv) or ["--help"]) as ctx:
            code = command.invoke(ctx)
        return code if isinstance(code, int) else 0
    except typer.Exit as done:
        return done.exit_code
    except _USAGE_ERROR as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            return 2  # its help was printed
        raise usage_error(error) from None


def _let_go_of_stdout() -> None:
    """Point stdout to nowhere, so that the flush at exit does not fail, too."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _settle_streams() -> None:
    """Show characters that the terminal's encoding lacks escaped, and each warning on one line."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if issubclass(category, (UserWarning, RuntimeWarning)):
            note(f"warning: {message}")

    warnings.showwarning = show


def _say_version(wanted: bool) -> None:
    if wanted:
        say(f"strandline {__version__}")
        raise typer.Exit


def _top(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_say_version)
    ] = False,
) -> None:
    """An event journal: record events, carry them into a store, read them."""
