"""Large logs in which something is odd are read as small ones are: one case for each way in which they once were not."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilewright.best import best_entries, vendor_times, with_vendors
from tilewright.bulk import parts
from tilewright.bulk.best import best_of_files
from tilewright.bulk.lint import lint_file
from tilewright.bulk.parts import fold_parts, is_large
from tilewright.bulk.stats import stats_of_files
from tilewright.codec import encode_line
from tilewright.commands.log_stats import sum_up
from tilewright.errors import HostError, SchemaTooNew
from tilewright.finding import Finding
from tilewright.lint import lint
from tilewright.log import TuningLog
from tilewright.record import Anchor, Line, Measurement, Racer, RaceRecord, Record, SessionEnd, SessionStart, Status, TrialStart, VendorRecord
from tilewright.target import Toolchain, named_target
from tilewright.workload import Workload

WORKLOAD, TARGET = Workload(operator="m", dims={"M": 16}, dtypes={}), named_target("sm_90")
SHARED: dict[str, Any] = {"session": "s", "workload": WORKLOAD, "target": TARGET}
START = SessionStart(session="s", started_at="", tilewright="0", operator="m", workloads=[WORKLOAD], target=TARGET, toolchain=Toolchain())


def timed(trial: int, us: float, tile: int = 16, source: str = "a", **more: Any) -> Record:
    times = Measurement(protocol="graph/1", median_us=us, min_us=us, max_us=us)
    return Record(**{**SHARED, "measurement": times, **more}, trial=trial, config={"tile": tile}, status=Status.OK, source=source)


def failed(trial: int, tile: int = 16, source: str = "a", status: Status = Status.CRASH, **more: Any) -> Record:
    return Record(**{**SHARED, **more}, trial=trial, config={"tile": tile}, status=status, message="no", source=source)


def race(winner: int | None, *racers: Racer, session: str = "s") -> RaceRecord:
    return RaceRecord(**{**SHARED, "session": session}, protocol="graph/1", racers=list(racers), winner=winner)


def racer(tile: int, source: str, **more: Any) -> Racer:
    return Racer(config={"tile": tile}, source=source, **{"median_us": 1.0, **more})


def raw(*lines: Line) -> bytes:
    return b"".join(map(encode_line, lines))


@pytest.fixture(params=[(300, 3, 1_000), (1 << 17, 2, 1 << 24)], ids=["small", "whole"])
def split(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks smaller than a line, in parts by several processes; or one block."""
    size, count, part = request.param
    monkeypatch.setattr(parts, "BLOCK_BYTES", size)
    monkeypatch.setattr(parts, "_PART_BYTES", part)
    monkeypatch.setattr(parts.os, "sched_getaffinity", lambda pid: set(range(count)))


def inspect(number: int, record: Record) -> Iterator[Finding]:
    """Says which record a look-up reaches."""
    yield Finding(number=number, rule="reached", severity="note", message=str(record.trial))


def agree(path: Path, text: bytes, *, stats: bool = True) -> tuple[Finding, ...]:
    """Hold what large logs give to what small ones do; the findings."""
    path.write_bytes(text)
    contents = TuningLog(path).read()
    vendors = vendor_times(line for line in contents.lines if isinstance(line, VendorRecord))
    races = [line for line in contents.lines if isinstance(line, RaceRecord)]
    assert best_of_files([path]) == with_vendors(best_entries(contents.lines), vendors, races)
    if stats:
        assert stats_of_files([path]) == sum_up(contents.lines)
    return linted(path)


def linted(path: Path) -> tuple[Finding, ...]:
    """Hold what lint finds in parts to what it finds in the whole; the findings."""
    contents = TuningLog(path).read()
    options: dict[str, Any] = {"floor_us": lambda workload, target: None, "templates": {}, "inspect": inspect}
    findings = lint(contents, **options)
    assert lint_file(path, **options) == (len(contents.lines), findings)
    return findings


@pytest.mark.usefixtures("split")
@pytest.mark.parametrize(
    "verdict", [failed(3, 16, "a", Status.WRONG_RESULT), race(None, racer(16, "a", median_us=None, status=Status.OUT_OF_BOUNDS, message="no"))]
)
def test_a_winner_found_wrong_puts_out_none_that_it_beat(tmp_path: Path, verdict: Line) -> None:
    records = [timed(0, 3, 16, "a"), timed(1, 3.5, 32, "b"), timed(2, 2, 64, "c")]
    races = [race(0, racer(16, "a"), racer(32, "b"), session="s1"), race(0, racer(32, "b"), racer(64, "c"), session="s2")]
    path = tmp_path / "a.jsonl"
    agree(path, raw(START, *records, *races, verdict))
    (entry,) = best_of_files([path])
    assert entry.config == {"tile": 32} and entry.raced


