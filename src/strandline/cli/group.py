"""`group`: records, runs and explains event groups, and has a verb for each call of `s.groups(...)`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from strandline.cli.arguments import pairs
from strandline.cli.measuring import MetricsOption, measured
from strandline.cli.options import Options
from strandline.cli.output import emit, note, printable, say
from strandline.cli.stopping import stopped_in_order
from strandline.cli.verbs import Noun, ShellParameter, Values, Verb, command, number
from strandline.cli.work import mapping_of
from strandline.clock import time_text
from strandline.errors import InvalidInput, counted, unknown
from strandline.group.groups import HOW, Groups
from strandline.group.history import ENDS
from strandline.values.json_form import json_form
from strandline.values.payloads import parse_json

if TYPE_CHECKING:
    from strandline.group.definition import Group
    from strandline.group.listing import GroupList
    from strandline.group.outcome import Outcome
    from strandline.group.playback import Played

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
LISTED_MAX = 1000


@contextmanager
def opened(
    options: Options,
    stream: str | None = None,
    target: list[str] | None = None,
    handlers: str | None = None,
    *,
    create: bool = False,
) -> Iterator[Groups]:
    """Open the groups of a stream, with the targets, handlers and settings of the command line and the configuration
    file.
    """
    settings = {name: value for name, value in options.group.items() if name not in ("stream", "targets")}
    targets: dict[str, Any] = {**options.group.get("targets", {}), **pairs(target, "--target", code="option")}
    registry: Mapping[str, Any] = mapping_of(handlers) if handlers is not None else {}
    with options.connect(create=create) as s:
        yield s.groups(stream_of(options, stream), targets=targets, handlers=registry, **settings)


def stream_of(options: Options, stream: str | None) -> str:
    """Return the stream that a command is about."""
    return stream or options.group.get("stream") or "default"


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

    Only one processor runs for a stream: a second one waits until the first has ended, or with --until-idle has no
    groups left.

    Example: strandline group run --url sqlite:orders --target shop=sqlite:shop.db --handlers shop:HANDLERS
    """
    with measured(options, metrics), opened(options, stream, target, handlers) as groups:
        processor = groups.processor()
        note(f"running stream {groups.stream}")
        with stopped_in_order(processor.stop, "the groups that run"):
            processor.run_until_idle() if until_idle else processor.run()
        if until_idle:
            note(_summary(groups, processor.ended))


def _summary(groups: Groups, ended: Mapping[str, int]) -> str:
    """Return how many groups ended in this process, by state, and how many are left for an operator."""
    states = ", ".join(f"{count} {state}" for state, count in sorted(ended.items()))
    left = len(groups.list("rollback_failed", limit=LISTED_MAX).groups)
    waiting = f"; {left} wait{'s' * (left == 1)} for `strandline group resolve`" if left else ""
    return (
        f"stream {groups.stream}: {counted(sum(ended.values()), 'group')} ended{': ' * bool(states)}{states}{waiting}"
    )


def explain(
    options: Options,
    file: FileArgument,
    stream: StreamOption = None,
    target: TargetOption = None,
    handlers: HandlersOption = None,
) -> None:
    """Show what a group would do, and how it would be undone.

    It shows added steps, their order, the rows, and the undo. It executes and records nothing.

    Example: strandline group explain bonus.json --url sqlite:orders --target shop=sqlite:shop.db
    """
    group = _read(file)
    with opened(options, stream, target, handlers) as groups:
        explained = groups.explain(group)
    if options.json:
        emit(explained.made())
    else:
        for line in explained.text().splitlines():
            say(printable(line))


