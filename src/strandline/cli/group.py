"""`group`: event groups from the command line. Each verb is a call of `s.groups(...)`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.arguments import pairs, whole_number
from strandline.cli.measuring import MetricsOption, measured
from strandline.cli.options import Options
from strandline.cli.output import emit, note, printable, say, write_file
from strandline.cli.stopping import stopped_in_order
from strandline.cli.work import mapping_of
from strandline.clock import time_text
from strandline.errors import InvalidInput, unknown
from strandline.values.payloads import parse_json

if TYPE_CHECKING:
    from strandline.group.definition import Group
    from strandline.group.groups import Groups
    from strandline.group.outcome import Outcome

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The group's id.")]
FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="The group as JSON; - for standard input.")]
StreamOption = Annotated[str | None, typer.Option("--stream", metavar="NAME", help="The stream; default: default.")]
TargetOption = Annotated[
    list[str] | None, typer.Option("--target", metavar="NAME=URL", help="A database that groups change.")
]
HandlersOption = Annotated[
    str | None, typer.Option("--handlers", metavar="MODULE:NAME", help="A mapping: names to callables.")
]
FILE_BYTES_MAX = 16 * 2**20
ROWS_SHOWN = 10


@contextmanager
def opened(
    options: Options, stream: str | None, target: list[str] | None, handlers: str | None, *, create: bool = False
) -> Iterator[Groups]:
    said = dict(options.group)
    targets: dict[str, Any] = {**said.pop("targets", {}), **pairs(target, "--target", code="option")}
    name = stream or said.pop("stream", None) or "default"
    said.pop("stream", None)
    registry: Mapping[str, Any] = mapping_of(handlers) if handlers is not None else {}
    with options.connect(create=create) as s:
        yield s.groups(name, targets=targets, handlers=registry, **said)


def _read(file: str) -> Group:
    from strandline.group.definition import Group

    try:
        if file == "-":
            text = sys.stdin.buffer.read(FILE_BYTES_MAX)
        else:
            with Path(file).open("rb") as opened:
                text = opened.read(FILE_BYTES_MAX)
    except OSError as error:
        raise InvalidInput(
            f"{file}: cannot be read ({error.strerror})", code="option", hint="give a file that you can read, or -"
        ) from None
    return Group.from_json(text)


def submit(
    options: Options,
    file: FileArgument,
    stream: StreamOption = None,
    target: TargetOption = None,
    handlers: HandlersOption = None,
) -> None:
    """Record a group at the end of its stream; nothing runs yet.

    Example: strandline group submit bonus.json --url sqlite:orders --target shop=sqlite:shop.db
    """
    group = _read(file)
    with opened(options, stream, target, handlers, create=True) as groups:
        handle = groups.submit(group)
        options.tell(
            {"group": handle.id, "stream": groups.stream, "hash": group.hash},
            f"{handle.id}: submitted to stream {groups.stream}",
        )


def run(
    options: Options,
    stream: StreamOption = None,
    target: TargetOption = None,
    handlers: HandlersOption = None,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="End when no group is left to run.")] = False,
    metrics: MetricsOption = None,
) -> None:
    """Run the groups of a stream, until SIGTERM or Ctrl-C.

    There is one for each stream: a second one waits until the first has ended, or with --until-idle has nothing left.

    Example: strandline group run --url sqlite:orders --target shop=sqlite:shop.db --handlers shop:HANDLERS
    """
    with measured(options, metrics), opened(options, stream, target, handlers) as groups:
        processor = groups.processor()
        note(f"running stream {groups.stream}")
        with stopped_in_order(processor.stop, "the groups that run"):
            processor.run_until_idle() if until_idle else processor.run()


def explain(
    options: Options,
    file: FileArgument,
    stream: StreamOption = None,
    target: TargetOption = None,
    handlers: HandlersOption = None,
    svg: Annotated[str | None, typer.Option("--svg", metavar="FILE", help="Draw the graph into this file.")] = None,
) -> None:
    """Show what a group would do, and how it would be undone.

    Steps that are added, order, rows, undo. Executes and records nothing.

    Example: strandline group explain bonus.json --url sqlite:orders --target shop=sqlite:shop.db --svg bonus.svg
    """
    group = _read(file)
    with opened(options, stream, target, handlers) as groups:
        explained = groups.explain(group)
    if svg is not None:
        write_file("--svg", svg, explained.svg().encode())
    if options.json:
        emit(explained.made())
    else:
        for line in explained.text().splitlines():
            say(printable(line))


def show(options: Options, id: IdArgument) -> None:  # noqa: A002 (the specification's name)
    """Show how a group stands: steps, times, results, reasons.

    Example: strandline group show bonus-42 --url sqlite:orders
    """
    with opened(options, None, None, None) as groups:
        outcome = groups.get(id)
    if options.json:
        emit(outcome)
    else:
        _show(outcome)


def list_(
    options: Options,
    stream: StreamOption = None,
    state: Annotated[
        str | None, typer.Option("--state", metavar="STATE", help="open, or a state; else all that were carried.")
    ] = None,
    after: Annotated[str | None, typer.Option("--after", metavar="PLACE", help="Go on where a list ended.")] = None,
    limit: Annotated[str, typer.Option("--limit", metavar="N", help="At most so many, 1..1000.")] = "100",
) -> None:
    """List the groups of a stream.

    With --state open: those that have not ended, exactly.

    Example: strandline group list --state rollback_failed --url sqlite:orders
    """
    most = whole_number(limit, "--limit", code="limit_range", allowed="1..1000")
    with opened(options, stream, None, None) as groups:
        found = groups.list(state, after, most)
    for one in found.groups:
        if options.json:
            emit(one)
        else:
            at = time_text(one.ended or one.started, digits=0)
            say(printable(f"{one.id:<32} {one.state:<15} {at:<20} {one.reason or ''}".rstrip()))
    none = ": no pipeline has carried this journal yet; --state open lists those that have not ended all the same"
    note(f"as of {time_text(found.as_of)}{'' if found.as_of else none}")
    if found.after is not None:
        note(f"there are more: --after {found.after}")


def history(options: Options, id: IdArgument) -> None:  # noqa: A002 (the specification's name)
    """Show everything that is recorded of a group, in order.

    Example: strandline group history bonus-42 --url sqlite:orders --json
    """
    with opened(options, None, None, None) as groups:
        events = groups.history(id)
    for n, (type_, payload, timestamp) in enumerate(events, 1):
        if options.json:
            emit({"n": n, "type": type_, "timestamp": timestamp, "payload": payload})
        else:
            said = {name: value for name, value in payload.items() if name not in ("definition", "tables")}
            say(printable(f"{n:>4}  {time_text(timestamp)}  {type_:<10}  {said}"))


def playback(options: Options, id: IdArgument) -> None:  # noqa: A002 (the specification's name)
    """Work a group out again from its history, and compare.

    Example: strandline group playback bonus-42 --url sqlite:orders
    """
    with opened(options, None, None, None) as groups:
        played = groups.playback(id)
    options.tell(
        {"group": played.id, "steps": played.steps, "equal": played.equal, "difference": played.difference},
        f"{played.id}: {'as recorded' if played.equal else played.difference}",
    )


def cancel(options: Options, id: IdArgument) -> None:  # noqa: A002 (the specification's name)
    """Ask for a group to be undone, unless it has ended.

    Example: strandline group cancel bonus-42 --url sqlite:orders
    """
    with opened(options, None, None, None) as groups:
        outcome = groups.cancel(id)
    from strandline.group.history import ENDS

    said = f"was {outcome.state}, and is to be undone"
    if outcome.state in ENDS:
        said = f"has ended, {outcome.state}: nothing is undone"
    options.tell({"group": outcome.id, "state": outcome.state}, f"{outcome.id}: {said}")


def resolve(
    options: Options,
    id: IdArgument,  # noqa: A002 (the specification's name)
    step: Annotated[str, typer.Argument(metavar="STEP", help="The step whose undo has failed.")],
    how: Annotated[str, typer.Argument(metavar="HOW", help="retry, force or accept_current.")],
) -> None:
    """Say what becomes of a step that could not be undone.

    Example: strandline group resolve bonus-42 grant force --url sqlite:orders
    """
    from strandline.group.groups import HOW

    if how not in HOW:
        raise unknown("HOW", how, HOW, code="how")
    with opened(options, None, None, None) as groups:
        groups.resolve(id, step, how)
    options.tell({"group": id, "step": step, "how": how}, f"{id}: {step} will be resolved by {how}")


MessageArgument = Annotated[str, typer.Argument(metavar="MESSAGE_ID", help="As it is in the message.")]


def answer(
    options: Options,
    message_id: MessageArgument,
    results: Annotated[str | None, typer.Argument(metavar="RESULTS", help="A JSON object: results by name.")] = None,
    refuse: Annotated[str | None, typer.Option("--refuse", metavar="REASON", help="There are none, and why.")] = None,
) -> None:
    """Answer a question that a group asked through a work journal.

    Example: strandline group answer bonus-42/9d0c… '{"value": 5}' --url sqlite:orders
    """
    from strandline.group.core.encoding import decoded
    from strandline.group.core.parts import Refused

    if (results is None) == (refuse is None):
        raise InvalidInput("RESULTS or --refuse: give one of them", code="option", hint="e.g. '{\"value\": 5}'")
    given = Refused(refuse or "") if results is None else decoded(parse_json(results, "RESULTS"))
    with opened(options, None, None, None) as groups:
        groups.answer(message_id, given)
    _said(options, message_id, "answered")


def ack(options: Options, message_id: MessageArgument) -> None:
    """Say that a message which came through a work journal has arrived.

    Example: strandline group ack bonus-42/9d0c… --url sqlite:orders
    """
    with opened(options, None, None, None) as groups:
        groups.ack(message_id)
    _said(options, message_id, "acknowledged")


def _said(options: Options, message_id: str, what: str) -> None:
    options.tell({"message_id": message_id, "what": what}, f"{message_id}: {what}")


def _show(outcome: Outcome) -> None:
    from strandline.group.groups import HOW

    why = f": {outcome.failed_step or 'group'} failed with {outcome.reason}" if outcome.reason else ""
    say(printable(f"{outcome.id}: {outcome.state}{why} {outcome.detail}".rstrip()))
    if outcome.holder is not None:
        say(printable(f"stream {outcome.stream} is run by {outcome.holder}"))
    if outcome.waits_for is not None:
        say(printable(f"waits for {outcome.waits_for}"))
    for name, step in outcome.steps.items():
        at = time_text(step.ended, digits=3) if step.ended else "-"
        more = "  " + ": ".join(filter(None, (step.reason, step.detail))) if step.reason or step.detail else ""
        results = f"  {dict(step.results)}" if step.results else ""
        say(printable(f"  {name:<24} {step.state:<12} {at:<25}{more}{results}"[:500]))
        for row in step.conflicts[:ROWS_SHOWN]:
            say(printable("      " + ", ".join(f"{what} {value}" for what, value in row.items()))[:500])
    if outcome.state == "rollback_failed":
        failed = " ".join(name for name, step in outcome.steps.items() if step.state == "undo_failed")
        say(f"waits for `strandline group resolve {outcome.id} STEP HOW`; STEP: {failed}; HOW: {' '.join(HOW)}")
