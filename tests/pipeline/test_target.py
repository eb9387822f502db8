"""Where a task opens log and store."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.errors import SchemaMismatch
from strandline.pipeline.target import Target


def test_what_can_be_lost_is_said_by_the_driver_and_not_again_by_every_worker(tmp_path: Path) -> None:
    target = Target(f"sqlite:{tmp_path}/shop", settings={"accept_power_loss": True})
    with pytest.warns(RuntimeWarning, match="accept_power_loss"):
        target.connect().close()
    target.open()  # a warning is an error here
    target.drop()


@pytest.mark.req("J109")
def test_a_mistyped_url_of_a_spark_job_is_asked_for(tmp_path: Path) -> None:
    """Nothing that only `connect` takes is advised: the format has no such option."""
    with pytest.raises(SchemaMismatch) as caught:
        Target(f"sqlite:{tmp_path}/mistyped").open()
    assert caught.value.name == "SchemaMismatch.no_schema"
    assert caught.value.hint.startswith("is the URL right?")
    assert 'schema="create"' not in caught.value.hint
