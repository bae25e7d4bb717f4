"""The command line's parser: an option that it does not know is refused with the nearest one that it does, one that a command takes is passed on to it."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from typing import Any


class Parser(argparse.ArgumentParser):
    """argparse's parser, whose commands refuse unknown options themselves: the parser above them does not know what they take.

    Attributes:
        common: the parser of what every command takes. Where this parser has commands, such options may also stand in front of the command.
    """

    common: Parser | None = None

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:  # type: ignore[override]
        """As argparse's, but that nothing is left over."""
        given = list(sys.argv[1:] if args is None else args)
        known, unknown = super().parse_known_args(given if self.common is None else self._behind_the_command(given, self.common), namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}; {self._instead(unknown)}")
        return known, unknown

    def _behind_the_command(self, given: list[str], common: Parser) -> list[str]:
        """The arguments with common options moved behind the command's name: argparse would take the first one's value for the command."""
        early, place = [], 0
        while place < len(given) and given[place].startswith("-") and given[place] not in ("-", "--"):
            option, equals, _ = given[place].partition("=")
            action = common._option_string_actions.get(option)
            if action is None:
                if option in self._option_string_actions:
                    return given[place:]  # such as --help, which ends it
                movable = ", ".join(common._option_string_actions)
                self.error(f"{option} must stand behind the command's name; in front of it only {movable} may; {self._instead([option])}")
            taken = place + 1 + (action.nargs != 0 and not equals)
            early += given[place:taken]
            place = taken
        return [*given[place : place + 1], *early, *given[place + 1 :]] if place < len(given) else []

    def _instead(self, unknown: Sequence[str]) -> str:
        for given in unknown:
            if given.startswith("-"):
                option = given.partition("=")[0]
                known = [*self._option_string_actions, *(self.common._option_string_actions if self.common is not None else ())]
                close = difflib.get_close_matches(f"--{option.lstrip('-')}", known, n=1)
                if close:
                    return f"did you mean {close[0]}?"
        return f"`{self.prog} --help` lists what it takes"
