"""`projections`: runs and rebuilds them, and has a verb for each call of `s.projections`."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event as Signal
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from strandline.children.process import Process
from strandline.cli.arguments import key_of, time_of
from strandline.cli.importing import object_of
from strandline.cli.measuring import MetricsOption, measured
from strandline.cli.options import Options
from strandline.cli.output import emit, note, printable, say
from strandline.cli.spark_job import MasterOption, SparkPageOption
from strandline.cli.stopping import stopped_in_order
from strandline.cli.verbs import Noun, ShellParameter, Values, Verb, command, number
from strandline.clock import seconds_text, time_text
from strandline.errors import counted, invalid
from strandline.projection.management import Projections, stale_hint
from strandline.query.times import time_us
from strandline.values.ranges import ranges as check_ranges
from strandline.values.written import whole_number

if TYPE_CHECKING:
    from strandline.projection.definition import Projection
    from strandline.projection.management import ProjectionStatus
    from strandline.projection.offset_store import DeadEvent

INSTANCES_MAX = 1024
COMMAND = "import sys; from strandline_command import main; sys.exit(main())"
KILLED = 128
"""Exit codes above this one are those of signals."""


def run(
    options: Options,
    what: Annotated[str, typer.Argument(metavar="MODULE:NAME", help="A Projection, or a list of them.")],
    instances: Annotated[str, typer.Option("--instances", metavar="N", help="How many processes to run.")] = "1",
    spark: Annotated[bool, typer.Option("--spark", help="On Spark: this process hands ranges to its tasks.")] = False,
    master: MasterOption = None,
    metrics: MetricsOption = None,
    spark_ui: SparkPageOption = False,
) -> int:
    """Run projections until SIGTERM or Ctrl-C.

    Any number of processes, on any number of machines, share the ranges of a projection evenly; some of them may run
    theirs on Spark.

    Example: strandline projections run shop.projections:totals --instances 4 --url sqlite:orders
    """
    count = whole_number(instances, "--instances", code="option", allowed=f"1..{INSTANCES_MAX}")
    if not 1 <= count <= INSTANCES_MAX:
        raise invalid("option", "--instances", "out of range", allowed=f"1..{INSTANCES_MAX}", got=instances)
    if count > 1 and metrics is not None:
        allowed, hint = "one instance", "every instance is a process: start each with a port of its own"
        raise invalid("option", "--metrics", "given with --instances", allowed=allowed, got=instances, hint=hint)
    found = _projections(what)
    if spark or master is not None:
        with measured(options, metrics):
            return _on_spark(options, found, master)
    if count > 1:
        return _in_processes(count, found)
    from strandline.projection.host import Host

    with measured(options, metrics), options.connect() as s:
        host = Host(s, found)
        with stopped_in_order(host.stop, _what_runs(found)):
            if not options.json:
                note(f"running {', '.join(one.name for one in found)}")
            host.run()
    return 0


def _what_runs(found: Sequence[Projection]) -> str:
    """Return what a stop waits for, and for how long at most."""
    return f"handlers that run, up to {seconds_text(max(one.settings.shutdown_grace_s for one in found))}"


def _on_spark(options: Options, found: Sequence[Projection], master: str | None) -> int:
    options.connect().close()  # an error of log or store is raised before Spark is started
    from strandline.pipeline.projections import project as project_on_spark

    if not options.json:
        note(f"starting Spark for {', '.join(one.name for one in found)} …")
    stop = Signal()
    with stopped_in_order(stop.set, _what_runs(found)):
        project_on_spark(projections=found, stop=stop, master=master, **_where(options))
    return 0


def _where(options: Options) -> dict[str, Any]:
    """Return URLs and settings as the pipeline takes them; the offset store has another name there."""
    named: dict[str, Any] = {**options.target(), **options.settings}
    if "projections" in named:
        named["offset_store"] = named.pop("projections")
    return named


def rebuild(
    options: Options,
    what: Annotated[str, typer.Argument(metavar="MODULE:NAME", help="A Projection, of a new generation.")],
    ranges: Annotated[str | None, typer.Option("--ranges", metavar="N", help="Cut it into so many, 1..1024.")] = None,
    allow_deleted: Annotated[
        bool, typer.Option("--allow-deleted", help="Even if events were deleted, which it cannot see.")
    ] = False,
    master: MasterOption = None,
    spark_ui: SparkPageOption = False,
) -> None:
    """Build a new generation of a projection, on Spark.

    It is built beside the serving generation, up to the events that that one has handled. Then hosts of the new
    generation go on, and `projections switch` lets it serve. If the command is killed, start it again.

    Example: strandline projections rebuild shop.projections:totals --url sqlite:orders
    """
    found = _projections(what)
    if len(found) != 1:
        raise invalid("option", "MODULE:NAME", "several", allowed="one Projection", got=what)
    count = None if ranges is None else whole_number(ranges, "--ranges", code="slice_range", allowed="1..1024")
    if count is not None:
        check_ranges(count)
    from strandline.pipeline.projections import begin
    from strandline.pipeline.projections import rebuild as rebuild_on_spark

    with options.connect() as s:  # wrong arguments are refused before Spark starts
        begin(s, found[0], count, allow_deleted=allow_deleted)

    if not options.json:
        note("starting Spark …")
    stop = Signal()
    with stopped_in_order(stop.set, _what_runs(found)):
        done = rebuild_on_spark(
            projection=found[0], ranges=count, allow_deleted=allow_deleted, stop=stop, master=master, **_where(options)
        )
    if options.json:
        emit(done)
        return
    say(f"{done.projection}: generation {done.generation} is {done.state}")
    if done.state == "ready":
        switch = options.command(f"projections switch {done.projection} {done.generation}")
        note(f"run hosts of it, then {switch}")


def _projections(text: str) -> Sequence[Projection]:
    from strandline.projection.definition import Projection

    allowed = "a Projection or a list of them"
    found = object_of(text, allowed)
    listed = [found] if isinstance(found, Projection) else list(found) if isinstance(found, Iterable) else []
    if not listed or not all(isinstance(one, Projection) for one in listed):
        raise invalid("option", "MODULE:NAME", "no projections", allowed=allowed, got=type(found).__name__)
    return listed


def _in_processes(count: int, found: Sequence[Projection]) -> int:
    """Run this command in `count` processes, with one instance each. They end with this process; one that is killed is
    started again.
    """
    words = sys.argv[1:]
    at = next(index for index, word in enumerate(words) if word.partition("=")[0] == "--instances")
    del words[at : at + (1 if "=" in words[at] else 2)]
    stopped = Signal()
    grace_s = max(one.settings.shutdown_grace_s for one in found)
    with stopped_in_order(stopped.set, _what_runs(found)), tempfile.TemporaryDirectory() as folder:

        def start(number: int) -> Process:
            argv = [sys.executable, "-c", COMMAND, *words]
            log = Path(folder) / f"{number}.log"
            return Process(
                f"instance {number}",
                argv,
                folder=Path.cwd(),
                log=log,
                environment=os.environ,
                last_signal=signal.SIGTERM,
            )

        running = [start(number) for number in range(count)]
        try:
            while not stopped.wait(0.2):
                for number, one in enumerate(running):
                    if one.code is not None and one.code < KILLED:
                        if not one.code:  # another generation serves: this one has nothing left to do
                            return 0
                        raise one.failure("ended")
                    if one.code is not None:
                        note(f"instance {number} was killed, and is started again")
                        running[number] = start(number)
        finally:
            for one in running:
                one.send(signal.SIGTERM)
            for one in running:
                one.stop(signal.SIGTERM, grace_s + 5)
    return 0


# ---------------------------------------------------------------- verbs


@contextmanager
def _opened(options: Options) -> Iterator[Projections]:
    with options.connect() as s:
        yield s.projections


def _says(words: Callable[[Any, Values], str]) -> Callable[[Options, Any, Values], None]:
    """Return a function that prints what was done to a projection."""

    def tell(options: Options, answer: Any, given: Values) -> None:
        name, what = given["name"], words(answer, given)
        options.tell({"projection": name, "what": what}, f"{name}: {what}")

    return tell


def _listed(options: Options, found: Sequence[tuple[str, int, str]], given: Values) -> None:
    for name, generation, state in found:
        told = {"name": name, "generation": generation, "state": state}
        options.tell(told, f"{name}  generation {generation}  {state}")
    if not found and not options.json:
        note("none")


def _shown(options: Options, found: ProjectionStatus, given: Values) -> None:
    if options.json:
        emit(found)
        return
    lag = "up to date" if not found.behind_store_s else f"{seconds_text(found.behind_store_s)} behind the store"
    if found.at_start:  # its position is 0, which would show as 50 years behind
        lag = "at the start" if found.behind_store_s else "at the start, with nothing to do yet"
    log = f"the store is {seconds_text(found.behind_log_s)} behind the log"
    say(f"{found.name}: generation {found.generation}, {found.state}, {lag}; {log}")
    for one in found.ranges:
        at = time_text(one.position, digits=3) if one.position else "at the start"
        said = [f"{one.lo}-{one.hi}".ljust(9), one.state.ljust(7), at]
        said += [one.owner] if one.owner else []
        said += [f"{one.parked} parked"] if one.parked else []
        said += [counted(one.dead_letters, "dead letter")] if one.dead_letters else []
        said += [f"{one.last_error.get('key', '')} {one.last_error['message']}"] if one.last_error else []
        say("  " + printable("  ".join(said)))
    if found.stale is not None:
        note(f"stale: {found.stale}; {stale_hint(found)}")
    for request in found.requests:
        say(printable(f"  {request.verb} {request.key}: {request.refused or 'not done yet'}"))
    for warning in found.warnings:
        note(f"warning: {warning}")


def _keys(options: Options, found: Sequence[str], given: Values) -> None:
    for key in found:
        options.tell({"key": key}, key)


def _letters(options: Options, found: Sequence[DeadEvent], given: Values) -> None:
    for letter in found:
        when, why = time_text(letter.last_at, digits=0), f"{letter.error_type} {letter.message}".strip()
        said = f"{letter.key} {letter.seq_nr}  life {letter.life}  {letter.reason}  {when}  {why}"
        options.tell(letter._asdict(), said)


def _time(text: str, field: str, on: Any) -> int:
    return time_us(time_of(text, field), field)


SEQ_NR: Final = number("seq_nr_range", "1..2^63-1")
GENERATION: Final = number("setting", "1..2^31")
NOUN: Final = Noun(_opened, {
    "name": ShellParameter("NAME", "The projection."),
    "generation": ShellParameter("N", "A generation; else the one that serves.", GENERATION),
    "key": ShellParameter("KEY", "A key, as TYPE|ID.", lambda text, field, on: key_of(text)),
    "seq_nr": ShellParameter("N", "The number of the event.", SEQ_NR),
    "to": ShellParameter("N", "The number of the last event that counts as done.", SEQ_NR),
    "life": ShellParameter("N", "The key's life, if it is not the first.", SEQ_NR),
    "n": ShellParameter("N", "How many, 1..1024.", number("slice_range", "1..1024")),
    "time": ShellParameter("TIME", "2026-11-15T07:30:00Z, or microseconds since 1970.", _time),
    "new": ShellParameter("NEW", "Its new name."),
    "force": ShellParameter("", "Even if it has parked keys or dead letters that the other has not."),
})  # fmt: skip


def _of_generation(given: Values, whole: str, part: str) -> str:
    number_ = given.get("generation")
    return whole if number_ is None else part.format(number_)


def _switched(done: bool, given: Values) -> str:
    return f"generation {given['generation']} serves" + ("" if done else " once its hosts are done")


def verbs() -> dict[str, list[Callable[..., None]]]:
    """Return the commands of `projections` that are calls of `s.projections`, by the panel that they stand in."""
    look = [
        Verb(Projections.list, "List the projections: name, generation, state.", "projections list", _listed),
        Verb(Projections.status, "Show how far a projection is, who runs it, what is wrong.",
             "projections status totals", _shown),
        Verb(Projections.parked, "List the keys that wait.", "projections parked totals", _keys),
        Verb(Projections.dead_letters, "List the events that were not handled, with the reason.",
             "projections dead-letters totals", _letters),
    ]  # fmt: skip
    look_after = [
        Verb(Projections.pause, "Stop a projection, until it is resumed.", "projections pause totals", _says(
            lambda held, _: "paused" + (f"; not released yet: {', '.join(map(str, held))}" if held else ""))),
        Verb(Projections.resume, "Let a projection go on.", "projections resume totals", _says(lambda *_: "resumed")),
        Verb(Projections.rescale, "Cut a projection into so many ranges.", "projections rescale totals 16", _says(
            lambda done, given: f"{given['n']} ranges" + ("" if done else ", once all are released"))),
        Verb(Projections.set_offset, "Count all up to a time as done, and nothing above it.",
             "projections set-offset totals 0", _says(lambda _, given: f"set to {time_text(given['time'])}"),
             lambda given: f"let {given['name']} start again at {time_text(given['time'])}"),
        Verb(Projections.reset, "Hand over all events again.", "projections reset totals", _says(lambda *_: "reset"),
             lambda given: f"hand all events over to {given['name']} again"),
        Verb(Projections.rename, "Call a projection otherwise.", "projections rename totals sums",
             _says(lambda _, given: f"is {given['new']} now")),
        Verb(Projections.drop, "Forget a projection or a generation: offsets, dead letters.",
             "projections drop totals",
             _says(lambda _, given: _of_generation(given, "dropped", "generation {} is dropped")),
             lambda given: "forget " + _of_generation(given, "", "generation {} of ") + given["name"]),
        Verb(Projections.skip, "Count a key as done up to a number.", "projections skip totals 'order|42' 7",
             _says(lambda _, given: f"{given['key']} is to be skipped up to {given['to']}")),
        Verb(Projections.unpark, "Hand over what waits of a key.", "projections unpark totals 'order|42'",
             _says(lambda _, given: f"{given['key']} is to be unparked")),
        Verb(Projections.redeliver, "Hand over a dead letter again, or an event that was put back.",
             "projections redeliver totals 'order|42' 7",
             _says(lambda _, given: f"{given['key']} {given['seq_nr']} is to be handed over again")),
        Verb(Projections.discard, "Remove a dead letter, or count an event that was put back as done.",
             "projections discard totals 'order|42' 7",
             _says(lambda _, given: f"{given['key']} {given['seq_nr']} is discarded")),
        Verb(Projections.switch, "Let a rebuilt generation take the place of the serving one.",
             "projections switch totals 2", _says(_switched)),
    ]  # fmt: skip
    return {panel: [command(NOUN, verb) for verb in listed] for panel, listed in
            (("Look", look), ("Look after", look_after))}  # fmt: skip
