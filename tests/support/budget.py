"""Print the lines of Python by folder, beside the budget in `tests/budget.toml`."""

import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
BUDGET = PROJECT / "tests" / "budget.toml"
# A folder -> its budget; what none of the deeper folders counts belongs to the nearest above.
Budget = dict[str, int]


def read_budget() -> Budget:
    """Return the budget of each folder."""
    return tomllib.loads(BUDGET.read_text(encoding="utf-8"))["lines"]


def lines_of(folders) -> Budget:
    """Return the lines of Python in each folder, without those in folders listed below it."""
    counts = dict.fromkeys(folders, 0)
    for root in {name.partition("/")[0] for name in folders}:
        for path in (PROJECT / root).rglob("*.py"):
            place = path.parent.relative_to(PROJECT)
            home = next(p.as_posix() for p in (place, *place.parents) if p.as_posix() in counts)
            counts[home] += len(path.read_text(encoding="utf-8").splitlines())
    return counts


def main():
    """Print folder, lines and budget, and the sum of each package."""
    budget = read_budget()
    lines = lines_of(budget)
    for name, most in budget.items():
        print(f"{name:32s} {lines[name]:6,d} of {most:6,d}")
    for root in dict.fromkeys(name.partition("/")[0] for name in budget):
        total = sum(count for name, count in lines.items() if name.partition("/")[0] == root)
        print(f"{root:32s} {total:6,d} lines together")


if __name__ == "__main__":
    main()
