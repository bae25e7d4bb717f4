"""What the runtime does ahead of calls and besides them: warm, precompiled kernels, misses, explanations, torch.compile."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from tilewright.children.modules import load_file  # noqa: E402
from tilewright.runtime import Dispatcher, Miss, Missed, Stale  # noqa: E402
from tilewright.runtime.coverage import extents_of  # noqa: E402
from tilewright.runtime.precompiled import precompile  # noqa: E402
from tilewright.runtime.table import Table  # noqa: E402

fakes: Any = load_file(Path(__file__).with_name("runtime_fakes.py"), "runtime_fakes")
calls: Any = load_file(Path(__file__).with_name("test_runtime_calls.py"), "runtime_calls")
entry, spread, tensors, right = calls.entry, calls.spread, calls.tensors, calls.right

kernel_cache = calls.kernel_cache
device = calls.device
make = calls.make


@pytest.fixture
def compiled() -> Iterator[list[str]]:
    """Repr of each kernel that Triton compiles or takes from its cache on disk."""
    seen: list[str] = []

    def hook(**what: Any) -> None:
        seen.append(what["repr"])

    triton.knobs.runtime.jit_post_compile_hook = hook
    yield seen
    triton.knobs.runtime.jit_post_compile_hook = None


# --- warm ---


@pytest.mark.parametrize("ranges", [None, {"N": (1, 700), "dtype": "float32"}])
def test_after_warm_nothing_in_the_range_compiles(make: Callable[..., Dispatcher], compiled: list[str], ranges: Any, device: Any) -> None:
    add = make(ranges=[spread((1, 300, "one"), (301, 700, "two"))])
    assert add.warm(ranges, device=-1) == 700
    assert not device.launches
    warmed = len(compiled)
    assert 6 <= warmed <= 12, "==1, a multiple of 16, and neither, for each of three kernels"
    for n in random.Random(1).sample(range(1, 701), 40):
        a, b = tensors(n)
        right(add(a, b), a, b)
    assert len(compiled) == warmed
    assert add.counters()["plans"] == 700


def test_warm_without_a_record_says_so(make: Callable[..., Dispatcher]) -> None:
    with pytest.raises(Miss, match="N=63"):
        make(entry(200)).warm({"N": (63, 65), "dtype": "float32"}, device=-1)


@pytest.mark.parametrize(("low", "high"), [(1, 10**6), (5, 10**7), (999, 10**5)])
@pytest.mark.parametrize("tile", [1, 16, 64, 128, 256])
def test_chosen_extents_stand_for_all_classes_of_a_long_range(low: int, high: int, tile: int) -> None:
    chosen = extents_of(low, high, 16_384)
    assert len(chosen) < 20_000 and chosen[0] == low and chosen[-1] == high

    def classes(extents: Any) -> set[tuple[bool, ...]]:
        return {(n == 1, n % 16 == 0, -(-n // tile) == 1, -(-n // tile) % 16 == 0, n % tile == 0, n * 4096 >= 2**31) for n in extents}

    assert classes(chosen) >= classes(random.Random(0).sample(range(low, high + 1), 20_000))


def test_a_range_must_go_up() -> None:
    with pytest.raises(ValueError, match="must go up"):
        extents_of(5, 4, 10)


# --- precompiled ---


def test_precompiled_kernels_are_loaded_from_wherever_they_lie(
    make: Callable[..., Dispatcher], tmp_path: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(entry(200), entry(208, "two"), ranges=[spread((1, 40, "one"))])
    assert precompile(made, tmp_path / "made") == []
    assert compiled
    shutil.move(tmp_path / "made", tmp_path / "moved")
    texts = [path.read_text() for path in (tmp_path / "moved").rglob("*.json")]
    assert len(texts) > 4 and not any(str(tmp_path) in text or sys.prefix in text for text in texts)
    compiled.clear()

    # Fresh modules under other names, and no compiler.
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "empty"))
    monkeypatch.setattr("triton.compiler.compile", None)
    modules = {"one": fakes.module(tmp_path, fakes.ADD), "two": fakes.module(tmp_path, fakes.TWO)}
    options = {"ranges": [spread((1, 40, "one"))], "schedules": modules.__getitem__, "precompiled": tmp_path / "moved"}
    add = make(entry(200), entry(208, "two"), **options)
    for n in (200, 208, 1, 16, 17):
        a, b = tensors(n)
        right(add(a, b), a, b)
    counters = add.counters()
    assert counters["compiles"] == 0 and counters["precompiled"] == 5
    assert not (tmp_path / "empty").exists()


def test_kernels_that_triton_holds_in_memory_are_written_too(make: Callable[..., Dispatcher], tmp_path: Path) -> None:
    module = fakes.module(tmp_path, fakes.ADD)
    called = make(entry(200), schedules={"one": module}.__getitem__)
    called(*tensors(200))
    assert precompile(make(entry(200), schedules={"one": module}.__getitem__), tmp_path / "kernels") == []
    assert len(list(tmp_path.glob("kernels/kernels/*/kernel.cubin"))) == 1


def test_a_kernel_that_is_not_there_is_told_with_what_differs(make: Callable[..., Dispatcher], tmp_path: Path) -> None:
    precompile(make(entry(200)), tmp_path / "kernels")
    other = fakes.module(tmp_path, fakes.ADD.replace("num_warps=1", "num_warps=2"))
    add = make(entry(200), schedules={"one": other}.__getitem__, precompiled=tmp_path / "kernels")
    a, b = tensors(200)
    right(add(a, b), a, b)
    assert add.counters()["not_precompiled"] == {"add_kernel": "options.num_warps is '2', and '1' there"}
    assert "add_kernel was compiled here: options.num_warps is '2'" in add.explain(a, b)


def test_a_package_without_precompiled_kernels_does_not_miss_them(make: Callable[..., Dispatcher], tmp_path: Path) -> None:
    add = make(entry(200), precompiled=tmp_path / "not there")
    a, b = tensors(200)
    right(add(a, b), a, b)
    assert add.counters()["not_precompiled"] == {} and "precompiled" not in add.explain(a, b)


@pytest.mark.parametrize("spoil", ["version", "build", "missing", "kernel"])
def test_what_does_not_fit_is_compiled(make: Callable[..., Dispatcher], tmp_path: Path, spoil: str) -> None:
    precompile(make(entry(200)), tmp_path / "kernels")
    manifest = tmp_path / "kernels" / "manifest.json"
    values = json.loads(manifest.read_text())
    if spoil == "missing":
        manifest.unlink()
    elif spoil == "kernel":
        for path in (tmp_path / "kernels").rglob("kernel.json"):
            path.write_text(path.read_text()[:100])
    else:
        values["triton" if spoil == "version" else "build"] = "other"
        manifest.write_text(json.dumps(values))
    add = make(entry(200), schedules={"one": fakes.module(tmp_path, fakes.ADD)}.__getitem__, precompiled=tmp_path / "kernels")
    a, b = tensors(200)
    right(add(a, b), a, b)
    assert add.counters()["compiles"] == 1 and add.recorder.compiler.refused


# --- Misses ---


def test_a_miss_names_the_nearest_and_what_differs(make: Callable[..., Dispatcher]) -> None:
    add = make(entry(100), entry(200), entry(4000))
    a, b = tensors(210)
    with pytest.raises(Miss, match=r"no record of add:N=210.* on fake; nearest: N=200,dtype=float32 differs in N \(200, asked 210\); N=100") as caught:
        add(a, b)
    assert caught.value.__context__ is None
    assert add.counters()["misses"] == {"N=210,dtype=float32": 1}
    assert add.counters()["never"] == [f"N={n},dtype=float32" for n in (100, 200, 4000)]


def test_records_of_other_devices_do_not_count(make: Callable[..., Dispatcher], device: Any) -> None:
    device.identity["sm_count"] = 5
    a, b = tensors(200)
    with pytest.raises(Miss, match=r"records are of other devices \(fake: sm_count 5, recorded 4\)"):
        make(entry(200))(a, b)


@pytest.mark.parametrize(
    ("n", "ranges", "default", "on_miss", "how"),
    [
        (200, (), "two", "error", "the record of N=200"),
        (250, (spread((201, 300, "two")),), "", "error", "the range N=201..300"),
        (999, (spread((201, 300, "one"), default="two"),), "", "error", "outside the ranges of N"),
        (999, (), "two", "default", "on a miss"),
        (999, (), "", "nearest", "the nearest record, N=800"),
    ],
)
def test_who_serves(make: Callable[..., Dispatcher], n: int, ranges: Any, default: str, on_miss: str, how: str) -> None:
    add = make(entry(200), entry(800, "two"), ranges=ranges, default=default, on_miss=on_miss)
    a, b = tensors(n)
    right(add(a, b), a, b)
    ((served, _),) = add.recorded()
    assert how in served.choice.how
    assert served.missed == (on_miss != "error") and bool(add.counters()["misses"]) == served.missed


def test_a_vendor_serves_misses(make: Callable[..., Dispatcher]) -> None:
    add = make(entry(200), vendors=lambda: {"torch": lambda workload, inputs: inputs["a"] + inputs["b"] * inputs["scale"]}, on_miss="vendor")
    a, b = tensors(999)
    assert "served" not in add.explain(a, b)
    right(add(a, b), a, b)
    assert add.explain(a, b).splitlines()[1].startswith("  no record: nearest: N=200")
    assert add.explain(a, b).splitlines()[3] == "  served all the same, by the vendor's kernel, on a miss"


def test_a_function_is_asked_once_for_a_key_and_never_under_capture(make: Callable[..., Dispatcher], device: Any, tmp_path: Path) -> None:
    asked: list[Missed] = []
    module = fakes.module(tmp_path, fakes.TWO)
    entered = threading.Event()

    def tune(missed: Missed) -> Any:
        asked.append(missed)
        entered.wait(0.1)
        return module

    add = make(entry(200), on_miss=tune)
    a, b = tensors(999)
    device.capturing = True
    with pytest.raises(Miss, match="under graph capture"):
        add(a, b)
    device.capturing = False
    threads = [threading.Thread(target=lambda: right(add(a, b), a, b)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(one.operator, one.parameters, one.device) for one in asked] == [("add", {"N": 999, "dtype": "float32"}, -1)]
    assert len(device.launches) == 6


def test_an_unknown_mode_is_refused(make: Callable[..., Dispatcher]) -> None:
    with pytest.raises(ValueError, match="error, default, nearest, vendor"):
        make(entry(200), on_miss="guess")


# --- What it tells ---


def test_explain_says_what_serves_and_why_others_do_not(make: Callable[..., Dispatcher]) -> None:
    add = make(entry(200), entry(400, "two"))
    a, b = tensors(200)
    assert add.explain(a, b=b) == textwrap.dedent("""\
        add:N=200,dtype=float32 on fake
          served by one: the record of N=200,dtype=float32
          not by two: its N is 400""")
    assert "no record: nearest: N=200" in add.explain(*tensors(201))
    assert not add.counters()["misses"]
    pinned = make(entry(200, pins={"triton": "2.1"}))
    _, second, third = pinned.explain(a, b).splitlines()
    assert second == "  not served by one: the record of N=200,dtype=float32"
    assert third.startswith("  the call raises Stale: add:N=200,dtype=float32 was tuned with Triton 2.1, and this is ")
    with pytest.raises(Stale):
        pinned(a, b)
    with pytest.raises(TypeError, match="missing: b"):
        add.explain(a)


def test_the_interpreter_stands_in_for_any_target() -> None:
    targets = [{"backend": "cuda", "arch": "sm_90"}, {"backend": "interpreter", "arch": "sm_90"}]
    table = Table("add", {"entries": []}, targets)
    assert table.matching({"backend": "interpreter"}) == [1, 0]
    assert table.matching({"backend": "cuda", "arch": "sm_90", "sm_count": 132}) == [0]
    assert table.matching({"backend": "cuda", "arch": "sm_80"}) == []


# --- torch.compile ---

TRACE = """
import sys, torch
from pathlib import Path
from tilewright.children.modules import load_file
fakes = load_file(Path(sys.argv[1]) / "runtime_fakes.py", "runtime_fakes")
calls = load_file(Path(sys.argv[1]) / "test_runtime_calls.py", "runtime_calls")
folder = Path(sys.argv[2])
with fakes.fake_device() as device:
    modules = {"one": fakes.module(folder, fakes.ADD)}
    table = {"entries": [], "ranges": [calls.spread((1, 4096, "one"))]}
    add = calls.Dispatcher(calls.SPEC, table, targets=calls.TARGETS, schedules=modules.__getitem__, runtime=device.runtime(), package="my-kernels")
    call = add.call

    class Model(torch.nn.Module):
        def forward(self, x, y):
            z = call(x, y, 2.0) + 1.0
            out = torch.zeros_like(z)
            call(z, y, 0.5, out)
            return torch.relu(out), add(x, x)

    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    model = Model()
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    for n in range(100, 108):
        a, b = calls.tensors(n)
        for got, want in zip(compiled(a, b), model(a, b), strict=True):
            torch.testing.assert_close(got, want)
    used = {str(node.target) for graph in graphs for node in graph.graph.nodes if "my_kernels" in str(node.target)}
    print(len(graphs), len(device.launches), ",".join(sorted(used)))
"""


def test_torch_compile_takes_a_call_without_a_graph_break(tmp_path: Path) -> None:
    script = tmp_path / "trace.py"
    script.write_text(TRACE)
    done = subprocess.run(
        [sys.executable, str(script), str(Path(__file__).parent), str(tmp_path)], capture_output=True, text=True, timeout=120,
        env={**__import__("os").environ, "TRITON_CACHE_DIR": str(tmp_path / "triton")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    graphs, launches, used = done.stdout.split()
    assert graphs == "2", "one for the first shape, one for any"
    assert int(launches) == 8 * 2 * 3 and used == "my_kernels.add.default,my_kernels.add_out.default"
