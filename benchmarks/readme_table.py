"""Fill the README's table of results from the logs committed under tuning_logs/.

    python benchmarks/readme_table.py            # rewrite the block in README.md
    python benchmarks/readme_table.py --check    # fail where it is not what the logs say

The schedule of a workload is that of the best file's rule (docs/decisions/0003, 0017), so one of today's templates; default and vendor are
medians over the sessions' single measurements, and `vs vendor` is the vendor's time over this schedule's, the median of the final races it was in.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

from tilewright.best import best_of
from tilewright.current import current_templates
from tilewright.library import find_operators
from tilewright.log import TuningLog
from tilewright.record import Line, RaceRecord, Record, VendorRecord
from tilewright.report import format_config, format_us, format_workload, rate
from tilewright.result import time_us
from tilewright.roofline import roofline

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"


def tables(folder: Path) -> str:
    """One Markdown table for each target that has logs."""
    parts = []
    for target in sorted(path for path in folder.iterdir() if path.is_dir()):
        lines: list[Line] = []
        for log in sorted(target.glob("*-seed*.jsonl*")):  # those of whole sets of weights are in docs/measured-h200.md
            lines += TuningLog(log).read().lines
        if any(isinstance(line, Record) for line in lines):
            parts.append(table(lines))
    return "\n\n".join(parts)


def table(lines: list[Line]) -> str:
    operators = find_operators()
    records = [line for line in lines if isinstance(line, Record)]
    vendors: dict[tuple[str, str], list[float]] = defaultdict(list)
    defaults: dict[str, list[float]] = defaultdict(list)
    for line in lines:
        us = time_us(line) if isinstance(line, (Record, VendorRecord)) else None
        if us is not None and isinstance(line, VendorRecord):
            vendors[line.workload.key, line.name].append(us)
        elif us is not None and isinstance(line, Record) and line.default:
            defaults[line.workload.key].append(us)
    first = records[0]
    made_with = f"driver {first.toolchain.driver}, torch {first.toolchain.torch}, Triton {first.toolchain.triton}"
    made_by = "matmul: benchmarks/search_h200.py --only cold, three seeds; the others: benchmarks/tune_bars.py; this table: benchmarks/readme_table.py"
    title = f"{first.target.name}, {made_with}; median µs of a call by graph replay. {made_by}."
    rows = [
        title,
        "",
        "| operator | workload | vendor | default | tuned | vs vendor | rate | schedule |",
        "|---|---|---|---|---|---|---|---|",
    ]
    chosen = best_of([*records, *(line for line in lines if isinstance(line, RaceRecord))], current_templates(operators))
    for _, best in sorted(chosen.items(), key=lambda item: (item[1].workload.operator, item[0])):
        workload = best.workload
        times = {name: median(us) for (key, name), us in vendors.items() if key == workload.key}
        vendor = min(times.items(), key=lambda item: item[1], default=None)
        us = time_us(best)
        operator = operators.get(workload.operator)
        reached = rate(roofline(operator.spec, workload, best.target), us) if operator else ""
        default = median(defaults[workload.key]) if defaults[workload.key] else None
        vendor_text = f"{format_us(vendor[1])} ({vendor[0]})" if vendor else "-"
        # Paired, round by round: the one figure here that a warming GPU does not move.
        ratios = against_vendor(best, lines)
        gain = f"{median(ratios):.2f}x" if ratios else "-"
        cells = [workload.operator, format_workload(workload), vendor_text, format_us(default), format_us(us), gain, reached, f"`{format_config(best.config)}`"]
        rows.append(f"| {' | '.join(cells)} |")
    paired = "`vs vendor` is the paired ratio of the final race, which runs both in turns; the times are medians measured apart, so their quotient may differ."
    rows += ["", paired]
    return "\n".join(rows)


def against_vendor(best: Record, lines: list[Line]) -> list[float]:
    """The fastest vendor's time over this schedule's, in each final race that both were in."""
    found = []
    for race in lines:
        if isinstance(race, RaceRecord) and race.workload == best.workload:
            own = [racer.ratio for racer in race.racers if not racer.vendor and racer.source == best.source and racer.ratio]
            vendors = [racer.ratio for racer in race.racers if racer.vendor and racer.ratio]
            if own and vendors:
                found.append(min(vendors) / own[0])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    filled = f"{before}{BEGIN}\n{tables(ROOT / 'tuning_logs')}\n{END}{after}"
    if arguments.check:
        return 0 if filled == text else 1
    readme.write_text(filled, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
