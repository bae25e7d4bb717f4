"""The first files of a new operator: one that works as it stands, to be changed into what is wanted. They stand beside this file."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Final

from tilewright.errors import HostError, UsageError
from tilewright.workload import NAME

FILES: Final = ("spec.py", "reference.py", "rows.py.jinja")


def write_operator(name: str, parent: Path) -> list[Path]:
    """Write the files of an operator that computes y = 2 x.

    Args:
        name: its name, and its folder's.
        parent: the folder of operators to put it in; made where it is not there.

    Returns:
        The files, in the order in which to read them.

    Raises:
        UsageError: the name is none, or its folder is there.
        HostError: a file cannot be written.
    """
    if not NAME.match(name):
        raise UsageError(f"{name!r} is no name for an operator: letters, digits and _, not starting with a digit, such as rope")
    folder = parent / name
    try:
        folder.mkdir(parents=True)
        for file in FILES:
            text = files("tilewright.scaffold").joinpath(f"{file}.txt").read_text(encoding="utf-8")
            (folder / file).write_text(Template(text).substitute(name=name), encoding="utf-8")
    except FileExistsError:
        raise UsageError(f"{folder} is there already, and nothing in it was touched; choose another name, or another folder with --into") from None
    except OSError as error:
        raise HostError(f"{folder}: cannot write ({error.strerror or error}); choose another folder with --into") from error
    return [folder / file for file in FILES]
