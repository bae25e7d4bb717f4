"""A log cut anywhere loses the cut line and nothing else."""

from __future__ import annotations

import gzip
import math
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.codec import decode_line, encode_line, encode_lines
from tilewright.log import TuningLog
from tilewright.record import Check, Line, Measurement, Record, Resources, SessionEnd, SessionStart, Status, TrialStart, VendorRecord
from tilewright.target import Toolchain, named_target
from tilewright.workload import Workload

TARGET = named_target("sm_90")

names = st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True)
# Logs are UTF-8; text without such a form is another test's.
texts = st.text(st.characters(codec="utf-8"), max_size=20)
floats = st.floats(allow_nan=False, allow_infinity=False)
times = st.floats(min_value=0, exclude_min=True, max_value=1e9)
integers = st.integers(min_value=-(2**53), max_value=2**53)
values = st.one_of(st.booleans(), integers, floats, texts, st.lists(st.one_of(integers, texts), max_size=3))
configs = st.dictionaries(names, values, max_size=4)
workloads = st.builds(
    lambda operator, dims: Workload(operator=operator, dims=dims, dtypes={"dtype": "float16"}),
    names,
    st.dictionaries(st.sampled_from(["M", "N", "K"]), st.integers(min_value=1, max_value=2**40), max_size=3),
)
measurements = st.builds(Measurement, protocol=texts, median_us=times, min_us=times, max_us=times, times_us=st.lists(times, max_size=3))
counts = st.integers(0, 2**63 - 1)
resources = st.builds(Resources, shared_memory_bytes=counts, registers=st.none() | counts)
lines: st.SearchStrategy[Line] = st.one_of(
    st.builds(
        Record,
        session=texts,
        trial=integers,
        workload=workloads,
        target=st.just(TARGET),
        config=configs,
        status=st.sampled_from(Status),
        message=texts,
        measurement=st.none() | measurements,
        check=st.none() | st.builds(Check, rel_norm=floats, max_error=floats, rel_norm_allowed=floats, max_error_allowed=floats),
        resources=st.none() | resources,
        build_s=floats,
        default=st.booleans(),
    ),
    st.builds(VendorRecord, name=texts, workload=workloads, target=st.just(TARGET), status=st.sampled_from(Status), measurement=st.none() | measurements),
    st.builds(
        SessionStart,
        session=texts,
        started_at=texts,
        tilewright=texts,
        operator=names,
        workloads=st.lists(workloads, max_size=2),
        target=st.just(TARGET),
        toolchain=st.builds(Toolchain, triton=texts, driver=texts),
        options=st.dictionaries(texts, st.one_of(st.none(), st.booleans(), integers, floats, texts), max_size=3),
    ),
    st.builds(SessionEnd, session=texts, ended_at=texts, reason=texts, trials=integers, rejected=st.dictionaries(texts, integers, max_size=2), wall_s=times),
    st.builds(TrialStart, session=texts, workload=workloads, config=configs),
)


@given(lines)
@settings(deadline=None)
def test_a_line_reads_back_as_itself(line: Line) -> None:
    raw = encode_line(line)
    assert raw.count(b"\n") == 1
    assert decode_line(raw) == line
    assert encode_line(decode_line(raw)) == raw


@given(st.lists(lines, max_size=4), st.booleans())
@settings(max_examples=30, deadline=None)
def test_a_log_reads_back_as_it_was_appended(appended: list[Line], compressed: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.jsonl"
        log = TuningLog(path)
        for line in appended:
            log.append(line, sync=False)
        if compressed and appended:
            path.write_bytes(gzip.compress(path.read_bytes()))
        contents = log.read() if appended else None
        assert list(contents.lines if contents else ()) == appended
        assert not contents or contents.damage == ()


SAMPLES: list[Line] = [
    SessionStart(
        session="s",
        started_at="2026-11-29T10:00:00+00:00",
        tilewright="0.1.0",
        operator="m",
        workloads=[],
        target=TARGET,
        toolchain=Toolchain(),
        options={"search": "tpe"},
    ),
    TrialStart(session="s", workload=Workload(operator="m", dims={"M": 1}, dtypes={}), config={"tile": [4, 16], "word": "é\u2028"}),
    SessionEnd(session="s", ended_at="2026-11-29T10:00:09+00:00", reason="budget", trials=0, rejected={"too large": 3}),
]
LAST = SessionEnd(session="t", ended_at="", reason="after the cut", trials=0)


def test_a_log_cut_at_every_byte_keeps_every_whole_line_and_takes_more(tmp_path: Path) -> None:
    whole = encode_lines(SAMPLES)
    ends = [end + 1 for end in range(len(whole)) if whole[end : end + 1] == b"\n"]
    path = tmp_path / "log.jsonl"
    log = TuningLog(path)
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        # A line that lacks nothing but its newline is whole.
        kept = sum(end - 1 <= cut for end in ends)
        torn = cut not in (0, *ends, *(end - 1 for end in ends))
        before = log.read()
        assert list(before.lines) == SAMPLES[:kept], cut
        assert [damage.number for damage in before.damage] == ([kept + 1] if torn else []), cut
        log.append(LAST, sync=False)
        after = log.read()
        assert list(after.lines) == [*SAMPLES[:kept], LAST], cut
        assert after.damage == before.damage, cut
        assert path.read_bytes().startswith(whole[:cut]), cut


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_noise_in_a_log_never_stops_reading(data: st.DataObject) -> None:
    """Bytes overwritten at random: lines that were not touched are read, the rest is damage or another valid line."""
    whole = bytearray(encode_lines(SAMPLES * 2))
    touched: set[int] = set()
    for _ in range(data.draw(st.integers(min_value=1, max_value=4))):
        place = data.draw(st.integers(min_value=0, max_value=len(whole) - 1))
        noise = data.draw(st.binary(min_size=1, max_size=6))
        for offset in range(len(noise)):
            touched.add(min(place + offset, len(whole) - 1))
        whole[place : place + len(noise)] = noise
        whole = whole[: len(encode_lines(SAMPLES * 2))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.jsonl"
        path.write_bytes(bytes(whole))
        try:
            contents = TuningLog(path).read()
        except Exception as error:
            # A digit of a schema number may have been hit.
            assert type(error).__name__ == "SchemaTooNew"
            return
    start = 0
    for line in SAMPLES * 2:
        end = start + len(encode_line(line))
        if not touched & set(range(start - 1, end)):
            assert line in contents.lines
        start = end
    assert all(math.isfinite(line.wall_s) for line in contents.lines if isinstance(line, SessionEnd))
