"""Whatever a build child does, its builder's future has an outcome, or names what this machine lacks."""

import sys
import time
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from tilewright.builder import BuildRequest, CompileBuilder
from tilewright.canonical import sha256_text
from tilewright.errors import HostError
from tilewright.operator import ScalarSpec, TensorSpec
from tilewright.record import Status
from tilewright.target import named_target
from tilewright.template import Source

COMMAND = [sys.executable, "-P", str(Path(__file__).with_name("faulty_build_child.py"))]


def make_request(text, target="sm_90", arguments=()):
    return BuildRequest(source=Source(text=text, hash=sha256_text(text), schedule="s", template_hash=""), arguments=arguments, target=named_target(target))


@pytest.fixture
def builder(tmp_path):
    with CompileBuilder(2, tmp_path, timeout_s=5.0, command=COMMAND) as made:
        yield made


def build(builder, text, **more):
    return builder.submit(make_request(text, **more)).result(20)


def test_hang_is_a_compile_timeout_and_not_kept(tmp_path):
    with CompileBuilder(1, tmp_path, timeout_s=0.3, command=COMMAND) as builder:
        for _ in range(2):
            outcome = build(builder, "hang")
            assert outcome.status is Status.COMPILE_TIMEOUT and "0.3 s" in outcome.message and not outcome.cached
        assert build(builder, "fine").status is Status.OK


def test_death_is_a_compile_error_with_signal_and_last_words_and_not_kept(builder):
    for _ in range(2):
        outcome = build(builder, "abort")
        assert outcome.status is Status.COMPILE_ERROR and not outcome.cached
        assert "SIGABRT" in outcome.message and "LLVM ERROR: cannot select" in outcome.message


def test_a_fault_of_the_child_itself_is_an_outcome(builder):
    outcome = build(builder, "raise")
    assert outcome.status is Status.COMPILE_ERROR and "a fault of our own" in outcome.message


def test_what_the_compiler_printed_joins_the_message(builder):
    assert "PassManager::run failed | source.py:7:4: error: operand #0 does not dominate" in build(builder, "mlir").message
    assert build(builder, "mlir").cached


def test_a_killed_ptxas_is_not_kept(builder):
    assert not build(builder, "killed").cached and not build(builder, "killed").cached


def test_a_full_disk_is_a_host_error_and_the_builder_lives_on(builder):
    with pytest.raises(HostError, match="No space left"):
        build(builder, "full")
    assert build(builder, "fine").status is Status.OK


def test_an_unwritable_cache_folder_is_a_host_error(tmp_path):
    (tmp_path / "builds").write_text("a file, not a folder")
    with CompileBuilder(1, tmp_path, command=COMMAND) as builder, pytest.raises(HostError, match="TILEWRIGHT_CACHE"):
        build(builder, "fine")


def test_no_child_is_a_host_error(tmp_path):
    with CompileBuilder(1, tmp_path, command=[sys.executable, "-c", "raise SystemExit('no triton here')"]) as builder:
        with pytest.raises(HostError, match="no triton here"):
            build(builder, "fine")
        with pytest.raises(HostError, match="no triton here"):
            _ = builder.toolchain


def test_outcome_is_kept_under_all_that_can_change_it(tmp_path, monkeypatch):
    tensor = TensorSpec(shape=(16, 16), dtype="float16")
    first = make_request("fine", arguments=(tensor, ScalarSpec(value=float("inf")), ScalarSpec(value=1)))
    others = [
        make_request("fine ", arguments=first.arguments),
        make_request("fine", "sm_80", arguments=first.arguments),
        make_request("fine", arguments=(TensorSpec(shape=(16, 16), dtype="float16", strides=(1, 16)), *first.arguments[1:])),
        make_request("fine", arguments=(tensor, ScalarSpec(value=float("inf")), ScalarSpec(value=1.0))),
    ]
    with CompileBuilder(1, tmp_path, command=COMMAND) as builder:
        fresh = builder.submit(first).result(20)
        assert not fresh.cached and fresh.build_s == 0.5 and fresh.resources.shared_memory_bytes == 232447
        assert [builder.submit(other).result(20).cached for other in others] == [False] * 4
    with CompileBuilder(1, tmp_path, command=COMMAND) as builder:
        again = builder.submit(first).result(20)
        assert again.cached and again.build_s == 0.0 and (again.message, again.resources, again.binary) == (fresh.message, fresh.resources, fresh.binary)
    monkeypatch.setenv("TRITON_SOMETHING", "1")
    with CompileBuilder(1, tmp_path, command=COMMAND) as builder:
        assert not builder.submit(first).result(20).cached


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"key": "other", "value": {}}', None])
def test_a_damaged_entry_is_a_miss(tmp_path, damage):
    with CompileBuilder(1, tmp_path, command=COMMAND) as builder:
        build(builder, "fine")
        (entry,) = (tmp_path / "builds").glob("*/*.json")
        # The last damage keeps a sound frame around an outcome that is none.
        entry.write_text(damage if damage is not None else f'{{"key": "{entry.stem}", "value": {{"status": "splendid"}}}}')
        assert not build(builder, "fine").cached
        assert build(builder, "fine").cached


def test_one_source_is_built_once_at_a_time(builder):
    """The second waits for the first, whose outcome it then finds, though a child is free."""
    futures = [builder.submit(make_request("slow")) for _ in range(2)]
    assert sorted(future.result(20).cached for future in futures) == [False, True]


def test_close_cancels_what_waits_and_what_runs(tmp_path):
    builder = CompileBuilder(1, tmp_path, command=COMMAND)
    assert build(builder, "fine").status is Status.OK
    running, waiting = builder.submit(make_request("hang")), builder.submit(make_request("fine, later"))
    while not running.running():
        time.sleep(0.01)
    time.sleep(0.1)
    start = time.monotonic()
    builder.close()
    builder.close()
    assert time.monotonic() - start < 5
    assert waiting.cancelled()
    with pytest.raises(CancelledError):
        running.result(5)
    with pytest.raises(HostError, match="closed"):
        builder.submit(make_request("fine"))


def test_a_cancelled_future_is_never_built(tmp_path):
    with CompileBuilder(1, tmp_path, command=COMMAND) as builder:
        slow, unwanted, last = (builder.submit(make_request(text)) for text in ("slow", "unwanted", "last"))
        assert unwanted.cancel()
        assert slow.result(20).message.endswith(" 1") and last.result(20).message.endswith(" 2")
