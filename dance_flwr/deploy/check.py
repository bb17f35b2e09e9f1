"""Whether a node can join: every point of the check, one line each."""

from collections.abc import Callable, Mapping
from typing import Any

from dance_flwr.deploy import check_data, check_key, check_link, check_machine
from dance_flwr.deploy.finding import Point, Status
from dance_flwr.deploy.node import Node
from dance_flwr.errors import UserError

__all__ = ["CHECKS", "Node", "as_json", "can_join", "lines", "run_checks"]

Check = Callable[[Node], Point]

# A new point is one function and one line here.
CHECKS: Mapping[str, Check] = {
    "SuperLink": check_link.check_address,
    "TLS": check_link.check_tls,
    "certificate": check_link.check_certificate,
    "clock": check_link.check_clock,
    "key": check_key.check_key,
    "registration": check_key.check_registration,
    "agreed file": check_data.check_agreed,
    "data": check_data.check_data,
    "encoder": check_data.check_encoder,
    "labels": check_data.check_labels,
    "device": check_machine.check_device,
    "disk": check_machine.check_disk,
    "software": check_machine.check_software,
    "code": check_machine.check_code,
}


def run_checks(node: Node, checks: Mapping[str, Check] = CHECKS) -> dict[str, Point]:
    """Return every point by name; a check that fails itself is a PROBLEM, never a traceback."""
    return {name: _run(check, node) for name, check in checks.items()}


def can_join(points: Mapping[str, Point]) -> bool:
    """Return whether no point is a PROBLEM."""
    return all(point.status is not Status.PROBLEM for point in points.values())


def lines(points: Mapping[str, Point]) -> list[str]:
    """Return one line per point and the verdict, which promises nothing about what was not checked."""
    rows = [f"{point.status:<12}{name:<14}{point.text}" for name, point in points.items()]
    count = _count(points)
    rest = [f"{count[status]} {words}" for status, words in _REST.items() if count[status]]
    added = f" ({', '.join(rest)})" if rest else ""
    number = count[Status.PROBLEM]
    if number:
        return [*rows, f"{number} problem{'s' * (number > 1)}: this node cannot join yet{added}"]
    verdict = "in what was checked" if count[Status.UNCHECKED] else "this node can join"
    return [*rows, f"no problem found{' ' if count[Status.UNCHECKED] else ': '}{verdict}{added}"]


def as_json(points: Mapping[str, Point]) -> dict[str, Any]:
    """Return the same as `lines`, for programs."""
    listed = [
        {
            "name": name,
            "status": point.status.value,
            "text": point.text,
            **{
                key: getattr(point, key)
                for key in ("expected", "found", "action")
                if getattr(point, key)
            },
        }
        for name, point in points.items()
    ]
    count = _count(points)
    totals = {
        "problems": Status.PROBLEM,
        "warnings": Status.WARNING,
        "not-checked": Status.UNCHECKED,
    }
    return {**{name: count[status] for name, status in totals.items()}, "points": listed}


_REST = {Status.WARNING: "to look at", Status.UNCHECKED: "not checked"}


def _count(points: Mapping[str, Point]) -> dict[Status, int]:
    return {status: sum(point.status is status for point in points.values()) for status in Status}


def _run(check: Check, node: Node) -> Point:
    try:
        point = check(node)
    except UserError as error:
        point = Point(Status.PROBLEM, str(error))
    except Exception as error:  # the operator gets a line to send on, whatever happened
        point = Point(
            Status.PROBLEM,
            f"expected this check to end, found {type(error).__name__}: {error}; report it",
        )
    one_line = " ".join(point.text.split())
    return Point(point.status, one_line, point.expected, point.found, point.action)
