"""Tilewright: a template-based schedule tuner for Triton kernels.

The library's front door; each name is imported when first asked for, so that `import tilewright` is instant.

    tilewright.tune(...)        tune an operator's workloads, to a log
    tilewright.load(...)        a function that runs the best schedule in a log
    tilewright.explain(...)     which record serves a call, and why the nearest others do not
    tilewright.TuneOnMiss       has such a function tune what no record serves
    tilewright.Space            all legal configs of a template for one workload and target
    tilewright.TuningLog        read and append a log
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tilewright.dispatch import explain as explain
    from tilewright.dispatch import load as load
    from tilewright.log import TuningLog as TuningLog
    from tilewright.on_miss import TuneOnMiss as TuneOnMiss
    from tilewright.space import Space as Space
    from tilewright.tuner import tune as tune

__version__ = "0.1.0"
__all__ = ["Space", "TuneOnMiss", "TuningLog", "__version__", "explain", "load", "tune"]

_HOME: Final = {"TuneOnMiss": "on_miss", "explain": "dispatch", "load": "dispatch", "Space": "space", "TuningLog": "log", "tune": "tuner"}


def __getattr__(name: str) -> Any:
    """Import an exported name on first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'tilewright' has no attribute {name!r}; it exports {', '.join(__all__)}")
    value = getattr(importlib.import_module(f"tilewright.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
