"""A best file depends on what logs say, and not on the order in which they say it."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.best import best_entries, best_text, merge, parse_best
from tilewright.record import Measurement, Record, Resources, Status
from tilewright.target import Toolchain, named_target
from tilewright.workload import Workload

# Few values of everything, so that ties and conflicts are common.
records = st.builds(
    lambda workload, target, tile, status, median, protocol, shared, triton, source, template: Record(
        session="s",
        trial=0,
        workload=Workload(operator="m", dims={"M": workload}, dtypes={}),
        target=target,
        config={"tile": tile},
        status=status,
        measurement=Measurement(protocol=protocol, median_us=median, min_us=1.0, max_us=9.0) if status is not Status.CRASH else None,
        resources=Resources(shared_memory_bytes=shared) if shared else None,
        toolchain=Toolchain(triton=triton),
        source=source,
        template=template,
    ),
    st.sampled_from([16, 128]),
    st.sampled_from([named_target("sm_90"), named_target("sm_80")]),
    st.sampled_from([1, True, 1.0, [1], "1"]),
    st.sampled_from([Status.OK, Status.OK, Status.OK, Status.WRONG_RESULT, Status.CRASH]),
    st.sampled_from([1.0, 2.0]),
    st.sampled_from(["graph/1", "events/1", "interpreter/1", "other"]),
    st.sampled_from([0, 1024]),
    st.sampled_from(["3.6.0", "3.7.1"]),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["old", "new"]),
)
TEMPLATES = {"m": frozenset({"new"})}


@given(st.lists(records, max_size=12), st.integers())
@settings(max_examples=60, deadline=None)
def test_the_order_of_lines_changes_no_byte(read: list[Record], seed: int) -> None:
    shuffled = random.Random(seed).sample(read, len(read))
    assert best_text(best_entries(shuffled)) == best_text(best_entries(read))
    assert best_text(best_entries(shuffled, TEMPLATES)) == best_text(best_entries(read, TEMPLATES))


@given(st.lists(records, max_size=12), st.integers(min_value=0, max_value=12), st.integers())
@settings(max_examples=60, deadline=None)
def test_merging_is_a_union_that_knows_no_order(read: list[Record], cut: int, seed: int) -> None:
    ours, theirs = best_entries(read[:cut]), best_entries(read[cut:])
    assert merge([*ours, *theirs], (), TEMPLATES) == merge([*theirs, *ours], (), TEMPLATES)
    forward, backward = merge([*ours, *theirs]), merge([*theirs, *ours])
    assert forward == backward
    assert merge(forward.entries).entries == forward.entries
    keys = {(entry.workload.key, entry.target.key) for entry in (*ours, *theirs)}
    assert {(entry.workload.key, entry.target.key) for entry in forward.entries} == keys
    assert len(forward.entries) == len(keys)
    if not any(record.status is Status.WRONG_RESULT for record in read):
        # Logs put together, or best files put together: the same answer.
        assert best_text(forward.entries) == best_text(best_entries(read))
        both = [*best_entries(read[:cut], TEMPLATES), *best_entries(read[cut:], TEMPLATES)]
        assert best_text(merge(both, (), TEMPLATES).entries) == best_text(best_entries(read, TEMPLATES))


@given(st.lists(records, max_size=12))
@settings(max_examples=60, deadline=None)
def test_a_best_file_reads_back(read: list[Record]) -> None:
    text = best_text(best_entries(read))
    parsed = parse_best(text)
    assert best_text(parsed) == text
    assert [_typed(entry.config) for entry in parsed] == [_typed(entry.config) for entry in best_entries(read)]


def _typed(config: Any) -> list[tuple[str, str, str]]:
    return [(name, type(value).__name__, str(value)) for name, value in config.items()]
