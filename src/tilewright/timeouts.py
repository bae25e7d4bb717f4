"""How long one candidate may take to compile and to run before it is given up."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.builder import BUILD_TIMEOUT_S
from tilewright.runner import INTERPRETER_TIMEOUT_S, RUN_TIMEOUT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Limits as asked for; None stands for the default.

    Attributes:
        compile: most seconds for one build; 60 by default.
        run: most seconds for checking and timing one candidate; by default 10 on a GPU, and 120 in the interpreter.
    """

    compile: float | None = None
    run: float | None = None

    @property
    def compile_s(self) -> float:
        """Most seconds for one build."""
        return self.compile if self.compile is not None else BUILD_TIMEOUT_S

    @property
    def measure_s(self) -> float:
        """Most seconds for one candidate on a GPU."""
        return self.run if self.run is not None else RUN_TIMEOUT_S

    @property
    def interpret_s(self) -> float:
        """Most seconds for one candidate in the interpreter."""
        return self.run if self.run is not None else INTERPRETER_TIMEOUT_S

    @property
    def options(self) -> dict[str, float]:
        """What a session's record says of them: those asked for."""
        given = {"compile_timeout_s": self.compile, "run_timeout_s": self.run}
        return {name: value for name, value in given.items() if value is not None}
