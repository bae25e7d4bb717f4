"""What an error inside a template says: its file and line, the workload it arose at, and a nearest name where one is undefined."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import jinja2

from tilewright.environment import GLOBAL_NAMES
from tilewright.errors import SpaceError, TemplateError, nearest


def template_fault(
    error: Exception, path: Path, names: Mapping[str, Any], assigned: Iterable[str], violations: Sequence[str] = ()
) -> SpaceError | TemplateError:
    """The error that a user is shown.

    Args:
        error: as it was raised, with its traceback.
        path: the template's.
        names: what the template sees: the workload's parameters, and `target`.
        assigned: names that the template sets itself.
        violations: reasons of requires that refuse the point at which it arose.
    """
    place = f"{path}:{_line(error.__traceback__, str(path))}"
    at = ", ".join(f"{name}={value}" for name, value in names.items() if name != "target")
    case = f" (at {at} for {names['target'].arch})"
    if isinstance(error, (SpaceError, TemplateError)):
        return type(error)(f"{place}: {error}{case}")
    message = str(error) if isinstance(error, jinja2.TemplateError) else f"{type(error).__name__}: {error}"
    attribute = re.match(r"'(.+) object' has no attribute '(\w+)'", message)
    unknown = re.match(r"'(\w+)' is undefined", message)
    if attribute and attribute[1].endswith("Target"):
        fields = [name for name in dir(names["target"]) if name[0] != "_"]
        message = f"target has no {attribute[2]!r}; {nearest(attribute[2], fields)}"
    elif unknown:
        message += f"; {nearest(unknown[1], sorted({*names, *GLOBAL_NAMES, *assigned, 'cfg'}))}"
    if violations:
        message += f" (at a point that a require refuses: {violations[0]})"
    return TemplateError(f"{place}: {message}{case}")


def _line(traceback: TracebackType | None, path: str) -> int:
    """The template's line in the innermost frame that Jinja compiled from it."""
    line = 0
    while traceback is not None:
        template = traceback.tb_frame.f_globals.get("__jinja_template__")
        if template is not None and template.filename == path:
            line = template.get_corresponding_lineno(traceback.tb_lineno)
        traceback = traceback.tb_next
    return line
