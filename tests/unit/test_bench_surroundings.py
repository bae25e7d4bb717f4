"""The runner's child puts its surroundings back, whatever becomes of a request."""

from __future__ import annotations

import os
from typing import Any

import pytest

pytest.importorskip("torch")

from tilewright.children.bench import Bench  # noqa: E402
from tilewright.children.failure import HostFault  # noqa: E402


class Spoiling:
    """A workbench whose candidates change the environment; some of its requests end in an exception."""

    def prepare(self, payload: dict[str, Any]) -> dict[str, Any]:
        return {"vendors": []}

    def measure(self, payload: dict[str, Any]) -> dict[str, Any]:
        os.environ["TRITON_CACHE_DIR"] = "/nowhere"
        if payload:
            raise payload["error"]
        return {"status": "ok", "retire": False}


@pytest.mark.parametrize("payload", [{}, {"error": ValueError("not foreseen")}, {"error": HostFault("no room")}], ids=["answer", "error", "host"])
def test_the_environment_is_as_before_after_each_request(payload: dict[str, Any]) -> None:
    bench = Bench()
    bench._workbench = Spoiling()
    bench.handler("prepare")({})
    before = dict(os.environ)
    try:
        answer = bench.handler("measure")(payload)
        assert answer.get("status") == "ok" or answer == {"host_fault": "no room"}
    except ValueError as error:
        assert str(error) == "not foreseen"
    assert dict(os.environ) == before
