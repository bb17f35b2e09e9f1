"""Random small clients for the tests of the core algorithm: graph, texts, model, prediction."""

from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import torch
from hypothesis import strategies as st

from dance_flwr.client_data.text_table import TextTable
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.model import DanceModel, PaperModel
from dance_flwr.dance.passes import Reader
from dance_flwr.dance.selection import Selection
from dance_flwr.dance.text import condense_text, condensed_text, reweigh
from dance_flwr.dance.topology import Coefficients
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

    def reader(self, labels: torch.Tensor | None = None) -> Reader:
        """The model at this client; `labels` are one-hot training labels, [n, C], else none."""
        if labels is None:
            labels = self.hidden.new_zeros(len(self.hidden), SHAPE.classes)
        data = SimpleNamespace(
            num_nodes=len(self.table.nodes), device=CPU, table=self.table, label_table=labels
        )
        return Reader(self.model, data, self.config, SimpleNamespace(hops=lambda _: self.hops))

    def select(self) -> Selection:
        """Alg. 3 for the client's nodes."""
        hidden = self.hidden[self.nodes]
        return condense_text(self.reader(), self.nodes, hidden, self.difficulty)

    def reweigh(self, selection: Selection) -> Selection:
        """Weights of the same candidates, computed again."""
        return reweigh(self.reader(), self.hidden[selection.nodes], selection)

    def texts(self, selection: Selection) -> tuple[torch.Tensor, torch.Tensor]:
        """t~_v and the text input of fusion."""
        with torch.no_grad():
            return condensed_text(self.reader(), selection)


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


def objective(
    features: torch.Tensor, evidence: torch.Tensor, z: Coefficients, alpha: float, beta: float
) -> torch.Tensor:
    """The value of eq:self_expressive_sparse at Z, a scalar; O(K s d)."""
    index = z.support.clamp(min=0)
    rebuilt = (features[index] * z.values[..., None]).sum(1)
    prior = (evidence[index] * evidence[:, None]).sum(2).clamp(0, 1)
    return alpha * (features - rebuilt).square().sum() + ((beta + 1 - prior) * z.values.abs()).sum()
