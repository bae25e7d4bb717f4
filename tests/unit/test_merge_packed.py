"""Compressed logs are merged as their texts are, whatever they are called."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from tilewright.bulk.merge import merge_files
from tilewright.cli import main
from tilewright.errors import ExitCode, UsageError


def session(name: str, trials: int) -> bytes:
    head = f'"schema":1,"session":"{name}"'
    rng = random.Random(name)
    lines = [f'{{"kind":"session",{head},"started_at":"2026-11-30T00:00:{name}"}}']
    lines += [f'{{"kind":"trial",{head},"trial":{trial},"message":"{rng.random()}"}}' for trial in range(trials)]
    return "".join(line + "\n" for line in lines).encode()


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a"])
def test_the_bytes_are_those_of_merging_what_is_in_them(tmp_path: Path, name: str) -> None:
    texts = [session("03", 10_000) + session("01", 5), session("02", 10) + session("03", 10_000) + b'{"kind":"trial","sch']
    plain = [tmp_path / "plain0.jsonl", tmp_path / "plain1.jsonl"]
    for path, text in zip(plain, texts, strict=True):
        path.write_bytes(text)
    wanted = merge_files(plain, tmp_path / "wanted.jsonl")
    (tmp_path / "packed").mkdir()
    packed = tmp_path / "packed" / name
    packed.write_bytes(gzip.compress(texts[0][:300_000]) + gzip.compress(texts[0][300_000:]))  # laid end to end
    out = tmp_path / "out"
    assert merge_files([plain[1], packed], out / "mixed.jsonl") == wanted
    second = tmp_path / "packed" / "second"
    second.write_bytes(gzip.compress(texts[1]))
    assert merge_files([packed, second], out / "both.jsonl") == wanted
    for path in ("mixed.jsonl", "both.jsonl"):
        assert (out / path).read_bytes() == (tmp_path / "wanted.jsonl").read_bytes()
    assert sorted(path.name for path in out.iterdir()) == ["both.jsonl", "mixed.jsonl"]
    assert (wanted.sessions, wanted.damaged) == (3, 1)


def test_compressed_data_that_is_cut_costs_what_follows_and_is_told(tmp_path: Path) -> None:
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(session("01", 5)) + gzip.compress(session("02", 500))[:-20])
    notes: list[str] = []
    merged = merge_files([packed], tmp_path / "out.jsonl", notes.append)
    assert merged.sessions == 2 and merged.damaged >= 1
    assert (tmp_path / "out.jsonl").read_bytes().startswith(session("01", 5))
    assert len(notes) == 1 and "cut short" in notes[0] and str(packed) in notes[0]


def test_a_merge_that_would_only_be_called_compressed_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    log.write_bytes(session("01", 1))
    with pytest.raises(UsageError, match="no compressed log"):
        merge_files([log], tmp_path / "out.jsonl.gz")
    assert main(["log", "merge", str(log), "-o", str(tmp_path / "out.jsonl")]) == ExitCode.OK
