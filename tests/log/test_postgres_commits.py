"""What commits to a PostgreSQL log keep: their order, across partitions, processes, lost answers and poolers."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from strandline.backends.postgres import round_trips as exchange
from strandline.backends.postgres.binary import bigints
from strandline.backends.postgres.database import Begun
from strandline.backends.postgres.log import PostgresLog
from strandline.backends.postgres.notifications import Bell
from strandline.backends.postgres.pool import CONNECTIONS_MAX, Pool
from strandline.backends.postgres.round_trips import BinaryStatement, Connection, name_of
from strandline.errors import Unavailable
from strandline.fold import Duplicate, EventsAppended, fold
from strandline.log.api import Log
from strandline.log.state_json import state_in
from strandline.record import decode_header
from strandline.servers.postgres import PostgresServer
from strandline.servers.server import temporary_place
from strandline.settings import Settings
from strandline.testing.log_contract import LogContract, Opened
from strandline.testing.log_contract.made import KEY, PARTITIONS, draft_of, everything, keys_in, mark_in, partition_for
from strandline.values.actions import Append, Place
from strandline.values.heads import Head, State
from strandline.values.keys import key_digest
from tests.log.postgres_logs import compete, cross, deal, in_processes, new_url, opened, parsed, prepared
from tests.repeats import repeats
from tests.servers.proxy import Mischief, Proxy

ID = "7" * 32
PROCESSES = 4


@pytest.fixture
def log(url: str) -> Iterator[PostgresLog]:
    with closing(opened(url)) as made:
        yield made


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[Proxy]:
    with tempfile.TemporaryDirectory(dir=temporary_place()) as folder, Proxy(postgres.folder, Path(folder)) as made:
        yield made


def through(proxy: Proxy, postgres: PostgresServer, url: str) -> str:
    return url.replace(str(postgres.folder), str(proxy.folder))


# ---------------------------------------------------------------- order


@pytest.mark.req("RA5", "J28")
def test_who_comes_first_and_commits_last_leaves_no_hole(log: PostgresLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """late-commit: a reader polls all the time; it sees both, once, in the order of their offsets."""
    begun, may_commit = threading.Event(), threading.Event()
    commit = Begun.commit

    def slow(self: Begun, *last: Any) -> None:
        if not begun.is_set():
            begun.set()
            assert may_commit.wait(60)
        commit(self, *last)

    monkeypatch.setattr(Begun, "commit", slow)
    keys = keys_in(1, 2)
    first = threading.Thread(target=log.append, args=([draft_of(keys[0], "first")],))
    second = threading.Thread(target=log.append, args=([draft_of(keys[1], "second")],))
    first.start()
    assert begun.wait(60)
    second.start()
    seen: list[int] = []
    after = -1
    for _ in range(20):
        page = log.read(1, after=after)
        assert not page.records, "the second passed the first"
        assert log.newest()[1] == -1
    may_commit.set()
    deadline = time.monotonic() + 60
    while len(seen) < 2 and time.monotonic() < deadline:
        page = log.read(1, after=after)
        seen += [record.offset for record in page.records]
        after = page.position - 1
    first.join()
    second.join()
    assert seen == [0, 1]
    assert [record.key for record in everything(log, 1)] == keys


@pytest.mark.req("J28")
def test_other_partitions_do_not_wait(log: PostgresLog, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_commit = threading.Event(), threading.Event()
    commit = Begun.commit

    def slow(self: Begun, *last: Any) -> None:
        if not begun.is_set():
            begun.set()
            assert may_commit.wait(60)
        commit(self, *last)

    monkeypatch.setattr(Begun, "commit", slow)
    first = threading.Thread(target=log.append, args=([draft_of(keys_in(1, 1)[0])],))
    first.start()
    assert begun.wait(60)
    assert log.append([draft_of(keys_in(2, 1)[0])])[0].place is not None
    may_commit.set()
    first.join()


@pytest.mark.req("J28")
def test_the_clock_is_the_servers(log: PostgresLog, monkeypatch: pytest.MonkeyPatch) -> None:
    before = time.time_ns() // 1000
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    (answer,) = log.append([draft_of(KEY)])
    assert answer.place is not None
    assert abs(answer.place.timestamp - before) < 600 * 10**6


@pytest.mark.req("J28", "RA5", "RA6", "J25")
def test_processes_that_cross_partitions_wait_for_no_deadlock(url: str, log: PostgresLog) -> None:
    count = 40
    places = in_processes(cross, [(url, number, count) for number in range(PROCESSES)])
    given = sorted(place for answers in places for place in answers)
    for partition in (1, 3):
        records = everything(log, partition)
        assert [record[:3] for record in records] == [place for place in given if place.partition == partition]
        assert [record.offset for record in records] == list(range(PROCESSES * count))
        assert [record.timestamp for record in records] == sorted({record.timestamp for record in records})


@pytest.mark.req("J27", "RA5", "RA9", "RA10")
def test_groups_of_many_processes_are_what_the_fold_makes_of_the_log(url: str, log: PostgresLog) -> None:
    accepted = in_processes(deal, [(url, number, 60) for number in range(PROCESSES)])
    states: dict[str, State] = {}
    for partition in range(PARTITIONS):
        records = everything(log, partition)
        assert [record.offset for record in records] == list(range(len(records)))
        assert [record.timestamp for record in records] == sorted({record.timestamp for record in records})
        for record in records:
            key, action = record.key or "", decode_header(record.header)
            state, effect = fold(states.get(key), action, Place(*record[:3]), log.rules)
            assert isinstance(effect, EventsAppended)
            assert (effect.first, effect.last) == (record.first, record.last)
            states[key] = state
    assert sum(accepted) == sum(state.seq_nr for state in states.values() if isinstance(state, Head))
    with psycopg.connect(url.partition("&schema")[0]) as connection:
        schema = parsed(url).parameters["schema"]
        heads = connection.execute(f'SELECT key_digest, state FROM "{schema}".log_head').fetchall()
    assert {bytes(digest): state_in(text) for digest, text in heads} == {
        key_digest(key): state for key, state in states.items()
    }


@pytest.mark.req("RA9", "J37")
def test_of_ten_writers_with_one_expected_exactly_one_wins(url: str, log: PostgresLog) -> None:
    rounds = 15
    won = in_processes(compete, [(url, rounds)] * 10)
    assert sorted(number for numbers in won for number in numbers) == list(range(rounds))
    assert [record.first for record in everything(log, partition_for(KEY))] == list(range(1, rounds + 1))


# ---------------------------------------------------------------- lost answers


@pytest.mark.req("RA3", "RA8")
@pytest.mark.parametrize(("mischief", "there"), [("lose answer", True), ("lose request", False)])
def test_an_answer_that_is_lost_after_commit_was_sent_is_unknown(
    postgres: PostgresServer, url: str, proxy: Proxy, mischief: Mischief, there: bool
) -> None:
    """ack-then-die, at the server's side: the same append id tells what became of it."""
    draft = draft_of(KEY, "once", append_id=ID)
    with closing(opened(through(proxy, postgres, url))) as log:
        log.append([mark_in(0)])
        proxy.mischief = mischief
        with pytest.raises(Unavailable) as caught:
            log.append([draft])
        assert proxy.done.wait(10)
        assert (caught.value.name, caught.value.applied) == ("Unavailable.away", "unknown")
        assert "append id" in caught.value.hint
        assert len(everything(log, partition_for(KEY))) == there
        (again,) = log.append([draft])
        assert isinstance(again.effect, Duplicate if there else EventsAppended)
        assert len(everything(log, partition_for(KEY))) == 1


