"""What the documents say of tags."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.req("T2", "T12", "T54", "T61", "T70", "T72")
def test_the_documents_advise_on_tags() -> None:
    text = " ".join((ROOT / "docs/BACKENDS.md").read_text(encoding="utf-8").split())
    for words in (
        "fewer than 10 is advised", "thousands | `day`", "hundreds of thousands | `hour`", "millions | `minute`",
        "1,440 partitions a day", "more than a billion | another schema", "2 billion cells, about 200 million rows",
        "an offset saved then loses the late ones", "the consumer must bear that", "later than that is not found",
        "resume a period earlier", "only when the key's next row shows the hole",
    ):  # fmt: skip
        assert words in text, words
