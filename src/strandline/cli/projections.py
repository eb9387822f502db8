"""`project` runs projections; `projections` has a verb for each call of `s.projections`."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Event as Signal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.children.process import Process
from strandline.cli.arguments import confirm, date_of, key_of, whole_number
from strandline.cli.importing import object_of
from strandline.cli.options import Options
from strandline.cli.output import emit, note, printable, say
from strandline.cli.record import Yes
from strandline.cli.stopping import stopped_in_order
from strandline.clock import now_us, seconds_text, time_text
from strandline.errors import counted, invalid
from strandline.query.times import time_us
from strandline.values.ranges import ranges as check_ranges

if TYPE_CHECKING:
    from strandline.projection.definition import Projection
    from strandline.projection.management import ProjectionStatus

INSTANCES_MAX = 1024
COMMAND = "import sys; from strandline_command import main; sys.exit(main())"
KILLED = 128
"""Exit codes from here on are those of signals."""
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The projection.")]
KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="A key, as TYPE|ID.")]
NumberArgument = Annotated[str, typer.Argument(metavar="N", help="The number of the event.")]
MasterOption = Annotated[
    str | None, typer.Option("--master", metavar="URL", help="Spark's master; else the cores of this machine.")
]
GenerationOption = Annotated[
    str | None, typer.Option("--generation", metavar="N", help="A generation; else the one that serves.")
]
LifeOption = Annotated[str, typer.Option("--life", metavar="N", help="The key's life, if it is not the first.")]


def project(
    options: Options,
    what: Annotated[str, typer.Argument(metavar="MODULE:NAME", help="A Projection, or a list of them.")],
    instances: Annotated[str, typer.Option("--instances", metavar="N", help="So many processes.")] = "1",
    spark: Annotated[bool, typer.Option("--spark", help="On Spark: this process hands ranges to its tasks.")] = False,
    master: MasterOption = None,
) -> int:
    """Run projections until SIGTERM or Ctrl-C.

    Any number of processes, on any number of machines, share the ranges of a projection evenly; some of them may run
    theirs on Spark.

    Example: strandline project shop.projections:totals --instances 4 --url sqlite:orders
    """
    count = whole_number(instances, "--instances", code="option", allowed=f"1..{INSTANCES_MAX}")
    if not 1 <= count <= INSTANCES_MAX:
        raise invalid("option", "--instances", "out of range", allowed=f"1..{INSTANCES_MAX}", got=instances)
    found = _projections(what)
    if spark or master is not None:
        return _on_spark(options, found, master)
    if count > 1:
        return _in_processes(count, found)
    from strandline.projection.host import Host

    with options.connect() as s:
        host = Host(s, found)
        with stopped_in_order(host.stop, _what_runs(found)):
            if not options.json:
                note(f"running {', '.join(one.name for one in found)}")
            host.run()
    return 0


def _what_runs(found: Sequence[Projection]) -> str:
    """What a stop waits for, and for how long at most."""
    return f"handlers that run, up to {seconds_text(max(one.settings.shutdown_grace_s for one in found))}"


def _on_spark(options: Options, found: Sequence[Projection], master: str | None) -> int:
    options.connect().close()  # what is wrong with log or store is told before Spark is started
    from strandline.pipeline.projecting import project as project_on_spark

    if not options.json:
        note(f"starting Spark for {', '.join(one.name for one in found)} …")
    stop = Signal()
    with stopped_in_order(stop.set, _what_runs(found)):
        project_on_spark(projections=found, stop=stop, master=master, **_where(options))
    return 0


def _where(options: Options) -> dict[str, Any]:
    """Log and store as the pipeline takes them; offsets have another name there."""
    named: dict[str, Any] = {**options.target(), **options.settings}
    if "projections" in named:
        named["offset_store"] = named.pop("projections")
    return named


def rebuild_projection(
    options: Options, what: str, ranges: str | None, *, allow_deleted: bool, master: str | None
) -> None:
    """`pipeline rebuild MODULE:NAME`."""
    found = _projections(what)
    if len(found) != 1:
        raise invalid("option", "MODULE:NAME", "several", allowed="one Projection", got=what)
    count = None if ranges is None else whole_number(ranges, "--ranges", code="slice_range", allowed="1..1024")
    if count is not None:
        check_ranges(count)
    options.connect().close()
    from strandline.pipeline.projecting import rebuild as rebuild_on_spark

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
        note(f"run hosts of it, then `strandline projections switch {done.projection} {done.generation}`")


def switch(
    options: Options,
    name: NameArgument,
    generation: Annotated[str, typer.Argument(metavar="GENERATION", help="The one that is to serve.")],
    force: Annotated[
        bool, typer.Option("--force", help="Even if it has parked keys or dead letters that the other has not.")
    ] = False,
) -> None:
    """Let a rebuilt generation take the place of the serving one.

    That one is stopped, and this one goes on exactly where it is. Hosts of the new generation do it.

    Example: strandline projections switch totals 2 --url sqlite:orders
    """
    number = whole_number(generation, "GENERATION", code="setting", allowed="1..2^31")
    with options.connect() as s:
        done = s.projections.switch(name, number, force=force)
    _said(
        options, name, f"generation {number} serves" if done else f"generation {number} serves once its hosts are done"
    )


def _projections(text: str) -> Sequence[Projection]:
    from strandline.projection.definition import Projection

    allowed = "a Projection or a list of them"
    found = object_of(text, allowed)
    listed = [found] if isinstance(found, Projection) else list(found) if isinstance(found, Iterable) else []
    if not listed or not all(isinstance(one, Projection) for one in listed):
        raise invalid("option", "MODULE:NAME", "no projections", allowed=allowed, got=type(found).__name__)
    return listed


def _in_processes(count: int, found: Sequence[Projection]) -> int:
    """The same command so many times, each with one instance. They end with this one; one that is killed comes back."""
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
                        if not one.code:  # another generation serves: nothing is left to do
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


def list_(options: Options) -> None:
    """List the projections: name, generation, state.

    Example: strandline projections list --url sqlite:orders
    """
    with options.connect() as s:
        found = s.projections.list()
    for name, generation, state in found:
        options.tell(
            {"name": name, "generation": generation, "state": state}, f"{name}  generation {generation}  {state}"
        )
    if not found and not options.json:
        note("none")


def status(options: Options, name: NameArgument, generation: GenerationOption = None) -> None:
    """Show how far a projection is, who runs it, what is wrong.

    Example: strandline projections status totals --url sqlite:orders
    """
    with options.connect() as s:
        found = s.projections.status(name, generation=_generation(generation))
    if options.json:
        emit(found)
        return
    _show(found)


def _show(found: ProjectionStatus) -> None:
    lag = "up to date" if not found.behind_store_s else f"{seconds_text(found.behind_store_s)} behind the store"
    if found.at_start:  # not so many years behind as there are since 1970
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
    for request in found.requests:
        say(printable(f"  {request.verb} {request.key}: {request.refused or 'not done yet'}"))
    for warning in found.warnings:
        note(f"warning: {warning}")


def pause(options: Options, name: NameArgument, generation: GenerationOption = None) -> None:
    """Stop a projection, until it is resumed.

    Example: strandline projections pause totals --url sqlite:orders
    """
    with options.connect() as s:
        held = s.projections.pause(name, generation=_generation(generation))
    _said(options, name, "paused" if not held else f"paused; not released yet: {', '.join(map(str, held))}")


def resume(options: Options, name: NameArgument, generation: GenerationOption = None) -> None:
    """Let a projection go on.

    Example: strandline projections resume totals --url sqlite:orders
    """
    with options.connect() as s:
        s.projections.resume(name, generation=_generation(generation))
    _said(options, name, "resumed")


def rescale(
    options: Options,
    name: NameArgument,
    n: Annotated[str, typer.Argument(metavar="N", help="How many, 1..1024.")],
    generation: GenerationOption = None,
) -> None:
    """Cut a projection into so many ranges.

    Example: strandline projections rescale totals 16 --url sqlite:orders
    """
    count = whole_number(n, "N", code="slice_range", allowed="1..1024")
    with options.connect() as s:
        done = s.projections.rescale(name, count, generation=_generation(generation))
    _said(options, name, f"{count} ranges" if done else f"{count} ranges, once all are released")


def set_offset(
    options: Options,
    name: NameArgument,
    time: Annotated[str, typer.Argument(metavar="TIME", help="2026-11-15T07:30:00Z, or microseconds since 1970.")],
    generation: GenerationOption = None,
    yes: Yes = False,
) -> None:
    """Count all up to a time as done, and nothing above it.

    Example: strandline projections set-offset totals 0 --url sqlite:orders
    """
    moment = time_us(date_of(time, "TIME", now_us), "TIME")
    confirm(f"let {name} start again at {time_text(moment)}", yes=yes)
    with options.connect() as s:
        s.projections.set_offset(name, moment, generation=_generation(generation))
    _said(options, name, f"set to {time_text(moment)}")


def reset(options: Options, name: NameArgument, generation: GenerationOption = None, yes: Yes = False) -> None:
    """Hand over all events again.

    Example: strandline projections reset totals --url sqlite:orders
    """
    confirm(f"hand all events over to {name} again", yes=yes)
    with options.connect() as s:
        s.projections.reset(name, generation=_generation(generation))
    _said(options, name, "reset")


def rename(
    options: Options, name: NameArgument, new: Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")]
) -> None:
    """Call a projection otherwise.

    Example: strandline projections rename totals sums --url sqlite:orders
    """
    with options.connect() as s:
        s.projections.rename(name, new)
    _said(options, name, f"is {new} now")


def drop(options: Options, name: NameArgument, generation: GenerationOption = None, yes: Yes = False) -> None:
    """Forget a projection or a generation: offsets, dead letters.

    Example: strandline projections drop totals --url sqlite:orders
    """
    number = _generation(generation)
    confirm(f"forget {name}" if number is None else f"forget generation {number} of {name}", yes=yes)
    with options.connect() as s:
        s.projections.drop(name, generation=number)
    _said(options, name, "dropped" if number is None else f"generation {number} is dropped")


def parked(options: Options, name: NameArgument, generation: GenerationOption = None) -> None:
    """List the keys that wait.

    Example: strandline projections parked totals --url sqlite:orders
    """
    with options.connect() as s:
        found = s.projections.parked(name, generation=_generation(generation))
    for key in found:
        options.tell({"key": key}, key)


def dead_letters(options: Options, name: NameArgument, generation: GenerationOption = None) -> None:
    """List the events that were not handled, with the reason.

    Example: strandline projections dead-letters totals --url sqlite:orders
    """
    with options.connect() as s:
        found = s.projections.dead_letters(name, generation=_generation(generation))
    for letter in found:
        if options.json:
            emit(letter._asdict())
        else:
            when, why = time_text(letter.last_at, digits=0), f"{letter.error_type} {letter.message}".strip()
            say(printable(f"{letter.key} {letter.seq_nr}  life {letter.life}  {letter.reason}  {when}  {why}"))


def skip(
    options: Options, name: NameArgument, key: KeyArgument, to: NumberArgument, generation: GenerationOption = None
) -> None:
    """Count a key as done up to a number.

    Example: strandline projections skip totals 'order|42' 7 --url sqlite:orders
    """
    whose, number = key_of(key), whole_number(to, "N", code="seq_nr_range", allowed="1..2^63-1")
    with options.connect() as s:
        s.projections.skip(name, whose, number, generation=_generation(generation))
    _said(options, name, f"{whose} is to be skipped up to {number}")


def unpark(options: Options, name: NameArgument, key: KeyArgument, generation: GenerationOption = None) -> None:
    """Hand over what waits of a key.

    Example: strandline projections unpark totals 'order|42' --url sqlite:orders
    """
    whose = key_of(key)
    with options.connect() as s:
        s.projections.unpark(name, whose, generation=_generation(generation))
    _said(options, name, f"{whose} is to be unparked")


def redeliver(
    options: Options,
    name: NameArgument,
    key: KeyArgument,
    n: NumberArgument,
    life: LifeOption = "1",
    generation: GenerationOption = None,
) -> None:
    """Hand a dead letter over again, and remove it.

    Example: strandline projections redeliver totals 'order|42' 7 --url sqlite:orders
    """
    whose, number, lived = _letter(key, n, life)
    with options.connect() as s:
        s.projections.redeliver(name, whose, number, life=lived, generation=_generation(generation))
    _said(options, name, f"{whose} {number} is to be handed over again")


def discard(
    options: Options,
    name: NameArgument,
    key: KeyArgument,
    n: NumberArgument,
    life: LifeOption = "1",
    generation: GenerationOption = None,
) -> None:
    """Remove a dead letter.

    Example: strandline projections discard totals 'order|42' 7 --url sqlite:orders
    """
    whose, number, lived = _letter(key, n, life)
    with options.connect() as s:
        s.projections.discard(name, whose, number, life=lived, generation=_generation(generation))
    _said(options, name, f"the dead letter {whose} {number} is gone")


def _generation(text: str | None) -> int | None:
    return None if text is None else whole_number(text, "--generation", code="setting", allowed="1..2^31")


def _letter(key: str, n: str, life: str) -> tuple[Any, int, int]:
    allowed = "1..2^63-1"
    number = whole_number(n, "N", code="seq_nr_range", allowed=allowed)
    return key_of(key), number, whole_number(life, "--life", code="seq_nr_range", allowed=allowed)


def _said(options: Options, name: str, what: str) -> None:
    options.tell({"projection": name, "what": what}, f"{name}: {what}")
