"""`strandline doctor`: what is installed, what is missing, and how to get it; with a URL also whether the journal
opens.

If anything is wrong that recording and reading need, the exit code is 7. Parts that only other commands need may be
missing.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from strandline import __version__, extras
from strandline.backends import LIBRARIES, Library, backend_of
from strandline.cli.failure import spoken
from strandline.cli.masking import masked
from strandline.cli.options import Options
from strandline.cli.output import bytes_text, console, emit, say, table
from strandline.clock import time_text
from strandline.errors import MissingEvent, SchemaMismatch, StrandlineError, counted
from strandline.journal.status import StatusSection
from strandline.log.refusals import trimmed_away
from strandline.reconcile.findings import FrozenEnds
from strandline.reconcile.rounds import pointer_findings
from strandline.settings import Settings, check_clock, cores
from strandline.urls import Url, urls_of

if TYPE_CHECKING:
    from strandline.connect import Strandline

State = Literal["ok", "missing", "warning", "wrong"]
EXIT_WRONG = 7
PYTHON_LEAST = (3, 11)
FREE_BYTES_ADVISED = 2**30
MEMORY_BYTES_ADVISED = 2 * 2**30


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. A part that is `missing` is optional; one that is `wrong` must be mended."""

    name: str
    state: State
    found: str
    remedy: str = ""


def doctor(options: Options) -> int:
    """Check this machine, and with --url a journal; say what to mend.

    Example: strandline doctor --url sqlite:orders
    """
    findings = [*core(), *machine(_folder_of(options)), *spark(), *others(), *journal(options)]
    if options.json:
        for finding in findings:
            emit(finding)
    else:
        rows = [(finding.name, finding.state, finding.found, finding.remedy) for finding in findings]
        console().print(table(("what", "state", "found", "what to do"), rows))
        say(_summary(findings))
    return EXIT_WRONG if any(finding.state == "wrong" for finding in findings) else 0


def core() -> Iterator[Finding]:
    """Check what every command needs."""
    yield Finding("strandline", "ok", __version__)
    version = platform.python_version()
    if sys.version_info >= PYTHON_LEAST:
        yield Finding("python", "ok", version)
    else:
        yield Finding("python", "wrong", version, "use Python 3.11 or newer")
    yield _checked("sqlite", _sqlite)
    for package in ("orjson", "typer", "rich"):
        found = extras.installed(package)
        yield Finding(package, "ok", found) if found else Finding(package, "wrong", "-", extras.install())
    yield _checked("clock", _clock)


def machine(folder: Path) -> Iterator[Finding]:
    """Yield cores, memory, and the disk under a folder."""
    yield Finding("cores", "ok", str(cores()))
    yield _memory()
    yield _checked("file system", lambda: _file_system(folder))
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        yield Finding("free disk", "warning", f"unknown: {error.strerror}")
        return
    enough = free >= FREE_BYTES_ADVISED
    yield Finding("free disk", "ok" if enough else "warning", bytes_text(free), "" if enough else "free some space")


def spark() -> Iterator[Finding]:
    """Check what `pipeline run`, `pipeline replay` and `demo` need beside the core."""
    found = extras.installed("pyspark")
    if found is None:
        yield Finding("spark", "missing", "not installed: needed to carry", extras.install("spark"))
        return
    if found.split(".")[:2] != ["4", "3"]:
        yield Finding("spark", "wrong", f"pyspark {found}; 4.3 is needed", extras.install("spark"))
    else:
        yield Finding("spark", "ok", f"pyspark {found}")
    yield _checked("java", _java)


def others() -> Iterator[Finding]:
    """Yield the extras, each with what it lacks."""
    for extra, use in extras.EXTRAS.items():
        lacking = extras.lacking(extra)
        if lacking:
            yield Finding(f"extra {extra}", "missing", f"no {', '.join(lacking)}: {use}", extras.install(extra))
        else:
            yield Finding(f"extra {extra}", "ok", use)


def _checked(name: str, check: Callable[[], str], where: str = "", told: list[str] | None = None) -> Finding:
    """Run a check, and return its finding with its warnings: each once, without those already in `told`."""
    place = f"{where}: " if where else ""
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            found = check()
    except StrandlineError as error:
        message, hint, _ = spoken(error)
        return Finding(name, "wrong", masked(message if where in message else place + message), hint)
    except ImportError as error:
        return Finding(name, "wrong", f"{error.name or 'a module'} is missing", extras.install())
    told = [] if told is None else told
    new = [text for text in dict.fromkeys(str(warning.message) for warning in warned) if text not in told]
    told += new
    return Finding(name, "warning" if new else "ok", masked(place + found), masked("; ".join(new)))


def _sqlite() -> str:
    import apsw

    from strandline.backends.sqlite.checks import check_library

    check_library()
    return f"SQLite {apsw.sqlite_lib_version()}, apsw {apsw.apsw_version()}"


def _clock() -> str:
    now = time.time_ns() // 1000
    check_clock(lambda: now)
    return time_text(now)


