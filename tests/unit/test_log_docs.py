"""docs/log-format.md names every field, status and lint rule there is."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import msgspec
import pytest

from tilewright import finding, lint, reach
from tilewright.best import BestEntry, Pins
from tilewright.record import (
    Anchor,
    Check,
    DeviceState,
    KnobInfo,
    Measurement,
    Racer,
    RaceRecord,
    Record,
    RecordedSpace,
    Resources,
    SessionEnd,
    SessionStart,
    Status,
    TrialStart,
    VendorRecord,
)
from tilewright.target import Target, Toolchain
from tilewright.workload import Workload

PAGE = (Path(__file__).parents[2] / "docs" / "log-format.md").read_text(encoding="utf-8")
SECTIONS = {part.partition("\n")[0].strip(): part for part in re.split(r"^#+ ", PAGE, flags=re.MULTILINE)}


def section(start: str) -> str:
    (found,) = [text for name, text in SECTIONS.items() if name.startswith(start)]
    return found


@pytest.mark.parametrize(
    ("kind", "start"),
    [
        (SessionStart, "`session`"),
        (TrialStart, "`start`"),
        (Record, "`trial`"),
        (VendorRecord, "`vendor`"),
        (RaceRecord, "`race`"),
        (Racer, "racer"),
        (Anchor, "anchor"),
        (DeviceState, "state"),
        (SessionEnd, "`end`"),
        (RecordedSpace, "`space`"),
        (KnobInfo, "`space`"),
        (Measurement, "measurement"),
        (Check, "check"),
        (Resources, "resources"),
        (Workload, "workload"),
        (Target, "target"),
        (Toolchain, "toolchain"),
        (BestEntry, "The best file"),
        (Pins, "The best file"),
    ],
)
def test_every_field_is_explained(kind: type, start: str) -> None:
    text = section(start)
    if dataclasses.is_dataclass(kind):
        fields = {field.name for field in dataclasses.fields(kind)}
    else:
        assert issubclass(kind, msgspec.Struct)
        fields = set(kind.__struct_fields__) - ({"schema", "session"} if kind is not BestEntry else set())
    prefix = "pins." if kind is Pins else ""
    assert [name for name in sorted(fields) if f"`{prefix}{name}`" not in text] == []


def test_every_status_and_every_identity_field_is_explained() -> None:
    assert [status for status in Status if f"| `{status}` |" not in section("Status")] == []
    marked = set(re.findall(r"^\| `(\w+)`\*", section("target"), flags=re.MULTILINE))
    target = Target(
        backend="cuda", arch="sm_90", name="", sm_count=1, warp_size=32, shared_memory_bytes=1, shared_memory_per_sm_bytes=1, registers_per_sm=1,
        max_threads_per_sm=1, l2_bytes=1, memory_bytes=1, bandwidth_gb_s=1.0,
    )  # fmt: skip
    assert marked == {"memory_bytes" if name == "memory_gib" else name for name in target.identity}


def test_every_lint_rule_is_explained() -> None:
    code = "".join(Path(module.__file__).read_text(encoding="utf-8") for module in (lint, reach, finding))
    rules = set(re.findall(r'\bfault\(\s*[\w.]+,\s*"([\w-]+)"', code)) | set(re.findall(r'rule="([\w-]+)"', code))
    assert len(rules) > 8
    assert set(re.findall(r"^\| `([\w-]+)` \| (?:fault|note)", section("What lint finds"), flags=re.MULTILINE)) == rules
