"""Alg. 3 (hierarchical text condensation) by loops over nodes, neighbours and chunks."""

from collections import deque
from math import exp, sqrt

import numpy as np


def distances(indptr, indices, source):
    """Breadth-first search: node -> distance, for the nodes that can be reached."""
    found = {source: 0}
    queue = deque([source])
    while queue:
        v = queue.popleft()
        for u in indices[indptr[v] : indptr[v + 1]]:
            if int(u) not in found:
                found[int(u)] = found[v] + 1
                queue.append(int(u))
    return found


def hop(indptr, indices, source, length):
    """Nodes at distance exactly `length`, ascending."""
    return sorted(u for u, far in distances(indptr, indices, source).items() if far == length)


def softmax(values):
    raw = [exp(value - max(values)) for value in values]
    return [value / sum(raw) for value in raw]


def pool(chunks):
    """eq:text_pool: softmax attention with the mean chunk as query; chunks [R_u, d] -> [d]."""
    query = sum(chunks) / len(chunks)
    weights = softmax([float(e @ query) / sqrt(len(query)) for e in chunks])
    return sum(a * e for a, e in zip(weights, chunks, strict=True))


def entmax(scores):
    """1.5-entmax of one row by bisection: p_i = max(s_i / 2 - tau, 0)^2 with tau such that the sum
    is 1.
    """
    if not scores:
        return []
    half = [score / 2 for score in scores]
    low, high = max(half) - 1, max(half)
    for _ in range(200):
        tau = (low + high) / 2
        if sum(max(z - tau, 0) ** 2 for z in half) > 1:
            low = tau
        else:
            high = tau
    raw = [max(z - low, 0) ** 2 for z in half]
    return [value / sum(raw) for value in raw]


def project(probs, budget):
    """Pi_B: the B largest entries, ties to the lower index, renormalised."""
    kept = sorted(range(len(probs)), key=lambda i: (-probs[i], i))[:budget]
    total = sum(probs[i] for i in kept)
    return [probs[i] / total if i in kept and total > 0 else 0.0 for i in range(len(probs))]


def pull(anchor, text, temperature):
    """<x / |x|, t> / T: what a query asks for before it is learnt; 0 without a temperature."""
    length = float(np.linalg.norm(anchor))
    return float(anchor @ text) / length / temperature if temperature and length else 0.0


def gates(g, texts, candidates, W_q, W_k, budget, own, temperature):
    """eq:neighbor_gating: {u: alpha_vu} with alpha_vu > 0; `own` is t_v."""
    scores = [
        float((W_q @ g) @ (W_k @ texts[u])) / sqrt(texts.shape[1])
        + pull(own, texts[u], temperature)
        for u in candidates
    ]
    weights = project(entmax(scores), budget)
    return {u: weight for u, weight in zip(candidates, weights, strict=True) if weight > 0}


def condense(
    v, g, graph, bank, difficulty, weights, budgets, pool_size, chunk_budget, mix, temperature=0
):
    """Everything Alg. 3 computes for one node.

    `graph` = (indptr, indices); `bank` = (chunks [R, d], chunk_ptr, texts [n, d]); `weights` = name
    -> array.
    """
    chunks, chunk_ptr, texts = bank
    near, far = hop(*graph, v, 1), hop(*graph, v, 2)
    hardest = sorted(far, key=lambda w: (-difficulty[w], w))[:pool_size]
    candidates = [[v], near, sorted(hardest)]
    alpha = [
        gates(g, texts, pool_, weights["query"], weights["key"], budget, texts[v], temperature)
        for pool_, budget in zip(candidates, budgets, strict=True)
    ]
    gamma = softmax(list(weights["hop_logits"]))
    context = np.zeros(texts.shape[1])
    for ell in range(3):
        for u, weight in alpha[ell].items():
            context = context + gamma[ell] * weight * texts[u]
    offered = [
        r for ell in range(3) for u in alpha[ell] for r in range(chunk_ptr[u], chunk_ptr[u + 1])
    ]
    query = weights["chunk_query"] @ g
    scores = [
        float(query @ chunks[r]) / sqrt(chunks.shape[1]) + pull(context, chunks[r], temperature)
        for r in offered
    ]
    shares = project(entmax(scores), chunk_budget)
    text = np.zeros(texts.shape[1])
    for r, share in zip(offered, shares, strict=True):
        text = text + share * chunks[r]
    return {
        "candidates": candidates,
        "gates": alpha,
        "offered": offered,
        "chunks": {r: share for r, share in zip(offered, shares, strict=True) if share > 0},
        "context": context,
        "text": text,
        "fused_text": mix * text + (1 - mix) * context,
    }
