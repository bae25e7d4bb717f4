"""An operator's spec as its folder has it: `spec.py`, and `predict.py` where there is one. Neither imports torch."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Final

from tilewright.canonical import sha256_text
from tilewright.errors import UsageError, nearest
from tilewright.folders import SPEC_FILE
from tilewright.operator import OperatorSpec
from tilewright.prediction import SIGNATURE

PREDICT_FILE: Final = "predict.py"


def load_spec(folder: Path) -> OperatorSpec:
    """What `spec.py` declares as SPEC, with the `predict` of `predict.py`.

    Raises:
        UsageError: a file does not load, or does not define what it must.
    """
    path = folder / SPEC_FILE
    spec = getattr(_load_module(path, folder.name), "SPEC", None)
    if not isinstance(spec, OperatorSpec):
        raise UsageError(f"{path}: must define SPEC, an OperatorSpec, not {spec!r}")
    if spec.name != folder.name:
        raise UsageError(f"{path}: SPEC is named {spec.name!r}, and its folder {folder.name!r}; make them the same")
    estimate = folder / PREDICT_FILE
    if not estimate.is_file():
        return spec
    module = _load_module(estimate, f"{folder.name}_predict")
    predict = getattr(module, "predict", None)
    if not callable(predict):
        problem = f"predict is {predict!r}" if hasattr(module, "predict") else f"has no predict; {nearest('predict', _own_names(module))}"
        raise UsageError(f"{estimate}: {problem}; define {SIGNATURE}, which gives a time in µs, or remove the file")
    return replace(spec, predict=predict)


def _own_names(module: ModuleType) -> list[str]:
    """The public names that a module gives to things of its own."""
    plain = {name: value for name, value in vars(module).items() if name[0] != "_" and not isinstance(value, ModuleType)}
    return [name for name, value in plain.items() if getattr(value, "__module__", module.__name__) == module.__name__]


def _load_module(path: Path, name: str) -> ModuleType:
    """Import a file under a module name that no other file has, so that two operators' specs never meet."""
    unique = f"tilewright_operator_{name}_{sha256_text(str(path))[:12]}"
    description = importlib.util.spec_from_file_location(unique, path)
    if description is None or description.loader is None:
        raise UsageError(f"{path}: is not a Python file that can be imported")
    module = importlib.util.module_from_spec(description)
    sys.modules[unique] = module
    try:
        description.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[unique]
        raise UsageError(f"{path}: does not load: {type(error).__name__}: {error}") from error
    return module
