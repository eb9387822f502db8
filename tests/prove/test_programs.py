"""Random programs against the model: some seeds of each part, and two hundred times as many in a soak."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from strandline.servers.cassandra import CassandraServer
from strandline.servers.kafka import KafkaServer
from strandline.servers.postgres import PostgresServer
from strandline.testing.prove.group_situations import SITUATIONS
from strandline.testing.prove.program import Program
from strandline.testing.prove.run import Proof, difference, prove
from strandline.testing.prove.servers import Servers
from strandline.testing.rare import RARE
from tests.repeats import SOAK

LONGER = 200
SEEDS = [
    ("journal", "sqlite", 33),
    ("journal", "memory", 44),
    ("journal", "last-write-wins", 33),
    ("journal", "inexact", 14),
    ("queries", "sqlite", 28),
    ("queries", "memory", 33),
    ("queries", "last-write-wins", 22),
    ("queries", "inexact", 8),
    ("work", "sqlite", 44),
    ("groups", "sqlite", 22),
    ("groups", "last-write-wins", 11),
    ("groups", "inexact", 3),
    ("projections", "sqlite", 38),
    ("projections", "last-write-wins", 11),
]

ALSO = {
    ("groups", "sqlite"): (229, 247, 383, 385, 401, 430),
    ("groups", "last-write-wins"): (24, 36, 75, 82, 130, 143, 189),
    ("projections", "sqlite"): (40, 52, 63, 78, 90, 108),
    ("queries", "last-write-wins"): (39,),
}
"""Seeds whose programs come to rare paths that the first ones do not; they were looked for."""


def seeds(few: int, longer: int = LONGER) -> range:
    return range(few * (longer if os.environ.get(SOAK) else 1))


def check(proof: Proof, count: int) -> None:
    assert not proof.failures, "\n\n".join(
        f"seed {one.seed}: {one.message}\n{one.program}\n{one.program.command()}" for one in proof.failures
    )
    assert proof.programs == count


@pytest.mark.hypothesis
@pytest.mark.timeout(0)
@pytest.mark.req(
    "J13", "J14", "J15", "J16", "J17", "J19", "J35", "J36", "J39", "J40", "J45", "J46", "J47", "J48", "J50"
)
@pytest.mark.req("J57", "J59", "J62", "J63", "J68", "J78", "J80", "J93", "J97", "J104", "J105", "J106", "J107", "J114")
@pytest.mark.req("J128", "J129", "RJ1", "RJ2", "RJ3", "RJ5")
@pytest.mark.req(
    "T1", "T15", "T39", "T40", "T42", "T43", "T46", "T47", "T49", "T54", "T59", "T60", "T61", "T64", "T77", "T78"
)
@pytest.mark.req("P4", "P6", "P7", "P8", "P9", "P10", "P16", "P17", "P18")
@pytest.mark.req("W9", "W10", "W15", "W17", "W19", "W20", "W21", "W23", "W24", "W25", "W26", "W27", "W28", "W29", "W30")
@pytest.mark.req(
    "W31", "W33", "W36", "W38", "W39", "W40", "W41", "W42", "W43", "W44", "W45", "W46", "W47", "W48", "W71"
)
@pytest.mark.req("G5", "G8", "G9", "G10", "G13", "G15", "G16", "G17", "G19", "G20", "G22", "G27", "G28", "G29", "G33")
@pytest.mark.req("G35", "G36", "G37", "G38", "G39", "G40", "G41", "G42", "G43", "G44", "G45", "G46", "G47", "G48")
@pytest.mark.req("G49", "G50", "G51", "G52", "G53", "G59", "G61", "G62", "G66", "G68", "G71", "G72", "G75", "G76")
@pytest.mark.req("G78", "G92", "S48", "S58", "RG3", "RG4")
@pytest.mark.req("P29", "P30", "P32", "P33", "P40", "P42", "P43", "P44", "P47", "P48", "P49", "P50", "P58", "P59")
@pytest.mark.req("P60", "P61", "P62", "P63", "P64", "P65", "P66", "P67", "P68", "P69", "P70", "P71", "P72", "P73")
@pytest.mark.req("P74", "P76", "P77", "P78", "P79", "P80", "P82", "P84", "P85", "P86", "P88", "P91", "P99", "P102")
@pytest.mark.req("P103")
def test_programs_show_what_the_model_shows_and_reach_every_rare_path() -> None:
    reached: Counter[str] = Counter()
    for part, on, few in SEEDS:
        proof = prove(part, on, seeds(few))
        check(proof, len(seeds(few)))
        reached += proof.reached
    for (part, on), also in ALSO.items():
        proof = prove(part, on, also)
        check(proof, len(also))
        reached += proof.reached
    assert not [name for name in RARE if not reached[name]]


@pytest.mark.req("S48")
@pytest.mark.parametrize(("kind", "name"), [(kind, name) for name, one in SITUATIONS.items() for kind in one.kinds])
def test_situations_of_groups(kind: str, name: str, postgres: PostgresServer) -> None:
    settings = {"kinds": {"a": kind, "b": kind}, "parallel_groups": 2}
    program = Program("groups", kind, [["situation", {"on": "a", "name": name}]], settings)
    assert difference(program, servers=Servers({"postgres": postgres.url})) is None


@pytest.mark.hypothesis
@pytest.mark.timeout(0)
@pytest.mark.req("J13", "J50", "T46", "P4", "W21", "W28", "W42", "W71")
@pytest.mark.parametrize("part", ["journal", "queries", "work", "groups", "projections"])
def test_programs_on_postgres(part: str, postgres: PostgresServer) -> None:
    check(prove(part, "postgres", seeds(5), servers=Servers({"postgres": postgres.url})), len(seeds(5)))


@pytest.mark.hypothesis
@pytest.mark.timeout(0)
@pytest.mark.req("J13", "J50", "T46", "P4")
@pytest.mark.filterwarnings("ignore:accept_power_loss is on")  # one node has one replica
@pytest.mark.parametrize("part", ["journal", "queries", "groups", "projections"])
def test_programs_on_kafka_and_cassandra(part: str, kafka: KafkaServer, cassandra: CassandraServer) -> None:
    with Servers({"kafka": kafka.url, "cassandra": cassandra.url}) as servers:
        check(prove(part, "kafka-cassandra", seeds(1, 500), servers=servers), len(seeds(1, 500)))
