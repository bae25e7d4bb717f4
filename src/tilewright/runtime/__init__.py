"""The runtime of tuned operators. It imports torch, triton and the standard library alone: emitted packages hold a copy of this folder."""

from .dispatcher import Dispatcher
from .serving import Missed
from .table import Miss, Stale

__all__ = ["Dispatcher", "Miss", "Missed", "Stale"]
