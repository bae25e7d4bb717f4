"""The log: what is appended is read back, damage is counted, schemas are told apart."""

from __future__ import annotations

import gzip
import json
import math
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tilewright.codec import decode_line, encode_line, encode_lines
from tilewright.errors import HostError, LogDamaged, LogError, SchemaTooNew, UsageError
from tilewright.log import TuningLog, write_log
from tilewright.record import SCHEMA, Line, Measurement, Record, Resources, SessionEnd, SessionStart, Status, TrialStart
from tilewright.sampling import measurement as sampled
from tilewright.target import Toolchain, named_target
from tilewright.workload import Workload

TARGET = named_target("sm_90")
WORKLOAD = Workload(operator="matmul", dims={"M": 16, "N": 32, "K": 64}, dtypes={"dtype": "float16"}, layout={"b_layout": "col"})


def record(trial: int = 0, **changes: Any) -> Record:
    fields: dict[str, Any] = {
        "session": "s",
        "trial": trial,
        "workload": WORKLOAD,
        "target": TARGET,
        "config": {"schedule": "pointers", "tile_m": [4, 16], "num_warps": 4, "flag": True, "ratio": 0.5},
        "status": Status.OK,
        "measurement": Measurement(protocol="graph/1", median_us=10.0, min_us=9.5, max_us=11.0, samples=3, times_us=[9.5, 10.0, 11.0]),
        "resources": Resources(shared_memory_bytes=1024, registers=64),
    }
    return Record(**{**fields, **changes})


def session() -> list[Line]:
    start = SessionStart(
        session="s", started_at="2026-11-29T10:00:00+00:00", tilewright="0.1.0", operator="matmul", workloads=[WORKLOAD], target=TARGET, toolchain=Toolchain()
    )
    end = SessionEnd(session="s", ended_at="2026-11-29T10:01:00+00:00", reason="budget", trials=1, rejected={"too large": 3})
    return [start, TrialStart(session="s", workload=WORKLOAD, config={"tile_m": [4, 16]}), record(), end]


def test_lines_read_back_as_they_were_appended(tmp_path: Path) -> None:
    log = TuningLog(tmp_path / "new folder" / "log.jsonl")
    assert not log.exists()
    for line in session():
        log.append(line)
    contents = log.read()
    assert list(contents.lines) == session()
    assert contents.numbers == (1, 2, 3, 4)
    assert contents.damage == ()


def test_values_keep_their_types(tmp_path: Path) -> None:
    log = TuningLog(tmp_path / "log.jsonl")
    log.append(record(config={"a": 1, "b": 1.0, "c": True, "d": "1", "e": [1, 2], "f": ["m", "n"]}), sync=False)
    (read,) = log.read().lines
    assert isinstance(read, Record)
    assert [type(value) for value in read.config.values()] == [int, float, bool, str, list, list]
    assert list(read.config) == ["a", "b", "c", "d", "e", "f"]


def test_every_line_says_its_kind_and_schema_first() -> None:
    assert all(encode_line(line).startswith(b'{"kind":"') and b'","schema":%d,' % SCHEMA in encode_line(line)[:32] for line in session())


def test_an_integer_time_is_written_as_the_float_it_is_read_as() -> None:
    whole = msgspec.structs.replace(record(), build_s=3)
    assert b'"build_s":3.0' in encode_line(whole)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_time_that_is_not_finite_is_refused_by_name_and_nothing_is_written(tmp_path: Path, bad: float) -> None:
    log = TuningLog(tmp_path / "log.jsonl")
    with pytest.raises(LogError, match=r"trial\.measurement\.times_us\[1\]"):
        log.append(record(measurement=Measurement(protocol="p", median_us=1.0, min_us=1.0, max_us=1.0, samples=2, times_us=[1.0, bad])))
    assert not log.exists()


def test_a_field_of_the_wrong_type_is_refused_before_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="trial line"):
        TuningLog(tmp_path / "log.jsonl").append(record(config={"tile_m": {"a": 1}}))


