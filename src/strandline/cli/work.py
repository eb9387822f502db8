"""`work`: work journals from the command line. Each verb is a call of `s.work(JOURNAL)`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from strandline.cli.arguments import time_of
from strandline.cli.importing import object_of
from strandline.cli.measuring import MetricsOption, measured
from strandline.cli.options import Options
from strandline.cli.output import emit, printable, say
from strandline.cli.stopping import stopped_in_order
from strandline.cli.verbs import Noun, ShellParameter, Values, Verb, command, number
from strandline.clock import seconds_text, time_text
from strandline.errors import invalid
from strandline.values.json_form import json_form
from strandline.values.payloads import parse_json
from strandline.values.written import seconds_of, whole_number
from strandline.work.claims import Claim
from strandline.work.journal import WorkJournal

if TYPE_CHECKING:
    from strandline.connect import Strandline
    from strandline.work.entries import Added, DeadLetter, Entry, EntryCounts, EntryTable
    from strandline.work.worker import Worker

JournalArgument = Annotated[str, typer.Argument(metavar="JOURNAL", help="The name of the work journal.")]
DATES = "+10m, 2026-11-15T07:30:00Z, or microseconds since 1970"
COUNTED = ("due", "later", "behind", "running", "dead", "unacknowledged")


@contextmanager
def _journal(options: Options, journal: str) -> Iterator[WorkJournal]:
    with options.connect() as s:
        yield s.work(journal)


@contextmanager
def _claim(options: Options, journal: str, id: str, fence: str) -> Iterator[Claim]:  # noqa: A002 (the argument's name)
    with _journal(options, journal) as work:
        yield work.claim_of(_number(id, "ID"), _number(fence, "FENCE"))


def _number(text: str, field: str) -> int:
    return whole_number(text, field, code="limit_range", allowed="0..2^63-1")


def declare(
    options: Options,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="TOML: name, tables key and data, settings.")],
) -> None:
    """Make a work journal as a file declares it, or change it.

    Example: strandline work declare mails.toml --url sqlite:orders
    """
    from strandline.work.declaration import WorkDeclaration

    declaration = WorkDeclaration.load(file)
    with options.connect(create=True) as s:
        work = s.work(declaration)
        options.tell({"journal": work.name, "version": work.version}, f"{work.name}: declared, version {work.version}")


def claim(
    options: Options,
    journal: JournalArgument,
    limit: Annotated[str, typer.Option("--limit", metavar="N", help="At most this many, 1..1000.")] = "1",
    owner: Annotated[str | None, typer.Option("--owner", metavar="NAME", help="The claimer's name.")] = None,
) -> None:
    """Claim the most urgent entries that are due.

    Call done, fail or release before the lease ends, with the id and the fence.

    Example: strandline work claim mails --limit 10 --owner hand --url sqlite:orders
    """
    with _journal(options, journal) as work:
        batch = work.cursor(owner).claim(_number(limit, "--limit"))
    for found in batch.claims:
        _show(options, found.entry)
    if not batch.claims and not options.json:
        say(f"{journal}: paused ({batch.paused})" if batch.paused else f"{journal}: nothing is due")


def run(
    options: Options,
    handlers: Annotated[str, typer.Argument(metavar="MODULE:NAME", help="A mapping of journals to handlers.")],
    concurrency: Annotated[str, typer.Option("--concurrency", metavar="N", help="How many at a time, 1..1000.")] = "1",
    owner: Annotated[str | None, typer.Option("--owner", metavar="NAME", help="The claimer's name.")] = None,
    max_run_s: Annotated[str, typer.Option("--max-run-s", metavar="S", help="Give a handler up then.")] = "3600",
    metrics: MetricsOption = None,
) -> None:
    """Call a handler for each entry, until SIGTERM or Ctrl-C.

    Example: strandline work run shop.workers:handlers --concurrency 4 --url sqlite:orders
    """
    from strandline.work.worker import Worker

    found = mapping_of(handlers)
    most = whole_number(concurrency, "--concurrency", code="option", allowed="1..1000")
    longest_s = seconds_of(max_run_s, "--max-run-s")
    with measured(options, metrics), options.connect() as s:
        worker = Worker(s, found, concurrency=most, owner=owner, max_run_s=longest_s)
        if not options.json:
            say(f"working on {', '.join(found)}")
            sys.stdout.flush()
        work_until_stopped(worker, s)


def work_until_stopped(worker: Worker, s: Strandline) -> None:
    """Run a worker until a signal ends it."""
    with stopped_in_order(worker.stop, f"handlers that run, up to {seconds_text(s.settings.shutdown_grace_s)}"):
        worker.run()


def mapping_of(text: str) -> Mapping[str, Any]:
    """Import the mapping of handlers that MODULE:NAME names."""
    found = object_of(text, "a mapping: handlers by name")
    if not isinstance(found, Mapping):
        name = text.partition(":")[2]
        hint = f"write HANDLERS = {{NAME: {name}}}, and give that" if callable(found) else ""
        allowed = "a mapping: handlers by name"
        raise invalid("option", "MODULE:NAME", "not a mapping", allowed=allowed, got=type(found).__name__, hint=hint)
    return found


# ---------------------------------------------------------------- verbs


def _says(what: str, id_: str = "") -> Callable[[Options, Any, Values], None]:
    """Return a function that prints what was done to a journal, or to the entry whose number is the argument `id_`."""

    def tell(options: Options, answer: Any, given: Values) -> None:
        journal, number_ = given["journal"], given.get(id_)
        told = {"journal": journal, "what": what} | ({"id": int(number_)} if number_ is not None else {})
        options.tell(told, f"{journal}: {f'entry {number_} ' if number_ is not None else ''}{what}")

    return tell


def _added(options: Options, added: Added, given: Values) -> None:
    options.tell(added, f"{given['journal']}: entry {added.id}, {added.outcome}")


def _got(options: Options, found: Entry | None, given: Values) -> None:
    if found is not None:
        _show(options, found)
    elif options.json:
        emit(None)
    else:
        say(f"{given['journal']}: no entry of this key")


def _entries(options: Options, found: Sequence[Entry], given: Values) -> None:
    for entry in found:
        _show(options, entry)


def _counts(options: Options, found: EntryCounts, given: Values) -> None:
    if options.json:
        emit(found)
        return
    parts = [f"{name} {value}" for name, value in found._asdict().items() if name in COUNTED]
    if found.due:
        parts.append(f"the oldest due one waits for {seconds_text(found.oldest_due_s)}")
    paused = "" if found.paused is None else f"paused ({found.paused}), nothing is handed out; "
    say(printable(f"{given['journal']}: {paused}{', '.join(parts)}"))


def _letters(options: Options, found: Sequence[DeadLetter], given: Values) -> None:
    for letter in found:
        flag = "" if letter.acknowledged else "  !"
        what = f"{time_text(letter.date, digits=0)}  {letter.reason}"
        columns = f"{_json(letter.key)}  {_json(letter.data)}"
        options.tell(letter, f"{letter.dead_id}{flag}  entry {letter.id}  {what}  {columns}")


def _tables(options: Options, found: Sequence[EntryTable], given: Values) -> None:
    for table in found:
        since = f"since {time_text(table.opened_date, digits=0)}"
        options.tell(table, f"{table.name}  {table.state}  {since}  {table.entries} entries")


def _columns(text: str, field: str, work: WorkJournal) -> dict[str, Any]:
    found = parse_json(text, field)
    if not isinstance(found, dict):
        raise invalid("column", field, "not columns by name", allowed="a JSON object", got=text)
    return work.columns_of("key" if field == "--key" else "data", found)


def _date(text: str, field: str, work: WorkJournal) -> Any:
    return time_of(text, field, work.now_us)


PLACE: Final = number("limit_range", "0..2^63-1")
PARAMETERS: Final = {
    "journal": ShellParameter("JOURNAL", "The name of the work journal."),
    "key": ShellParameter("JSON", "The key's columns.", _columns, "--key"),
    "data": ShellParameter("JSON", "The data's columns.", _columns, "--data"),
    "priority": ShellParameter("N", "0..255; smallest first.", number("priority_range", "a whole number in 0..255")),
    "process_date": ShellParameter("DATE", f"Not before: {DATES}.", _date),
    "expiration_date": ShellParameter("DATE", f"Gone after: {DATES}; 0 is never.", _date),
    "insertion_date": ShellParameter("DATE", "When the data was made.", _date),
    "id": ShellParameter("ID", "The entry's id.", PLACE),
    "fence": ShellParameter("FENCE", "The claim's fence, as `work claim` gave it.", PLACE),
    "dead_id": ShellParameter("DEAD_ID", "The dead letter's id.", PLACE),
    "status": ShellParameter("W|P", "Waiting or processing."),
    "after": ShellParameter("ID", "Go on after this one.", PLACE),
    "limit": ShellParameter("N", "At most this many, 1..1000.", PLACE),
    "reason": ShellParameter("TEXT", "Why."),
    "text": ShellParameter("TEXT", "Why.", option="--reason"),
    "delay_s": ShellParameter("S", "When to try again.", lambda text, field, _: seconds_of(text, field)),
}
JOURNAL: Final = Noun(_journal, PARAMETERS, ("journal",))
ADD_ID: Final = ShellParameter("ID", "An add with this id, a UUID or any text, is stored once.")
ADD: Final = Noun(_journal, {**PARAMETERS, "id": ADD_ID}, ("journal",))
CLAIM: Final = Noun(_claim, PARAMETERS, ("journal", "id", "fence"))
HELD: Final = "mails 17592186044417 17592186044420"


def verbs() -> dict[str, list[Callable[..., None]]]:
    """Return the commands that are calls of a journal or a claim, by the panel that they stand in."""
    hand_out = [
        Verb(WorkJournal.add, "Add an entry, or merge it with the one of its key that waits.",
             """work add mails --key '{"order": 7}' --data '{"to": "a@b.org"}'""", _added),
    ]  # fmt: skip
    by_hand = [
        Verb(Claim.heartbeat, "Keep a claimed entry for another lease.", f"work heartbeat {HELD}", _says("kept", "id")),
        Verb(Claim.done, "Say that a claimed entry is done.", f"work done {HELD}", _says("done", "id")),
        Verb(Claim.fail, "Say that a claimed entry failed: again later, or a dead letter.",
             f"work fail {HELD} --reason 'no such mailbox'", _says("failed", "id")),
        Verb(Claim.release, "Give a claimed entry back as it was.", f"work release {HELD}", _says("released", "id")),
    ]  # fmt: skip
    look = [
        Verb(WorkJournal.get, "Show the entry of a key.", """work get mails --key '{"order": 7}'""", _got),
        Verb(WorkJournal.entries, "List entries in the order of their ids.", "work entries mails --status W", _entries),
        Verb(WorkJournal.counts, "Count entries and dead letters.", "work counts mails", _counts),
        Verb(WorkJournal.tables, "List the short-lived tables of a journal.", "work tables mails", _tables,
             hides=("after", "limit")),
    ]  # fmt: skip
    look_after = [
        Verb(WorkJournal.dead, "List dead letters.", "work dead mails", _letters),
        Verb(WorkJournal.alerts, "List dead letters that nobody has acknowledged.", "work alerts mails", _letters),
        Verb(WorkJournal.requeue, "Add a dead letter again.", "work requeue mails 17592186044430", _added),
        Verb(WorkJournal.acknowledge, "Lower the flag of a dead letter.", "work acknowledge mails 17592186044430",
             _says("acknowledged", "dead_id")),
        Verb(WorkJournal.drop, "Remove an entry, whoever works on it.", "work drop mails 17592186044417",
             _says("dropped", "id"), lambda given: f"remove entry {given['id']} of {given['journal']}, for good"),
        Verb(WorkJournal.pause, "Let claims come back empty until `work resume`.",
             "work pause mails --reason 'mail server moves'", _says("paused")),
        Verb(WorkJournal.resume, "End a pause.", "work resume mails", _says("goes on")),
        Verb(WorkJournal.tick, "Do the upkeep that is due: lapses, expiry, tables.", "work tick mails",
             _says("seen to")),
    ]  # fmt: skip
    nouns = {"By hand": CLAIM, "Hand out": ADD}
    panels = {"Hand out": hand_out, "By hand": by_hand, "Look": look, "Look after": look_after}
    return {panel: [command(nouns.get(panel, JOURNAL), verb) for verb in listed] for panel, listed in panels.items()}


def _show(options: Options, entry: Entry) -> None:
    if options.json:
        emit(entry)
        return
    fence = f"  fence {entry.fence}" if entry.status == "P" else ""
    date = time_text(entry.retry_date or entry.process_date, digits=3)
    say(f"{entry.id}{fence}  {entry.status}  {entry.priority:>3}  {date}  {_json(entry.key)}  {_json(entry.data)}")


def _json(columns: Mapping[str, Any] | None) -> str:
    """Return columns as `--key` and `--data` take them, with control characters escaped as in JSON."""
    if columns is None:
        return "unreadable"
    text = json.dumps(json_form(columns), ensure_ascii=False)
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
