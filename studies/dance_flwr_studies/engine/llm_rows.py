"""Which rows asked a language model, through which back end, and which of them are results.

A row counts if a model behind an endpoint answered, and the row has its tokens and the digest of
the cached replies. Rows of the stub, which has no model, and of the small packaged model, which can
neither classify nor score edges, only show that a method runs.
"""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dance_flwr.config.paths import LEDGER
from dance_flwr.config.plugins import METHODS
from dance_flwr.config.tree import RunConfig
from dance_flwr.llm.config import CORE, ENDPOINT, LlmConfig
from dance_flwr.llm.session import CallCounts
from dance_flwr.methods import get_spec
from dance_flwr.runs.plan import asks
from dance_flwr.runs.token_ledgers import llm_tokens
from dance_flwr_studies.engine.cells import Row

NEEDS = "needs an endpoint"
_BACKEND, _SUMMARIES = "llm.backend", "llm.summaries"


def asking_methods() -> tuple[str, ...]:
    """Return the methods that ask a language model, in the order of the registry."""
    return tuple(name for name in METHODS if get_spec(name).card.needs_llm)


def back_end(row: Row) -> str:
    """Return the back end that a row's run asks, "" where it asks none."""
    asking = get_spec(str(row.config["method"])).card.needs_llm
    if not asking and row.config.get(_SUMMARIES) != CORE:
        return ""
    recorded = row.result.get("facts", {}).get("llm", {}).get("backend")
    # A run that is not finished has recorded nothing yet.
    return str(recorded or row.config.get(_BACKEND, LlmConfig.backend))


def stamp(row: Row) -> str:
    """Return why a row does not count as a result; "" if it counts or is not finished."""
    backend = back_end(row)
    if not backend:
        return ""
    if backend != ENDPOINT:
        return f"{backend}, no result"
    if row.result and not _recorded(row):
        return "no recorded tokens and cache, no result"
    return ""


def _recorded(row: Row) -> bool:
    digest = row.result.get("facts", {}).get("llm", {}).get("cache_sha256")
    return bool(digest and llm_tokens(row.result["tokens"]))


def results(rows: Sequence[Row]) -> tuple[list[Row], str]:
    """Return the rows that may be in a table of results, and a sentence on those that may not."""
    usable = [row for row in rows if not stamp(row)]
    refused: dict[tuple[str, str], int] = {}
    for row in rows:
        if why := stamp(row):
            key = str(row.config["method"]), why
            refused[key] = refused.get(key, 0) + 1
    parts = [f"{count} of {method} ({why})" for (method, why), count in refused.items()]
    return usable, f"Rows left out: {', '.join(parts)}." if parts else ""


def missing(rows: Iterable[Row]) -> list[str]:
    """Return the methods that ask a language model and have none of these rows."""
    present = {str(row.config["method"]) for row in rows}
    return [method for method in asking_methods() if method not in present]


def llm_facts(partition: Path, run: str, config: RunConfig) -> dict[str, Any]:
    """Return facts about the language model of a run; empty for a run that asks none.

    Returns
    -------
    "llm" : "backend", "models" and "tokenisers" that the clients name, and "cache_sha256", the
        digest of all replies in the clients' caches when the run ended
    """
    if not asks(config):
        return {}
    folders = sorted(partition.glob("client-*"))
    ledgers = [CallCounts.load(folder / "runs" / run / LEDGER) for folder in folders]
    return {
        "llm": {
            "backend": LlmConfig.of(config).backend,
            "models": sorted({ledger.model for ledger in ledgers if ledger.model}),
            "tokenisers": sorted({ledger.counted_by for ledger in ledgers if ledger.counted_by}),
            "cache_sha256": _cache_sha256(partition),
        }
    }


def _cache_sha256(partition: Path) -> str:
    digest, replies = hashlib.sha256(), sorted(partition.glob("client-*/llm/??/*.json"))
    for path in replies:
        name = path.relative_to(partition).as_posix()
        # Names beside contents: a reply moved to another client is another cache.
        digest.update(f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest() if replies else ""
