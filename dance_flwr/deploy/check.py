"""Check whether a node can join; every check gives one line."""

from collections.abc import Callable, Mapping
from typing import Any

from dance_flwr.deploy import check_data, check_key, check_link, check_machine, check_terms
from dance_flwr.deploy.finding import Finding, Status
from dance_flwr.deploy.node import Node
from dance_flwr.errors import UserError

__all__ = ["CHECKS", "Node", "as_json", "can_join", "lines", "run_checks"]

Check = Callable[[Node], Finding]

# A new check is one function and one line here.
CHECKS: Mapping[str, Check] = {
    # In the order in which a node needs them: the connection, its key, its terms, the data, the
    # machine.
    "SuperLink": check_link.check_address,
    "TLS": check_link.check_tls,
    "certificate": check_link.check_certificate,
    "clock": check_link.check_clock,
    "key": check_key.check_key,
    "registration": check_key.check_registration,
    "terms": check_terms.check_terms,
    "agreed file": check_data.check_agreed,
    "data": check_data.check_data,
    "permissions": check_data.check_permissions,
    "encoder": check_data.check_encoder,
    "labels": check_data.check_labels,
    "device": check_machine.check_device,
    "disk": check_machine.check_disk,
    "software": check_machine.check_software,
    "protocol": check_machine.check_protocol,
}


def run_checks(node: Node, checks: Mapping[str, Check] = CHECKS) -> dict[str, Finding]:
    """Run every check and return its finding by name; an exception in a check is a PROBLEM."""
    return {name: _run(check, node) for name, check in checks.items()}


def can_join(findings: Mapping[str, Finding]) -> bool:
    """Return whether no finding is a PROBLEM."""
    # What was not checked does not prevent a node from joining; the verdict says so.
    return all(finding.status is not Status.PROBLEM for finding in findings.values())


def lines(findings: Mapping[str, Finding]) -> list[str]:
    """Return one line per finding, then the verdict, which covers only what was checked."""
    rows = [f"{finding.status:<12}{name:<14}{finding.text}" for name, finding in findings.items()]
    count = _count(findings)
    rest = [f"{count[status]} {words}" for status, words in _REST.items() if count[status]]
    added = f" ({', '.join(rest)})" if rest else ""
    number = count[Status.PROBLEM]
    if number:
        return [*rows, f"{number} problem{'s' * (number > 1)}: this node cannot join yet{added}"]
    verdict = "in what was checked" if count[Status.UNCHECKED] else "this node can join"
    return [*rows, f"no problem found{' ' if count[Status.UNCHECKED] else ': '}{verdict}{added}"]


def as_json(findings: Mapping[str, Finding]) -> dict[str, Any]:
    """Return the findings and their totals as a JSON object, for programs."""
    listed = [
        {
            "name": name,
            "status": finding.status.value,
            "text": finding.text,
            **{
                key: getattr(finding, key)
                for key in ("expected", "found", "action")
                if getattr(finding, key)
            },
        }
        for name, finding in findings.items()
    ]
    count = _count(findings)
    totals = {
        "problems": Status.PROBLEM,
        "warnings": Status.WARNING,
        "not-checked": Status.UNCHECKED,
    }
    return {**{name: count[status] for name, status in totals.items()}, "points": listed}


_REST = {Status.WARNING: "to look at", Status.UNCHECKED: "not checked"}


def _count(findings: Mapping[str, Finding]) -> dict[Status, int]:
    return {
        status: sum(finding.status is status for finding in findings.values()) for status in Status
    }


def _run(check: Check, node: Node) -> Finding:
    try:
        # Every check ends in one line, so that one that fails hides none of the others.
        finding = check(node)
    except UserError as error:
        finding = Finding(Status.PROBLEM, str(error))
    except Exception as error:  # a line that the operator can pass on, not a traceback
        finding = Finding(
            Status.PROBLEM,
            f"expected this check to end, found {type(error).__name__}: {error}; report it",
        )
    one_line = " ".join(finding.text.split())
    return Finding(finding.status, one_line, finding.expected, finding.found, finding.action)
