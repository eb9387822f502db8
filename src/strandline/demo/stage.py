"""The stage: what the audience sees. Short lines with the time, and on a terminal a live line under them."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from strandline.demo.sampling import DemoSample

BAR_WIDTH = 14
QUIET_S_MAX = 5.0


class Stage:
    """Says lines and shows samples; a context manager."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or _console()
        self._live: Live | None = None
        self._start = time.monotonic()
        self._said = time.monotonic()
        self.unicode = "utf" in (self.console.encoding or "").lower()

    def say(self, text: str, *, style: str = "") -> None:
        """A line, with the time since the start."""
        self._said = time.monotonic()
        passed = f"{self._said - self._start:6.1f} s  "
        self.console.print(Text.assemble((passed, "dim"), (text, style)), soft_wrap=True)

    def plain(self, text: str | Text = "") -> None:
        """A line without the time."""
        self.console.print(text, soft_wrap=True)

    def show(self, sample: DemoSample) -> None:
        """A sample: the live line, or without a terminal a line now and then."""
        if self._live is not None:
            self._live.update(self.live_line(sample))
        elif not self.console.is_terminal and time.monotonic() - self._said >= QUIET_S_MAX:
            self.say(
                f"{sample.appends:,} appends, {sample.rate_per_s:,.0f}/s; lag {sample.lag:,} actions; "
                f"strandline {sample.strandline_s:.1f} s behind"
            )

    def quiet(self) -> None:
        """Take the live line away."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def live_line(self, sample: DemoSample) -> Text:
        """A sample in one line."""
        full = round(sample.share * BAR_WIDTH)
        bar = ("█" * full + "░" * (BAR_WIDTH - full)) if self.unicode else "#" * full + "." * (BAR_WIDTH - full)
        return Text.assemble(
            "  ", (bar, "cyan"), f" {sample.share:4.0%}  {sample.rate_per_s:5,.0f} appends/s  ",
            (f"lag {sample.lag:6,}", "yellow" if sample.lag > 1000 else ""),
            f"  strandline {sample.strandline_s:4.1f} s behind",
            no_wrap=True, overflow="ellipsis",
        )  # fmt: skip

    def __enter__(self) -> Self:
        self._start = self._said = time.monotonic()
        if self.console.is_terminal:
            self._live = Live(console=self.console, refresh_per_second=8, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.quiet()


def _console() -> Console:
    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
