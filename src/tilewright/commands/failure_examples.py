"""One whole failure of each kind that `log stats` counts: the first in the order of the logs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from tilewright.bulk.stats import failure_kind
from tilewright.codec import decode_line
from tilewright.errors import LogDamaged, SchemaTooNew
from tilewright.formats import format_config
from tilewright.logfile import Broken, raw_lines
from tilewright.record import Record, Status

# Bytes of logs in which examples are looked for where they are too large to hold: 0.3 s of the 8 that a pass over a million records takes (two
# cores of a CPU machine, benchmarks/log_scale.py's log, 2026-11). A kind that first comes up later has none.
_LOOKED_THROUGH: Final = 64 << 20
# Lines of which no failure comes, by what they hold: seen without decoding them.
_START: Final = b'{"kind":"start"'
_OK: Final = b'"status":"ok"'


class _Failure(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="trial"):
    status: Status
    message: str = ""


_FAILURE: Final = msgspec.json.Decoder(_Failure)


def add_examples(failures: Sequence[dict[str, Any]], records: Iterable[Record]) -> None:
    """Give each kind of failure its first record's message, workload and config as `example`.

    Args:
        failures: as `log stats` has them, by status and kind of message.
        records: in the order of the logs; read up to where all kinds have one.
    """
    missing = {(failure["status"], failure["message"]): failure for failure in failures}
    for record in records if missing else ():
        failure = missing.pop((str(record.status), failure_kind(record.message)), None)
        if failure is not None:
            failure["example"] = {"message": record.message, "workload": record.workload.key, "config": dict(record.config)}
            if not missing:
                return


def failed_records(paths: Sequence[Path]) -> Iterator[Record]:
    """The first failed record of each kind that the first 64 MB of some logs hold; what is damaged is passed over.

    Raises:
        LogError, HostError: a log cannot be read.
    """
    seen: set[tuple[Status, str]] = set()
    left = _LOOKED_THROUGH
    for path in paths:
        for raw in raw_lines(path):
            if left < 0 or isinstance(raw, Broken):
                break
            left -= len(raw)
            if _OK in raw or raw.startswith(_START):
                continue
            try:
                slim = _FAILURE.decode(raw)
                kind = (slim.status, failure_kind(slim.message))
                line = decode_line(raw) if kind not in seen else None
            except (msgspec.MsgspecError, ValueError, RecursionError, LogDamaged, SchemaTooNew):
                continue
            if isinstance(line, Record):
                seen.add(kind)
                yield line


def example_text(failure: Mapping[str, Any], indent: str) -> str:
    """The lines below a kind of failure: the whole message where its kind does not say it, and what was tried."""
    example = failure.get("example")
    if example is None:
        return ""
    lines = example["message"].strip().splitlines()
    shown = [] if lines == [failure["message"]] or not lines else [f"such as: {lines[0]}", *(f"  {line}" for line in lines[1:])]
    return "\n".join(f"{indent}{line}".rstrip() for line in (*shown, f"first of {example['workload']} with {format_config(example['config'])}"))
