"""`work`: work journals from the command line. Each verb is a call of `s.work(JOURNAL)`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.arguments import confirm, date_of, whole_number
from strandline.cli.importing import object_of
from strandline.cli.options import Options
from strandline.cli.output import emit, plain, printable, say
from strandline.cli.record import Yes
from strandline.cli.stopping import stopped_in_order
from strandline.clock import seconds_text, time_text
from strandline.errors import invalid
from strandline.values.payloads import parse_json

if TYPE_CHECKING:
    from strandline.connect import Strandline
    from strandline.work.entries import DeadLetter, Entry
    from strandline.work.journal import Claim, WorkJournal
    from strandline.work.worker import Worker

JournalArgument = Annotated[str, typer.Argument(metavar="JOURNAL", help="The name of the work journal.")]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The entry's id.")]
FenceArgument = Annotated[str, typer.Argument(metavar="FENCE", help="The claim's fence, as `work claim` gave it.")]
DeadArgument = Annotated[str, typer.Argument(metavar="DEAD_ID", help="The dead letter's id.")]
DATES = "+10m, 2026-11-15T07:30:00Z, or microseconds since 1970"
COUNTED = ("due", "later", "behind", "running", "dead", "unacknowledged")
AfterOption = Annotated[str, typer.Option("--after", metavar="ID", help="Go on after this one.")]
LimitOption = Annotated[str, typer.Option("--limit", metavar="N", help="At most so many, 1..1000.")]


@contextmanager
def _journal(options: Options, name: str) -> Iterator[WorkJournal]:
    with options.connect() as s:
        yield s.work(name)


def _number(text: str, field: str) -> int:
    return whole_number(text, field, code="limit_range", allowed="0..2^63-1")


def _columns(text: str, field: str) -> dict[str, Any]:
    found = parse_json(text, field)
    if not isinstance(found, dict):
        raise invalid("column", field, "not columns by name", allowed="a JSON object", got=text)
    return found


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


def add(
    options: Options,
    journal: JournalArgument,
    key: Annotated[str, typer.Option("--key", metavar="JSON", help="The key's columns.")],
    data: Annotated[str, typer.Option("--data", metavar="JSON", help="The data's columns.")],
    priority: Annotated[str | None, typer.Option("--priority", metavar="N", help="0..255; smallest first.")] = None,
    process_date: Annotated[
        str | None, typer.Option("--process-date", metavar="DATE", help=f"Not before: {DATES}.")
    ] = None,
    expiration_date: Annotated[
        str | None, typer.Option("--expiration-date", metavar="DATE", help="Gone after; 0 is never.")
    ] = None,
    insertion_date: Annotated[
        str | None, typer.Option("--insertion-date", metavar="DATE", help="When the data was made.")
    ] = None,
) -> None:
    """Add an entry, or merge it with the one of its key that waits.

    Example: strandline work add mails --key '{"order": 7}' --data '{"to": "a@b.org"}' --url sqlite:orders
    """
    columns, values = _columns(key, "--key"), _columns(data, "--data")
    urgent = None
    if priority is not None:
        urgent = whole_number(priority, "--priority", code="priority_range", allowed="a whole number in 0..255")
    with _journal(options, journal) as work:
        added = work.add(
            work.columns_of("key", columns),
            work.columns_of("data", values),
            priority=urgent,
            process_date=date_of(process_date, "--process-date", work.now_us),
            expiration_date=date_of(expiration_date, "--expiration-date", work.now_us),
            insertion_date=date_of(insertion_date, "--insertion-date", work.now_us),
        )
    options.tell(added, f"{journal}: entry {added.id}, {added.outcome}")


def claim(
    options: Options,
    journal: JournalArgument,
    limit: LimitOption = "1",
    owner: Annotated[str | None, typer.Option("--owner", metavar="NAME", help="The claimer's name.")] = None,
) -> None:
    """Claim the most urgent entries that are due.

    Say done, fail or release before the lease ends, with the id and the fence.

    Example: strandline work claim mails --limit 10 --owner hand --url sqlite:orders
    """
    with _journal(options, journal) as work:
        batch = work.cursor(owner).claim(_number(limit, "--limit"))
    for found in batch.claims:
        _show(options, found.entry)
    if not batch.claims and not options.json:
        say(f"{journal}: paused ({batch.paused})" if batch.paused else f"{journal}: nothing is due")


def _held(work: WorkJournal, id_: str, fence: str) -> Claim:
    return work.claim_of(_number(id_, "ID"), _number(fence, "FENCE"))


def done(options: Options, journal: JournalArgument, id_: IdArgument, fence: FenceArgument) -> None:
    """Say that a claimed entry is done.

    Example: strandline work done mails 17592186044417 17592186044420 --url sqlite:orders
    """
    with _journal(options, journal) as work:
        _held(work, id_, fence).done()
    _said(options, journal, "done", id_)


def fail(
    options: Options,
    journal: JournalArgument,
    id_: IdArgument,
    fence: FenceArgument,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why.")] = "",
    delay_s: Annotated[float | None, typer.Option("--delay-s", metavar="S", help="When to try again.")] = None,
) -> None:
    """Say that a claimed entry could not be done.

    It is tried again after a delay, or becomes a dead letter.

    Example: strandline work fail mails 17592186044417 17592186044420 --reason 'no such mailbox' --url sqlite:orders
    """
    with _journal(options, journal) as work:
        _held(work, id_, fence).fail(reason, delay_s=delay_s)
    _said(options, journal, "failed", id_)


def release(options: Options, journal: JournalArgument, id_: IdArgument, fence: FenceArgument) -> None:
    """Give a claimed entry back as it was.

    Example: strandline work release mails 17592186044417 17592186044420 --url sqlite:orders
    """
    with _journal(options, journal) as work:
        _held(work, id_, fence).release()
    _said(options, journal, "released", id_)


def heartbeat(options: Options, journal: JournalArgument, id_: IdArgument, fence: FenceArgument) -> None:
    """Keep a claimed entry for another lease.

    Example: strandline work heartbeat mails 17592186044417 17592186044420 --url sqlite:orders
    """
    with _journal(options, journal) as work:
        _held(work, id_, fence).heartbeat()
    _said(options, journal, "kept", id_)


def get(
    options: Options,
    journal: JournalArgument,
    key: Annotated[str, typer.Option("--key", metavar="JSON", help="The key's columns.")],
) -> None:
    """Show the entry of a key.

    Example: strandline work get mails --key '{"order": 7}' --url sqlite:orders
    """
    with _journal(options, journal) as work:
        found = work.get(work.columns_of("key", _columns(key, "--key")))
    if found is not None:
        _show(options, found)
    elif options.json:
        emit(None)
    else:
        say(f"{journal}: no entry of this key")


def entries(
    options: Options,
    journal: JournalArgument,
    status: Annotated[str | None, typer.Option("--status", metavar="W|P", help="Waiting or processing.")] = None,
    after: AfterOption = "0",
    limit: LimitOption = "1000",
) -> None:
    """List entries in the order of their ids.

    Example: strandline work entries mails --status W --url sqlite:orders
    """
    with _journal(options, journal) as work:
        found = work.entries(status=status, after=_number(after, "--after"), limit=_number(limit, "--limit"))
    for entry in found:
        _show(options, entry)


def counts(options: Options, journal: JournalArgument) -> None:
    """Count entries and dead letters.

    Example: strandline work counts mails --url sqlite:orders
    """
    with _journal(options, journal) as work:
        found = work.counts()
    if options.json:
        emit(found)
    else:
        parts = [f"{name} {value}" for name, value in found._asdict().items() if name in COUNTED]
        if found.due:
            parts.append(f"the oldest due one waits for {seconds_text(found.oldest_due_s)}")
        paused = "" if found.paused is None else f"paused ({found.paused}), nothing is handed out; "
        say(printable(f"{journal}: {paused}{', '.join(parts)}"))


def dead(options: Options, journal: JournalArgument, after: AfterOption = "0", limit: LimitOption = "1000") -> None:
    """List dead letters.

    Example: strandline work dead mails --url sqlite:orders
    """
    with _journal(options, journal) as work:
        found = work.dead(after=_number(after, "--after"), limit=_number(limit, "--limit"))
    for letter in found:
        _show_letter(options, letter)


def alerts(options: Options, journal: JournalArgument, after: AfterOption = "0", limit: LimitOption = "1000") -> None:
    """List dead letters that nobody has acknowledged.

    Example: strandline work alerts mails --url sqlite:orders
    """
    with _journal(options, journal) as work:
        found = work.alerts(after=_number(after, "--after"), limit=_number(limit, "--limit"))
    for letter in found:
        _show_letter(options, letter)


def requeue(
    options: Options,
    journal: JournalArgument,
    dead_id: DeadArgument,
    expiration_date: Annotated[
        str | None, typer.Option("--expiration-date", metavar="DATE", help=f"A new one: {DATES}; 0 is never.")
    ] = None,
) -> None:
    """Add a dead letter again.

    Example: strandline work requeue mails 17592186044430 --url sqlite:orders
    """
    with _journal(options, journal) as work:
        expires = date_of(expiration_date, "--expiration-date", work.now_us)
        added = work.requeue(_number(dead_id, "DEAD_ID"), expiration_date=expires)
    options.tell(added, f"{journal}: entry {added.id}, {added.outcome}")


def acknowledge(options: Options, journal: JournalArgument, dead_id: DeadArgument) -> None:
    """Lower the flag of a dead letter.

    Example: strandline work acknowledge mails 17592186044430 --url sqlite:orders
    """
    with _journal(options, journal) as work:
        work.acknowledge(_number(dead_id, "DEAD_ID"))
    _said(options, journal, "acknowledged", dead_id)


def drop(options: Options, journal: JournalArgument, id_: IdArgument, yes: Yes = False) -> None:
    """Remove an entry, whoever works on it.

    Example: strandline work drop mails 17592186044417 --url sqlite:orders
    """
    number = _number(id_, "ID")
    confirm(f"remove entry {number} of {journal}, for good", yes=yes)
    with _journal(options, journal) as work:
        work.drop(number)
    _said(options, journal, "dropped", id_)


def pause(
    options: Options,
    journal: JournalArgument,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why.")] = "paused",
) -> None:
    """Let claims come back empty until `work resume`.

    Example: strandline work pause mails --reason 'mail server moves' --url sqlite:orders
    """
    with _journal(options, journal) as work:
        work.pause(reason)
    _said(options, journal, "paused", "")


def resume(options: Options, journal: JournalArgument) -> None:
    """End a pause.

    Example: strandline work resume mails --url sqlite:orders
    """
    with _journal(options, journal) as work:
        work.resume()
    _said(options, journal, "goes on", "")


def tables(options: Options, journal: JournalArgument) -> None:
    """List the short-lived tables of a journal.

    Example: strandline work tables mails --url sqlite:orders
    """
    with _journal(options, journal) as work:
        found = work.tables()
    for table in found:
        options.tell(
            table,
            f"{table.name}  {table.state}  since {time_text(table.opened_date, digits=0)}  {table.entries} entries",
        )


def tick(options: Options, journal: JournalArgument) -> None:
    """Do the upkeep that is due: lapses, expiry, tables.

    Example: strandline work tick mails --url sqlite:orders
    """
    with _journal(options, journal) as work:
        work.tick()
    _said(options, journal, "seen to", "")


def run(
    options: Options,
    handlers: Annotated[str, typer.Argument(metavar="MODULE:NAME", help="A mapping of journals to handlers.")],
    concurrency: Annotated[str, typer.Option("--concurrency", metavar="N", help="So many at a time, 1..1000.")] = "1",
    owner: Annotated[str | None, typer.Option("--owner", metavar="NAME", help="The claimer's name.")] = None,
    max_run_s: Annotated[float, typer.Option("--max-run-s", metavar="S", help="Give a handler up then.")] = 3600.0,
) -> None:
    """Work: call a handler for each entry, until SIGTERM or Ctrl-C.

    Example: strandline work run shop.workers:handlers --concurrency 4 --url sqlite:orders
    """
    from strandline.work.worker import Worker

    found = mapping_of(handlers)
    most = whole_number(concurrency, "--concurrency", code="option", allowed="1..1000")
    with options.connect() as s:
        worker = Worker(s, found, concurrency=most, owner=owner, max_run_s=max_run_s)
        if not options.json:
            say(f"working on {', '.join(found)}")
            sys.stdout.flush()
        work_until_stopped(worker, s)


def work_until_stopped(worker: Worker, s: Strandline) -> None:
    """Run a worker until a signal ends it."""
    with stopped_in_order(worker.stop, f"handlers that run, up to {seconds_text(s.settings.shutdown_grace_s)}"):
        worker.run()


def mapping_of(text: str) -> Mapping[str, Any]:
    """What MODULE:NAME names, as the command line gives handlers."""
    found = object_of(text, "a mapping: handlers by name")
    if not isinstance(found, Mapping):
        name = text.partition(":")[2]
        hint = f"write HANDLERS = {{NAME: {name}}}, and give that" if callable(found) else ""
        allowed = "a mapping: handlers by name"
        raise invalid("option", "MODULE:NAME", "not a mapping", allowed=allowed, got=type(found).__name__, hint=hint)
    return found


def _said(options: Options, journal: str, what: str, id_: str) -> None:
    options.tell(
        {"journal": journal, "what": what, **({"id": int(id_)} if id_ else {})},
        f"{journal}: {f'entry {id_} ' if id_ else ''}{what}",
    )


def _show(options: Options, entry: Entry) -> None:
    if options.json:
        emit(entry)
        return
    fence = f"  fence {entry.fence}" if entry.status == "P" else ""
    date = time_text(entry.retry_date or entry.process_date, digits=3)
    say(f"{entry.id}{fence}  {entry.status}  {entry.priority:>3}  {date}  {_json(entry.key)}  {_json(entry.data)}")


def _show_letter(options: Options, letter: DeadLetter) -> None:
    if options.json:
        emit(letter)
        return
    flag = "" if letter.acknowledged else "  !"
    when = time_text(letter.date, digits=0)
    reason = printable(letter.reason)
    say(f"{letter.dead_id}{flag}  entry {letter.id}  {when}  {reason}  {_json(letter.key)}  {_json(letter.data)}")


def _json(columns: Mapping[str, Any] | None) -> str:
    """Columns as `--key` and `--data` take them; what a terminal would obey is escaped, as JSON can."""
    if columns is None:
        return "unreadable"
    text = json.dumps(plain(columns), ensure_ascii=False)
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
