"""The builder's queue, its fake, and the cache folder."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tilewright.builder import BuildOutcome, BuildRequest
from tilewright.cache import OutcomeCache, cache_root, child_environment
from tilewright.canonical import sha256_text
from tilewright.grouped_queue import GroupedQueue
from tilewright.record import Status
from tilewright.target import named_target
from tilewright.template import Source
from tilewright.testing import FakeBuilder


def test_a_group_is_worked_on_one_at_a_time_and_others_pass_it():
    queue = GroupedQueue()
    assert queue.put("a", 1) and queue.put("a", 2) and queue.put("b", 3)
    assert queue.get() == ("a", 1)
    assert queue.get() == ("b", 3)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(queue.get)
        assert not waiting.done()
        queue.done("a")
        assert waiting.result(5) == ("a", 2)


def test_close_frees_the_waiting_and_hands_back_the_rest():
    queue = GroupedQueue()
    results = []
    thread = threading.Thread(target=lambda: results.append(queue.get()))
    thread.start()
    while queue._idle == 0:
        pass
    assert queue.put("a", 1) is False or results == [("a", 1)]  # the idle worker takes it
    thread.join(5)
    queue.put("a", 2)
    assert queue.close() == [2] and queue.get() is None
    with pytest.raises(ValueError, match="closed"):
        queue.put("b", 3)


def test_fake_builder_answers_as_told():
    source = Source(text="x", hash=sha256_text("x"), schedule="s", template_hash="")
    request = BuildRequest(source=source, arguments=(), target=named_target("sm_90"))
    fake = FakeBuilder()
    assert fake.submit(request).result().binary == source.hash and fake.requests == [request]
    failing = FakeBuilder(lambda _: BuildOutcome(status=Status.COMPILE_ERROR, message="no"))
    assert failing.submit(request).result().status is Status.COMPILE_ERROR
    failing.close()
    assert failing.closed


def test_cache_folder_is_the_given_one_then_the_variable_then_home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_CACHE", "from_variable")
    assert cache_root(tmp_path / "given") == tmp_path / "given"
    assert cache_root() == tmp_path / "from_variable"  # absolute: Triton's group files hold absolute paths
    monkeypatch.delenv("TILEWRIGHT_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_root() == tmp_path / ".cache" / "tilewright"
    assert child_environment(tmp_path) == {"TRITON_CACHE_DIR": str(tmp_path / "triton"), "TRITON_DISABLE_LINE_INFO": "1"}


def test_outcome_cache_leaves_no_halves(tmp_path):
    cache = OutcomeCache(tmp_path)
    assert cache.get("ab12") is None
    cache.put("ab12", {"n": 1})
    with pytest.raises(ValueError, match="JSON compliant"):
        cache.put("ab12", {"n": float("nan")})
    assert cache.get("ab12") == {"n": 1}
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["ab12.json"]


def test_the_parent_imports_neither_torch_nor_triton():
    code = "import sys, tilewright.builder, tilewright.testing; print(*{'torch', 'triton', 'numpy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""
