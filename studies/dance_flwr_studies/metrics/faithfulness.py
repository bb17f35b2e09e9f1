"""Faithfulness of evidence packs: predictions without their evidence, and with nothing else.

The pool of a node v is every chunk within two hops of v, from which its evidence comes. Chunks are
removed from the pool, or all others are, and the deployed predictor runs again
(`interventions.repredict`). Graph, edges and weights of the backbone stay; so do texts beyond two
hops unless a measure says otherwise. The predictor may then choose other evidence, so that a
redundant text makes the evidence look less necessary than it is.

`measures` has the metrics of DeYoung et al. 2020 ("ERASER"). With p the probability of the class y^
that is predicted from the full text,

    comprehensiveness = p(y^) - p(y^ | without the evidence), large = the evidence was needed,
    sufficiency = p(y^) - p(y^ | only the evidence), small = the evidence is enough,
    aopc = p(y^) - the mean of p(y^) with 0 chunks and with each budget of chunks removed or kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dance_flwr.client_data.text_table import TextTable
from dance_flwr.dance.inference import DEPLOYED, predict
from dance_flwr.dance.passes import Reader
from dance_flwr.evidence.explain import Explainer
from dance_flwr.evidence.interventions import repredict
from dance_flwr.evidence.pack import Packs
from dance_flwr.evidence.pool import Pool
from dance_flwr.nn.ragged import Ragged, prefix
from dance_flwr_studies.metrics.controls import (
    CONTROLS,
    EVIDENCE,
    WeighChunks,
    control_weights,
    rankings,
)

EXPLAINER = "gnn-explainer"  # a control of the study, beside those of `controls`
OTHERS = (*CONTROLS[:2], f"{EXPLAINER}-by-hop", EXPLAINER, *CONTROLS[2:])
SOURCES = (EVIDENCE, *OTHERS)

# By name, [n] or [n, S] float64. `node_values` are probabilities and shares, all in [0, 1];
# `measures` are what tables show, by "source/measure".
Values = dict[str, NDArray[np.float64]]


@dataclass(frozen=True)
class Outcomes:
    """Deployed class probabilities of m nodes under every intervention.

    Attributes
    ----------
    nodes : [m] local node numbers; packs : their evidence
    budgets : [S] ascending numbers of chunks k, the last one B_tok; at most as many are taken as
        the pack has
    full : [m, C] nothing changed; bare : [m, C] empty pool; textless : [m, C] no text at all
    removed, retained : by source of the chunks, [draws, S, m, C] the pool without, or only with,
        its k heaviest chunks
    alone : by source, [draws, m, C] all its chunks, without any other text of the client
    pool_chunks, pool_tokens : [m] size of the pool
    tokens, owners : by source, [m] float64 tokens of its chunks, and number of nodes they are of;
        means over draws
    gap : largest difference between `full` and a re-prediction with the whole pool, which is the
        numerical error of `repredict`
    """

    nodes: NDArray[np.int64]
    packs: Packs
    budgets: tuple[int, ...]
    full: Tensor
    bare: Tensor
    textless: Tensor
    removed: Mapping[str, Tensor]
    retained: Mapping[str, Tensor]
    alone: Mapping[str, Tensor]
    pool_chunks: NDArray[np.int64]
    pool_tokens: NDArray[np.int64]
    tokens: Mapping[str, NDArray[np.float64]]
    owners: Mapping[str, NDArray[np.float64]]
    gap: float


@torch.no_grad()
def outcomes(
    explainer: Explainer,
    nodes: Tensor,
    draws: int,
    generator: torch.Generator,
    others: Mapping[str, WeighChunks] | None = None,
) -> Outcomes:
    """Intervene on texts by evidence and by every control, with equally many chunks each.

    Parameters
    ----------
    nodes : [m] int64
    draws : repetitions of the random controls
    generator : a CPU generator; the only source of randomness
    others : further controls by name
    """
    data, settings = explainer.data, explainer.settings
    packs = explainer.explain(nodes)
    pool = Pool.of(data.graph.hops(settings.fan_out), data.table, nodes)
    weights = control_weights(explainer, pool, draws, generator, others)
    ranked, budgets = rankings(packs, pool, weights), curve_budgets(settings.chunk_budget)
    empty = Ragged(torch.zeros_like(pool.chunks.ptr), pool.chunks.index[:0])

    def again(chunks: Ragged, texts_elsewhere: bool = True) -> Tensor:
        return repredict(explainer, nodes, chunks, texts_elsewhere=texts_elsewhere)

    def curves(rows: list[Ragged], remove: bool) -> Tensor:
        return torch.stack(
            [torch.stack([again(_change(pool, row, k, remove)) for k in budgets]) for row in rows]
        )

    # By the predictor that is deployed; `gap` is what `repredict` differs from it.
    full = predict(Reader(explainer.model, data, settings, data.graph))[DEPLOYED][nodes]
    tokens = torch.as_tensor(np.asarray(data.bank.tokens, np.int64), device=data.device)
    size = {name: [_size(data.table, tokens, row) for row in rows] for name, rows in ranked.items()}
    return Outcomes(
        nodes=nodes.cpu().numpy(),
        packs=packs,
        budgets=budgets,
        full=full,
        bare=again(empty),
        textless=again(empty, texts_elsewhere=False),
        removed={name: curves(rows, True) for name, rows in ranked.items()},
        retained={name: curves(rows, False) for name, rows in ranked.items()},
        alone={
            name: torch.stack([again(row, texts_elsewhere=False) for row in rows])
            for name, rows in ranked.items()
        },
        pool_chunks=pool.chunks.ptr.diff().cpu().numpy(),
        pool_tokens=_size(data.table, tokens, pool.chunks)[0].cpu().numpy(),
        tokens={name: _mean([count for count, _ in draws]) for name, draws in size.items()},
        owners={name: _mean([count for _, count in draws]) for name, draws in size.items()},
        gap=float((again(pool.chunks) - full).abs().max()) if nodes.numel() else 0.0,
    )


def curve_budgets(max_chunks: int) -> tuple[int, ...]:
    """Return the powers of two below `max_chunks`, then `max_chunks`.

    Examples
    --------
    >>> curve_budgets(6)
    (1, 2, 4, 6)
    """
    # Ends at B_tok, where the whole pack is removed or retained.
    return (*(2**i for i in range((max_chunks - 1).bit_length())), max_chunks)


def _size(table: TextTable, tokens: Tensor, chunks: Ragged) -> tuple[Tensor, Tensor]:
    """Return [m] tokens of the chunks of each row, and [m] number of nodes that they belong to."""
    rows, empty = chunks.rows(), torch.zeros_like(chunks.ptr[1:])
    size = table.chunks_of.ptr.numel()
    owners = torch.unique(rows * size + table.node_of_chunk[chunks.index]) // size
    total = empty.index_add(0, rows, tokens[chunks.index])
    return total, torch.bincount(owners, minlength=empty.numel())


def _mean(draws: list[Tensor]) -> NDArray[np.float64]:
    return torch.stack(draws).double().mean(0).cpu().numpy()


def _change(pool: Pool, ranked: Ragged, count: int, remove: bool) -> Ragged:
    inside = pool.contains(prefix(ranked, torch.full_like(ranked.ptr[1:], count)))
    return pool.chunks.keep(~inside if remove else inside)


def node_values(results: Outcomes, labels: Tensor) -> Values:
    """Return p(y^), y^ = argmax full, whether the class changes and whether it is right, by node.

    "full", "bare" and "textless" are [m]; "source/removed" and "source/kept" [m, S] for the S
    budgets, "source/alone" [m]. Each of the latter has "/flipped" and "/correct" too, at the last
    budget; "full", "bare" and "textless" have "/correct". Random sources are means over draws.

    Parameters
    ----------
    labels : [m] true classes
    """
    # y^ is the class that all texts give: interventions change its probability alone.
    predicted = results.full.argmax(dim=1)
    values: dict[str, Tensor] = {}

    def add(name: str, draws: Tensor) -> None:
        """Add an intervention, [draws, S, m, C]."""
        at = predicted.expand(draws.shape[:-1])[..., None]
        values[name] = draws.gather(-1, at)[..., 0].mean(0).T
        classes = draws[:, -1].argmax(dim=-1)
        values[f"{name}/flipped"] = (classes != predicted).double().mean(0)
        values[f"{name}/correct"] = (classes == labels).double().mean(0)

    whole = {"full": results.full, "bare": results.bare, "textless": results.textless}
    for name, probs in whole.items():
        add(name, probs[None, None])
    # "kept" in these names and in those of `measures` is the word of the committed rows.
    for source in [name for name in SOURCES if name in results.removed]:
        add(f"{source}/removed", results.removed[source])
        add(f"{source}/kept", results.retained[source])
        add(f"{source}/alone", results.alone[source][:, None])
    single = [name for name in values if name in whole or name.endswith("/alone")]
    values |= {name: values[name][:, 0] for name in single}
    return {name: value.double().cpu().numpy() for name, value in values.items()}


def measures(values: Mapping[str, NDArray[np.float64]]) -> Values:
    """Return the measures of each node, [m] or [m, S + 1], by "source/measure".

    "comprehensiveness" and "sufficiency" are those of the whole pack in its pool,
    "sufficiency-alone" that with no other text in the client at all; "aopc-*" their means over
    k = 0 and the budgets; "flipped-*" whether the class changes; "deletion" and "insertion" p(y^)
    by number of chunks; "correct-*" whether the prediction is right.
    """
    # Curves start at no intervention: the full pool for deletion, the empty one for insertion.
    full, bare = values["full"], values["bare"]
    result: Values = {
        "predicted/confidence": full,
        "predicted/correct": values["full/correct"],
        "none/sufficiency": full - bare,
        "none/sufficiency-alone": full - values["textless"],
    }
    for name, source in (("kept", "bare"), ("alone", "textless")):
        result[f"none/flipped-{name}"] = values[f"{source}/flipped"]
        result[f"none/correct-{name}"] = values[f"{source}/correct"]
    for source in [name for name in SOURCES if f"{name}/removed" in values]:
        deletion = np.column_stack([full, values[f"{source}/removed"]])
        insertion = np.column_stack([bare, values[f"{source}/kept"]])
        measured = {
            "comprehensiveness": full - deletion[:, -1],
            "sufficiency": full - insertion[:, -1],
            "sufficiency-alone": full - values[f"{source}/alone"],
            "aopc-comprehensiveness": full - deletion.mean(1),
            "aopc-sufficiency": full - insertion.mean(1),
            "deletion": deletion,
            "insertion": insertion,
        }
        for what in ("removed", "kept", "alone"):
            measured[f"flipped-{what}"] = values[f"{source}/{what}/flipped"]
            measured[f"correct-{what}"] = values[f"{source}/{what}/correct"]
        result |= {f"{source}/{measure}": value for measure, value in measured.items()}
    return result
