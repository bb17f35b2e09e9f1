"""The counts of tokens of a client, read from its folder at the end of a run."""

from dataclasses import replace

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.paths import LEDGER
from dance_flwr.data.card import run_folder
from dance_flwr.data.text.usage import usage_of
from dance_flwr.metrics import Tokens

_NAME = 200  # characters of a name that are sent


def tokens_of(data: ClientData, run: str) -> Tokens:
    """Return what a run read as evidence, and what it asked a language model, at this client.

    Parameters
    ----------
    run : name of the run
    """
    folder = run_folder(data.folder, run)
    read = usage_of(folder, data.bank.tokens)
    counted = Tokens(
        evidence_chunks=read.chunks,
        evidence_tokens=read.tokens,
        distinct_chunks=read.distinct_chunks,
        distinct_tokens=read.distinct_tokens,
    )
    if not (folder / LEDGER).is_file():  # a run without a language model imports none of it
        return counted
    from dance_flwr.llm.ledger import Ledger

    ledger = Ledger.load(folder / LEDGER)
    return replace(
        counted,
        llm_fresh_calls=ledger.fresh_calls,
        llm_cached_calls=ledger.cached_calls,
        llm_failed_calls=ledger.failed_calls,
        llm_capped_calls=ledger.capped_calls,
        llm_fresh_prompt=ledger.fresh_prompt,
        llm_fresh_completion=ledger.fresh_completion,
        llm_cached_prompt=ledger.cached_prompt,
        llm_cached_completion=ledger.cached_completion,
        llm_milliseconds=ledger.milliseconds,
        model=ledger.model[:_NAME],
        tokeniser=ledger.counted_by[:_NAME],
    )
