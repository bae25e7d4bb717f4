"""Compiling an emitted package's kernels ahead, in a child process, without a device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from tilewright.cache import child_environment
from tilewright.errors import HostError, UsageError, nearest
from tilewright.target import Target, compiled_for

_SHOWN_CHARS: Final = 2000  # of a child's last words


def check_arch(arch: str, targets: Iterable[Target]) -> None:
    """Refuse an arch that no record is of.

    Raises:
        UsageError: naming the nearest.
    """
    archs = sorted({target.arch for target in targets})
    if arch not in archs:
        raise UsageError(f"--precompile {arch}: no record is of that arch; {nearest(arch, archs)}")


def precompile_package(folder: Path, targets: Sequence[Target], arch: str) -> list[str]:
    """Add compiled kernels to a package.

    Args:
        folder: the package's own.
        targets: the plan's, in its order.
        arch: such as `sm_90`; records of other archs are left to be compiled when called.

    Returns:
        What could not be compiled, and why.

    Raises:
        UsageError: no record is of that arch.
        HostError: the child died.
    """
    wanted: list[tuple[int, dict[str, Any]]] = []
    for index, target in enumerate(targets):
        if target.arch == arch:
            device = compiled_for(target)
            wanted.append((index, {"backend": device.backend, "arch": device.arch, "warp_size": device.warp_size}))
    check_arch(arch, targets)
    with tempfile.TemporaryDirectory() as scratch:
        answer = Path(scratch) / "problems.json"
        environment = {**os.environ, **child_environment(), "CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1"}
        environment.pop("TRITON_INTERPRET", None)
        command = [sys.executable, "-m", "tilewright.children.precompile", str(folder.resolve()), str(answer)]
        done = subprocess.run(command, input=json.dumps(wanted), env=environment, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode or not answer.exists():
            raise HostError(f"compiling {folder} ahead ended with code {done.returncode}; its last words: {done.stderr[-_SHOWN_CHARS:].strip()}")
        problems: list[str] = json.loads(answer.read_text(encoding="utf-8"))
    return problems
