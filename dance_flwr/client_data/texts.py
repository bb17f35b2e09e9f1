"""A client's texts under a reading: eq:text_pool, or what a node's neighbourhood confirms."""

from dataclasses import replace
from functools import cache

import numpy as np
import torch
from torch import Tensor

from dance_flwr.client_data import inputs
from dance_flwr.client_data.agreement import agreeing_texts, agreeing_weights
from dance_flwr.client_data.inputs import StoredArrays
from dance_flwr.client_data.text_table import TextTable
from dance_flwr.config.sections import ReadingConfig
from dance_flwr.data.text.bank_slice import BankSlice
from dance_flwr.nn.ragged import Ragged


def pooled_table(bank: BankSlice, device: torch.device, stored: StoredArrays) -> TextTable:
    """Return the text bank as tensors, with t_u of eq:text_pool; memory-mapped if it is large."""
    half, ptr = bank.embeddings, torch.tensor(bank.ptr, device=device)
    if inputs.fits(len(half), half.shape[1], device):
        chunks = torch.tensor(half, dtype=torch.float32, device=device)
        return TextTable.from_chunks(chunks, ptr)
    # Why mapped (decision 16): chunks are read where a node of the core needs them.
    chunks = inputs.mapped(half)
    chunks_of = Ragged(ptr, torch.arange(len(half), device=device))
    shape = chunks_of.num_rows, half.shape[1]
    pooled = stored.array("texts", shape, lambda out: inputs.pooled_texts(chunks, chunks_of, out))
    return TextTable(chunks, chunks_of, pooled)


def agreed_table(
    table: TextTable, neighbours: Ragged, reading: ReadingConfig, name: str, stored: StoredArrays
) -> TextTable:
    """Return the table with t_u pooled by agreement with the neighbours (`agreeing_texts`).

    Parameters
    ----------
    neighbours : n rows of the nodes whose texts are compared
    name : tells stored texts of several readings apart
    """
    read = (table, neighbours, reading)
    height, width = table.nodes.shape
    # Arrays in memory are float32, those on disk float16.
    resident = table.nodes.dtype == torch.float32

    def new() -> Tensor:
        if resident:
            return torch.empty_like(table.nodes)
        # A pass writes to a file without a name; only the last one is stored.
        return inputs.scratch(stored.client_folder, (height, width))

    def weigh() -> Tensor:  # only evidence that records these weights asks for them
        return agreeing_weights(*read, new)

    if resident:
        return replace(table, nodes=agreeing_texts(*read, new), weighed=cache(weigh))
    texts = stored.array(
        f"texts-{name}", (height, width), lambda out: np.copyto(out, agreeing_texts(*read, new))
    )
    return replace(table, nodes=texts, weighed=cache(weigh))