@pytest.mark.req("RA3")
def test_an_answer_that_does_not_come_in_time_is_unknown(postgres: PostgresServer, url: str, proxy: Proxy) -> None:
    with closing(opened(through(proxy, postgres, url), append_timeout_s=0.5)) as log:
        log.append([mark_in(0)])
        proxy.mischief = "keep back"
        started = time.monotonic()
        with pytest.raises(Unavailable) as caught:
            log.append([draft_of(KEY, append_id=ID)])
        assert (caught.value.name, caught.value.applied) == ("Unavailable.timeout", "unknown")
        assert time.monotonic() - started < 10
        assert isinstance(log.append([draft_of(KEY, append_id=ID)])[0].effect, Duplicate)


@pytest.mark.req("RA2")
@pytest.mark.parametrize("statement", ["lock_partitions", "heads"])
def test_what_is_lost_before_commit_was_sent_is_refused_or_tried_again(
    postgres: PostgresServer, url: str, proxy: Proxy, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bell, "ring", lambda self: None)  # it would take the connection that is to be lost
    with closing(opened(through(proxy, postgres, url))) as log:
        log.append([mark_in(0)])
        proxy.trigger = prepared(log, statement)
        proxy.mischief = "lose request"
        (answer,) = log.append([draft_of(KEY)])
        assert proxy.done.is_set()
        assert answer.effect == EventsAppended(1, 1, 0, 1)
        assert len(everything(log, partition_for(KEY))) == 1