def _file_system(folder: Path) -> str:
    from strandline.backends.sqlite.checks import check_file_system, file_system_of

    check_file_system(folder)
    kind, mount = file_system_of(folder)
    return f"{kind} ({mount})" if kind else "unknown"


def _memory() -> Finding:
    try:
        size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return Finding("memory", "ok", "unknown")
    if size < MEMORY_BYTES_ADVISED:
        return Finding("memory", "warning", bytes_text(size), "2 GiB or more for Spark")
    return Finding("memory", "ok", bytes_text(size))


def _java() -> str:
    from strandline.pipeline import session
    from strandline.pipeline.java import find_java

    found = find_java()
    return f"{found}" if session.is_prepared() else f"{found}; Spark starts faster after `strandline pipeline prepare`"


def _folder_of(options: Options) -> Path:
    """Return the folder of the files, or the nearest folder above it that exists."""
    scheme, _, rest = (options.places.get("url") or options.places.get("store") or "").partition(":")
    folder = Path(rest or ".") if scheme == "sqlite" else Path()
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return folder


def journal(options: Options) -> Iterator[Finding]:
    """Yield findings on the client libraries of a journal, on whether it opens, and on its state; for log and store
    each, if they have two URLs.
    """
    if not options.places:
        return
    try:
        urls = urls_of(**options.target())
    except StrandlineError as error:
        message, hint, _ = spoken(error)
        yield Finding("journal", "wrong", masked(message), hint)
        return
    for scheme in dict.fromkeys(url.scheme for url in urls if url is not None):
        if scheme in LIBRARIES:
            yield _library(LIBRARIES[scheme])
    parts: list[StatusSection] = []
    if "url" in options.places:
        yield _checked("journal", lambda: _opened(options, parts, partitions=True), masked(options.places["url"]))
        yield from map(_part, parts)
        return
    settings = Settings.of({**options.settings, "schema": "check"})
    told: list[str] = []
    log = _checked("log", lambda: _opened_log(urls.log, settings), str(urls.log), told)
    yield log
    if log.state == "wrong":
        yield _checked("store", lambda: _opened_store(urls.store, settings), str(urls.store))
    else:
        yield _checked("store", lambda: _opened(options, parts), str(urls.store), told)
    yield from map(_part, parts)


def _part(section: StatusSection) -> Finding:
    """Return the finding of a part's section."""
    if section.error is not None:
        message, hint, _ = spoken(section.error)
        return Finding(section.name, "wrong", masked(message), hint)
    state: State = "warning" if section.warnings else "ok"
    return Finding(section.name, state, section.summary, "; ".join(section.warnings))


def _library(library: Library) -> Finding:
    found = extras.installed(library.package)
    if found is None:
        return Finding(library.package, "wrong", "not installed", extras.install(library.extra))
    return Finding(library.package, "ok", found)


def _opened_log(url: Url, settings: Settings) -> str:
    with closing(backend_of(url).open_log(url, settings, None, create=False)) as log:
        return f"opens; {counted(log.partitions, 'partition')}"


def _opened_store(url: Url, settings: Settings) -> str:
    with closing(backend_of(url).open_store(url, settings, None, None)) as store:
        return f"opens; {counted(store.settings.partitions, 'partition')}"


def _opened(options: Options, parts: list[StatusSection], *, partitions: bool = False) -> str:
    """Open the journal, check that its parts belong together, and return its state as text; add the sections of other
    parts to `parts`.
    """
    with options.connect() as s:
        _check_copies(s)
        status = s.status()
    parts += [section for section in status.sections if section.rows or section.error]
    lost = [trimmed_away(partition.partition, *partition.lost) for partition in status.partitions if partition.lost]
    if lost:
        raise MissingEvent(
            "; ".join(error.message for error in lost), code="log_trimmed", hint=lost[0].hint, **lost[0].facts
        )
    lag = sum(partition.lag_actions for partition in status.partitions)
    counts = [counted(len(status.partitions), "partition")] * partitions
    return "opens; " + ", ".join([*counts, f"lag {counted(lag, 'action')}", f"{status.quarantined} quarantined"])


def _check_copies(s: Strandline) -> None:
    """Refuse a log that went on without its store, from an older copy: at the store's pointer it has another record.

    Opening them has already checked that the store is not ahead of its log.
    """
    found = pointer_findings(s.log, FrozenEnds(s.store.pointers(), s.log.oldest()))
    if found:
        first = found[0]
        raise SchemaMismatch(
            f"partition {first.partition}: at the store's pointer the log has another record than the store took: "
            f"{first.expected}, not {first.found}",
            code="log_replaced",
            hint="the log was put back from an older copy, and went on; put back a store that is as old or older",
            partition=first.partition,
            stored=first.found,
            given=first.expected,
        )


def _summary(findings: list[Finding]) -> str:
    wrong = [finding.name for finding in findings if finding.state == "wrong"]
    if wrong:
        return f"wrong: {', '.join(wrong)}"
    missing = [finding.name for finding in findings if finding.state == "missing"]
    return "recording and reading work here" + (f"; not installed: {', '.join(missing)}" if missing else "")
