"""How merged logs are written: piece by piece, whatever the file system offers."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tilewright.bulk import merge
from tilewright.bulk.merge import merge_files


def logs(folder: Path) -> list[Path]:
    """Two logs whose sessions take turns, so that hardly any of their lines are neighbours in the output too; the last line has no end."""
    paths = []
    for file in (0, 1):
        lines = []
        for session in range(file, 20, 2):
            head = f'"schema":1,"session":"s{session:02d}"'
            lines.append(f'{{"kind":"session",{head},"started_at":"2026-11-30T00:00:{session:02d}+00:00"}}')
            lines += [f'{{"kind":"trial",{head},"trial":{trial},"message":"{"x" * (37 * trial % 400)}"}}' for trial in range(30)]
        path = folder / f"{file}.jsonl"
        path.write_text("\n".join(lines))
        paths.append(path)
    return paths


def expected(paths: list[Path]) -> bytes:
    lines = [line for path in paths for line in path.read_text().splitlines()]
    return "".join(line + "\n" for line in sorted(lines, key=lambda line: line.partition('"session":"')[2][:3])).encode()


def test_lines_are_copied_whole_however_small_the_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    advised: list[tuple[int, int]] = []
    advise = os.posix_fadvise

    def told(descriptor: int, start: int, length: int, advice: int) -> None:
        advised.append((start, start + length))
        advise(descriptor, start, length, advice)

    monkeypatch.setattr(merge, "_COPY_BYTES", 100)
    monkeypatch.setattr(merge, "_LET_GO_BYTES", 1000)
    monkeypatch.setattr(os, "posix_fadvise", told)
    paths = logs(tmp_path)
    out = tmp_path / "out.jsonl"
    merged = merge_files(paths, out)
    assert (merged.sessions, merged.lines, merged.damaged) == (20, 620, 0)
    assert out.read_bytes() == expected(paths)
    # Each part is asked for twice: once so that the disk gets it, once more so that memory lets go of it.
    size = out.stat().st_size
    for place in range(0, size - 3 * 1500, 100):
        assert sum(start <= place < stop for start, stop in advised) == 2, place


@pytest.mark.parametrize("how", ["refuses", "copies nothing"])
def test_a_file_system_that_does_not_copy_by_itself_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    def sendfile(*_: int) -> int:
        if how == "refuses":
            raise OSError(errno.EINVAL, "not here")
        return 0

    def refused(*_: int) -> None:
        raise OSError(errno.EINVAL, "no advice is taken")

    monkeypatch.setattr(os, "sendfile", sendfile)
    monkeypatch.setattr(os, "posix_fadvise", refused)
    monkeypatch.setattr(merge, "_LET_GO_BYTES", 1000)
    paths = logs(tmp_path)
    merge_files(paths, tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_bytes() == expected(paths)
