"""The three ledgers of tokens in `result.json`, which are never added to each other.

- encoder: texts, each read once by the frozen encoder; equal for all methods. All of them are
  fresh, as a client's folder does not know what an earlier preparation had encoded.
- evidence: chunks that the condensed nodes' evidence selects, at every refresh; "distinct" counts
  each chunk once.
- llm: prompts and completions of a language model, fresh or from the client's cache.
"""

from collections.abc import Mapping
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
    tokens : by client, for the clients that answered at the end; None = the sums of all, if only
        these are known, without counts by client then
    sizes : "encoder_tokens" of the texts of each client, or their sum alone
    """
    encoded = sizes["encoder_tokens"]
    known = [counts for client, counts in tokens.items() if client is not None]
    names = {
        "models": sorted({counts.model for counts in known} - {""}),
        "tokenisers": sorted({counts.tokeniser for counts in known} - {""}),
    }
    llm = [name for name in TOKEN_COUNTS if name.startswith(_LLM)]
    texts = [(k, n) for k, n in encoded.items() if k is not None]
    clients = [{"client": client, "fresh": n, "cached": 0} for client, n in sorted(texts)]
    return {
        "encoder": {"fresh": sum(encoded.values()), "cached": 0, "clients": clients},
        "evidence": _ledger(tokens, {name.removeprefix("evidence_"): name for name in _READ}),
        "llm": _ledger(tokens, {name.removeprefix(_LLM): name for name in llm}) | names,
    }


def _ledger(tokens: Mapping[int | None, Tokens], names: Mapping[str, str]) -> Ledger:
    rows = {
        client: {name: getattr(counts, attribute) for name, attribute in names.items()}
        for client, counts in tokens.items()
    }
    total = {name: sum(row[name] for row in rows.values()) for name in names}
    clients = [{"client": client, **row} for client, row in rows.items() if client is not None]
    return total | {"clients": clients}


def llm_tokens(ledgers: Mapping[str, Any]) -> int:
    """Return all tokens of the language model, fresh and cached; a replay changes nothing."""
    return int(sum(ledgers["llm"][name] for name in LLM_TOKENS))


def ledger_lines(ledgers: Mapping[str, Any]) -> list[str]:
    """Return what the command line prints of the ledgers, a line for each."""
    encoder, evidence, llm = (ledgers[name] for name in ("encoder", "evidence", "llm"))
    lines = [f"encoder {encoder['fresh']:,}, each text once"]
    if evidence["tokens"]:
        lines.append(
            f"evidence {evidence['tokens']:,} in {counted(evidence['chunks'], 'chunk')}; each "
            f"chunk once: {evidence['distinct_tokens']:,} in {evidence['distinct_chunks']:,}"
        )
    calls = llm["fresh_calls"] + llm["cached_calls"]
    if calls or llm["capped_calls"]:
        lines.append(
            f"language model {llm_tokens(ledgers):,} in {counted(calls, 'call')}: prompts "
            f"{llm['fresh_prompt']:,} fresh, {llm['cached_prompt']:,} cached; replies "
            f"{llm['fresh_completion']:,} fresh, {llm['cached_completion']:,} cached; "
            f"{counted(llm['failed_calls'], 'call')} failed, {llm['capped_calls']:,} beyond the "
            f"cap; counted by {', '.join(llm['tokenisers']) or 'the clients'}"
        )
    return lines
