"""Which records are of the templates that an operator has now: the others are taken only where there are none. docs/decisions/0017."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from tilewright.library import Operator

# Hashes of the templates that each operator at hand has now, by its name. Of an operator that is not there, nothing is stale.
Templates: TypeAlias = Mapping[str, frozenset[str]]


def current_templates(operators: Mapping[str, Operator]) -> Templates:
    """The hashes of operators' templates, read from their files; an operator none of whose templates can be read is left out."""
    hashes = {name: operator.template_hashes for name, operator in operators.items()}
    return {name: found for name, found in hashes.items() if found}


def is_stale(templates: Templates, operator: str, template: str) -> bool:
    """Whether an operator is at hand, and has no template of that hash now."""
    found = templates.get(operator)
    return found is not None and template not in found


def passed_over(count: int) -> str:
    """What is said of stale records that gave way to current ones."""
    return f"passed over {count:,} record(s) of older templates, where there are records of today's for the same workload, target and protocol"
