"""Launches taken down to Triton's C launcher, with Triton's own CudaLauncher above it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from triton.backends.nvidia import driver as nvidia  # noqa: E402

from tilewright.children.modules import load_file  # noqa: E402
from tilewright.library import find_operator  # noqa: E402
from tilewright.runtime.kernels import STREAM, Map, Recorder, lower, prepare  # noqa: E402
from tilewright.runtime.plan import build  # noqa: E402
from tilewright.runtime.standin import Cast  # noqa: E402
from tilewright.target import named_target  # noqa: E402

fakes: Any = load_file(Path(__file__).with_name("runtime_fakes.py"), "runtime_fakes")

SPLITS = {"tile_m": [1, 16], "tile_n": [4, 64], "tile_k": [8, 32], "num_warps": 4, "num_stages": 2}


class Utils(fakes._Utils):
    # Never called: a launch is taken down, not made.
    launch = staticmethod(print)

    def build_signature_metadata(self, signature: Any) -> bytes:
        return repr(signature).encode()


@pytest.fixture
def nvidia_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    # 3.6 compiles a launcher for each signature; later ones share theirs, and wrap what it is told of the arguments.
    monkeypatch.setattr(nvidia, "compile_module_from_src", lambda **_: SimpleNamespace(launch=print), raising=False)
    for name in ("PyKernelArg", "ARG_CONSTEXPR", "ARG_KERNEL", "ARG_TUPLE"):
        monkeypatch.setattr(nvidia, name, lambda *_, **kinds: kinds, raising=False)
    monkeypatch.setattr(nvidia, "library_dirs", lambda: [])
    driver = fakes.Driver(nvidia.CudaLauncher)
    driver.utils = Utils()
    before = triton.runtime.driver._active
    triton.runtime.driver.set_active(driver)
    yield
    triton.runtime.driver._active = before


def recorded(schedule: str, config: dict[str, Any], tmp_path: Path) -> tuple[Cast, Any, list[Any]]:
    operator = find_operator("matmul")
    workload = operator.spec.workload({"M": 16, "N": 256, "K": 256, "dtype": "float16"})
    source = operator.render(workload, named_target("sm_90"), {"schedule": schedule, **SPLITS, **config})
    module = fakes.module(tmp_path, source.text)
    assert prepare(module)
    cast = Cast([((16, 256), None, torch.float16, 0), ((256, 256), None, torch.float16, 0), ((16, 256), None, torch.float16, 0)])
    with cast:
        scratch = [cast.add(shape, None, getattr(torch, dtype)) for shape, dtype in getattr(module, "workspace", lambda *_: [])(*cast.tensors)]
        launches = Recorder().record(module.launch, list(cast.tensors))
        assert len(scratch) == len(cast.tensors) - 3
        lowered = [lower(launch) for launch in launches]
    return cast, lowered, launches


def flat(arguments: tuple[Any, ...]) -> list[Any]:
    return [item for value in arguments for item in (flat(value) if type(value) in (tuple, list) else [value])]


def test_pointers_and_split_k(nvidia_driver: None, tmp_path: Path) -> None:
    cast, lowered, launches = recorded("pointers", {"split_k": 2, "reduce_n": 256}, tmp_path)
    assert len(lowered) == 2 and all(low.launch is print for low in lowered)
    first, second = (flat(low.arguments) for low in lowered)
    assert first[:3] == [4, 2, 1] and sum(value is STREAM for value in first) == 1
    standins = [[value for value in arguments if any(value is tensor for tensor in cast.tensors)] for arguments in (first, second)]
    a, b, c, partial = cast.tensors
    assert [id(value) for value in standins[0]] == [id(a), id(b), id(partial)]
    assert [id(value) for value in standins[1]] == [id(partial), id(c)]
    with cast:
        plan = build(launches, cast, 3, lambda size: lambda stream: (4096, size))
    assert plan.direct and plan.kernels == ("matmul_kernel", "reduce_kernel")


def test_tensor_maps_are_made_once_for_each_address(nvidia_driver: None, tmp_path: Path) -> None:
    cast, (lowered,), launches = recorded("tma", {"split_k": 1}, tmp_path)
    assert lowered.launch is print
    maps = [value for value in flat(lowered.arguments) if isinstance(value, Map)]
    assert [cast.place(one.arguments[0]) for one in maps] == [(0, 0), (1, 0)]
    with cast:
        plan = build(launches, cast, 3, lambda size: lambda stream: (0, None))
    made: list[int] = []
    calls: list[list[Any]] = []
    for cell in plan.run.__closure__ or ():
        if cell.cell_contents is print:
            cell.cell_contents = lambda *arguments: calls.append(flat(arguments))
        elif hasattr(cell.cell_contents, "func"):
            maker = cell.cell_contents
            cell.cell_contents = type(maker)(maker.func, lambda *arguments: made.append(arguments[0]) or f"map {arguments[0]}", *maker.args[1:])
    for addresses in ((16, 32, 48), (16, 32, 48), (64, 32, 48)):
        plan.run(*addresses, 7)
        assert [value for value in calls[-1] if isinstance(value, str)] == [f"map {address}" for address in addresses[:2]]
        assert addresses[2] in calls[-1]
    assert made == [16, 32, 64]
