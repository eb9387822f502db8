"""The progress of a pipeline, shown live on a terminal, as plain lines elsewhere, or as JSON lines.

A display takes one `Progress` per batch, and more while one takes long, from whatever thread.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from strandline.cli.output import emit, printable, say
from strandline.clock import seconds_text
from strandline.errors import counted
from strandline.pipeline.progress import Progress

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

Clock = Callable[[], int]
QUIET_S_MAX = 10.0
RATE_BATCHES = 20
BAR_WIDTH = 24


def wall_clock() -> int:
    """Now, in microseconds."""
    return time.time_ns() // 1000


class Display(Protocol):
    """Shows a pipeline at work."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None: ...

    def show(self, progress: Progress) -> None:
        """Show a batch that ended, or is under way. Raises `OSError` if stdout is closed."""


class CarriedTotals:
    """Counts what was carried since the start, and how fast the last batches were."""

    def __init__(self) -> None:
        self.batches = self.actions = self.events = 0
        self._last: deque[tuple[int, float]] = deque(maxlen=RATE_BATCHES)

    def add(self, progress: Progress) -> None:
        if progress.under_way:
            return
        self.batches += 1
        self.actions += progress.actions
        self.events += progress.events
        if progress.actions:  # an idle moment does not count for the rate
            self._last.append((progress.events, progress.seconds))

    @property
    def events_per_s(self) -> float:
        seconds = sum(seconds for _, seconds in self._last)
        return sum(events for events, _ in self._last) / seconds if seconds > 0 else 0.0


def strandline_text(progress: Progress, now: int) -> str:
    """Return how far the strandline is behind the present. If nothing waits it is "up to date": its age then only shows
    how long no action came.
    """
    if not progress.lag and not any(partition.error for partition in progress.partitions):
        return "up to date"
    if not progress.strandline:
        return "none yet: some partitions were never carried"
    return f"{seconds_text(max(0, now - progress.strandline) / 10**6)} ago"


def progress_line(progress: Progress, now: int) -> str:
    """Return a batch as one line."""
    rate = progress.events / progress.seconds if progress.seconds > 0 else 0.0
    done = f"{counted(progress.events, 'event')} in {seconds_text(progress.seconds)} ({rate:,.0f}/s)"
    if progress.under_way:
        done = f"under way for {seconds_text(progress.seconds)}"
    line = (
        f"batch {progress.batch}: {done}, lag {counted(progress.lag, 'action')}, "
        f"strandline {strandline_text(progress, now)}, quarantine {progress.quarantined:,}"
    )
    failing = [partition for partition in progress.partitions if partition.error]
    return line + "".join(f"\n  partition {p.partition} fails: {printable(p.error or '')}" for p in failing)


class JsonDisplay:
    """One JSON object per batch."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, progress: Progress) -> None:
        emit(progress)
        sys.stdout.flush()


class LineDisplay:
    """A line for each batch that carried something or takes long; while idle, a line every `QUIET_S_MAX` seconds."""

    def __init__(self, clock: Clock = wall_clock, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._monotonic = clock, monotonic
        self._told_at = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, progress: Progress) -> None:
        failing = any(partition.error for partition in progress.partitions)
        idle = not progress.actions and not progress.under_way and not failing
        if idle and self._monotonic() - self._told_at < QUIET_S_MAX:
            return
        self._told_at = self._monotonic()
        say(progress_line(progress, self._clock()))
        sys.stdout.flush()


class LiveDisplay:
    """A picture that stays in place: rate, strandline, a bar per partition."""

    def __init__(self, console: Console, clock: Clock = wall_clock) -> None:
        from rich.live import Live

        self._clock, self._totals = clock, CarriedTotals()
        self._live = Live(console=console, refresh_per_second=8, transient=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, progress: Progress) -> None:
        self._totals.add(progress)
        self._live.update(self.picture(progress))

    def picture(self, progress: Progress) -> RenderableType:
        """Return the screen after a batch."""
        from rich.console import Group
        from rich.text import Text

        quarantine = Text(f"quarantine {progress.quarantined:,}", style="bold red" if progress.quarantined else "")
        first = Text.assemble(
            (counted(self._totals.events, "event"), "bold"),
            f"  {self._totals.events_per_s:,.0f}/s  batch {progress.batch}",
        )
        second = Text.assemble(
            f"strandline {strandline_text(progress, self._clock())}  lag {counted(progress.lag, 'action')}  ",
            quarantine,
        )
        return Group(first, second, _bars(progress))


def _bars(progress: Progress) -> RenderableType:
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("partition", "pointer", "newest", "lag"):
        drawn.add_column(column, justify="right")
    drawn.add_column("carried")
    for p in progress.partitions:
        carried: RenderableType = ProgressBar(total=p.newest + 1, completed=p.pointer + 1, width=BAR_WIDTH)
        if p.error:
            carried = Text(printable(p.error), style="red")
        elif p.newest < 0:
            carried = Text("empty", style="dim")
        drawn.add_row(str(p.partition), _offset(p.pointer), _offset(p.newest), f"{p.lag:,}", carried)
    return drawn


def _offset(offset: int) -> str:
    return "-" if offset < 0 else f"{offset:,}"


def display_for(*, json: bool) -> Display:
    """Return the display that suits the reader of stdout."""
    if json:
        return JsonDisplay()
    if sys.stdout.isatty():
        from strandline.cli.output import console

        return LiveDisplay(console())
    return LineDisplay()
