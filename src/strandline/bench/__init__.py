"""Benchmarks, each side by side with a peer or a limit, in one run on one machine.

    strandline bench append|read|replicate|replay|freshness|memory [--on sqlite,postgres,…]

Every round of ours is followed, or preceded, by one of the peer's, each in a process and a folder of its own. A case
ends as one line on standard output, `NAME/CASE: ratio R (ours X, PEER Y)`, and a larger ratio is better; X and Y are
the medians of the rounds. The servers that a case needs are started for the run. How each comparison is kept fair is
told in `docs/BENCHMARKS.md`.
"""

from strandline.bench.run import NAMES, run

__all__ = ["NAMES", "run"]
