"""Kernels of a captured graph, counted where the driver can be asked."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from tilewright.children import captured  # noqa: E402 - needs torch


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    captured._driver.cache_clear()
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    yield
    captured._driver.cache_clear()


def library(**functions: object) -> object:
    return lambda name: SimpleNamespace(**functions)


def test_a_driver_without_these_functions_counts_nothing_and_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", library(cuInit=print))
    assert captured._nodes(1) is None


def test_another_vendors_stream_is_never_shown_to_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object) -> int:
        raise AssertionError("asked about a HIP stream")

    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(ctypes, "CDLL", library(cuStreamGetCaptureInfo_v2=asked, cuGraphGetNodes=asked))
    assert captured._nodes(1) is None


@pytest.mark.parametrize(("graph", "status", "counted"), [(7, 0, 0), (None, 0, None), (7, 900, None)])
def test_a_capture_without_kernels_counts_none_of_them(monkeypatch: pytest.MonkeyPatch, graph: int | None, status: int, counted: int | None) -> None:
    def tell(stream: object, state: object, number: object, found: object, *_: object) -> int:
        ctypes.cast(found, ctypes.POINTER(ctypes.c_void_p))[0] = graph
        return status

    monkeypatch.setattr(ctypes, "CDLL", library(cuStreamGetCaptureInfo_v2=tell, cuGraphGetNodes=lambda *_: 0))
    assert captured._nodes(1) == counted
