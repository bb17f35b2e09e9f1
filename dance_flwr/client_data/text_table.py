"""One client's text bank as tensors: chunks, and one pooled embedding per node (eq:text_pool)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from dance_flwr.nn.ragged import Ragged, row_of_entry, rows_at
from dance_flwr.nn.sums import sums_of_rows


@dataclass(frozen=True)
class TextTable:
    """The frozen text bank of one client as tensors.

    Attributes
    ----------
    chunks : [R, d] chunk embeddings e_{u,r}, unit norm, float16 or float32
    chunks_of : n rows of chunk numbers
    nodes : [n, d] float32, t_u
    weighed : returns the weight of every chunk in its node's t_u, [R]; None = that of eq:text_pool
    """

    chunks: Float[Tensor, "R d"]
    chunks_of: Ragged
    nodes: Float[Tensor, "n d"]
    weighed: Callable[[], Tensor] | None = None

    @classmethod
    def from_chunks(cls, chunks: Float[Tensor, "R d"], ptr: Int64[Tensor, "p"]) -> "TextTable":
        """Pool the chunks of each node; done once, as the encoder is frozen."""
        chunks_of = Ragged(ptr, torch.arange(chunks.size(0), device=chunks.device))
        return cls(chunks, chunks_of, pool_chunks(chunks, ptr))

    @cached_property
    def node_of_chunk(self) -> Int64[Tensor, "R"]:
        """[R] int64, the node that owns each chunk."""
        return self.chunks_of.rows()

    def weights_in_texts(self, chunks: Ragged, dtype: torch.dtype) -> Float[Tensor, "E"]:
        """Return the weights with which t_u sums up these chunks; [E].

        Parameters
        ----------
        chunks : rows of chunks, each with every weighted chunk of one node
        """
        # Weights of eq:text_pool follow from the chunks alone, and are computed where they are
        # needed.
        if self.weighed is None:
            return pooling_weights(rows_at(self.chunks, chunks.index).to(dtype), chunks.ptr)
        return self.weighed()[chunks.index].to(dtype)


def pool_chunks(chunks: Float[Tensor, "R d"], ptr: Int64[Tensor, "p"]) -> Float[Tensor, "n d"]:
    """eq:text_pool: t_u = sum_r a_r e_{u,r}, a = softmax(<e_{u,r}, mean_r e_{u,r}> / sqrt(d)).

    Softmax attention pooling with the node's mean chunk as query, [R, d] -> [n, d]. The paper
    refers to the equation without printing it; this form has no parameters, so t_u is computed
    once.
    """
    floats = chunks.float()
    return sums_of_rows(pooling_weights(floats, ptr)[:, None] * floats, ptr)


def pooling_weights(chunks: Float[Tensor, "R d"], ptr: Int64[Tensor, "p"]) -> Float[Tensor, "R"]:
    """Weights of eq:text_pool, a_{u,r}: a softmax over each node's chunks; [R, d] -> [R]."""
    rows = row_of_entry(ptr)
    # A node without chunks has t_u = 0.
    sizes = (ptr[1:] - ptr[:-1]).clamp(min=1)
    mean = sums_of_rows(chunks, ptr) / sizes[:, None]
    # Scores lie in [-1, 1] / sqrt(d): no overflow guard is needed.
    weight = torch.exp((chunks * mean[rows]).sum(1) / sqrt(chunks.size(1)))
    return weight / sums_of_rows(weight, ptr)[rows]
