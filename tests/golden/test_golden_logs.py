"""One log per schema version: what was written once is read for ever, and today's lines are written the same way."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from tilewright.best import BEST_SCHEMA, best_entries, best_text, parse_best
from tilewright.codec import encode_lines
from tilewright.log import TuningLog
from tilewright.record import SCHEMA, Line, Record, Status
from tilewright.state import LogState

FOLDER = Path(__file__).parent / "logs"
LOGS = [FOLDER / f"log_schema_{number}.jsonl" for number in range(1, SCHEMA + 1)]
BEST_FILES = [FOLDER / f"best_schema_{number}.jsonl" for number in range(1, BEST_SCHEMA + 1)]


def test_every_schema_has_its_file_and_no_file_is_an_orphan() -> None:
    assert sorted(FOLDER.iterdir()) == sorted([*LOGS, *BEST_FILES])


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_log_of_every_schema_is_read_without_damage(path: Path) -> None:
    contents = TuningLog(path).read()
    assert contents.damage == ()
    assert {type(line) for line in contents.lines} == set(get_args(Line))
    assert {line.status for line in contents.lines if isinstance(line, Record)} == set(Status)


def test_the_newest_is_what_would_be_written_today() -> None:
    assert encode_lines(TuningLog(LOGS[-1]).read().lines) == LOGS[-1].read_bytes()


def test_what_the_newest_adds_up_to() -> None:
    lines = TuningLog(LOGS[-1]).read().lines
    state = LogState.of(lines)
    assert {name: (session.records, session.interrupted) for name, session in state.sessions.items()} == {"5f0c": (11, False), "91ab": (0, True)}
    first = next(line for line in lines if isinstance(line, Record))
    assert state.unfinished(first.workload, first.target) == (({"schedule": "pointers", "tile_m": [32, 128], "num_warps": 8}, 1),)
    assert len(state.vendors(first.workload, first.target)) == 1
    assert state.finished(first.target, ()) == {first.workload.key}


def test_its_best_file_is_byte_for_byte_the_one_kept() -> None:
    records = [line for line in TuningLog(LOGS[-1]).read().lines if isinstance(line, Record)]
    assert best_text(best_entries(records)) == BEST_FILES[-1].read_text()


@pytest.mark.parametrize("path", BEST_FILES, ids=lambda path: path.stem)
def test_a_best_file_of_every_schema_is_read(path: Path) -> None:
    assert len(parse_best(path.read_text())) == 1
