"""The best file: what is chosen, what is never compared, and what a broken file says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tilewright.best import BEST_SCHEMA, VendorTime, best_entries, best_of, best_text, entry_text, merge, parse_best, protocol_rank, rank
from tilewright.bulk.best import best_of_files
from tilewright.codec import encode_lines
from tilewright.errors import LogDamaged, LogError, SchemaTooNew
from tilewright.log import TuningLog
from tilewright.record import Measurement, Record, Resources, Status
from tilewright.target import Toolchain, named_target
from tilewright.workload import Workload

TARGET = named_target("sm_90")
WORKLOAD = Workload(operator="matmul", dims={"M": 16, "N": 32}, dtypes={"dtype": "float16"})


def record(median_us: float = 10.0, protocol: str = "graph/1", **changes: Any) -> Record:
    fields: dict[str, Any] = {
        "session": "s",
        "trial": 0,
        "workload": WORKLOAD,
        "target": TARGET,
        "toolchain": Toolchain(triton="3.6.0", driver="580.95.05", torch="2.11.0"),
        "config": {"tile": 64},
        "status": Status.OK,
        "source": "s" * 64,
        "template": "t" * 64,
        "measurement": Measurement(protocol=protocol, median_us=median_us, min_us=median_us, max_us=median_us),
        "resources": Resources(shared_memory_bytes=1024),
    }
    return Record(**{**fields, **changes})


def test_the_fastest_correct_record_is_chosen_for_each_key() -> None:
    other = Workload(operator="matmul", dims={"M": 128, "N": 32}, dtypes={"dtype": "float16"})
    records = [
        record(12.0, config={"tile": 16}),
        record(10.0, config={"tile": 64}),
        record(1.0, config={"tile": 32}, status=Status.WRONG_RESULT),
        record(2.0, config={"tile": 128}, status=Status.CUT),
        record(30.0, config={"tile": 8}, workload=other),
        record(5.0, config={"tile": 4}, target=named_target("sm_80")),
    ]
    chosen = best_of(records)
    assert {key[0] for key in chosen} == {WORKLOAD.key, other.key}
    assert chosen[WORKLOAD.key, TARGET.key, "graph/1"].config == {"tile": 64}
    assert len(chosen) == 3
    assert best_of([record(status=Status.CRASH, measurement=None)]) == {}


def test_protocols_are_never_compared() -> None:
    records = [record(10.0, "graph/1", config={"tile": 64}), record(9.0, "events/1", config={"tile": 16}), record(1.0, "interpreter/1", config={"tile": 8})]
    assert {key[2]: chosen.config for key, chosen in best_of(records).items()} == {
        "graph/1": {"tile": 64},
        "events/1": {"tile": 16},
        "interpreter/1": {"tile": 8},
    }
    (entry,) = best_entries(records)
    assert (entry.config, entry.pins.protocol) == ({"tile": 64}, "graph/1")


def test_protocols_are_believed_in_a_stated_order() -> None:
    order = sorted(["interpreter/1", "events/1", "recorded-events/1", "graph/1", "graph/2", "graph/10", "bare"], key=protocol_rank)
    assert order == ["graph/10", "graph/2", "graph/1", "bare", "recorded-events/1", "events/1", "interpreter/1"]


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (Resources(shared_memory_bytes=9000), Resources(shared_memory_bytes=0, scratch_bytes=1)),
        (Resources(shared_memory_bytes=9000), Resources(shared_memory_bytes=0, spill_bytes=4)),
        (Resources(shared_memory_bytes=1000), Resources(shared_memory_bytes=1001)),
    ],
)
def test_ties_go_to_the_schedule_that_needs_least(better: Resources, worse: Resources) -> None:
    # The config's text alone would choose the other way.
    good, bad = record(resources=better, config={"tile": 9}), record(resources=worse, config={"tile": 1})
    for records in ([good, bad], [bad, good]):
        (entry,) = best_entries(records)
        assert entry.config == {"tile": 9}
    assert rank(good) < rank(bad)


def test_a_schedule_seen_wrong_once_is_not_chosen_until_its_code_changes() -> None:
    wrong = record(9.0, status=Status.WRONG_RESULT, measurement=None, message="rel_norm 0.4 above 0.01")
    assert best_entries([record(9.0), wrong, record(10.0, config={"tile": 16})])[0].config == {"tile": 16}
    assert best_entries([wrong, record(9.0)]) == ()
    mended = record(9.0, source="m" * 64)
    assert best_entries([wrong, mended])[0].pins.source == "m" * 64
    assert best_entries([msgspec.structs.replace(wrong, status=Status.CRASH), record(9.0)]) != ()


def test_an_entry_has_pins_and_neither_time_stamps_nor_sessions() -> None:
    (entry,) = best_entries([record()])
    assert msgspec.to_builtins(entry.pins) == {"protocol": "graph/1", "source": "s" * 64, "template": "t" * 64, "triton": "3.6", "driver": "580"}
    assert "session" not in entry_text(entry)
    assert entry.median_us == 10.0
    assert entry_text(entry).index('"config"') < entry_text(entry).index('"kind"') < entry_text(entry).index('"workload"')


def test_a_best_file_reads_back_and_is_in_order_of_extents() -> None:
    sizes = [Workload(operator="matmul", dims={"M": m}, dtypes={}) for m in (1024, 16, 128)]
    entries = best_entries(record(workload=workload) for workload in sizes)
    assert [entry.workload.dims["M"] for entry in entries] == [16, 128, 1024]
    assert parse_best(best_text(entries)) == entries
    assert best_text(()) == ""
    assert parse_best("") == ()


def test_merging_keeps_the_better_and_lists_conflicts() -> None:
    ours, theirs = best_entries([record(10.0)]), best_entries([record(9.0, config={"tile": 16})])
    merged = merge([*ours, *theirs])
    assert merged.entries == theirs
    assert merged.conflicts == ((theirs[0], ours[0]),)
    assert merge([*ours, *ours]).conflicts == ()
    slower_again = best_entries([record(11.0)])
    assert merge([*ours, *slower_again]) == merge(ours)  # the same schedule measured twice is no conflict


def test_a_label_alone_makes_no_second_target() -> None:
    labels = [record(target=replace(TARGET, name=name)) for name in ("b", "a")]
    (entry,) = best_entries(labels)
    assert entry.target.name == "a"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("garbage", "line 2: not an entry"),
        ("<<<<<<< HEAD", "line 2: a merge conflict"),
        ('{"kind":"best"}', "line 2: not an entry"),
        ('{"kind":"best","schema":1,"config":{}}', "line 2: not an entry"),
    ],
)
def test_a_best_file_is_read_whole_or_not_at_all(damage: str, said: str) -> None:
    with pytest.raises(LogDamaged, match=said):
        parse_best(best_text(best_entries([record()])) + damage + "\n")


def test_one_workload_twice_in_a_best_file_is_an_error() -> None:
    text = best_text(best_entries([record()]))
    with pytest.raises(LogDamaged, match=r"b\.jsonl, line 2: matmul:.* stands in line 1 too"):
        parse_best(text + text, "b.jsonl")


def test_a_newer_best_file_says_what_to_do() -> None:
    with pytest.raises(SchemaTooNew, match=f"schema {BEST_SCHEMA + 1}, .* up to schema {BEST_SCHEMA}: upgrade"):
        parse_best(f'{{"kind":"best","schema":{BEST_SCHEMA + 1},"new":1}}')


def test_a_failure_has_no_rank() -> None:
    with pytest.raises(ValueError, match="crash"):
        rank(record(status=Status.CRASH, measurement=None))


@pytest.mark.parametrize("us", [0.0, -5090.0])
def test_times_that_cannot_be_are_no_ones_best(tmp_path: Path, us: float) -> None:
    (entry,) = best_entries([record(7.0)])
    for spoiled in (
        msgspec.structs.replace(entry, median_us=us),
        msgspec.structs.replace(entry, vendor=VendorTime(name="v", median_us=us)),
    ):
        with pytest.raises(LogDamaged, match=f"best.jsonl, line 2: median_us is {us:g}, and a time is above 0"):
            parse_best("\n" + best_text([spoiled]), "best.jsonl")
    path, written = tmp_path / "log.jsonl", encode_lines([record(7.0), record(8.0, config={"tile": 16})])
    path.write_bytes(written.replace(b'"median_us":8.0', b'"median_us":%g' % us))
    contents = TuningLog(path).read()
    assert [damage.number for damage in contents.damage] == [2]
    assert "median_us" in contents.damage[0].reason
    assert best_entries(contents.lines) == best_of_files([path]) == (entry,)
    with pytest.raises(LogError, match="median_us"):
        encode_lines([record(us)])
