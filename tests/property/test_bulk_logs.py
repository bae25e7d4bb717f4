"""Large logs are read in parts by several processes, and give the answers that reading them whole gives, damage or not."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tilewright.best import best_entries, best_text, vendor_times, with_vendors
from tilewright.bulk import parts
from tilewright.bulk.best import best_of_files
from tilewright.bulk.lint import lint_file
from tilewright.bulk.merge import merge_files
from tilewright.bulk.stats import failure_kind, stats_of_files
from tilewright.codec import encode_line
from tilewright.commands.log_stats import sum_up
from tilewright.errors import LogError, SchemaTooNew, UsageError
from tilewright.finding import Finding
from tilewright.lint import lint
from tilewright.log import TuningLog
from tilewright.record import Anchor, Line, Measurement, Racer, RaceRecord, Record, SessionEnd, SessionStart, Status, TrialStart, VendorRecord
from tilewright.target import Target, Toolchain, named_target
from tilewright.workload import Workload

STATUSES = [*[Status.OK] * 8, Status.WRONG_RESULT, Status.COMPILE_ERROR, Status.CUT, Status.CRASH]


def times(us: float, rng: random.Random) -> Measurement:
    anchor = Anchor(kind="memory", median_us=rng.choice([1.0, 1.1]), nominal_us=1.0) if rng.random() < 0.3 else None
    protocol = rng.choice(["graph/1", "graph/3"])
    known = {"anchored_us": rng.choice([us, us - 0.25]), "latency": Anchor(kind="latency", median_us=3.1, nominal_us=3.0), "kernels": 1.0}
    return Measurement(
        protocol=protocol, median_us=us, min_us=us / 2, max_us=us * 2, samples=2, times_us=[us / 2, us * 2], anchor=anchor,
        **known if protocol == "graph/3" else {},
    )  # fmt: skip


def make_race(rng: random.Random, shared: dict[str, Any]) -> RaceRecord:
    """A race of two or three of a few schedules; one of them may be found wrong, and the winner may be one that is found wrong elsewhere."""
    racers = [
        Racer(config={"tile": tile}, source=source, median_us=1.0, ratio=1.0)
        for tile, source in rng.sample([(tile, source) for tile in (16, 32, 64) for source in "ab"], rng.randrange(2, 4))
    ]
    if rng.random() < 0.2:
        status = rng.choice([Status.WRONG_RESULT, Status.OUT_OF_BOUNDS])
        racers[-1] = Racer(config=racers[-1].config, source=racers[-1].source, status=status, message="no")
    return RaceRecord(protocol="graph/1", racers=racers, winner=rng.choice([0, 0, 1, None]), rounds=3, **shared)


def make_lines(rng: random.Random, sessions: int = 6) -> list[list[Line]]:
    """Sessions with few values of everything, so that ties, verdicts and races meet."""
    made: list[list[Line]] = []
    for index in range(sessions):
        name = f"s{index}"
        workload = Workload(operator="m", dims={"M": rng.choice([16, 128])}, dtypes={})
        target: Target = named_target(rng.choice(["sm_90", "sm_80"]))
        shared: dict[str, Any] = {"session": name, "workload": workload, "target": target}
        lines: list[Line] = [
            SessionStart(
                session=name,
                started_at=f"2026-11-29T10:00:{index:02d}",
                tilewright="0",
                operator="m",
                workloads=[workload],
                target=target,
                toolchain=Toolchain(),
            )
        ]
        lines.append(VendorRecord(name="v", status=Status.OK, measurement=times(rng.choice([1.0, 3.0]), rng), **shared))
        trials = rng.randrange(12)
        for trial in range(trials):
            status, config = rng.choice(STATUSES), {"tile": rng.choice([16, 32, 64])}
            timed = status in (Status.OK, Status.CUT) or rng.random() < 0.1
            lines.append(TrialStart(session=name, workload=workload, config=config))
            lines.append(
                Record(
                    trial=trial if rng.random() < 0.9 else 0, config=config, status=status, message="" if status is Status.OK else f"no\nmore {trial}",
                    template=rng.choice(["old", "new"]), source=rng.choice("ab"), measurement=times(rng.choice([0.5, 2.0, 3.0, 4.0]), rng) if timed else None,
                    toolchain=Toolchain(triton="3.6.0"), **shared,
                )
            )  # fmt: skip
        while rng.random() < 0.4:
            lines.append(make_race(rng, shared))
        if rng.random() < 0.8:
            lines.append(SessionEnd(session=name, ended_at="", reason="budget", trials=trials if rng.random() < 0.8 else 99))
        made.append(lines)
    return made


def spoiled(raw: bytes, rng: random.Random) -> bytes:
    """A line with a fault that files do come by."""
    place = rng.randrange(len(raw))
    return rng.choice(
        [
            raw[:place],
            raw[:place] + b"\n" + raw[place:],
            raw[:place] + bytes([rng.randrange(256)]) + raw[place + 1 :],
            raw.replace(b'"status":"ok"', b'"status":"fine"'),
            raw.replace(b'"build_s":', b'"build_s":-'),
            raw.replace(b'"median_us":', b'"median_us":-'),
            raw.replace(b'"nominal_us":', b'"nominal_us":-'),
            raw.replace(b'"trial":1', b'"trial":1' + b"0" * rng.choice([1, 30])),
            raw.replace(b'"M":16', b'"M":"16"'),
            raw.replace(b'"arch":"sm_90"', b'"arch":90'),
            b" " + raw,
            b"\n\n" + raw,
            raw + b" \n   ",
            raw + b"\n" + raw,
            *odd(raw),
        ]
    )


def odd(raw: bytes) -> list[bytes]:
    """A line as other writers than Tilewright might put it: some say the same, some do not."""
    fields = json.loads(raw)
    return [
        json.dumps(fields).encode(),  # spaces, and everything beyond ASCII escaped
        json.dumps(dict(reversed(fields.items())), separators=(",", ":")).encode(),
        raw.replace(b'"schema":1', b'"schema":1,"unknown":{"a":[1,{}]}'),
        raw.replace(b'"session":"s', b'"session":"\\u0073'),
        raw.replace(b'"tile":', b'"t\\u0069le":'),
        raw.replace(b'"status":"ok"', b'"status":"cut","status":"ok"'),
        raw.replace(b'"status":"ok"', b'"status":"ok","message":"cut","status":"cut"'),
        raw.replace(b'"workload":', b'"workload":{"operator":"m","dims":{"M":1},"dtypes":{}},"workload":'),
        raw.replace(b'"median_us":', b'"median_us":1,"median_us":'),
        raw.replace(b'"median_us":2.0', b'"median_us":20e-1'),
    ]


def write(path: Path, rng: random.Random, *, faults: float) -> None:
    raws = [encode_line(line).rstrip(b"\n") for session in make_lines(rng) for line in session]
    text = b"\n".join(spoiled(raw, rng) if rng.random() < faults else raw for raw in raws)
    path.write_bytes(text + b"\n" * rng.randrange(2))


def inspect(number: int, record: Record) -> Iterator[Finding]:
    """Says which record a look-up reaches, and by which time."""
    assert record.measurement is not None
    yield Finding(number=number, rule="reached", severity="note", message=f"{record.trial} at {record.measurement.ranked_us}")


@pytest.fixture(params=[(300, 1, 1 << 24), (2_000, 3, 1_000), (1 << 18, 2, 3_000), (1 << 18, 2, 1 << 24)], ids=["tiny", "small", "parts", "whole"])
def split(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks, processes and parts of several sizes, so that every seam is met."""
    size, count, part = request.param
    monkeypatch.setattr(parts, "BLOCK_BYTES", size)
    monkeypatch.setattr(parts, "_PART_BYTES", part)
    monkeypatch.setattr(parts.os, "sched_getaffinity", lambda pid: set(range(count)))


