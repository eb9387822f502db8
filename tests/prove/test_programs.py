"""Random programs against the model: some seeds of each part, and two hundred times as many in a soak."""

from __future__ import annotations

import os

import pytest

from strandline.servers.postgres import PostgresServer
from strandline.testing.prove.run import prove
from tests.repeats import SOAK

LONGER = 200
SEEDS = {
    ("journal", "sqlite"): 60,
    ("journal", "memory"): 100,
    ("journal", "last-write-wins"): 80,
    ("journal", "inexact"): 40,
    ("journal", "postgres"): 5,
}


@pytest.mark.hypothesis
@pytest.mark.timeout(0)
@pytest.mark.req(
    "J13", "J14", "J15", "J16", "J17", "J19", "J35", "J36", "J39", "J40", "J45", "J46", "J47", "J48", "J50"
)
@pytest.mark.req("J57", "J59", "J62", "J63", "J68", "J78", "J80", "J93", "J97", "J104", "J105", "J106", "J107", "J114")
@pytest.mark.req("J128", "J129", "RJ1", "RJ2", "RJ3", "RJ5")
@pytest.mark.parametrize(("part", "on"), SEEDS)
def test_programs_show_what_the_model_shows(part: str, on: str, request: pytest.FixtureRequest) -> None:
    url = None
    if on == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.url
    count = SEEDS[part, on] * (LONGER if os.environ.get(SOAK) else 1)
    proof = prove(part, on, range(count), url=url)
    assert proof.programs == count
    assert not proof.failures, "\n\n".join(
        f"seed {one.seed}: {one.message}\n{one.program}\n{one.program.command()}" for one in proof.failures
    )