def test_a_partition_that_somebody_holds_is_waited_for_no_longer_than_the_time_out(url: str, log: PostgresLog) -> None:
    with (
        psycopg.connect(url.partition("&schema")[0]) as connection,
        closing(opened(url, append_timeout_s=0.5)) as impatient,
    ):
        schema = parsed(url).parameters["schema"]
        connection.execute(f'SELECT * FROM "{schema}".log_partition FOR UPDATE')
        started = time.monotonic()
        with pytest.raises(Unavailable) as caught:
            impatient.append([draft_of(KEY)])
        assert (caught.value.name, caught.value.applied) == ("Unavailable.timeout", "no")
        assert time.monotonic() - started < 10
        connection.rollback()
        assert impatient.append([draft_of(KEY)])[0].effect == EventsAppended(1, 1, 0, 1)


@pytest.mark.req("RA2")
def test_a_writer_that_sleeps_in_its_transaction_loses_its_locks(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = Begun.commit
    with closing(opened(url, append_timeout_s=1)) as sleeper, closing(opened(url)) as other:

        def late(self: Begun, *last: Any) -> None:
            monkeypatch.setattr(Begun, "commit", commit)
            assert other.append([draft_of(KEY, "other")])[0].place is not None
            commit(self, *last)

        monkeypatch.setattr(Begun, "commit", late)
        with pytest.raises(Unavailable) as caught:
            sleeper.append([draft_of(KEY, "sleeper")])
        assert caught.value.code in {"timeout", "away"}
        assert len(everything(other, partition_for(KEY))) == 1
        assert sleeper.append([draft_of(KEY)])[0].effect == EventsAppended(2, 2, 1, 1)


# ---------------------------------------------------------------- connections


def ended_at(log: PostgresLog) -> int:
    with log.ask_newest(partition_for(KEY)) as ended_at:
        return ended_at()


@pytest.mark.req("RS8")
def test_connections_that_broke_while_idle_are_replaced_without_a_word(url: str, log: PostgresLog) -> None:
    log.append([draft_of(KEY)])
    for call in (log.newest, lambda: log.append([draft_of(KEY)]), lambda: ended_at(log)):
        with psycopg.connect(url.partition("&schema")[0]) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE application_name = 'strandline'"
            )
        call()
    assert log.newest()[partition_for(KEY)] == 1


@pytest.mark.req("J42")
@pytest.mark.parametrize("call", [PostgresLog.newest, lambda log: log.append([draft_of(KEY)])], ids=["read", "append"])
def test_a_call_that_gets_no_answer_ends_in_time(url: str, call: Callable[[PostgresLog], Any]) -> None:
    """However many connections are idle: none of them would be answered sooner."""
    with closing(opened(url, append_timeout_s=1)) as impatient, psycopg.connect(url.partition("&schema")[0]) as holder:
        pool = impatient._database._pool
        for connection in [pool.take()[0] for _ in range(4)]:
            pool.give_back(connection)
        holder.execute(f'LOCK TABLE "{parsed(url).parameters["schema"]}".log_partition')
        started = time.monotonic()
        with pytest.raises(Unavailable) as caught:
            call(impatient)
        assert (caught.value.name, caught.value.applied) == ("Unavailable.timeout", "no")
        assert time.monotonic() - started < 3
        holder.rollback()
        assert impatient.newest() == [-1] * PARTITIONS


def test_a_session_that_is_ended_while_it_waits_is_replaced(url: str, log: PostgresLog) -> None:
    terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with (
        psycopg.connect(url.partition("&schema")[0]) as holder,
        psycopg.connect(holder.info.dsn, autocommit=True) as other,
    ):
        holder.execute(f'SELECT * FROM "{parsed(url).parameters["schema"]}".log_partition FOR UPDATE')
        answers: list[Any] = []
        waiting = threading.Thread(target=lambda: answers.extend(log.append([draft_of(KEY)])))
        waiting.start()
        deadline = time.monotonic() + 30
        while not other.execute(terminate).fetchall():
            assert time.monotonic() < deadline
        holder.rollback()
        waiting.join(30)
    assert [answer.effect for answer in answers] == [EventsAppended(1, 1, 0, 1)]