@pytest.mark.usefixtures("split")
@pytest.mark.parametrize("faults", [0.0, 0.15])
def test_parts_give_what_the_whole_gives(tmp_path: Path, faults: float) -> None:
    for seed in range(10):
        rng = random.Random(seed)
        path = tmp_path / f"{seed}.jsonl"
        write(path, rng, faults=faults)
        try:
            contents = TuningLog(path).read()
        except SchemaTooNew as error:
            with pytest.raises(SchemaTooNew, match=str(error).partition(": schema")[0].partition(", line")[2]):
                lint_file(path, floor_us=lambda workload, target: 1.0, templates={})
            continue
        options: dict[str, Any] = {"floor_us": lambda workload, target: 1.0, "templates": {"m": frozenset({"new"})}}
        assert lint_file(path, **options, inspect=inspect) == (len(contents.lines), lint(contents, **options, inspect=inspect)), f"seed {seed}"
        whole = with_vendors(best_entries(contents.lines), vendor_times(line for line in contents.lines if isinstance(line, VendorRecord)))
        assert best_text(best_of_files([path])) == best_text(whole), f"seed {seed}"
        said: tuple[list[str], list[str]] = ([], [])
        vendors = vendor_times(line for line in contents.lines if isinstance(line, VendorRecord))
        whole = with_vendors(best_entries(contents.lines, options["templates"], said[0].append), vendors)
        assert best_text(best_of_files([path], said[1].append, options["templates"])) == best_text(whole), f"seed {seed}"
        assert contents.damage or said[0] == said[1], f"seed {seed}"
        if not contents.damage:
            assert stats_of_files([path]) == sum_up(contents.lines), f"seed {seed}"


