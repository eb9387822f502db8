"""The OpenAPI document is true: requests made from it, good and bad, get the answers that it describes."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from typing import Any, cast

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS

from strandline import Event, WorkDeclaration
from strandline.connect import Strandline
from strandline.server.openapi import document
from strandline.testing import carry
from tests.repeats import SOAK, examples
from tests.server.worlds import Served

MODES = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]
EXAMPLES = {GenerationMode.POSITIVE: 4, GenerationMode.NEGATIVE: 2}
"""Of each operation; hundreds in the soak. Made anew each time there, and the same ones here."""
CONFORM = [
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance",
    "response_headers_conformance",
]  # fmt: skip
REJECTED = "negative_data_rejection"


def test_it_describes_every_route_of_the_api(server: Served, client: httpx.Client) -> None:
    told = client.get("/openapi.json").json()
    assert told == json.loads(json.dumps(document(server.app.table.routes)))
    described = {(method.upper(), path) for path, methods in told["paths"].items() for method in methods}
    assert described == {(route.method, route.path) for route in server.app.table.routes if route.in_document}
    assert len(described) >= 50
    named = [one["operationId"] for methods in told["paths"].values() for one in methods.values()]
    assert len(set(named)) == len(named)


@pytest.mark.req("RS1")
@pytest.mark.parametrize("mode", MODES, ids=[mode.value for mode in MODES])
def test_requests_made_from_it_get_what_it_describes(mode: GenerationMode, server: Served, s: Strandline) -> None:
    """No answer is a 500, none shows a traceback, and each has the status, the media type and the form described."""
    s.work(WorkDeclaration("mails", key={"order": "int"}, data={"to": "text"}))
    s.journal.append("order|1", [Event("Placed", 1, tags=["blue"])])
    carry(s)
    with server.client() as client:
        told = client.get("/openapi.json").json()
        del told["security"], told["components"]["securitySchemes"]  # who is let in, test_frame.py tries
        schema = schemathesis.openapi.from_dict(told)  # it knows its checks from then on
        wanted = CHECKS.get_by_names(CONFORM if mode is GenerationMode.POSITIVE else [*CONFORM, REJECTED])
        tried, answered = [], Counter[int]()
        for result in schema.get_all_operations():
            operation: Any = cast(Any, result).ok()
            if operation.path.endswith("/live"):
                continue  # they do not end: tests/server/test_journals.py reads them
            tried.append(operation.label)

            @settings(
                max_examples=examples(EXAMPLES[mode]), derandomize=SOAK not in os.environ, deadline=None, database=None,
                suppress_health_check=list(HealthCheck),
            )  # fmt: skip
            @given(case=operation.as_strategy(generation_mode=mode))
            def call(case: Any) -> None:
                answer = case.call(base_url=server.url, headers={"Authorization": f"Bearer {server.token}"})
                case.validate_response(answer, checks=wanted)
                assert "Traceback" not in answer.text
                answered[answer.status_code // 100] += 1

            with contextlib.suppress(Unsatisfiable):  # what takes nothing cannot be given anything wrong
                call()
        assert len(tried) >= 45
        assert answered[4] >= 20
        assert answered[2] >= 20 or mode is GenerationMode.NEGATIVE
