"""How parts of a log are shared out, and what folds remember in place of reading it again."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tilewright.bulk import parts
from tilewright.bulk.candidates import LINE_BITS
from tilewright.bulk.lint import lint_file
from tilewright.bulk.lint_runs import run_columns, run_of
from tilewright.bulk.parts import Part, blocks_of, fold_parts, parts_of, share_out, views_of
from tilewright.bulk.stats import _Messages, failure_kind, stats_of_files
from tilewright.codec import encode_line
from tilewright.commands.log_stats import sum_up
from tilewright.errors import HostError, LogError
from tilewright.finding import Finding
from tilewright.lint import lint
from tilewright.log import TuningLog
from tilewright.record import Line, Measurement, Record, RecordedSpace, SessionStart, Status, TrialStart
from tilewright.target import Toolchain, named_target
from tilewright.workload import Workload

MESSAGES = [
    "cut after 1 samples: 83.9 µs is over 3 times 16.0 µs",
    "cut after 2 samples: 40.6 µs is over 3 times 99.1 µs",
    "needs sm_90 and 2048 bytes",
    "needs sm_80 and 1024 bytes",
    "v1.5 of 3",
    "v1.6 of 4",
    "٣ parts of 3",
    "٤ parts of 3",
    "line 1\nline 2",
    "",
    "9" * 400 + "\n" + "x" * 1000,
]


def test_messages_that_differ_in_digits_are_told_apart_where_digits_stay() -> None:
    kinds = _Messages()
    for message in [*MESSAGES, *reversed(MESSAGES)]:
        assert kinds(message) == failure_kind(message)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("number", [0, 1, 7, 10_000])
def test_each_part_is_folded_once_and_answers_stand_in_order(count: int, number: int) -> None:
    answers = fold_parts(list(range(number)), lambda part: [part, os.getpid()], count)
    assert [part for part, _ in answers] == list(range(number))
    assert len({pid for _, pid in answers}) <= count


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("number", [0, 1, 7, 10_000])
def test_processes_share_parts_out_and_each_takes_its_own_in_order(count: int, number: int) -> None:
    shares = share_out([10 * place for place in range(number)], lambda taken: [list(taken), os.getpid()], count)
    assert len({pid for _, pid in shares}) == len(shares) <= count
    taken = [[tuple(item) for item in items] for items, _ in shares]
    assert all(items == sorted(items) for items in taken)
    assert sorted(item for items in taken for item in items) == [(place, 10 * place) for place in range(number)]


TEXTS = [b"a", b"a\nb", b"\n\na\n", b"\n" * 5, b"a\n\n", b"1234567890\n" + b"a\n" * 9, b"a\n" * 7 + b"123456", b"12345\n67890\n1", b"1234\n" * 3]


@pytest.mark.parametrize("size", [2, 5, 1 << 17])
def test_blocks_are_counted_and_listed_line_by_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Also where the buffer still holds the rest of a longer block, and after a line longer than a block."""
    monkeypatch.setattr(parts, "BLOCK_BYTES", size)
    path = tmp_path / "a.jsonl"
    for text in TEXTS:
        path.write_bytes(text)
        part, seen = Part(file=0, path=path, start=0, stop=len(text)), []
        for offset, block, listed, count in views_of(part):
            assert offset == sum(len(block) + 1 for _, block in seen)
            assert bytes(listed) == b"[" + bytes(block).replace(b"\n", b",\n") + b"]"
            assert count == bytes(block).count(b"\n") + 1
            seen.append((offset, bytes(block)))
        assert b"\n".join(block for _, block in seen) == text.removesuffix(b"\n")
        assert list(blocks_of(part)) == seen