def test_output_that_has_no_utf8_form_is_kept_readable() -> None:
    line = decode_line(encode_line(record(status=Status.CRASH, message="ptxas \udc80 died\n\u2028 twice")))
    assert isinstance(line, Record)
    assert line.message == "ptxas ? died\n\u2028 twice"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"garbage", "JSON"),
        (b'{"kind":"trial","schema":1', "truncated"),
        (b"\x00\x00\x00\x00", "JSON"),
        (b"\xff\xfe", "JSON"),
        (b"[1, 2]", "object"),
        (b"{}", "schema"),
        (b'{"kind":"trial"}', "schema"),
        (b'{"kind":"trial","schema":"1"}', "schema"),
        (b'{"kind":"trial","schema":0}', "schema 0 is not known"),
        (b'{"kind":"dance","schema":1}', "dance"),
        (b'{"kind":"end","schema":1,"ended_at":"","reason":"","trials":1,"wall_s":1e999}', "out of range"),
        (b'{"kind":"end","schema":1,"ended_at":"","reason":"","trials":1,"wall_s":NaN}', "JSON"),
        (b'{"kind":"end","schema":1,"ended_at":"","reason":"","trials":null}', "trials"),
        (b'{"kind":"start","schema":1,"workload":{"operator":"m","dims":{"M":0},"dtypes":{}},"config":{}}', "M=0"),
        (b'{"kind":"start","schema":1,"x":' + b"[" * 100_000, ""),
        (encode_line(record(resources=Resources(shared_memory_bytes=0))).strip().replace(b'"shared_memory_bytes":0', b'"shared_memory_bytes":-1'), ">= 0"),
        (encode_line(record(resources=Resources(shared_memory_bytes=0, num_warps=8))).strip().replace(b'"num_warps":8', b'"num_warps":-8'), ">= 0"),
    ],
)
def test_damage_is_counted_with_its_number_and_reason(tmp_path: Path, text: bytes, reason: str) -> None:
    path = tmp_path / "log.jsonl"
    first, *rest = session()
    path.write_bytes(encode_line(first) + text + b"\n" + encode_lines(rest))
    contents = TuningLog(path).read()
    assert list(contents.lines) == session()
    assert contents.numbers == (1, 3, 4, 5)
    (damage,) = contents.damage
    assert damage.number == 2
    assert reason in damage.reason
    assert damage.text == text[:80].decode("utf-8", "replace")


def test_blank_lines_and_windows_line_ends_are_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(encode_lines(session()).replace(b"\n", b"\r\n\n"))
    contents = TuningLog(path).read()
    assert list(contents.lines) == session()
    assert contents.damage == ()


def test_unknown_fields_of_the_same_schema_are_ignored() -> None:
    raw = encode_line(record()).replace(b'"trial":0', b'"trial":0,"mood":{"schema":7}')
    assert decode_line(raw) == record()


def test_fields_in_another_order_are_read() -> None:
    value = json.loads(encode_line(record()))
    assert decode_line(json.dumps(value, sort_keys=True).encode()) == record()


def test_a_newer_schema_stops_reading_and_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(encode_line(record()) + b'{"kind":"trial","schema":%d,"strange":[]}\n' % (SCHEMA + 3))
    with pytest.raises(SchemaTooNew, match=rf"log\.jsonl, line 2: schema {SCHEMA + 3}, .* up to {SCHEMA}: upgrade Tilewright"):
        TuningLog(path).read()
    assert path.read_bytes().count(b"\n") == 2


def _renamed(line: dict[str, Any]) -> dict[str, Any]:
    line["trial"] = line.pop("number")
    return line


def test_old_schemas_are_brought_up_step_by_step(tmp_path: Path) -> None:
    value = json.loads(encode_line(record(7)))
    old = {**{name: item for name, item in value.items() if name not in ("trial", "status")}, "schema": SCHEMA - 2, "number": 7}
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(old) + "\n" + encode_line(record(8)).decode())
    upcasts = {SCHEMA - 2: lambda line: {**line, "status": "ok"}, SCHEMA - 1: _renamed}
    contents = TuningLog(path, upcasts=upcasts).read()
    assert contents.lines == (record(7), record(8))
    assert TuningLog(path).read().lines == (record(8),)


