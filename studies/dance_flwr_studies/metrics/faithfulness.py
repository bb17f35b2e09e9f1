"""Faithfulness of evidence packs: predictions without their evidence, and with nothing else.

The pool of a node v is every chunk within two hops of v, from which its evidence comes. Chunks are
removed from the pool, or all others are, and the deployed predictor runs again
(`interventions.repredict`). Graph, edges and weights of the backbone stay, and texts beyond two
hops. The predictor may then choose other evidence, so that a redundant text makes the evidence
look less necessary than it is.

`measures` has the metrics of DeYoung et al. 2020 ("ERASER"). With p the probability of the class y^
that is predicted from the full text,

    comprehensiveness = p(y^) - p(y^ | without the evidence), large = the evidence was needed,
    sufficiency = p(y^) - p(y^ | only the evidence), small = the evidence is enough.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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
    full : [m, C] nothing changed; bare : [m, C] empty pool
    removed, retained : by source of the chunks, [draws, S, m, C] the pool without, or only with,
        its k heaviest chunks
    pool_chunks, pool_tokens : [m] size of the pool
    gap : largest difference between `full` and a re-prediction with the whole pool, which is the
        numerical error of `repredict`
    """

    nodes: NDArray[np.int64]
    packs: Packs
    budgets: tuple[int, ...]
    full: Tensor
    bare: Tensor
    removed: Mapping[str, Tensor]
    retained: Mapping[str, Tensor]
    pool_chunks: NDArray[np.int64]
    pool_tokens: NDArray[np.int64]
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

    def again(chunks: Ragged) -> Tensor:
        return repredict(explainer, nodes, chunks)

    def curves(rows: list[Ragged], remove: bool) -> Tensor:
        return torch.stack(
            [torch.stack([again(_change(pool, row, k, remove)) for k in budgets]) for row in rows]
        )

    # By the predictor that is deployed; `gap` is what `repredict` differs from it.
    full = predict(Reader(explainer.model, data, settings, data.graph))[DEPLOYED][nodes]
    tokens = torch.as_tensor(np.asarray(data.bank.tokens, np.int64), device=data.device)
    chunks = pool.chunks.ptr.diff()
    of_pool = torch.zeros_like(chunks).index_add(0, pool.chunks.rows(), tokens[pool.chunks.index])
    return Outcomes(
        nodes=nodes.cpu().numpy(),
        packs=packs,
        budgets=budgets,
        full=full,
        bare=again(Ragged(torch.zeros_like(pool.chunks.ptr), pool.chunks.index[:0])),
        removed={name: curves(rows, True) for name, rows in ranked.items()},
        retained={name: curves(rows, False) for name, rows in ranked.items()},
        pool_chunks=chunks.cpu().numpy(),
        pool_tokens=of_pool.cpu().numpy(),
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


def _change(pool: Pool, ranked: Ragged, count: int, remove: bool) -> Ragged:
    inside = pool.contains(prefix(ranked, torch.full_like(ranked.ptr[1:], count)))
    return pool.chunks.keep(~inside if remove else inside)


def node_values(results: Outcomes, labels: Tensor) -> Values:
    """Return p(y^), y^ = argmax full, and whether the class is right, by node.

    "full" and "bare" are [m], "source/removed" and "source/kept" [m, S] for the S budgets. Each has
    "/correct" too, at the last budget. Random sources are means over draws.

    Parameters
    ----------
    labels : [m] true classes
    """
    # y^ is the class that all texts give: interventions change its probability alone.
    predicted = results.full.argmax(dim=1)
    # "kept" in these names and in those of `measures` is the word of the committed rows.
    changed = {
        f"{source}/{name}": draws[source]
        for source in SOURCES
        for name, draws in (("removed", results.removed), ("kept", results.retained))
        if source in draws
    }
    values: Values = {}
    whole = {"full": results.full, "bare": results.bare}
    for name, draws in ({n: probs[None, None] for n, probs in whole.items()} | changed).items():
        at = predicted.expand(draws.shape[:-1])[..., None]
        probability = draws.gather(-1, at)[..., 0].mean(0).T.double().cpu().numpy()
        values[name] = probability[:, 0] if name in whole else probability
        right = draws[:, -1].argmax(dim=-1) == labels
        values[f"{name}/correct"] = right.double().mean(0).cpu().numpy()
    return values


def measures(values: Mapping[str, NDArray[np.float64]]) -> Values:
    """Return the measures of each node, [m] or [m, S + 1], by "source/measure".

    "comprehensiveness" and "sufficiency" are those of the whole pack in its pool; "deletion" and
    "insertion" p(y^) by number of chunks; "correct-*" whether the prediction is right.
    """
    # Curves start at no intervention: the full pool for deletion, the empty one for insertion.
    full, bare = values["full"], values["bare"]
    result: Values = {
        "predicted/confidence": full,
        "predicted/correct": values["full/correct"],
        "none/sufficiency": full - bare,
        "none/correct-kept": values["bare/correct"],
    }
    for source in [name for name in SOURCES if f"{name}/removed" in values]:
        deletion = np.column_stack([full, values[f"{source}/removed"]])
        insertion = np.column_stack([bare, values[f"{source}/kept"]])
        measured = {
            "comprehensiveness": full - deletion[:, -1],
            "sufficiency": full - insertion[:, -1],
            "deletion": deletion,
            "insertion": insertion,
        }
        for what in ("removed", "kept"):
            measured[f"correct-{what}"] = values[f"{source}/{what}/correct"]
        result |= {f"{source}/{measure}": value for measure, value in measured.items()}
    return result