def test_a_log_is_compressed_by_its_first_bytes_whatever_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "LARGE_BYTES", 10)
    plain, packed = raw(START, timed(0, 3)), gzip.compress(raw(START, timed(0, 3)))
    for name, text in (("a.jsonl", plain), ("b.jsonl", packed), ("c.jsonl.gz", packed), ("d.jsonl.gz", plain)):
        (tmp_path / name).write_bytes(text)
    (tmp_path / "e.jsonl").symlink_to("c.jsonl.gz")
    large = {path.name: is_large([path]) for path in sorted(tmp_path.iterdir())}
    assert large == {"a.jsonl": True, "b.jsonl": False, "c.jsonl.gz": False, "d.jsonl.gz": True, "e.jsonl": False}
    assert not is_large([tmp_path / "a.jsonl", tmp_path / "b.jsonl"]) and not is_large([tmp_path / "none.jsonl"])


BEYOND = Measurement(protocol="graph/1", median_us=1e300, min_us=1e300, max_us=1e300, anchor=Anchor(kind="memory", median_us=1.0, nominal_us=1e300))


ANCHOR_OF_NOTHING = Measurement(protocol="graph/1", median_us=5.12345, min_us=5.0, max_us=6.0, anchor=Anchor(kind="memory", median_us=1e-300, nominal_us=1e300))


@pytest.mark.usefixtures("split")
@pytest.mark.parametrize(("odd", "ranked"), [(BEYOND, 1e300), (ANCHOR_OF_NOTHING, 5.123)])
def test_an_anchor_that_makes_no_time_of_a_time_corrects_nothing(tmp_path: Path, odd: Measurement, ranked: float) -> None:
    assert odd.ranked_us == ranked
    for records in ([timed(0, 1.0, measurement=odd)], [timed(0, 1.0, measurement=odd), timed(1, 3.0)], [timed(0, 1, measurement=odd)] * 2):
        agree(tmp_path / "a.jsonl", raw(START, *records))
    (entry,) = best_of_files([tmp_path / "a.jsonl"])
    assert entry.median_us == ranked


@pytest.mark.usefixtures("split")
@pytest.mark.parametrize("winner", [-1, 2, 99])
def test_a_race_whose_winner_is_none_of_its_racers_decides_nothing_and_lint_tells_it(tmp_path: Path, winner: int) -> None:
    decided = race(winner, racer(16, "a"), racer(32, "b"))
    findings = agree(tmp_path / "a.jsonl", raw(START, timed(0, 3, 16, "a"), timed(1, 2, 32, "b"), decided))
    assert [finding for finding in findings if finding.number == 4 and str(winner) in finding.message]
    (entry,) = best_of_files([tmp_path / "a.jsonl"])
    assert entry.config == {"tile": 32} and not entry.raced


@pytest.mark.usefixtures("split")
@pytest.mark.parametrize("field", [b'"config":{"tile":32}', b'"workload":{"operator":"m",', b'"target":{', b'"trial":1'])
def test_a_field_that_stands_twice_makes_its_line_damage_where_the_first_is_wrong(tmp_path: Path, field: bytes) -> None:
    """Where the line would be the best, another takes its place. `log stats` steps over such fields."""
    key = field.partition(b":")[0]
    right = raw(START, timed(0, 3), timed(1, 2, 32), timed(2, 4, 64))
    assert right.count(field) == (1 if b"1" in field or b"2" in field else right.count(key + b":"))
    lines = right.split(b"\n")
    lines[2] = lines[2].replace(field, key + b":[]," + field)
    findings = agree(tmp_path / "a.jsonl", b"\n".join(lines), stats=False)
    assert [(found.number, found.rule) for found in findings if found.rule in ("damage", "reached")] == [(2, "reached"), (3, "damage")]


HUGE = b"9" * 30


@pytest.mark.usefixtures("split")
@pytest.mark.parametrize(
    ("line", "field"),
    [
        (SessionEnd(session="s", ended_at="", reason="budget", trials=7), b'"trials":'),
        (SessionEnd(session="s", ended_at="", reason="budget", trials=7, rejected={"a": 7}), b'"a":'),
        (timed(7, 2.0), b'"trial":'),
        (timed(2, 2.0, tile=7), b'"tile":'),
        (failed(2, tile=7), b'"tile":'),
        (failed(2, tile=7, status=Status.WRONG_RESULT), b'"tile":'),
        (TrialStart(session="s", workload=WORKLOAD, config={"tile": 7}), b'"tile":'),
        (race(0, racer(7, "a"), racer(32, "b")), b'"tile":'),
        (VendorRecord(**SHARED, name="v", status=Status.OK, measurement=Measurement(protocol="p", median_us=1, min_us=1, max_us=1, samples=7)), b'"samples":'),
    ],
)
@pytest.mark.parametrize("value", [HUGE, b"-" + HUGE, b"9223372036854775808", b"-9223372036854775809"])
def test_integers_beyond_64_bits_are_read_wherever_they_stand(tmp_path: Path, line: Line, field: bytes, value: bytes) -> None:
    odd = raw(line)
    assert odd.count(field + b"7") == 1
    agree(tmp_path / "a.jsonl", raw(START, timed(0, 3), timed(1, 3.5, 32, "b")) + odd.replace(field + b"7", field + value))


