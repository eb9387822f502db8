"""What the guide to metrics shows runs as it stands there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.docs.test_readme import ROOT, run

GUIDE = (ROOT / "docs" / "METRICS.md").read_text(encoding="utf-8")


def test_its_programs(tmp_path: Path) -> None:
    prometheus, traces = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    shown = "\n    assert b'strandline_events_appended_total 1.0' in body"
    for program in (prometheus.rstrip() + shown, traces):
        done = run([sys.executable, "-c", program], tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), program