def test_who_is_interrupted_takes_no_connection_away(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(connection: Connection) -> bool:
        raise KeyboardInterrupt

    with closing(opened(url, append_timeout_s=0.5)) as log:
        with monkeypatch.context() as patched:
            patched.setattr(Connection, "quiet", property(interrupted))
            for _ in range(2 * CONNECTIONS_MAX):
                with suppress(KeyboardInterrupt):
                    log.newest()
        assert log.newest() == [-1] * PARTITIONS


def test_all_sessions_that_are_ended_while_they_wait_are_replaced(url: str) -> None:
    terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with (
        closing(opened(url, append_timeout_s=2)) as log,
        psycopg.connect(url.partition("&schema")[0]) as holder,
        psycopg.connect(holder.info.dsn, autocommit=True) as other,
    ):
        for held in (False, True):  # statements are prepared first: that would wait, too
            if held:
                holder.execute(f'LOCK TABLE "{parsed(url).parameters["schema"]}".log_partition')
            with ExitStack() as asked:
                ends = [asked.enter_context(log.ask_newest(0)) for _ in range(CONNECTIONS_MAX)]
                ended = 0
                while held and ended < CONNECTIONS_MAX:
                    ended += len(other.execute(terminate).fetchall())
                holder.rollback()
                assert [end() for end in ends] == [-1] * CONNECTIONS_MAX


def test_more_threads_than_connections_take_turns(log: PostgresLog) -> None:
    threads = [threading.Thread(target=log.append, args=([draft_of(f"order|{number}")],)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(len(everything(log, partition)) for partition in range(PARTITIONS)) == 40


def forget_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind a pooler in transaction mode: each transaction comes over another session, which remembers nothing."""
    take = Pool.take

    def forgetful(self: Pool) -> Any:
        connection, reused = take(self)
        if reused:
            self._idle.insert(0, connection)
            connection = self._idle.pop()
            connection.execute("DISCARD ALL")
        return connection, reused

    monkeypatch.setattr(Pool, "take", forgetful)


@pytest.fixture
def pooled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a pooler that is seen: it numbers sessions by itself."""
    forget_sessions(monkeypatch)
    monkeypatch.setattr(Connection, "is_direct", lambda self: False)


@pytest.mark.usefixtures("pooled")
class TestPooledPostgresLog(LogContract):
    """The whole contract, without session state."""

    @pytest.fixture
    def opened(self, postgres: PostgresServer) -> Iterator[Opened]:
        url = new_url(postgres)
        made: list[Log] = []

        def opened_(*, clock: Any = None, **settings: Any) -> Log:
            made.append(PostgresLog(parsed(url), settings=Settings.of(settings), clock=clock))
            return made[-1]

        yield opened_
        for each in made:
            each.close()


def test_a_pooler_that_does_not_show_costs_a_second_try(log: PostgresLog, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_sessions(monkeypatch)
    partition = partition_for(KEY)
    for number in range(5):
        (answer,) = log.append([draft_of(KEY, expected=number)])
        assert answer.effect == EventsAppended(number + 1, number + 1, number, 1)
        assert log.newest()[partition] == number
        assert len(log.read(partition, after=-1, key=KEY).records) == number + 1
    assert [record.offset for record in everything(log, partition_for(KEY))] == list(range(5))


@pytest.mark.parametrize("renumbers", [False, True], ids=["direct", "pooler"])
def test_statements_are_prepared_only_where_no_pooler_is_seen_and_nothing_else_is_left(
    postgres: PostgresServer, url: str, renumbers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bell, "ring", lambda self: None)  # it would take a connection
    with (
        tempfile.TemporaryDirectory(dir=temporary_place()) as folder,
        Proxy(postgres.folder, Path(folder), renumbers=renumbers) as proxy,
        closing(opened(through(proxy, postgres, url))) as log,
    ):
        for number in range(20):
            log.append([draft_of(KEY, number)])
            log.read(partition_for(KEY), after=-1)
        connection, _ = log._database._pool.take()
        try:
            found = connection.execute("SELECT name FROM pg_prepared_statements").fetchall()
            names = ("lock_partitions", "heads", "append", "append_at_once", "read")
            assert {name for (name,) in found} == (
                set() if renumbers else {prepared(log, name).decode() for name in names}
            )
            assert connection.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone() == (0,)
            # The isolation of a transaction ends with it, whatever the server says of who set it.
            settings = "pg_settings WHERE source = 'session' AND name <> 'transaction_isolation'"
            left = connection.execute(f"SELECT count(*) FROM {settings}").fetchone()
            assert left == (0,)
        finally:
            log._database._pool.give_back(connection)


def test_plans_do_not_rest_on_what_tables_were(
    postgres: PostgresServer, log: PostgresLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = BinaryStatement(b"SELECT count(*) FROM grown WHERE id = ANY($1)", (bigints([1]),))
    with log._database.connection() as connection:

        def plan() -> str:
            return str(connection.execute(f"EXPLAIN EXECUTE {name_of(ask.text).decode()}('{{1}}')").fetchall())

        monkeypatch.setattr(exchange, "PLANS_S", 3600.0)
        connection.execute("CREATE TEMPORARY TABLE grown (id bigint PRIMARY KEY)")
        connection.execute("ANALYZE grown")
        for _ in range(10):
            connection.exchange((ask,))
        connection.execute("INSERT INTO grown SELECT generate_series(1, 50000)")
        connection.exchange((ask,))
        assert "Seq Scan" in plan()
        monkeypatch.setattr(connection, "_plans_until", 0.0)
        connection.exchange((ask,))
        assert "Seq Scan" not in plan()


def test_plans_are_thrown_away_within_transactions(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "PLANS_S", 0.0)
    database = postgres.database()
    with psycopg.connect(database, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    with closing(opened(database)) as log, closing(opened(database)) as other:
        for number in range(6):
            writer = (log, other)[number // 2 % 2]  # one goes on alone, then the other one is met
            (answer,) = writer.append([draft_of(KEY, expected=number)])
            assert answer.effect == EventsAppended(number + 1, number + 1, number, 1)


# ---------------------------------------------------------------- killed


@pytest.mark.req("RA1", "RA2", "RA3", "RA4", "RA5", "RA6", "RS8")
@repeats(6, 1000)
@pytest.mark.timeout(7200)
def test_a_server_that_is_killed_under_load_loses_repeats_and_reorders_nothing(times: int) -> None:
    writers = 4
    done = threading.Event()
    sent: list[dict[str, str]] = [{} for _ in range(writers)]

    def write(log: PostgresLog, writer: int) -> None:
        number = 0
        while not done.is_set():
            number += 1
            append_id = f"{writer:016x}{number:016x}"
            draft = draft_of(f"order|{writer}", number, append_id=append_id)
            while True:
                try:
                    (answer,) = log.append([draft])
                except Unavailable as error:
                    sent[writer].setdefault(append_id, error.applied)
                    if done.wait(0.01):
                        break
                    continue
                assert answer.effect is not None
                sent[writer][append_id] = "ok"
                break

    with PostgresServer() as server:
        with closing(opened(f"{server.url}&schema=killed", append_timeout_s=5)) as log:
            threads = [threading.Thread(target=write, args=(log, writer)) for writer in range(writers)]
            for thread in threads:
                thread.start()
            for _ in range(times):
                _until_more(lambda: sum(len(each) for each in sent), 40)
                server.kill()
                server.restart()
                returned = time.monotonic()
                _until_more(lambda: sum(log.newest()), 1)
                assert time.monotonic() - returned < 5
            done.set()
            for thread in threads:
                thread.join()
        with closing(opened(f"{server.url}&schema=killed")) as log:
            _check(log, sent)


def _check(log: PostgresLog, sent: list[dict[str, str]]) -> None:
    """Everything acknowledged is there once and in order; the rest at most once."""
    found: dict[str, list[str]] = {}
    for partition in range(PARTITIONS):
        records = everything(log, partition)
        assert [record.offset for record in records] == list(range(len(records)))
        assert [record.timestamp for record in records] == sorted({record.timestamp for record in records})
        for record in records:
            action = decode_header(record.header)
            assert isinstance(action, Append)
            found.setdefault(action.key, []).append(action.append_id)
    for writer, outcomes in enumerate(sent):
        ids = found[f"order|{writer}"]
        assert ids == sorted(set(ids)), "once each, in the order in which they were sent"
        assert set(ids) >= {append_id for append_id, outcome in outcomes.items() if outcome == "ok"}
        assert len(ids) > 50


def _until_more(count: Callable[[], int], more: int) -> None:
    deadline = time.monotonic() + 90
    least = count() + more
    while count() < least:
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.005)
