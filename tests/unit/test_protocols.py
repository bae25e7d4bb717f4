"""A timing protocol's name says what its settings are, and nothing else does."""

from __future__ import annotations

import pytest

from tilewright import protocols
from tilewright.bestfile import protocol_rank
from tilewright.codec import decode_line, encode_lines
from tilewright.protocols import EVENTS_PROTOCOL, GRAPH_PROTOCOL, INTERPRETER_PROTOCOL, RELEASED, protocol_name, settings_of
from tilewright.record import SessionStart
from tilewright.target import Toolchain, named_target


def test_the_present_settings_are_released_ones() -> None:
    """A change of a setting needs a name of its own in the table."""
    for name in (GRAPH_PROTOCOL, EVENTS_PROTOCOL, INTERPRETER_PROTOCOL):
        assert name in RELEASED and settings_of(name) == dict(RELEASED[name])


def test_names_and_settings_go_together_one_to_one() -> None:
    by_kind: dict[str, list[tuple[tuple[str, object], ...]]] = {}
    for name, settings in RELEASED.items():
        by_kind.setdefault(name.partition("/")[0], []).append(tuple(sorted(settings.items())))
    assert all(len(set(known)) == len(known) for known in by_kind.values())
    assert protocol_name("graph", RELEASED["graph/1"]) == "graph/1"


@pytest.mark.parametrize("changed", ["replay_us", "interval", "anchor_compute_share", "least_us"])
def test_other_settings_have_a_name_that_no_other_time_carries(changed: str) -> None:
    settings = {**RELEASED[GRAPH_PROTOCOL], changed: 0.123}
    name = protocol_name("graph", settings)
    assert name not in RELEASED and name.startswith("graph-") and name == protocol_name("graph", dict(reversed(settings.items())))
    assert protocol_rank(GRAPH_PROTOCOL) < protocol_rank("graph/1") < protocol_rank(name)
    assert settings_of(name) == {} == settings_of("recorded-events/1")


def test_a_session_says_its_settings_and_one_of_before_does_not() -> None:
    start = SessionStart(
        session="s",
        started_at="",
        tilewright="",
        operator="toy",
        workloads=[],
        target=named_target("sm_90"),
        toolchain=Toolchain(),
        settings=settings_of(GRAPH_PROTOCOL),
    )
    line = encode_lines([start])
    assert decode_line(line.rstrip(b"\n")) == start and b'"least_us":7000.0' in line
    assert settings_of("graph/1")["least_us"] == 0.0 != protocols.LEAST_US