def make_chain(rng: random.Random) -> list[Line]:
    """Races of one workload in which one winner beat the next, of which the first is mostly found wrong, in a race or in a record."""
    shared: dict[str, Any] = {"workload": Workload(operator="m", dims={"M": 16}, dtypes={}), "target": named_target("sm_90")}
    order = rng.sample([(tile, source) for tile in (16, 32, 64) for source in "ab"], 6)
    lines: list[Line] = []
    for trial, ((tile, source), us) in enumerate(zip(order, rng.sample([1.0, 2.0, 3.0, 4.0, 4.0, 5.0], 6), strict=True)):
        lines.append(
            Record(session="s", trial=trial, config={"tile": tile}, source=source, status=Status.OK, template=rng.choice(["old", *["new"] * 4]),
                   measurement=Measurement(protocol="graph/1", median_us=us, min_us=us, max_us=us), **shared)
        )  # fmt: skip
    for place in range(rng.randrange(1, 4)):
        beaten = [order[place + 1], *rng.sample(order[place + 2 :], rng.randrange(2))]
        racers = [Racer(config={"tile": tile}, source=source, median_us=1.0, ratio=1.0) for tile, source in (order[place], *beaten)]
        lines.append(RaceRecord(session=f"s{place}", protocol="graph/1", racers=racers, winner=0, rounds=3, **shared))
    if rng.random() < 0.3:
        lines.append(make_race(rng, {"session": "random", **shared}))
    if rng.random() < 0.8:
        (tile, source), status = order[0], rng.choice([Status.WRONG_RESULT, Status.OUT_OF_BOUNDS])
        if rng.random() < 0.5:
            lines.append(Record(session="s", trial=9, config={"tile": tile}, source=source, status=status, message="no", **shared))
        else:
            wrong = Racer(config={"tile": tile}, source=source, status=status, message="no")
            lines.append(RaceRecord(session="verdict", protocol="graph/1", racers=[wrong], **shared))
    rng.shuffle(lines)
    return lines


@pytest.mark.usefixtures("split")
def test_what_was_found_wrong_puts_out_no_other_winner(tmp_path: Path) -> None:
    for seed in range(15):
        lines = make_chain(random.Random(seed))
        path = tmp_path / f"{seed}.jsonl"
        TuningLog(path).extend(lines, sync=False)
        for templates in ({}, {"m": frozenset({"new"})}):
            assert best_text(best_of_files([path], templates=templates)) == best_text(best_entries(lines, templates)), f"seed {seed}"


