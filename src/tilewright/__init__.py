"""Tilewright: a template-based schedule tuner for Triton kernels.

The library's front door; each name is imported when first asked for, so that `import tilewright` is instant.

    tilewright.tune(...)        tune an operator's workloads, to a log
    tilewright.load(...)        a callable that runs the best schedule in a log
    tilewright.Space            all legal configs of a template for one workload and target
    tilewright.TuningLog        read and append a log
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tilewright.dispatch import load as load
    from tilewright.log import TuningLog as TuningLog
    from tilewright.space import Space as Space
    from tilewright.tuner import tune as tune

__version__ = "0.1.0"
__all__ = ["Space", "TuningLog", "__version__", "load", "tune"]

_HOME: Final = {"load": "dispatch", "Space": "space", "TuningLog": "log", "tune": "tuner"}


def __getattr__(name: str) -> Any:
    """Import an exported name on first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'tilewright' has no attribute {name!r}; it exports {', '.join(__all__)}")
    value = getattr(importlib.import_module(f"tilewright.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
