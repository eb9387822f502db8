"""`group pack`, `load-code`, `handlers`: code of handlers by version, each served by a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.arguments import pairs, whole_number
from strandline.cli.group import StreamOption, opened
from strandline.cli.options import Options
from strandline.cli.output import emit, note, say, write_file
from strandline.cli.work import work_until_stopped
from strandline.errors import StrandlineError

if TYPE_CHECKING:
    from strandline.group.serving import CodeWatch
    from strandline.work.worker import Worker

WATCH_S = 1.0


def pack(
    modules: Annotated[list[str], typer.Argument(metavar="MODULE…", help="Modules or packages of yours.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The bundle to write.")],
    handler: Annotated[
        list[str] | None,
        typer.Option("--handler", metavar="NAME=MODULE:OBJECT", help="A handler of the bundle, by name."),
    ] = None,
    lock: Annotated[
        Path | None, typer.Option("--lock", metavar="FILE", help="Requirements with hashes: what it needs beside.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Answer with JSON lines.")] = False,
) -> None:
    """Pack code of handlers, with all that it needs, into one file.

    Nothing of it is executed. The same input gives the same file; its digest is what `load-code` takes.

    Example: strandline group pack shop --handler price=shop.prices:price --lock requirements.txt --out shop-2.zip
    """
    from strandline.group import bundle

    sys.path.insert(0, str(Path.cwd()))
    made = bundle.pack(modules, pairs(handler, "--handler", code="option"), lock)
    write_file("--out", out, made)
    if json:
        emit({"file": str(out), "sha256": bundle.digest(made), "bytes": len(made)})
    else:
        say(f"{out}: {len(made):,} bytes, sha256 {bundle.digest(made)}")


def load_code(
    options: Options,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The bundle's, as in NAME/handler.")],
    version: Annotated[str, typer.Argument(metavar="VERSION", help="As people call it.")],
    sha256: Annotated[str, typer.Argument(metavar="SHA256", help="The digest of its file.")],
    stream: StreamOption = None,
) -> None:
    """Let groups from here on use this version of a bundle.

    Those that were submitted before keep theirs. They wait until it is served: `strandline group handlers FILE`.

    Example: strandline group load-code shop 2 9f86d0…0a08 --url sqlite:orders
    """
    with opened(options, stream, None, None) as groups:
        groups.load_code(name, version, sha256)
        options.tell(
            {"name": name, "version": version, "sha256": sha256, "stream": groups.stream},
            f"{name}: version {version} from here on in stream {groups.stream}",
        )


def handlers(
    options: Options,
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A file of `strandline group pack`.")],
    stream: StreamOption = None,
    sha256: Annotated[str | None, typer.Option("--sha256", metavar="HEX", help="Refuse any other file.")] = None,
    concurrency: Annotated[str, typer.Option("--concurrency", metavar="N", help="So many at a time, 1..1000.")] = "1",
) -> None:
    """Serve the handlers of one version of a bundle.

    This runs its code, here. Ends at SIGTERM, or once the stream has another version and no open group is on it.

    Example: strandline group handlers shop-2.zip --url sqlite:orders
    """
    from strandline.group.bundle import opened as opened_bundle
    from strandline.group.mail import DATA, KEY, box_of, check_digest
    from strandline.work.declaration import SHARED, WorkDeclaration
    from strandline.work.worker import Worker

    most = whole_number(concurrency, "--concurrency", code="option", allowed="1..1000")
    digest = None if sha256 is None else check_digest(sha256)
    with opened_bundle(bundle, digest) as code, options.connect(create=True) as s:
        groups = s.groups(stream or options.group.get("stream", "default"))
        box = box_of(code.sha256)
        s.work(WorkDeclaration(box, key=KEY, data=DATA, tables=SHARED, data_bytes_max=16 * 2**20))
        worker = Worker(s, {box: groups.answering(code.handlers)}, concurrency=most)
        options.tell(
            {"sha256": code.sha256, "handlers": sorted(code.handlers), "stream": groups.stream},
            f"serving {', '.join(sorted(code.handlers))} of {code.sha256} for stream {groups.stream}",
        )
        sys.stdout.flush()
        over = Event()
        watch = Thread(target=_watch, args=(groups.code_watch(code.sha256), worker, over), daemon=True)
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
