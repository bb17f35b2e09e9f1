"""The numbers that the paper prints, in percent."""

import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

# Method -> the paper's column; other names are compared without case, "-" and "+".
_COLUMNS = {"dance": "ours", "fedavg-full": "fedavg"}
RATIOS = (0.08, 0.04, 0.02)

Printed = tuple[float, float] | str | None


def main_number(dataset: str, method: str, ratio: float | None) -> Printed:
    """Return (mean, standard deviation) of the main table, "OOT", or None if not printed."""
    row = _numbers()["main"].get(dataset, {}).get("full" if ratio is None else f"{ratio:g}", {})
    column = _plain(_COLUMNS.get(method, method))
    return next((_printed(value) for name, value in row.items() if _plain(name) == column), None)


def main_ratios(dataset: str) -> tuple[float, ...]:
    """Return the condensation ratios of the main table, largest first.

    Data sets that the paper does not have get 0.08, 0.04 and 0.02.
    """
    rows = _numbers()["main"].get(dataset, {})
    return tuple(float(name) for name in rows if name != "full") or RATIOS


def ablation_number(dataset: str, variant: str, metric: str) -> Printed:
    """Return (mean, standard deviation) of the ablation table."""
    return _printed(_numbers()["ablation"].get(dataset, {}).get(variant, {}).get(metric))


def refresh_gain(dataset: str) -> float | None:
    """Return the paper's gain of full DANCE over Static-DANCE, in points of accuracy."""
    return _numbers()["refresh_gain"].get(dataset)  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def _numbers() -> dict[str, Any]:
    path = Path(__file__).with_name("paper_numbers.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _printed(value: Any) -> Printed:
    return (value[0], value[1]) if isinstance(value, list) else value


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("+", "")
