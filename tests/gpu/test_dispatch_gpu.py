"""Calls through the runtime on a GPU: right results from plans, under graphs, streams, threads and torch.compile."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gpu

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

GEMM = {"M": 48, "N": 512, "K": 1024, "dtype": "float16"}
TILES = {"tile_m": [3, 16], "tile_n": [8, 64], "tile_k": [16, 64], "num_warps": 4, "num_stages": 3, "group_m": 8}
SCHEDULES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "pointers": ("matmul", GEMM, {"schedule": "pointers", **TILES, "split_k": 1}),
    "split_k": ("matmul", GEMM, {"schedule": "pointers", **TILES, "split_k": 2, "reduce_n": 256}),
    "tma": ("matmul", GEMM, {"schedule": "tma", **TILES, "split_k": 1}),
    "rms_norm": (
        "rms_norm",
        {"rows": 33, "cols": 1000, "dtype": "float16"},
        {"schedule": "one_pass", "tile_cols": [1, 1024], "tile_rows": [33, 1], "num_warps": 2},
    ),
}


def make(name: str, upto: int = 0, **options: Any) -> Any:
    from tilewright.dispatch import source_module
    from tilewright.library import find_operator
    from tilewright.runtime import Dispatcher
    from tilewright.target import named_target

    operator, parameters, config = SCHEDULES[name]
    found = find_operator(operator)
    workload = found.spec.workload(parameters)
    module = source_module(found.render(workload, named_target("sm_90"), config))
    dim = found.spec.dims[0]
    fixed = {key: value for key, value in workload.parameters.items() if key != dim}
    ranges = [{"target": 0, "dim": dim, "fixed": fixed, "ranges": [[1, upto, "it"]], "default": ""}] if upto else []
    table = {"entries": [] if upto else [{"target": 0, "workload": workload.parameters, "schedule": "it"}], "ranges": ranges}
    return Dispatcher(found.spec, table, targets=[{"backend": "cuda"}], schedules=lambda _: module, package="gpu_tests", **options)


def inputs(name: str, seed: int = 0, rows: int | None = None) -> tuple[Any, Any]:
    operator, parameters, _ = SCHEDULES[name]
    generator = torch.Generator(device="cuda").manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.float16, generator=generator)  # noqa: E731
    if operator == "rms_norm":
        return draw(rows or parameters["rows"], parameters["cols"]), draw(parameters["cols"])
    return draw(rows or parameters["M"], parameters["K"]), draw(parameters["K"], parameters["N"]) / parameters["K"] ** 0.5


def right(name: str, a: Any, b: Any, result: Any) -> None:
    expected = torch.nn.functional.rms_norm(a.float(), (a.shape[1],), b.float(), 1e-6) if name == "rms_norm" else a.float() @ b.float()
    torch.testing.assert_close(result.float(), expected, rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize("name", SCHEDULES)
def test_plans_compute_the_operator_on_whatever_tensors(name: str) -> None:
    operator = make(name)
    for seed in range(4):
        a, b = inputs(name, seed)
        out = torch.full_like(operator.call(a, b), float("nan"))
        right(name, a, b, operator.call(a, b))
        assert operator.call(a, b, out=out) is out
        right(name, a, b, out)
    counters = operator.counters()
    assert counters["plans"] == 1 and not counters["unplanned"]
    assert all(plan.direct for _, plan in operator.recorded())
    assert sum(counters["calls"].values()) == 12


def test_misaligned_tensors(name: str = "pointers") -> None:
    operator = make(name)
    a, b = inputs(name)
    operator.call(a, b)
    shifted = torch.empty(a.numel() + 1, device="cuda", dtype=a.dtype)[1:].view(a.shape)
    shifted.copy_(a)
    for _ in range(2):
        right(name, a, b, operator.call(shifted, b))
    right(name, a, b, operator.call(a, b))


def test_tensors_on_the_cpu_are_refused() -> None:
    operator = make("pointers")
    a, b = inputs("pointers")
    operator.call(a, b)
    with pytest.raises(ValueError, match="several devices"):
        operator.call(a, b.cpu())
    with pytest.raises(ValueError, match="on the CPU"):
        operator.call(a.cpu(), b.cpu())


@pytest.mark.parametrize("warm", [True, False], ids=["called before", "first call in the capture"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_captured_graph_replays(name: str, warm: bool) -> None:
    operator = make(name)
    a, b = inputs(name)
    out = torch.empty_like(operator.call(*inputs(name))) if warm else torch.empty(a.shape[0], b.shape[-1], device="cuda", dtype=a.dtype)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        operator.call(a, b, out=out)
        fresh = operator.call(a, b)
    for seed in (5, 6):
        more = inputs(name, seed)
        a.copy_(more[0])
        b.copy_(more[1])
        graph.replay()
        # Eager calls between replays must not share the graph's scratch.
        right(name, *more, operator.call(*more))
        torch.cuda.synchronize()
        right(name, a, b, out)
        right(name, a, b, fresh)


def test_streams_and_threads_do_not_share_scratch() -> None:
    operator = make("split_k")
    pairs = [inputs("split_k", seed) for seed in range(4)]
    operator.call(*pairs[0])
    torch.cuda.synchronize()
    wrong: list[int] = []

    def work(index: int) -> None:
        a, b = pairs[index]
        expected = a.float() @ b.float()
        stream = torch.cuda.Stream() if index % 2 else torch.cuda.default_stream()
        with torch.cuda.stream(stream):
            results = [operator.call(a, b) for _ in range(200)]
            stream.synchronize()
        wrong.extend(index for result in results if (result.float() - expected).abs().max() > 0.02)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("name", ["pointers", "rms_norm"])
def test_after_warm_nothing_compiles(name: str) -> None:
    operator = make(name, upto=600)
    assert operator.warm(device=0) == 600
    compiled: list[str] = []
    triton.knobs.runtime.jit_post_compile_hook = lambda **what: compiled.append(what["repr"])
    try:
        draw = random.Random(0)
        for _ in range(300):
            a, b = inputs(name, rows=draw.randint(1, 600))
            result = operator.call(a, b)
        right(name, a, b, result)
    finally:
        triton.knobs.runtime.jit_post_compile_hook = None
    assert not compiled


@pytest.mark.parametrize("name", SCHEDULES)
def test_precompiled_kernels_run(name: str, tmp_path: Path) -> None:
    from tilewright.runtime.precompiled import precompile

    make(name).call(*inputs(name))  # Triton holds the kernels in memory, and they have to be written all the same
    assert precompile(make(name), tmp_path / "kernels") == []
    operator = make(name, precompiled=tmp_path / "kernels")
    module = operator.server._schedules("it")
    for value in vars(module).values():
        if hasattr(value, "device_caches"):
            value.device_caches.clear()
    a, b = inputs(name)
    right(name, a, b, operator.call(a, b))
    counters = operator.counters()
    assert (counters["compiles"], counters["precompiled"], counters["not_precompiled"]) == (0, 2 if name == "split_k" else 1, {})


@pytest.mark.filterwarnings("ignore")  # torch's own, of its compiler
def test_torch_compile_adds_no_graph_break() -> None:
    matmul, norm = make("pointers"), make("rms_norm")
    mm, rms = matmul.call, norm.call

    class Model(torch.nn.Module):
        def forward(self, a: Any, b: Any, x: Any, w: Any) -> Any:
            return torch.relu(mm(a, b)) + 1.0, rms(x, w) * 2.0

    model = Model()
    arguments = (*inputs("pointers"), *inputs("rms_norm"))
    for got, want in zip(torch.compile(model, fullgraph=True)(*arguments), model(*arguments), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)
    assert torch._dynamo.explain(model)(*arguments).graph_break_count == 0


def test_the_device_is_the_one_that_records_name() -> None:
    import msgspec

    from tilewright.children.device import describe
    from tilewright.runtime.device import driver_branch, identity
    from tilewright.target import Target

    described = describe("cuda:0")
    target = msgspec.convert(described["target"], Target)
    assert {**target.identity, "name": target.name} == identity(0)
    assert described["toolchain"]["driver"].split(".")[0] == driver_branch()


def test_several_devices() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    operator = make("split_k")
    a, b = inputs("split_k")
    for device in (0, 1, 0, 1):
        there = a.to(f"cuda:{device}"), b.to(f"cuda:{device}")
        right("split_k", *there, operator.call(*there))
