"""Calls through the runtime: keys, plans, scratch, guards; on a device that is not there."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from tilewright.children.modules import load_file  # noqa: E402
from tilewright.operator import OperatorSpec, ScalarSpec, TensorSpec, Tolerance  # noqa: E402
from tilewright.runtime import Dispatcher, Miss, Stale  # noqa: E402

fakes: Any = load_file(Path(__file__).with_name("runtime_fakes.py"), "runtime_fakes")

SPEC = OperatorSpec(
    name="add", summary="c = a + b * scale", dims=("N",), dtypes={"dtype": ("float32",)}, arguments=("a", "b", "scale"),
    inputs=lambda w: {"a": TensorSpec(shape=(w["N"],), dtype="float32"), "b": TensorSpec(shape=(w["N"],), dtype="float32"), "scale": ScalarSpec(value=2.0)},
    outputs=lambda w: {"c": TensorSpec(shape=(w["N"],), dtype="float32")},
    flops=lambda w: w["N"], bytes_moved=lambda w: w["N"], tolerance=lambda w: Tolerance(rel_norm=0, max_error=0, reason=""),
    infer=lambda args: {"N": args["a"].shape[0]}, buckets={"N": (64, 1024)},
)  # fmt: skip

TARGETS = [{"backend": "cuda", "arch": "sm_90", "sm_count": 4, "name": "fake"}]


def entry(n: int, schedule: str = "one", **more: Any) -> dict[str, Any]:
    return {"target": 0, "workload": {"N": n, "dtype": "float32"}, "schedule": schedule, **more}


def spread(*ranges: tuple[int, int, str], default: str = "") -> dict[str, Any]:
    return {"target": 0, "dim": "N", "fixed": {"dtype": "float32"}, "ranges": [list(item) for item in ranges], "default": default}


@pytest.fixture(scope="module", autouse=True)
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        yield


@pytest.fixture
def device() -> Iterator[Any]:
    with fakes.fake_device() as device:
        yield device


@pytest.fixture
def make(device: Any, tmp_path: Path) -> Callable[..., Dispatcher]:
    modules = {"one": fakes.module(tmp_path, fakes.ADD), "two": fakes.module(tmp_path, fakes.TWO)}

    def make(*entries: dict[str, Any], ranges: Any = (), default: str = "", **options: Any) -> Dispatcher:
        table = {"entries": list(entries), "ranges": list(ranges), "default": default}
        return Dispatcher(SPEC, table, targets=TARGETS, schedules=options.pop("schedules", modules.__getitem__), runtime=device.runtime(), **options)

    return make


def tensors(n: int, seed: int = 0) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, generator=generator), torch.randn(n, generator=generator)


def right(result: Any, a: Any, b: Any, scale: float = 2.0) -> None:
    torch.testing.assert_close(result, a + b * scale)


@pytest.mark.parametrize("schedule", ["one", "two"])
def test_first_and_later_calls_compute_the_operator(make: Callable[..., Dispatcher], device: Any, schedule: str) -> None:
    add = make(entry(200, schedule))
    for seed in range(3):
        a, b = tensors(200, seed)
        out = torch.full((200,), float("nan"))
        assert add.call(a, b, 2.0, out) is out
        right(out, a, b)
        right(add.call(a, b), a, b)
    assert len(device.launches) == 6 * (1 if schedule == "one" else 2)
    assert add.counters()["calls"] == {"N=200,dtype=float32": 6}


def test_one_plan_serves_calls_whose_tensors_are_one_and_the_same(make: Callable[..., Dispatcher]) -> None:
    add = make(entry(200))
    a, b = tensors(200)
    right(add(a, a), a, a)
    right(add(a, b), a, b)
    right(add(b, a, out=a), b, *tensors(200)[:1])


def test_scalars_keep_their_value_and_come_by_name(make: Callable[..., Dispatcher]) -> None:
    add = make(entry(200))
    a, b = tensors(200)
    for scale in (2.0, 0.5, 3, 0.5):
        right(add(a, b, scale=scale), a, b, scale)


def test_a_later_call_compiles_nothing_and_runs_no_launch(make: Callable[..., Dispatcher], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = fakes.module(tmp_path, fakes.ADD)
    add = make(entry(200), schedules={"one": module}.__getitem__)
    a, b = tensors(200)
    add(a, b)
    compiles = add.counters()["compiles"]
    assert compiles >= 1
    monkeypatch.setattr(module, "launch", None)
    monkeypatch.setattr(add.server, "serve", None)
    right(add(a, b), a, b)
    right(add(a, b, out=torch.empty(200)), a, b)
    assert add.counters()["compiles"] == compiles


@pytest.mark.parametrize("offset", [1, 2, 3])
def test_misaligned_tensors_get_a_plan_of_their_own(make: Callable[..., Dispatcher], device: Any, offset: int) -> None:
    add = make(entry(200))
    a, b = tensors(200)
    add(a, b)
    shifted = torch.zeros(200 + offset)[offset:]
    shifted.copy_(a)
    assert shifted.data_ptr() % 16
    right(add(shifted, b), a, b)
    right(add(shifted, b), a, b)
    right(add(b, shifted), b, a)
    aligned, misaligned, _ = (plan for _, plan in add.recorded())
    assert aligned.hits == 1 and misaligned.hits == 2
    assert add.counters()["compiles"] == 3, "each alignment is another kernel"


def test_strides_that_differ_get_a_plan_of_their_own(make: Callable[..., Dispatcher], monkeypatch: pytest.MonkeyPatch) -> None:
    add = make(entry(200))
    a, b = tensors(200)
    add(a, b)
    add(torch.zeros(400)[::2], b)
    assert add.counters()["plans"] == 2


def test_outputs_given_with_strides_of_their_own_do_not_serve_allocated_ones(make: Callable[..., Dispatcher], tmp_path: Path) -> None:
    text = fakes.ADD.replace("n = c.numel()", "n = c.numel() if c.is_contiguous() else 1")
    add = make(entry(200), schedules={"one": fakes.module(tmp_path, text)}.__getitem__)
    a, b = tensors(200)
    for _ in range(2):
        add(a, b, out=torch.zeros(400)[::2])
        right(add(a, b), a, b)


def test_an_output_laid_out_otherwise_is_filled_by_copying(make: Callable[..., Dispatcher]) -> None:
    add = make(entry(200))  # its kernel writes to `c + offsets`, whatever the strides of c
    a, b = tensors(200)
    for _ in range(2):
        memory = torch.full((400,), 7.0)
        out = memory[::2]
        assert add(a, b, out=out) is out
        right(out, a, b)
        assert bool((memory[1::2] == 7.0).all()), "what lies between its elements is not its own"
    with pytest.raises(RuntimeError, match="single memory location"):
        add(a, b, out=torch.zeros(1).expand(200))


def test_a_schedule_that_needs_alignment_names_the_tensor(make: Callable[..., Dispatcher], tmp_path: Path) -> None:
    text = fakes.ADD.replace(
        "    n = c.numel()", '    assert b.data_ptr() % 16 == 0, "base must be 16-byte aligned"\n    assert c.numel() < 500, "long"\n    n = c.numel()'
    )
    add = make(entry(200), entry(512), schedules={"one": fakes.module(tmp_path, text)}.__getitem__)
    a, b = tensors(200)
    right(add(a, b), a, b)
    with pytest.raises(ValueError, match=r"add: b must start at a multiple of 16 bytes .*base must be 16-byte aligned.*pass b.clone\(\)"):
        add(a, torch.zeros(201)[1:])
    right(add(a, b), a, b)
    with pytest.raises(AssertionError, match="^long$"):  # of all else it is no account
        add(*tensors(512))


def test_scratch_is_kept_by_stream_and_thread(make: Callable[..., Dispatcher], device: Any) -> None:
    add = make(entry(200, "two"))
    a, b = tensors(200)

    def scratch() -> int:
        add(a, b)
        name, _, stream, values = device.launches[-2]
        assert (name, stream) == ("scale_kernel", device.stream)
        assert values[1] == device.launches[-1][3][1], "both kernels work on one buffer"
        return int(values[1])

    first = scratch()
    assert first % 256 == 0 or first % 64 == 0
    assert scratch() == first
    device.stream = 8
    second = scratch()
    assert second != first
    device.stream = 7
    assert scratch() == first
    other: list[int] = []
    thread = threading.Thread(target=lambda: other.append(scratch()))
    thread.start()
    thread.join()
    assert other[0] not in (first, second)


def test_a_captured_graph_owns_its_scratch(make: Callable[..., Dispatcher], device: Any) -> None:
    add = make(entry(200, "two"))
    a, b = tensors(200)
    add(a, b)
    kept = device.launches[-1][3][1]
    device.capturing = True
    right(add(a, b), a, b)
    assert device.launches[-1][3][1] != kept
    device.capturing = False
    right(add(a, b), a, b)
    assert device.launches[-1][3][1] == kept


def test_threads_get_right_results(make: Callable[..., Dispatcher]) -> None:
    add = make(ranges=[spread((1, 4096, "two"))])
    wrong: list[str] = []

    def work(seed: int) -> None:
        for step in range(30):
            n = 100 + (seed + step) % 5
            a, b = tensors(n, seed * 100 + step)
            if not torch.allclose(add(a, b), a + b * 2.0):
                wrong.append(f"{n}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("    c.zero_()\n", "zero_"),
        ("    a = a * 1\n", "__mul__|mul"),
        (
            "    import torch; a = torch.empty(200, device='cpu').copy_(a) if a.device.type == 'cpu' else torch.zeros(200)\n",
            "no argument of the call|not an argument",
        ),
    ],
)
def test_a_launch_that_does_more_than_launch_is_called_itself(make: Callable[..., Dispatcher], tmp_path: Path, line: str, reason: str) -> None:
    module = fakes.module(tmp_path, fakes.ADD.replace("    n = c.numel()\n", f"{line}    n = c.numel()\n"))
    add = make(entry(200), schedules={"one": module}.__getitem__)
    a, b = tensors(200)
    for _ in range(2):
        right(add(a, b), a, b)
    assert re.search(reason, add.counters()["unplanned"]["one"])
    assert (add.counters()["calls"], add.counters()["schedules"]) == ({"N=200,dtype=float32": 2}, {"one": 2})


def test_views_made_by_launch_become_offsets(make: Callable[..., Dispatcher], tmp_path: Path) -> None:
    text = fakes.ADD.replace("    n = c.numel()\n", "    n = c.numel() - 4\n    a, b, c = a[4:], b.view(2, -1).reshape(-1)[4:], c[4:]\n")
    add = make(entry(200), schedules={"one": fakes.module(tmp_path, text)}.__getitem__)
    a, b = tensors(200)
    for _ in range(2):
        out = torch.zeros(200)
        add(a, b, out=out)
        right(out[4:], a[4:], b[4:])
        assert not out[:4].any()
    assert not add.counters()["unplanned"]


def test_kernels_with_scratch_of_tritons_go_through_its_launcher(make: Callable[..., Dispatcher], device: Any) -> None:
    device.scratch_size = 128
    add = make(entry(200))
    a, b = tensors(200)
    for _ in range(2):
        right(add(a, b), a, b)
    assert [plan.direct for _, plan in add.recorded()] == [False]


def test_launch_hooks_see_every_launch(make: Callable[..., Dispatcher]) -> None:
    add = make(entry(200))
    a, b = tensors(200)
    add(a, b)
    seen: list[Any] = []
    triton.knobs.runtime.launch_enter_hook.add(seen.append)
    try:
        right(add(a, b), a, b)
    finally:
        triton.knobs.runtime.launch_enter_hook.remove(seen.append)
    assert len(seen) == 1
    right(add(a, b), a, b)
    assert len(seen) == 1


def test_another_device_than_the_current_one_is_made_current(make: Callable[..., Dispatcher], device: Any) -> None:
    device.count = 2
    add = make(entry(200))
    a, b = tensors(200)
    right(add(a, b), a, b)
    device.current = 0
    right(add(a, b), a, b)
    assert add.counters()["calls"]["N=200,dtype=float32"] == 2


@pytest.mark.parametrize(
    ("arguments", "out", "error", "said"),
    [
        (lambda a, b: (a,), None, TypeError, "b"),
        (lambda a, b: (a, 3.0), None, TypeError, "b is float"),
        (lambda a, b: (a, b, "2.0"), None, TypeError, "scale is '2.0', and must be float"),
        (lambda a, b: (a, b), lambda: torch.empty(100), ValueError, r"must be torch.float32 \[200\]"),
        (lambda a, b: (a, b), lambda: torch.empty(200, dtype=torch.float16), ValueError, "float16"),
        (lambda a, b: (a, b), lambda: (torch.empty(200), torch.empty(200)), ValueError, "2 tensors"),
    ],
)
def test_wrong_arguments_are_refused_after_right_ones_too(make: Callable[..., Dispatcher], arguments: Any, out: Any, error: type[Exception], said: str) -> None:
    add = make(entry(200))
    a, b = tensors(200)
    for _ in range(2):
        with pytest.raises(error, match=said):
            add(*arguments(a, b), out=out and out())
        right(add(a, b), a, b)


def test_tensors_on_several_devices_are_refused(make: Callable[..., Dispatcher]) -> None:
    a, b = tensors(200)
    with pytest.raises(ValueError, match="several devices"):
        make(entry(200))(a, b.to("meta"))


def test_vendors_serve_where_a_record_says_so(make: Callable[..., Dispatcher], device: Any) -> None:
    vendors = {"torch": lambda workload, inputs: inputs["a"] + inputs["b"] * inputs["scale"]}
    add = make(entry(200, "", vendor="torch"), vendors=lambda: vendors)
    a, b = tensors(200)
    for _ in range(2):
        right(add(a, b), a, b)
        right(add(a, b, 3.0, out=torch.empty(200)), a, b, 3.0)
    assert not device.launches
    with pytest.raises(Miss, match=r"torch\.x.*there are: torch"):
        make(entry(200, "", vendor="torch.x"), vendors=lambda: vendors)(a, b)


def test_pins_are_strict_or_warn(make: Callable[..., Dispatcher]) -> None:
    a, b = tensors(200)
    pinned = entry(200, pins={"triton": "3.1", "driver": ""})
    with pytest.raises(Stale, match=r"Triton 3\.1"):
        make(pinned)(a, b)
    with pytest.warns(UserWarning, match=r"Triton 3\.1"):
        right(make(pinned, strict=False)(a, b), a, b)
