"""The documentation's links lead somewhere, and its indexes are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def anchors(text: str) -> set[str]:
    """Anchors as code hosts make them from headings."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    prose = re.sub(r"```.*?```|`[^`\n]*`|^    .*$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"https?:", link):
            continue
        path, _, anchor = link.partition("#")
        file = page.parent / path if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file.read_text(encoding="utf-8"))):
            broken.append(link)
    assert broken == []


def test_every_decision_and_page_is_in_its_index() -> None:
    decisions = {path.name for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md")}
    assert set(re.findall(r"\]\((\d{4}-[^)]+\.md)\)", (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8"))) == decisions
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    assert {page for page in pages if f"({page})" in index} == pages


def test_decisions_are_numbered_once() -> None:
    numbers = [path.name[:4] for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md")]
    assert len(numbers) == len(set(numbers))
