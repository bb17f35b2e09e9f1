"""One thing and several in what commands print: "1 client", "2 clients"."""

import re

import pytest

from dance_flwr.cli import data, listing
from dance_flwr.cli.report import headline
from dance_flwr.cli.status import _missing
from dance_flwr.config.tree import parse
from dance_flwr.evidence.verify import PackCounts
from dance_flwr.runs.run import Absent
from dance_flwr.runs.token_ledgers import LLM_TOKENS, ledger_lines

NOUNS = "client|node|edge|edge both way|class|text|round|chunk|call|span|pack|fresh call"


def ledgers(n):
    names = ("fresh_calls", "cached_calls", "failed_calls", "capped_calls")
    llm = dict.fromkeys((*names, *LLM_TOKENS), n) | {"cached_calls": 0, "tokenisers": []}
    read = dict.fromkeys(("tokens", "chunks", "distinct_tokens", "distinct_chunks"), n)
    return "\n".join(ledger_lines({"encoder": {"fresh": n}, "evidence": read, "llm": llm}))


PRINTED = {
    "counts": lambda n: data._counts(
        {"counts": dict.fromkeys(("nodes", "edges", "directed_edges", "classes"), n)}
    ),
    "list runs": lambda n: listing._text(
        {"method": "dance", "round": n, "state": "finished", "test_accuracy": None}
    ),
    "headline": lambda n: headline(parse({"clients": max(n, 1), "rounds": max(n, 1)}), n),
    "missing": lambda n: _missing(Absent(0, "left", n, 1.0, None)),
    "ledgers": ledgers,
    "verified": lambda n: PackCounts(packs=n, spans=n, recomputed=n).line("f", True),
}


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("printed", PRINTED.values(), ids=PRINTED)
def test_numbers_and_nouns_agree(printed, number):
    text = printed(number)
    found = re.findall(rf"(?<![\w.,])(\d[\d,]*) ((?:{NOUNS})(?:s|es)?)\b", text)
    assert found or not number, text
    for digits, noun in found:
        is_one = re.fullmatch(NOUNS, noun) is not None
        assert is_one == (digits == "1"), (digits, noun, text)