def test_a_block_has_no_more_lines_than_places_can_be_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A buffer made for a long line would hold any number of short ones after it."""
    monkeypatch.setattr(parts, "BLOCK_BYTES", 64)
    path = tmp_path / "a.jsonl"
    text = b"x" * 100_000 + b"\n" + b"y\n" * 20_000
    path.write_bytes(text)
    counts = [count for *_, count in views_of(Part(file=0, path=path, start=0, stop=len(text)))]
    assert sum(counts) == 20_001
    assert max(counts) <= 64 and parts.BLOCK_BYTES < 1 << LINE_BITS


@pytest.mark.parametrize("first_ok", [0, 3, 100])
def test_names_and_spaces_stand_as_in_the_log_whichever_process_read_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_ok: int) -> None:
    """Of targets that differ in name alone the first gives the name; recorded spaces keep their order."""
    monkeypatch.setattr(parts.os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(parts, "_PART_BYTES", 2_000)
    times, workload = Measurement(protocol="graph/1", median_us=1.0, min_us=1.0, max_us=1.0), Workload(operator="m", dims={"M": 16}, dtypes={})
    lines: list[Line] = []
    for number in range(200):
        target = replace(named_target("sm_90"), name=f"name {number}")
        if number < first_ok:
            lines.append(Record(session="s", trial=number, workload=workload, target=target, config={}, status=Status.CRASH, message="no"))
        else:
            lines.append(Record(session="s", trial=number, workload=workload, target=target, config={}, status=Status.OK, measurement=times))
        lines.append(RecordedSpace(session="s", operator=f"m{number}", knobs=[]))
    path = tmp_path / "a.jsonl"
    TuningLog(path).extend(lines, sync=False)
    assert len(parts_of([path], 2)) > 20
    assert stats_of_files([path]) == sum_up(tuple(lines))


def test_the_first_of_equal_records_is_looked_up_whichever_process_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts.os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(parts, "_PART_BYTES", 2_000)
    target, workload = named_target("sm_90"), Workload(operator="m", dims={"M": 16}, dtypes={})
    times = [Measurement(protocol="graph/1", median_us=us, min_us=us, max_us=us) for us in (3.0, 2.0)]
    lines = [
        Record(session="s", trial=number, workload=workload, target=target, config={"n": number}, status=Status.OK, measurement=times[number > 50])
        for number in range(200)
    ]
    path = tmp_path / "a.jsonl"
    TuningLog(path).extend(lines, sync=False)

    def inspect(number: int, record: Record) -> Any:
        yield Finding(number=number, rule="reached", severity="note", message=str(record.trial))

    contents = TuningLog(path).read()
    found = lint_file(path, floor_us=lambda workload, target: None, templates={}, inspect=inspect)
    assert found == (200, lint(contents, inspect=inspect))
    assert [finding.message for finding in found[1] if finding.rule == "reached"] == ["51"]


def test_a_slow_part_does_not_keep_others_waiting() -> None:
    def fold(part: int) -> int:
        time.sleep(0.4 if part == 0 else 0.01)
        return os.getpid()

    slow, *others = fold_parts(list(range(8)), fold, 2)
    assert sum(pid != slow for pid in others) >= 6


@pytest.mark.parametrize("error", [LogError("gone"), OSError("no disk")])
def test_what_a_fold_raises_is_raised_whichever_process_it_was_in(error: Exception) -> None:
    def fold(part: int) -> int:
        if part == 5:
            raise error
        return part

    with pytest.raises((LogError, OSError, HostError), match=str(error)):
        fold_parts(list(range(6)), fold, 3)


def test_a_process_that_died_is_told() -> None:
    parent = os.getpid()

    def fold(part: int) -> int:
        if os.getpid() != parent:
            os._exit(7)
        time.sleep(0.1)
        return part

    with pytest.raises(HostError, match="ended with status"):
        fold_parts(list(range(4)), fold, 2)


def test_large_files_are_cut_into_more_parts_than_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(b"%d\n" % number for number in range(1000)))
    assert len(parts_of([path], 2)) == 2
    monkeypatch.setattr(parts, "_PART_BYTES", 500)
    cut = parts_of([path], 2)
    assert len(cut) == 6  # 3,890 bytes: 3 parts of 500 for each process, and no more
    text = path.read_bytes()
    assert b"".join(text[part.start : part.stop] for part in cut) == text
    assert all(text[part.stop - 1 : part.stop] == b"\n" for part in cut)


@pytest.mark.parametrize(
    "config",
    [
        b'{"tile":32,"low":1.5}',
        b'{"tile":32,"low":1.5e9}',
        b'{"tile":32,"low":1.5e999}',
        b'{"tile":32,"low":"\\ud83d\\ude00"}',
        b'{"tile":32,"low":"\\ud83d\\ud83d"}',
        b'{"tile":32,"low":[1,"2"]}',
        b'{"tile":32,"low":[1,2.5]}',
        b'{"tile":32,"low":[9,{}]}',
        b'{"tile":32,"low":' + b"9" * 400 + b".0}",
        b'{"tile":32,"low":null}',
    ],
    ids=lambda config: config[17:40].decode(),
)
def test_a_config_is_as_legible_as_when_read_by_itself(tmp_path: Path, config: bytes) -> None:
    """Texts that differ in digits alone are read once, but where a digit decides."""
    shared: dict[str, Any] = {"session": "s", "workload": Workload(operator="m", dims={"M": 16}, dtypes={})}
    target = named_target("sm_90")
    lines = [
        encode_line(
            SessionStart(session="s", started_at="", tilewright="0", operator="m", workloads=[shared["workload"]], target=target, toolchain=Toolchain())
        )
    ]
    times = Measurement(protocol="graph/1", median_us=1.0, min_us=1.0, max_us=1.0)
    # Before the config, and after it, one of the same digits' places that can be read.
    legible = [b'{"tile":16,"low":1.1}', b'{"tile":16,"low":1.5e100}', b'{"tile":16,"low":"\\ud83d\\ude01"}', b'{"tile":16,"low":' + b"1" * 400 + b"}"]
    for trial, text in enumerate([*legible, config, *legible]):
        start = encode_line(TrialStart(config={"tile": 1}, **shared))
        record = encode_line(Record(trial=trial, target=target, config={"tile": 1}, status=Status.OK, measurement=times, **shared))
        lines += [line.replace(b'{"tile":1}', text) for line in (start, record)]
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(lines))
    contents = TuningLog(path).read()
    assert lint_file(path, floor_us=lambda workload, target: None, templates={}) == (len(contents.lines), lint(contents))


FULL = (
    b'"measurement":{"protocol":"graph/1","median_us":2.0,"min_us":1.5,"max_us":2.5,"cv":0.25,"samples":2,"times_us":[1.5,2.5],'
    b'"anchor":{"kind":"memory","median_us":91.5,"nominal_us":99.25,"samples":4},'
    b'"state":{"sm_mhz":1980,"memory_mhz":3201,"power_w":154.5,"temperature_c":49,"throttle":["sw_power_cap"]}},'
    b'"check":{"rel_norm":0.125,"max_error":0.25,"rel_norm_allowed":0.5,"max_error_allowed":1.0,"ragged":"m:M=16"},'
    b'"resources":{"shared_memory_bytes":98304,"registers":168,"spill_bytes":0,"stack_bytes":0,"num_warps":8},"build_s":0.5'
)
PARTS = [
    (b'"median_us":', b"2.0"), (b'"min_us":', b"1.5"), (b'"max_us":', b"2.5"), (b'"cv":', b"0.25"), (b'"samples":', b"2"), (b'"times_us":[', b"1.5"),
    (b'"times_us":', b"[1.5,2.5]"), (b'"kind":', b'"memory"'), (b'"median_us":', b"91.5"), (b'"nominal_us":', b"99.25"), (b'"samples":', b"4"),
    (b'"sm_mhz":', b"1980"), (b'"memory_mhz":', b"3201"), (b'"power_w":', b"154.5"), (b'"temperature_c":', b"49"), (b'"throttle":', b'["sw_power_cap"]'),
    (b'"throttle":[', b'"sw_power_cap"'), (b'"rel_norm":', b"0.125"), (b'"ragged":', b'"m:M=16"'), (b'"shared_memory_bytes":', b"98304"),
    (b'"registers":', b"168"), (b'"spill_bytes":', b"0"), (b'"build_s":', b"0.5"), (b'"protocol":', b'"graph/1"'),
]  # fmt: skip
ODD = [
    b"true",
    b"null",
    b'"1"',
    b"-0",
    b"-1",
    b"0",
    b"1.0",
    b"1.25",
    b"1e1",
    b"1e999",
    b"01",
    b"NaN",
    b"9" * 30,
    b"9" * 400,
    b"[]",
    b"[null]",
    b'["\\ud83d"]',
    b"{}",
]


@pytest.mark.parametrize(("key", "value"), PARTS, ids=lambda text: text.decode())
def test_each_field_is_as_legible_as_when_read_by_itself(tmp_path: Path, key: bytes, value: bytes) -> None:
    """Whatever stands for a value, next to records in which it is right."""
    workload, target = Workload(operator="m", dims={"M": 16}, dtypes={}), named_target("sm_90")
    right = encode_line(
        Record(session="s", trial=0, workload=workload, target=target, config={}, status=Status.OK, measurement=Measurement(
            protocol="graph/1", median_us=1.0, min_us=1.0, max_us=1.0))
    )  # fmt: skip
    full = right[: right.index(b'"measurement"')] + FULL + b"}\n"
    assert full.count(key + value) == 1
    lines = [full]
    for odd in ODD:
        lines += [full.replace(key + value, key + odd), full]
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(line.replace(b'"trial":0', b'"trial":%d' % trial) for trial, line in enumerate(lines)))
    contents = TuningLog(path).read()
    assert len(contents.damage) > 5 and len(contents.lines) > len(ODD)
    assert lint_file(path, floor_us=lambda workload, target: None, templates={}) == (len(contents.lines), lint(contents))


@pytest.mark.parametrize("trials", [[], [0], [3, 4, 5], [0, 2, 4], [5, 4, 3], [0, 2, 1, 3], [1 << 61]])
@pytest.mark.parametrize("numbers", [[], [7], [7, 9, 1 << 33]])
def test_runs_come_out_as_they_were_sent(trials: list[int], numbers: list[int]) -> None:
    columns = msgspec.msgpack.decode(msgspec.msgpack.encode(run_columns(trials, numbers, numbers)))
    assert [list(column) for column in run_of(columns, 10)] == [trials, [number + 10 for number in numbers], [number + 10 for number in numbers]]
    assert isinstance(run_of(columns, 0)[0], range) == (trials in ([0], [3, 4, 5], [1 << 61]))


def test_records_that_a_look_up_reaches_are_inspected_by_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts.os, "sched_getaffinity", lambda pid: {0, 1})
    target, times = named_target("sm_90"), Measurement(protocol="graph/1", median_us=1.0, min_us=1.0, max_us=1.0)
    workloads = [Workload(operator="mn"[number % 2], dims={"M": number + 1}, dtypes={}) for number in range(9)]
    records = [
        Record(session="s", trial=trial, workload=workload, target=target, config={}, status=Status.OK, measurement=times)
        for trial, workload in enumerate(workloads)
    ]
    path = tmp_path / "a.jsonl"
    TuningLog(path).extend(records, sync=False)

    def inspect(number: int, record: Record) -> Any:
        if record.workload.dims["M"] % 3 == 0:
            yield Finding(number=number, rule="illegal", severity="fault", message=record.workload.key)

    contents = TuningLog(path).read()
    found = lint_file(path, floor_us=lambda workload, target: None, templates={}, inspect=inspect)
    assert found == (9, lint(contents, inspect=inspect))
    assert sum(finding.rule == "illegal" for finding in found[1]) == 3