def answer(
    options: Options,
    message_id: Annotated[str, typer.Argument(metavar="MESSAGE_ID", help="As it is in the message.")],
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
    with opened(options) as groups:
        groups.answer(message_id, given)
    options.tell({"message_id": message_id, "what": "answered"}, f"{message_id}: answered")


# ---------------------------------------------------------------- verbs


def _shown(options: Options, outcome: Outcome, given: Values) -> None:
    if options.json:
        emit(outcome)
        return
    why = f": {outcome.failed_step or 'group'} failed with {outcome.reason}" if outcome.reason else ""
    say(printable(f"{outcome.id}: {outcome.state}{why} {outcome.detail}".rstrip()))
    if outcome.holder is not None:
        say(printable(f"stream {outcome.stream} is run by {outcome.holder}"))
    if outcome.waits_for is not None:
        say(printable(f"waits for {outcome.waits_for}"))
    for name, step in outcome.steps.items():
        at = time_text(step.ended, digits=3) if step.ended else "-"
        more = "  " + ": ".join(filter(None, (step.reason, step.detail))) if step.reason or step.detail else ""
        results = f"  {_named(step.results)}" if step.results else ""
        say(printable(f"  {name:<24} {step.state:<12} {at:<25}{more}{results}"[:500]))
        for row in step.conflicts[:ROWS_SHOWN]:
            say(printable("      " + ", ".join(f"{what} {value}" for what, value in row.items()))[:500])
    if outcome.state == "rollback_failed":
        failed = " ".join(name for name, step in outcome.steps.items() if step.state == "undo_failed")
        resolve = options.command(f"group resolve {outcome.id} STEP HOW")
        say(f"waits for {resolve}; STEP: {failed}; HOW: {' '.join(HOW)}")


def _named(values: Mapping[str, Any]) -> str:
    """Return values by name on one line, each as JSON."""
    return " ".join(f"{name}={json.dumps(json_form(value), ensure_ascii=False)}" for name, value in values.items())


def _listed(options: Options, found: GroupList, given: Values) -> None:
    for one in found.groups:
        at = time_text(one.ended or one.started, digits=0)
        options.tell(one, f"{one.id:<32} {one.state:<15} {at:<20} {one.reason or ''}".rstrip())
    none = ": no pipeline has carried this journal yet; --state open lists those that have not ended all the same"
    note(f"as of {time_text(found.as_of)}{'' if found.as_of else none}")
    if found.after is not None:
        note(f"there are more: --after {found.after}")


def _recorded(options: Options, events: Sequence[tuple[str, Mapping[str, Any], int]], given: Values) -> None:
    for n, (type_, payload, timestamp) in enumerate(events, 1):
        short = {name: value for name, value in payload.items() if name not in ("definition", "tables")}
        options.tell(
            {"n": n, "type": type_, "timestamp": timestamp, "payload": payload},
            f"{n:>4}  {time_text(timestamp)}  {type_:<10}  {_named(short)}".rstrip(),
        )


def _played(options: Options, played: Played, given: Values) -> None:
    options.tell(
        {"group": played.id, "steps": played.steps, "equal": played.equal, "difference": played.difference},
        f"{played.id}: {'as recorded' if played.equal else played.difference}",
    )


def _cancelled(options: Options, outcome: Outcome, given: Values) -> None:
    said = f"was {outcome.state}, and is to be undone"
    if outcome.state in ENDS:
        said = f"has ended, {outcome.state}: nothing is undone"
    options.tell({"group": outcome.id, "state": outcome.state}, f"{outcome.id}: {said}")


def _resolved(options: Options, answer: None, given: Values) -> None:
    group, step, how = given["id"], given["step"], given["how"]
    options.tell({"group": group, "step": step, "how": how}, f"{group}: {step} will be resolved by {how}")


def _acknowledged(options: Options, answer: None, given: Values) -> None:
    message_id = given["message_id"]
    options.tell({"message_id": message_id, "what": "acknowledged"}, f"{message_id}: acknowledged")


def _loaded(options: Options, answer: None, given: Values) -> None:
    name, version, stream = given["name"], given["version"], stream_of(options, given["stream"])
    told = {"name": name, "version": version, "stream": stream}
    options.tell(told, f"{name}: version {version} from here on in stream {stream}")


def _how(text: str, field: str, on: Any) -> str:
    if text not in HOW:
        raise unknown(field, text, HOW, code="how")
    return text


PARAMETERS: Final = {
    "id": ShellParameter("ID", "The group's id."),
    "stream": ShellParameter("NAME", "The stream; default: default."),
    "state": ShellParameter("STATE", "open, or a state; else all that were carried."),
    "after": ShellParameter("PLACE", "Go on where a list ended."),
    "limit": ShellParameter("N", "At most this many, 1..1000.", number("limit_range", "1..1000")),
    "step": ShellParameter("STEP", "The step whose undo has failed."),
    "how": ShellParameter("HOW", "retry, force or accept_current.", _how),
    "message_id": ShellParameter("MESSAGE_ID", "As it is in the message."),
    "name": ShellParameter("NAME", "The code's, as in NAME/handler."),
    "version": ShellParameter("VERSION", "As people call it."),
}
GROUP: Final = Noun(opened, PARAMETERS)
STREAM: Final = Noun(opened, PARAMETERS, may_take=("stream",))
LIST: Final = """List the groups of a stream.

With --state open: those that have not ended, exactly."""
LOAD_CODE: Final = """Let groups from here on use this version of code.

Those that were submitted before keep theirs. They wait until it is served: `strandline group handlers`."""


def verbs() -> dict[str, list[Callable[..., None]]]:
    """Return the commands that are calls of `s.groups(...)`, by the panel that they stand in."""
    of_stream = {
        "Look": [Verb(Groups.list, LIST, "group list --state rollback_failed", _listed)],
        "Code versions": [Verb(Groups.load_code, LOAD_CODE, "group load-code shop 2", _loaded)],
    }
    of_group = {
        "Look": [
            Verb(Groups.get, "Show how a group stands: steps, times, results, reasons.", "group show bonus-42", _shown,
                 name="show"),
            Verb(Groups.history, "Show everything that is recorded of a group, in order.", "group history bonus-42",
                 _recorded),
            Verb(Groups.playback, "Work a group out again from its history, and compare.", "group playback bonus-42",
                 _played),
        ],
        "Look after": [
            Verb(Groups.cancel, "Ask for a group to be undone, unless it has ended.", "group cancel bonus-42",
                 _cancelled),
            Verb(Groups.resolve, "Say what becomes of a step that could not be undone.",
                 "group resolve bonus-42 grant force", _resolved),
            Verb(Groups.ack, "Say that a message which came through a work journal has arrived.",
                 "group ack bonus-42/9d0c…", _acknowledged),
        ],
    }  # fmt: skip
    return {
        panel: [command(noun, verb) for noun, found in ((STREAM, of_stream), (GROUP, of_group))
                for verb in found.get(panel, ())]
        for panel in ("Look", "Look after", "Code versions")
    }  # fmt: skip