def test_a_line_that_an_upcast_cannot_read_is_damage() -> None:
    with pytest.raises(LogDamaged, match="schema 0"):
        decode_line(b'{"kind":"trial","schema":0}', {0: _renamed})


def test_no_log_names_the_nearest(tmp_path: Path) -> None:
    TuningLog(tmp_path / "matmul.jsonl").append(record(), sync=False)
    with pytest.raises(LogError, match=r"did you mean 'matmul\.jsonl'"):
        TuningLog(tmp_path / "matmul.json").read()
    with pytest.raises(LogError, match="cannot be read"):
        TuningLog(tmp_path / "nowhere" / "matmul.jsonl").read()
    (tmp_path / "empty").mkdir()
    with pytest.raises(LogError, match=r"no \.jsonl files"):
        TuningLog(tmp_path / "empty" / "matmul.jsonl").read()


def test_a_folder_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="cannot read"):
        TuningLog(tmp_path).read()
    with pytest.raises(HostError, match="cannot append"):
        TuningLog(tmp_path).append(record())


def test_compressed_logs_are_written_once_read_and_not_appended_to(tmp_path: Path) -> None:
    path, again = tmp_path / "log.jsonl.gz", tmp_path / "again.jsonl.gz"
    write_log(path, session())
    write_log(again, session())
    assert path.read_bytes() == again.read_bytes()
    assert gzip.decompress(path.read_bytes()) == encode_lines(session())
    assert path.read_bytes()[4:8] == bytes(4)  # no time
    assert list(TuningLog(path).read().lines) == session()
    with pytest.raises(UsageError, match="gunzip"):
        TuningLog(path).append(record())
    with pytest.raises(UsageError, match="exists"):
        write_log(path, session())
    assert list(TuningLog(path).read().lines) == session()


def test_compressed_parts_laid_end_to_end_are_read(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl.gz"
    path.write_bytes(b"".join(gzip.compress(encode_line(line)) for line in session()))
    assert list(TuningLog(path).read().lines) == session()


@pytest.mark.parametrize("mishap", ["cut", "garbled", "trailing"])
def test_compressed_damage_costs_only_what_follows_it(tmp_path: Path, mishap: str) -> None:
    path = tmp_path / "log.jsonl.gz"
    whole, last = gzip.compress(encode_lines(session()[:3])), gzip.compress(encode_line(session()[3]))
    path.write_bytes(whole + {"cut": last[:-10], "garbled": last[:12] + b"\xff" * 30, "trailing": b"no gzip at all"}[mishap])
    contents = TuningLog(path).read()
    assert list(contents.lines[:3]) == session()[:3]
    assert any("compressed" in damage.reason for damage in contents.damage)


def test_a_reader_sees_what_was_there_when_it_began(tmp_path: Path) -> None:
    log = TuningLog(tmp_path / "log.jsonl")
    log.extend(session()[:2])
    scan = log.scan()
    seen = [next(scan)[1]]
    log.extend(session()[2:])
    assert [*seen, *(line for _, line in scan)] == session()[:2]
    assert list(log.read().lines) == session()


def test_lines_longer_than_a_read_are_put_together(tmp_path: Path) -> None:
    log = TuningLog(tmp_path / "log.jsonl")
    long = record(status=Status.CRASH, message="x" * 3_000_000)
    log.extend([long, record(1)], sync=False)
    assert log.read().lines == (long, record(1))


def test_special_files_can_be_read_and_written() -> None:
    TuningLog(os.devnull).append(record())
    assert TuningLog(os.devnull).read().lines == ()


def test_a_kernel_too_short_for_the_clock_still_has_a_record() -> None:
    """A launch that does nothing is judged impossible; its record must not end the session."""
    line = record(status=Status.IMPOSSIBLE, message="no time", measurement=sampled("graph/2", [0.0, 0.0, 0.0004]))
    assert decode_line(encode_line(line)) == line
    assert line.measurement is not None
    assert line.measurement.median_us == line.measurement.min_us == 0.001
