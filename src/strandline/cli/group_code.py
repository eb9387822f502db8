"""`group handlers`: serves the handlers of one version of code, in a process of their own."""

from __future__ import annotations

import sys
from threading import Event, Thread
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.group import StreamOption, stream_of
from strandline.cli.options import Options
from strandline.cli.output import note
from strandline.cli.work import mapping_of, work_until_stopped
from strandline.errors import InvalidInput, StrandlineError, invalid
from strandline.values.written import whole_number

if TYPE_CHECKING:
    from strandline.group.serving import CodeWatch
    from strandline.work.worker import Worker

WATCH_S = 1.0


def handlers(
    options: Options,
    place: Annotated[str, typer.Argument(metavar="MODULE:NAME", help="A mapping: names to callables.")],
    as_: Annotated[str, typer.Option("--as", metavar="NAME@VERSION", help="The code that it is, as loaded.")],
    stream: StreamOption = None,
    concurrency: Annotated[str, typer.Option("--concurrency", metavar="N", help="How many at a time, 1..1000.")] = "1",
) -> None:
    """Serve the handlers of one version of code.

    The handlers run in this process, in the environment that you installed for them. The command ends at SIGTERM, or
    once the stream has another version and no open group uses this one.

    Example: strandline group handlers shop:HANDLERS --as shop@2 --url sqlite:orders
    """
    from strandline.group.mail import DATA, KEY, box_of, code_of
    from strandline.work.declaration import SHARED, WorkDeclaration
    from strandline.work.worker import Worker

    most = whole_number(concurrency, "--concurrency", code="option", allowed="1..1000")
    name, _, version = as_.partition("@")
    try:
        code = code_of(name, version)
    except InvalidInput:
        raise invalid("option", "--as", "not a version of code", allowed="NAME@VERSION, e.g. shop@2", got=as_) from None
    found = mapping_of(place)
    with options.connect(create=True) as s:
        groups = s.groups(stream_of(options, stream))
        box = box_of(code)
        s.work(WorkDeclaration(box, key=KEY, data=DATA, tables=SHARED, data_bytes_max=16 * 2**20))
        worker = Worker(s, {box: groups.answering(found)}, concurrency=most)
        options.tell(
            {"code": code, "handlers": sorted(found), "stream": groups.stream},
            f"serving {', '.join(sorted(found))} of {code} for stream {groups.stream}",
        )
        sys.stdout.flush()
        code_watch, over = groups.code_watch(code), Event()
        code_watch.over()
        if not code_watch.seen:
            load = options.command(f"group load-code {name} {version}")
            note(f"nobody loaded {code} in stream {groups.stream} yet; {load} lets groups from then on use it")
        watch = Thread(target=_watch, args=(code_watch, worker, over), daemon=True)
        watch.start()
        try:
            work_until_stopped(worker, s)
        finally:
            over.set()
            watch.join()


def _watch(code: CodeWatch, worker: Worker, over: Event) -> None:
    while not over.wait(WATCH_S):
        try:
            if code.over():
                note("the stream has another version, and no open group is on this one")
                worker.stop()
                return
        except StrandlineError as error:
            note(f"the stream cannot be read: {error}")
