"""Triton 3.6's C launchers, made by builders: never a fault of a candidate, and given up where they cannot be made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from triton.backends.nvidia import driver

from tilewright.children.launchers import Launchers

KERNEL = SimpleNamespace(src="source", metadata=SimpleNamespace(target=SimpleNamespace(backend="cuda")))
OTHER = SimpleNamespace(src="source", metadata=SimpleNamespace(target=SimpleNamespace(backend="hip")))


def launchers(monkeypatch: pytest.MonkeyPatch, make: Any) -> Launchers:
    monkeypatch.setattr(driver, "make_launcher", None, raising=False)  # as in 3.6
    monkeypatch.setattr(driver, "CudaLauncher", make)
    monkeypatch.setattr(driver, "compile_module_from_src", getattr(driver, "compile_module_from_src", None), raising=False)
    return Launchers()


def test_each_kernel_for_cuda_has_its_launcher_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    makers = launchers(monkeypatch, lambda *arguments: made.append(arguments))
    makers.wanted = [KERNEL, OTHER]
    makers.make()
    makers.make()
    assert made == [(KERNEL.src, KERNEL.metadata)]


def test_where_one_cannot_be_made_none_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []

    def fail(*arguments: Any) -> None:
        tried.append(arguments)
        raise AssertionError("libcuda.so cannot found!")

    makers = launchers(monkeypatch, fail)
    for _ in range(2):
        makers.wanted = [KERNEL]
        makers.make()
    assert len(tried) == 1
