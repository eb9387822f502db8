"""Logs in PostgreSQL for tests, and what other processes do to them."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from contextlib import closing
from random import Random
from typing import Any
from uuid import uuid4

from strandline.backends.postgres.log import PostgresLog
from strandline.backends.postgres.round_trips import name_of
from strandline.fold import EventsAppended, RefusedAppend
from strandline.servers.postgres import PostgresServer
from strandline.settings import Settings
from strandline.testing.log_contract.made import KEY, PARTITIONS, draft_of, keys_in
from strandline.urls import Url, urls_of


def new_url(server: PostgresServer) -> str:
    """A schema that nobody has used yet."""
    return f"{server.url}&schema=s{uuid4().hex}"


def parsed(url: str) -> Url:
    return urls_of(url).log


def opened(url: str, *, advisory: bool = True, **settings: Any) -> PostgresLog:
    """A log of a few partitions."""
    return PostgresLog(parsed(url), settings=Settings.of({"partitions": PARTITIONS, **settings}), advisory=advisory)


def prepared(log: PostgresLog, name: str) -> bytes:
    """The name under which a session knows a statement of the log."""
    return name_of(log._database.bind(name).text)


def in_processes(work: Callable[..., None], arguments: list[tuple[Any, ...]]) -> list[Any]:
    """What the work puts into its queue, in so many processes that start together."""
    context = multiprocessing.get_context("spawn")
    start, answers = context.Barrier(len(arguments)), context.Queue()
    processes = [context.Process(target=work, args=(*given, start, answers)) for given in arguments]
    for process in processes:
        process.start()
    found = [answers.get(timeout=120) for _ in processes]
    for process in processes:
        process.join(30)
    return found


def create(url: str, advisory: bool, start: Any, answers: Any) -> None:
    """Open a log, or make it, with others at the same time; its id."""
    start.wait()
    try:
        with closing(opened(url, advisory=advisory)) as log:
            log.append([draft_of(KEY, os.getpid(), append_id=uuid4().hex)])
            answers.put(log.log_id)
    except Exception as error:
        answers.put(repr(error))


def compete(url: str, rounds: int, start: Any, answers: Any) -> None:
    """Append with `expected` 0, 1, 2 …; which ones won."""
    with closing(opened(url)) as log:
        start.wait()
        won = []
        for number in range(rounds):
            (answer,) = log.append([draft_of(KEY, os.getpid(), expected=number, append_id=uuid4().hex)])
            if isinstance(answer.effect, EventsAppended):
                won.append(number)
        answers.put(won)


def cross(url: str, name: int, count: int, start: Any, answers: Any) -> None:
    """Append to two partitions at once, in an order that differs by name; the places."""
    with closing(opened(url)) as log:
        keys = [keys_in(1, 1)[0], keys_in(3, 1)[0]]
        start.wait()
        places: list[Any] = []
        for number in range(count):
            drafts = [draft_of(key, name, number, append_id=uuid4().hex) for key in (keys if name % 2 else keys[::-1])]
            places += [answer.place for answer in log.append(drafts)]
        answers.put(places)


def deal(url: str, name: int, count: int, start: Any, answers: Any) -> None:
    """Append groups for some of a few keys of all partitions, with the number expected; how many were accepted.

    It goes by turns: busy, so that others meet it, and still, so that what they left behind holds for a while.
    """
    random = Random(name)
    keys = [key for partition in range(PARTITIONS) for key in keys_in(partition, 2)]
    ends: dict[str, int] = {}
    accepted = 0
    with closing(opened(url)) as log:
        start.wait()
        for number in range(count):
            group = random.sample(keys, random.randint(1, 5))
            drafts = [draft_of(key, name, expected=ends.get(key, 0), append_id=uuid4().hex) for key in group]
            for key, answer in zip(group, log.append(drafts), strict=True):
                if isinstance(answer.effect, EventsAppended):
                    accepted, ends[key] = accepted + 1, answer.effect.last
                else:
                    ends[key] = answer.effect.actual if isinstance(answer.effect, RefusedAppend) else -1
            if number % 20 == name * 5:
                time.sleep(random.random() / 5)
    answers.put(accepted)


def start_keys(url: str, name: int, count: int, start: Any, answers: Any) -> None:
    """Start so many journals, each only if nobody else has; which ones it started. It goes by turns, as in `deal`."""
    random = Random(name)
    won = []
    with closing(opened(url)) as log:
        start.wait()
        for number in range(count):
            (answer,) = log.append([draft_of(f"order|{number}", name, expected=0, append_id=uuid4().hex)])
            if isinstance(answer.effect, EventsAppended):
                won.append(number)
            if number % 20 == name * 5:
                time.sleep(random.random() / 5)
    answers.put(won)
