"""Random small clients for the tests of the core algorithm: graph, texts, model, prediction."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from hypothesis import strategies as st

from dance_flwr.client_data.text_table import TextTable
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.evidence import Candidates, Evidence, condense_text, select_candidates
from dance_flwr.dance.model import DanceModel, PaperModel
from dance_flwr.data.graphs.graph import csr_from_pairs
from dance_flwr.nn.hops import Hops
from dance_flwr.nn.model import ModelShape
from dance_flwr.nn.ragged import Ragged

CPU = torch.device("cpu")
SHAPE = ModelShape(text_dim=12, hidden_dim=6, classes=4)
ATTENTION_DIM = 5


def ragged(lists) -> Ragged:
    """A `Ragged` from a list of lists."""
    ptr = np.cumsum([0, *(len(row) for row in lists)])
    return Ragged(
        torch.tensor(ptr),
        torch.tensor([entry for row in lists for entry in row], dtype=torch.int64),
    )


def lists(rows: Ragged) -> list[list[int]]:
    """The inverse of `ragged`."""
    return split(rows.index, rows.ptr)


def split(values: torch.Tensor, ptr: torch.Tensor) -> list[list]:
    """Entry values, row by row."""
    return [values[a:b].tolist() for a, b in pairwise(ptr)]


def rows_of(graph) -> Ragged:
    """Rows of neighbours from (indptr, indices)."""
    return Ragged(*(torch.as_tensor(part, dtype=torch.int64) for part in graph))


def random_csr(rng: np.random.Generator, n: int, density: float):
    """(indptr, indices) of an undirected random graph; isolated nodes and no edges at all are
    possible.
    """
    source, target = np.nonzero(np.triu(rng.random((n, n)) < density, 1))
    return csr_from_pairs(source.astype(np.int64), target.astype(np.int64), n)


@dataclass
class Client:
    """What evidence selection reads on one client, in float64."""

    graph: tuple[np.ndarray, np.ndarray]
    hops: Hops
    table: TextTable
    model: DanceModel
    hidden: torch.Tensor
    difficulty: torch.Tensor
    config: DanceConfig
    nodes: torch.Tensor

    def select(self) -> Candidates:
        hidden = self.hidden[self.nodes]
        return select_candidates(
            self.model, self.nodes, hidden, self.difficulty, self.hops, self.table, self.config
        )

    def condense(self, candidates: Candidates) -> Evidence:
        with torch.no_grad():
            return condense_text(
                self.model, self.hidden[candidates.nodes], candidates, self.table, self.config
            )


def make_client(seed: int, n: int, density: float, scale: float, config: DanceConfig) -> Client:
    """A client with evidence of a random non-empty set of its nodes, in random order.

    Its model has the paper's matrices if the configuration says so.
    """
    rng = np.random.default_rng(seed)
    draw = torch.Generator().manual_seed(seed)
    graph = random_csr(rng, n, density)
    sizes = rng.integers(1, 5, n)
    ptr = torch.tensor(np.cumsum([0, *sizes]))
    chunks = torch.nn.functional.normalize(
        torch.randn(int(ptr[-1]), 12, dtype=torch.float64, generator=draw), dim=1
    )
    pooled = TextTable.from_chunks(chunks, ptr)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        kind = PaperModel if config.paper_matrices else DanceModel
        model = kind(SHAPE, "gcn", 0.5, attention_dim=ATTENTION_DIM).double().eval()
        torch.nn.init.normal_(model.hop_logits)
    return Client(
        graph=graph,
        hops=Hops(rows_of(graph), config.fan_out),
        table=TextTable(chunks, pooled.chunks_of, pooled.nodes.double()),
        model=model,
        hidden=scale * torch.randn(n, SHAPE.hidden_dim, dtype=torch.float64, generator=draw),
        # Few distinct values, so that ties in difficulty occur.
        difficulty=torch.tensor(rng.choice([0.0, 0.5, 1.0, 1.25], n)),
        config=config,
        nodes=torch.tensor(rng.permutation(n)[: rng.integers(1, n + 1)]),
    )


def dance_configs() -> st.SearchStrategy[DanceConfig]:
    """Budgets from nothing to more than a small graph can fill."""
    return st.builds(
        DanceConfig,
        paper_matrices=st.booleans(),
        fan_out=st.just(0),
        hop1_budget=st.integers(0, 6),
        hop2_budget=st.integers(0, 4),
        hop2_pool=st.integers(1, 8),
        chunk_budget=st.integers(1, 8),
        mix=st.sampled_from([0.0, 0.3, 1.0]),
        anchor_temperature=st.sampled_from([0.0, 0.1]),
    )


def clients() -> st.SearchStrategy[Client]:
    """Random clients; small `scale` makes entmax dense (many supported entries), a large one makes
    it sparse.
    """
    return st.builds(
        make_client,
        seed=st.integers(0, 2**20),
        n=st.integers(1, 25),
        density=st.sampled_from([0.0, 0.05, 0.15, 0.4]),
        scale=st.sampled_from([0.3, 3.0, 30.0]),
        config=dance_configs(),
    )


def random_sizes(max_rows: int = 8, max_size: int = 9) -> st.SearchStrategy[list[int]]:
    """Row sizes of a ragged table, empty rows included."""
    return st.lists(st.integers(0, max_size), min_size=1, max_size=max_rows)