@pytest.mark.usefixtures("split")
def test_two_objects_in_a_line_are_damage_also_beside_a_blank_line(tmp_path: Path) -> None:
    """In one block, a line with two and a blank one leave the count of lines what it is."""
    starts = [TrialStart(session="s", workload=WORKLOAD, config={"tile": tile}) for tile in (16, 32)]
    for first, second in (starts, [timed(1, 1.0, 32), timed(2, 2.0, 64)], [failed(1), failed(2)], [failed(1), failed(2, status=Status.WRONG_RESULT)]):
        for between in (b"", b" "):
            for blank in (b"\n", b" \r\n"):
                pair = raw(first).rstrip(b"\n") + between + raw(second)
                text = raw(START, timed(0, 3.0)) + pair + blank + raw(failed(3, status=Status.WRONG_RESULT), timed(4, 2.5, 48))
                findings = agree(tmp_path / "a.jsonl", text)
                assert sum(found.rule == "damage" for found in findings) == 1


@pytest.mark.usefixtures("split")
def test_a_newer_schema_is_told_with_its_first_line(tmp_path: Path) -> None:
    path, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    newer = raw(timed(1, 2.0)).replace(b'"schema":1', b'"schema":2')
    path.write_bytes(raw(START, timed(0, 3.0)))
    other.write_bytes(raw(START) + b"\n{torn\n" + newer + raw(timed(2, 4.0)) * 20 + newer)
    with pytest.raises(SchemaTooNew) as said:
        TuningLog(other).read()
    assert str(said.value).startswith(f"{other}, line 4: schema 2")
    for read in (best_of_files, stats_of_files):
        with pytest.raises(SchemaTooNew) as found:
            read([path, other])
        assert str(found.value) == str(said.value)


@pytest.mark.usefixtures("split")
def test_a_target_has_the_name_of_the_first_record_of_its_workload(tmp_path: Path) -> None:
    other, third = replace(TARGET, name="other"), replace(TARGET, name="third")
    wide = Workload(operator="m", dims={"M": 32}, dtypes={})
    vendor = VendorRecord(**{**SHARED, "target": other}, name="v", status=Status.OK, measurement=timed(0, 1.0).measurement)
    for lines in (
        [vendor, timed(0, 3.0), timed(1, 2.0, workload=wide, target=other)],
        [failed(0, target=third), timed(1, 2.0, target=other), timed(2, 2.0, workload=wide, target=other), failed(3, workload=wide)],
        [timed(0, 2.0, target=other), failed(1, target=third), failed(2, workload=wide, target=third), timed(3, 2.0, workload=wide)],
    ):
        agree(tmp_path / "a.jsonl", raw(START, *lines))
        agree(tmp_path / "a.jsonl", b"{torn\n" + raw(START, *lines))


def test_fewer_processes_do_where_the_machine_has_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork that fails leaves no process and no open file behind."""
    real, forks = os.fork, []

    def fork() -> int:
        if len(forks) == 1:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        forks.append(real())
        return forks[-1]

    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(parts.os, "fork", fork)
    answers = fold_parts(list(range(9)), lambda part: [part, os.getpid()], 4)
    assert [part for part, _ in answers] == list(range(9))
    assert {pid for _, pid in answers} <= {os.getpid(), *forks} and len(forks) == 1
    assert os.listdir("/proc/self/fd") == before
    with pytest.raises(ChildProcessError):
        os.waitpid(forks[0], os.WNOHANG)


@pytest.mark.parametrize("opened", [0, 1, 2])
def test_fewer_processes_do_where_there_are_no_more_pipes(monkeypatch: pytest.MonkeyPatch, opened: int) -> None:
    real, pipes = os.pipe, []

    def pipe() -> tuple[int, int]:
        if len(pipes) == opened:
            raise OSError(24, "Too many open files")
        pipes.append(real())
        return pipes[-1]

    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(parts.os, "pipe", pipe)
    if not opened:
        with pytest.raises(HostError, match="Too many open files"):
            fold_parts(list(range(9)), lambda part: part, 4)
    else:
        assert fold_parts(list(range(9)), lambda part: part, 4) == list(range(9))
    assert os.listdir("/proc/self/fd") == before


def test_what_fails_in_another_process_is_said() -> None:
    parent = os.getpid()

    def fold(part: int) -> int:
        if os.getpid() != parent:
            raise ZeroDivisionError("by zero")
        time.sleep(0.1)
        return part

    with pytest.raises(HostError, match="by zero"):
        fold_parts(list(range(4)), fold, 2)


ENDLESS = """
import os, sys, time
from tilewright.bulk.parts import fold_parts
parent = os.getpid()
def fold(part):
    if os.getpid() != parent and not part % 2:
        print(os.getpid(), flush=True)
    time.sleep(0.1)
fold_parts(list(range(600)), fold, 3)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_processes_end_when_the_one_that_asked_them_was_killed(number: signal.Signals) -> None:
    parent = subprocess.Popen([sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    parent.stdout.readline()
    parent.send_signal(number)
    parent.wait()
    began = time.monotonic()
    parent.stdout.read()  # until the last one that may write there is gone
    parent.stdout.close()
    assert time.monotonic() - began < 5
