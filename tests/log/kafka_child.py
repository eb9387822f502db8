"""What other processes do to a journal over Kafka, for tests. Run as a program: nothing is open where it starts.

python -m tests.log.kafka_child expected LOG STORE ROUNDS     append with `expected` 0, 1, 2 …, print who won and lost
python -m tests.log.kafka_child plain LOG STORE NAME COUNT    append to one key, and print the numbers given
"""

from __future__ import annotations

import sys
import warnings

import strandline
from strandline import Event, Key, SeqNrConflict, Unavailable

KEY = Key("order", "42")


def expected(journal: strandline.Journal, rounds: str) -> None:
    for number in range(int(rounds)):
        try:
            done = journal.append(KEY, [Event("Placed", number)], expected=number)
            print(number, "won", done.first)
        except SeqNrConflict as conflict:
            print(number, "lost", conflict.actual)
        except Unavailable as error:
            print(number, error.applied, error.code)


def plain(journal: strandline.Journal, name: str, count: str) -> None:
    sent = [journal.append_future(KEY, [Event("Placed", f"{name}-{number}")]) for number in range(int(count))]
    for future in sent:
        print(future.result(60).first)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    command, log, store, *given = sys.argv[1:]
    with strandline.connect(log=log, store=store, accept_power_loss=True, append_timeout_s=60) as s:
        if command == "expected":
            expected(s.journal, *given)
        else:
            plain(s.journal, *given)