@pytest.mark.usefixtures("split")
def test_merged_logs_do_not_depend_on_the_order_of_files(tmp_path: Path) -> None:
    sessions = make_lines(random.Random(1), 8)
    a, b, c = (tmp_path / f"{name}.jsonl" for name in "abc")
    for path, chosen in ((a, sessions[:4]), (b, sessions[3:]), (c, [sessions[0][:2], sessions[5]])):
        TuningLog(path).extend([line for session in chosen for line in session], sync=False)
    c.write_bytes(c.read_bytes() + b'{"kind":"trial","sch')  # torn
    first = merge_files([a, b, c], tmp_path / "abc.out")
    merge_files([c, a, b], tmp_path / "cab.out")
    assert (tmp_path / "abc.out").read_bytes() == (tmp_path / "cab.out").read_bytes()
    lines = TuningLog(tmp_path / "abc.out").read()
    assert list(lines.lines) == [line for session in sessions for line in session]
    assert not lines.damage
    assert (first.sessions, first.lines, first.damaged) == (8, sum(map(len, sessions)), 1)
    assert first.repeated == len(sessions[3]) + 2 + len(sessions[5])


def test_merging_never_overwrites(tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    TuningLog(log).extend(make_lines(random.Random(1), 1)[0], sync=False)
    with pytest.raises(UsageError, match="never rewritten"):
        merge_files([log], log)
    with pytest.raises(LogError, match="no log"):
        merge_files([tmp_path / "none.jsonl"], tmp_path / "out.jsonl")


def test_a_session_that_differs_between_files_keeps_all_its_lines(tmp_path: Path) -> None:
    (lines,) = make_lines(random.Random(4), 1)
    a, b = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    TuningLog(a).extend(lines, sync=False)
    TuningLog(b).extend(
        [*lines[:-1], VendorRecord(session="s0", name="other", workload=lines[1].workload, target=lines[1].target, status=Status.CRASH, message="x")],
        sync=False,
    )  # type: ignore[union-attr]
    notes: list[str] = []
    merged = merge_files([a, b], tmp_path / "out.jsonl", notes.append)
    assert merged.lines == len(lines) + 1
    assert notes and "stand in one file and not in another" in notes[0]


@pytest.mark.usefixtures("split")
def test_a_race_or_vendor_of_no_legible_workload_is_damage(tmp_path: Path) -> None:
    shared: dict[str, Any] = {"session": "s0", "workload": Workload(operator="m", dims={"M": 16}, dtypes={}), "target": named_target("sm_90")}
    race = RaceRecord(protocol="graph/1", racers=[Racer(source="a", median_us=1.0)], winner=0, **shared)
    vendor = VendorRecord(name="v", status=Status.OK, measurement=times(1.0, random.Random(0)), **shared)
    log = tmp_path / "a.jsonl"
    log.write_bytes(b"".join(encode_line(line).replace(b'"M":16', b'"M":0') for line in (race, vendor)))
    contents = TuningLog(log).read()
    assert len(contents.damage) == 2
    assert lint_file(log, floor_us=lambda workload, target: None, templates={}) == (0, lint(contents))
    notes: list[str] = []
    assert best_of_files([log], notes.append) == ()
    assert "skipped 2 damaged" in notes[0]


@pytest.mark.usefixtures("split")
def test_a_failure_of_no_legible_workload_or_target_is_damage(tmp_path: Path) -> None:
    shared: dict[str, Any] = {"session": "s0", "workload": Workload(operator="m", dims={"M": 16}, dtypes={}), "target": named_target("sm_90")}
    raws = [encode_line(Record(trial=trial, config={}, status=Status.CRASH, message="no", **shared)) for trial in range(3)]
    log = tmp_path / "a.jsonl"
    log.write_bytes(raws[0] + raws[1].replace(b'"M":16', b'"M":0') + raws[2].replace(b'"arch":"sm_90"', b'"arch":90'))
    contents = TuningLog(log).read()
    assert len(contents.damage) == 2
    notes: list[str] = []
    assert stats_of_files([log], notes.append) == sum_up(contents.lines)
    assert "skipped 2 damaged" in notes[0]


def test_failures_that_differ_in_numbers_only_are_counted_together() -> None:
    first, second = "cut after 1 samples: 83.9 µs is over 3 times 16.0 µs\nmore", "cut after 2 samples: 540.6 µs is over 3 times 69 µs"
    assert failure_kind(first) == failure_kind(second) == "cut after # samples: # µs is over # times # µs"
    assert failure_kind("2048 bytes, sm_90 has v1.5") == "# bytes, sm_90 has v1.5"
    assert failure_kind(" \n") == "(no message)"
