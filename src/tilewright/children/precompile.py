"""The precompile child: compiles what an emitted package may launch, on a machine that needs no device.

Run as `python -m tilewright.children.precompile PACKAGE ANSWER`; reads from standard input the arch and, by index into the package's
targets, those to compile for with their attributes; writes a JSON list of problems to ANSWER. Like any child, it may be killed by a compiler.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

from tilewright.children import standin


def main() -> None:
    """Compile for each target in turn."""
    package, answer = Path(sys.argv[1]), Path(sys.argv[2])
    wanted = json.load(sys.stdin)
    sys.path.insert(0, str(package.parent))
    problems: list[str] = []
    for index, target in wanted:
        standin.stand_in(target)
        module = importlib.import_module(package.name)
        precompile = importlib.import_module(f"{package.name}._runtime.precompiled").precompile
        for name, dispatcher in sorted(module.DISPATCHERS.items()):
            try:
                problems += precompile(dispatcher, package / "_precompiled", index)
            except Exception as error:  # such as a pin that does not hold here: the other operators are compiled all the same
                problems.append(f"{name}: {type(error).__name__}: {error}")
    answer.write_text(json.dumps(problems), encoding="utf-8")


if __name__ == "__main__":
    main()
