"""theta: backbones of torch-geometric layers. `backbone` has the contract, `gcn` the default."""

from math import gcd

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import GATConv, GINConv, GraphConv, SGConv
from torch_geometric.utils import to_edge_index

from dance_flwr.nn.backbone import Backbone, Operators
from dance_flwr.nn.message_passing import compiled_nowhere
from dance_flwr.nn.propagation import propagated

# Why: a client writes to its own folder only, see `message_passing`.
_GraphConv, _GATConv = compiled_nowhere(GraphConv), compiled_nowhere(GATConv)
_GINConv, _SGConv = compiled_nowhere(GINConv), compiled_nowhere(SGConv)


class Sage(Backbone):
    """g = L_2(dropout(relu(L_1(x)))), L(x) = D^-1 A x W_1 + x W_2 + b; [n, d] -> [n, h].

    The mean aggregator of Hamilton et al. 2017, with the parameters of `GraphConv`, since
    `SAGEConv` has no edge weights. Neighbours are averaged after the linear map, which is narrower.
    """

    operator = "mean"

    def __init__(self, text_dim: int, hidden_dim: int, dropout: float) -> None:
        super().__init__(dropout)
        # Only the parameters of the layers are used: sums over neighbours are products with the
        # operator, so that a pass can be divided into parts.
        self.first = _GraphConv(text_dim, hidden_dim, aggr="add")
        self.second = _GraphConv(hidden_dim, hidden_dim, aggr="add")

    def inputs(self, normalised: Tensor, operator: Tensor) -> Tensor:
        """[D^-1 A x^ || x^]; [n, 2 d]."""
        return torch.cat([propagated(operator, normalised), normalised], dim=1)

    def start(self, inputs: Tensor) -> Tensor:
        """Relu of L_1, from its inputs; [b, h]."""
        near, root = inputs.chunk(2, dim=1)
        return F.relu(self.first.lin_rel(near) + self.first.lin_root(root))

    def text_weight(self) -> Tensor:
        """[W_1 || W_2]^T; [2 h, d]."""
        return torch.cat([self.first.lin_rel.weight, self.first.lin_root.weight])

    def spread(self, projected: Tensor, operators: Operators) -> Tensor:
        """relu(D^-1 A u_1 + u_2 + b); [b', h]."""
        near, root = projected.chunk(2, dim=1)
        mean = propagated(operators[0], near)
        return F.relu(mean + root[: mean.size(0)] + self.first.lin_rel.bias)

    def finish(self, hidden: Tensor, operators: Operators) -> Tensor:
        """L_2(dropout(.)); [m, h]."""
        hidden = self.drop(hidden)
        # The linear map comes first, as in the first layer: the two commute.
        near = propagated(operators[0], F.linear(hidden, self.second.lin_rel.weight))
        root = self.second.lin_root(hidden[: near.size(0)])
        return near + root + self.second.lin_rel.bias  # type: ignore[no-any-return]


