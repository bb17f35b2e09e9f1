"""The three ledgers of tokens in `result.json`, which are never added to each other.

- encoder: texts, each read once by the frozen encoder; equal for all methods. A client's folder
  cannot tell what an earlier preparation had encoded: all of it is fresh.
- evidence: chunks that the condensed nodes' evidence selects, at every refresh; a chunk is fresh
  where the run reads it for the first time.
- llm: what a language model was asked, prompt and completion, fresh or from the client's cache.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from dance_flwr.errors import counted
from dance_flwr.metrics import TOKEN_COUNTS, Tokens

Ledger = dict[str, Any]
LLM_TOKENS = ("fresh_prompt", "fresh_completion", "cached_prompt", "cached_completion")
_LLM = "llm_"
_READ = ("evidence_chunks", "evidence_tokens", "distinct_chunks", "distinct_tokens")


def token_ledgers(
    tokens: Mapping[int | None, Tokens],
    sizes: Mapping[str, Mapping[int | None, int]],
) -> dict[str, Ledger]:
    """Return the ledgers: totals, and under "clients" the counts of each client.

    Parameters
    ----------
    tokens : by client, of those that answered at the end; None = the sums of all, where only these
        are known: there are no counts by client then
    sizes : "encoder_tokens" of the texts of each client, or their sum alone
    """
    encoded = sizes["encoder_tokens"]
    every = {client: counts for client, counts in tokens.items() if client is not None}
    # Without counts by client where only their sum is known.
    texts = {
        client: {"fresh": n, "cached": 0} for client, n in encoded.items() if client is not None
    }
    encoder = {"fresh": sum(encoded.values()), "cached": 0}
    read = {name.removeprefix("evidence_"): name for name in _READ}
    called = {name.removeprefix(_LLM): name for name in TOKEN_COUNTS if name.startswith(_LLM)}
    names = {
        "models": _names(counts.model for counts in every.values()),
        "tokenisers": _names(counts.tokeniser for counts in every.values()),
    }
    return {
        "encoder": encoder | _by_client(dict(sorted(texts.items()))),
        "evidence": _ledger(tokens, read),
        # Never added to the others: reading by an encoder and asking a model are different work.
        "llm": _ledger(tokens, called) | names,
    }


def _ledger(tokens: Mapping[int | None, Tokens], names: Mapping[str, str]) -> Ledger:
    """Return sums over clients, and the counts of each."""
    rows = {
        client: {name: getattr(counts, item) for name, item in names.items()}
        for client, counts in tokens.items()
    }
    total = {name: sum(row[name] for row in rows.values()) for name in names}
    return total | _by_client({k: row for k, row in rows.items() if k is not None})


def _by_client(rows: Mapping[int, Mapping[str, int]]) -> Ledger:
    return {"clients": [{"client": client, **row} for client, row in rows.items()]}


def _names(names: Iterable[str]) -> list[str]:
    """Return the names, each once, without empty ones."""
    return sorted({name for name in names if name})


def llm_tokens(ledgers: Mapping[str, Any]) -> int:
    """Return all tokens of the language model, fresh and cached: a replay changes neither."""
    # Fresh and cached alike: the count is of the method, whatever a cache has saved.
    return int(sum(ledgers["llm"][name] for name in LLM_TOKENS))


def ledger_lines(ledgers: Mapping[str, Any]) -> list[str]:
    """Return what the command line prints of the ledgers, a line for each."""
    encoder, evidence, llm = (ledgers[name] for name in ("encoder", "evidence", "llm"))
    lines = [f"encoder {encoder['fresh']:,}, each text once"]
    if evidence["tokens"]:
        lines.append(
            f"evidence {evidence['tokens']:,} in {counted(evidence['chunks'], 'chunk')}; each "
            "chunk once: "
            f"{evidence['distinct_tokens']:,} in {evidence['distinct_chunks']:,}"
        )
    calls = llm["fresh_calls"] + llm["cached_calls"]
    if calls or llm["capped_calls"]:
        lines.append(
            f"language model {llm_tokens(ledgers):,} in {counted(calls, 'call')}: prompts "
            f"{llm['fresh_prompt']:,} fresh, {llm['cached_prompt']:,} cached; replies "
            f"{llm['fresh_completion']:,} fresh, {llm['cached_completion']:,} cached; "
            f"{counted(llm['failed_calls'], 'call')} failed, {llm['capped_calls']:,} beyond the "
            "cap; "
            f"counted by {', '.join(llm['tokenisers']) or 'the clients'}"
        )
    return lines
