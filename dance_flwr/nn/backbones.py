"""theta: six graph backbones, torch-geometric layers behind one contract.

A backbone maps features [n, d] and the sparse CSR operator of its kind (`propagation.operator`) to
g, [n, h]. The same parameters process the original graph (unit weights) and the reconstructed one
(weights >= 0), so every backbone reads edge weights. The state holds float parameters only, no
running statistics or counters, so that a weighted mean of states is a state. Hence there is no
batch normalisation, even if the paper uses it (GIN).
"""

from math import gcd
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import APPNP, GATConv, GCNConv, GINConv, GraphConv, SGConv
from torch_geometric.utils import to_edge_index

from dance_flwr.nn.dropout import dropout


class Backbone(nn.Module):
    """g = f(dropout(LN(x)), P); [n, d], [n, n] -> [n, h].

    Inputs are layer-normalised without parameters, since text embeddings t_u (norm at most 1) and
    fused features x_v (norm near sqrt(d)) share the same weights.

    Attributes
    ----------
    operator : the kind of `propagation.operator` that `forward` expects
    reach : g_v depends on the features of the nodes within this many hops of v
    """

    operator: ClassVar[str]
    reach: ClassVar[int] = 2

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout

    def forward(self, features: Tensor, operator: Tensor) -> Tensor:
        """Return g, [n, h]."""
        return self.propagate(self.drop(F.layer_norm(features, features.shape[-1:])), operator)

    def propagate(self, hidden: Tensor, operator: Tensor) -> Tensor:
        """f: [n, d], [n, n] -> [n, h]."""
        raise NotImplementedError

    def drop(self, hidden: Tensor) -> Tensor:
        """Apply dropout, in training mode only."""
        return dropout(hidden, self.dropout, self.training)


class TwoLayers(Backbone):
    """g = L_2(dropout(relu(L_1(x, P))), P); [n, d] -> [n, h] -> [n, h]."""

    def __init__(self, text_dim: int, hidden_dim: int, dropout: float) -> None:
        super().__init__(dropout)
        self.first = self.layer(text_dim, hidden_dim)
        self.second = self.layer(hidden_dim, hidden_dim)

    def layer(self, width_in: int, width_out: int) -> nn.Module:
        """Return L, called with ([n, width_in], operator); its output is [n, width_out]."""
        raise NotImplementedError

    def propagate(self, hidden: Tensor, operator: Tensor) -> Tensor:
        """Return g, [n, h]."""
        hidden = F.relu(self.first(hidden, operator))
        return self.second(self.drop(hidden), operator)  # type: ignore[no-any-return]


class Gcn(TwoLayers):
    """L(x) = P x W + b, P = D^-1/2 (A + I) D^-1/2 (Kipf and Welling 2017); [n, d] -> [n, h]."""

    operator = "gcn"

    def layer(self, width_in: int, width_out: int) -> nn.Module:
        """Return a `GCNConv` for an operator that is already normalised."""
        return GCNConv(width_in, width_out, normalize=False)  # type: ignore[no-any-return]


class Sage(TwoLayers):
    """L(x) = D^-1 A x W_1 + x W_2 + b; [n, d] -> [n, h].

    The mean aggregator of Hamilton et al. 2017, as `GraphConv` over a row-normalised operator:
    `SAGEConv` has no edge weights.
    """

    operator = "mean"

    def layer(self, width_in: int, width_out: int) -> nn.Module:
        """Return a `GraphConv` that sums neighbours by the weights of the operator."""
        return GraphConv(width_in, width_out, aggr="add")  # type: ignore[no-any-return]


class Gat(Backbone):
    """L(x)_i = sum_j a_ij W x_j + b over neighbours and i itself; [n, d] -> [n, h].

    a_i = softmax_j LeakyReLU(a^T [W x_i || W x_j] + c w_ij), with weight w_ij as an edge feature
    (Velickovic et al. 2018). This is `GATConv(edge_dim=1)` with the weights as `edge_attr` and its
    defaults: a self loop has the mean weight of its node's edges. The layer silently drops the
    weights of a sparse operator, so it gets the edge list. After Velickovic et al.: ELU, dropout of
    features and of a_ij, up to eight concatenated heads in the first layer (the largest divisor of
    8 and h), a single head in the second.
    """

    operator = "loops"

    def __init__(self, text_dim: int, hidden_dim: int, dropout: float) -> None:
        super().__init__(dropout)
        heads = gcd(hidden_dim, 8)
        shared = {
            "dropout": dropout,
            "edge_dim": 1,
            "add_self_loops": False,  # the operator has them
        }
        self.first = GATConv(text_dim, hidden_dim // heads, heads, **shared)
        self.second = GATConv(hidden_dim, hidden_dim, **shared)

    def propagate(self, hidden: Tensor, operator: Tensor) -> Tensor:
        """Return g, [n, h]."""
        ends, weights = to_edge_index(operator)  # (row, col) = (target, source)
        edges = ends.flip(0)
        hidden = F.elu(self.first(hidden, edges, weights))
        return self.second(self.drop(hidden), edges, weights)  # type: ignore[no-any-return]


class Gin(TwoLayers):
    """L(x) = MLP(A x + (1 + eps) x) with learnt eps; [n, d] -> [n, h].

    MLP(s) = relu(s W_1 + b_1) W_2 + b_2 (Xu et al. 2019). The sum over neighbours is weighted by A.
    """

    operator = "sum"

    def layer(self, width_in: int, width_out: int) -> nn.Module:
        """Return a `GINConv`; its sparse product reads the values of the operator."""
        mlp = nn.Sequential(
            nn.Linear(width_in, width_out), nn.ReLU(), nn.Linear(width_out, width_out)
        )
        return GINConv(mlp, train_eps=True)  # type: ignore[no-any-return]


class Appnp(Backbone):
    """z_k = (1 - alpha) P z_(k-1) + alpha z_0, g = z_K; [n, d] -> [n, h].

    z_0 = relu(x W_1 + b_1) W_2 + b_2, K = 10, alpha = 0.1, P of "gcn" (Gasteiger et al. 2019).
    Dropout of features, not of edges.
    """

    operator = "gcn"
    reach = 10

    def __init__(self, text_dim: int, hidden_dim: int, dropout: float) -> None:
        super().__init__(dropout)
        self.first = nn.Linear(text_dim, hidden_dim)
        self.second = nn.Linear(hidden_dim, hidden_dim)
        self.rank = APPNP(K=self.reach, alpha=0.1, normalize=False)

    def propagate(self, hidden: Tensor, operator: Tensor) -> Tensor:
        """Return g, [n, h]."""
        hidden = self.second(self.drop(F.relu(self.first(hidden))))
        return self.rank(hidden, operator)  # type: ignore[no-any-return]


class Sgc(Backbone):
    """g = P^K x W + b with K = 2 and P of "gcn" (Wu et al. 2019); [n, d] -> [n, h].

    `SGConv`, but x W is computed first, which is narrower and gives the same; its forward pass
    would normalise P again.
    """

    operator = "gcn"

    def __init__(self, text_dim: int, hidden_dim: int, dropout: float) -> None:
        super().__init__(dropout)
        self.layer = SGConv(text_dim, hidden_dim, K=self.reach)

    def propagate(self, hidden: Tensor, operator: Tensor) -> Tensor:
        """Return g, [n, h]."""
        hidden = F.linear(hidden, self.layer.lin.weight)
        for _ in range(self.reach):
            hidden = self.layer.propagate(operator, x=hidden, edge_weight=None)
        return hidden + self.layer.lin.bias  # type: ignore[no-any-return]