class Gat(Backbone):
    """L(x)_i = sum_j a_ij W x_j + b over neighbours and i itself; [n, d] -> [n, h].

    a_i = softmax_j LeakyReLU(a^T [W x_i || W x_j] + c w_ij), with weight w_ij as an edge feature
    (Velickovic et al. 2018). This is `GATConv(edge_dim=1)` with the weights as `edge_attr` and its
    defaults: a self loop has the mean weight of its node's edges. The layer silently drops the
    weights of a sparse operator, so it gets the edge list. After Velickovic et al.: ELU, dropout of
    features and of a_ij, up to eight concatenated heads in the first layer (the largest divisor of
    8 and h), a single head in the second. Attention depends on parameters, so that `inputs`
    are x^ alone.
    """

    operator = "loops"
    hops_left = 2

    def __init__(self, text_dim: int, hidden_dim: int, dropout: float) -> None:
        super().__init__(dropout)
        # Why a divisor: the heads are concatenated to exactly h columns.
        heads = gcd(hidden_dim, 8)
        shared = {
            "dropout": dropout,
            "edge_dim": 1,
            "add_self_loops": False,  # the operator has them
        }
        self.first = _GATConv(text_dim, hidden_dim // heads, heads, **shared)
        self.second = _GATConv(hidden_dim, hidden_dim, **shared)

    def text_weight(self) -> Tensor:
        """W^T, all heads; [h, d]."""
        return self.first.lin.weight  # type: ignore[no-any-return]

    def spread(self, projected: Tensor, operators: Operators) -> Tensor:
        """u: the attention of both layers is in `finish`; [b, h]."""
        return projected

    def finish(self, hidden: Tensor, operators: Operators) -> Tensor:
        """Two layers of attention, the first over projected nodes; [m, h]."""
        first, last = operators
        hidden = self.drop(F.elu(attend(self.first, hidden, first)))
        return attend(self.second, F.linear(hidden, self.second.lin.weight), last)


def attend(layer: GATConv, projected: Tensor, operator: Tensor) -> Tensor:
    """Return `GATConv` after its linear map; [b, heads * c], [m, b] -> [m, heads * c].

    The sums of messages are those of the layer's own `edge_updater` and `propagate`.
    """
    ends, weights = to_edge_index(operator)  # (row, col) = (target, source)
    # torch-geometric lists edges as (source, target).
    edges, size = ends.flip(0), (operator.size(1), operator.size(0))
    source = projected.view(-1, layer.heads, layer.out_channels)
    target = source[: operator.size(0)]
    scores = ((source * layer.att_src).sum(-1), (target * layer.att_dst).sum(-1))
    alpha = layer.edge_updater(edges, alpha=scores, edge_attr=weights[:, None], size=size)
    mixed = layer.propagate(edges, x=(source, target), alpha=alpha, size=size)
    return mixed.flatten(1) + layer.bias  # type: ignore[no-any-return]


class Gin(Backbone):
    """L(x) = MLP(A x + (1 + eps) x) with learnt eps, relu between layers; [n, d] -> [n, h].

    MLP(s) = relu(s W_1 + b_1) W_2 + b_2 (Xu et al. 2019). The sum over neighbours is weighted by A.
    """

    operator = "sum"

    def __init__(self, text_dim: int, hidden_dim: int, dropout: float) -> None:
        super().__init__(dropout)
        self.first = self._layer(text_dim, hidden_dim)
        self.second = self._layer(hidden_dim, hidden_dim)

    @staticmethod
    def _layer(width_in: int, width_out: int) -> GINConv:
        # Why no batch normalisation, which Xu et al. have: its running statistics are no
        # parameters, and a mean of states would not be the state of a model.
        mlp = nn.Sequential(
            nn.Linear(width_in, width_out), nn.ReLU(), nn.Linear(width_out, width_out)
        )
        return _GINConv(mlp, train_eps=True)

    def inputs(self, normalised: Tensor, operator: Tensor) -> Tensor:
        """[A x^ || x^]; [n, 2 d]."""
        return torch.cat([propagated(operator, normalised), normalised], dim=1)

    def start(self, inputs: Tensor) -> Tensor:
        """relu(MLP(A x^ + (1 + eps) x^)); [b, h]."""
        near, root = inputs.chunk(2, dim=1)
        return F.relu(self.first.nn(near + (1 + self.first.eps) * root))

    def text_weight(self) -> Tensor:
        """W_1^T; [h, d]."""
        return self.first.nn[0].weight  # type: ignore[no-any-return]

    def spread(self, projected: Tensor, operators: Operators) -> Tensor:
        """relu(MLP) from A u + (1 + eps) u; [b', h]."""
        near = propagated(operators[0], projected)
        total = near + (1 + self.first.eps) * projected[: near.size(0)]
        return F.relu(self.first.nn[2](F.relu(total + self.first.nn[0].bias)))

    def finish(self, hidden: Tensor, operators: Operators) -> Tensor:
        """MLP(A dropout(.) + (1 + eps) dropout(.)); [m, h]."""
        hidden = self.drop(hidden)
        near = propagated(operators[0], hidden)
        root = hidden[: near.size(0)]
        return self.second.nn(near + (1 + self.second.eps) * root)  # type: ignore[no-any-return]


class Appnp(Backbone):
    """z_k = (1 - alpha) P z_(k-1) + alpha z_0, g = z_K; [n, d] -> [n, h].

    z_0 = relu(x W_1 + b_1) W_2 + b_2, K = 10, alpha = 0.1, P of "gcn" (Gasteiger et al. 2019).
    Dropout of features, not of edges.
    """

    operator = "gcn"
    reach = 10
    hops_left = 10
    alpha = 0.1

    def __init__(self, text_dim: int, hidden_dim: int, dropout: float) -> None:
        super().__init__(dropout)
        self.first = nn.Linear(text_dim, hidden_dim)
        self.second = nn.Linear(hidden_dim, hidden_dim)

    def text_weight(self) -> Tensor:
        """W_1^T; [h, d]."""
        return self.first.weight

    def spread(self, projected: Tensor, operators: Operators) -> Tensor:
        """z_0 = dropout(relu(u + b_1)) W_2 + b_2; [b, h]."""
        return self.second(self.drop(F.relu(projected + self.first.bias)))  # type: ignore[no-any-return]

    def finish(self, hidden: Tensor, operators: Operators) -> Tensor:
        """z_1, ..., z_K; [m, h]."""
        first = hidden
        for operator in operators:
            hidden = propagated(operator, hidden)
            hidden = (1 - self.alpha) * hidden + self.alpha * first[: hidden.size(0)]
        return hidden


class Sgc(Backbone):
    """g = P^K x W + b with K = 2 and P of "gcn" (Wu et al. 2019); [n, d] -> [n, h].

    The parameters of `SGConv`; x W is computed before P, which is narrower and gives the same.
    """

    operator = "gcn"
    hops_left = 0

    def __init__(self, text_dim: int, hidden_dim: int, dropout: float) -> None:
        super().__init__(dropout)
        # Its propagation is not called: P^2 x^ is computed once per client (decision 16).
        self.layer = _SGConv(text_dim, hidden_dim, K=self.reach)

    def inputs(self, normalised: Tensor, operator: Tensor) -> Tensor:
        """P^2 x^; [n, d]."""
        return propagated(operator, propagated(operator, normalised))

    def start(self, inputs: Tensor) -> Tensor:
        """(P^2 x^) W + b; [b, h]."""
        return self.layer.lin(inputs)  # type: ignore[no-any-return]

    def text_weight(self) -> Tensor:
        """W^T; [h, d]."""
        return self.layer.lin.weight  # type: ignore[no-any-return]

    def spread(self, projected: Tensor, operators: Operators) -> Tensor:
        """P P u + b; [b', h]."""
        for operator in operators:
            projected = propagated(operator, projected)
        return projected + self.layer.lin.bias  # type: ignore[no-any-return]

    def finish(self, hidden: Tensor, operators: Operators) -> Tensor:
        """Nothing remains; [m, h]."""
        return hidden
