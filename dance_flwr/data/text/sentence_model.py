"""A model of sentence-transformers that is fed as fast as a GPU reads."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

_TOKENS = {"input_ids", "attention_mask", "token_type_ids"}


class SentenceModel(SentenceTransformer):
    """A `SentenceTransformer` whose lists of tokens become tensors at once, not one by one.

    That was half of the time of encoding on a GPU (decision 31). The values are the library's.
    """

    def preprocess(
        self, inputs: Sequence[Any], prompt: str | None = None, **options: Any
    ) -> dict[str, Any]:
        """Return the library's features of these texts."""
        # The library decides how texts are read: prompts, lower case, padding. What it makes of the
        # first has to be what its tokenizer alone makes of it, or it is asked for all of them.
        first = super().preprocess(inputs[:1], prompt=prompt, **options)
        others = {name for name, value in first.items() if isinstance(value, torch.Tensor)}
        tokenizer = getattr(self.tokenizer, "backend_tokenizer", None)
        if tokenizer is not None and "input_ids" in others and others <= _TOKENS:
            rows = tokenizer.encode_batch(list(inputs))
            kept = [i for i, real in zip(rows[0].ids, rows[0].attention_mask, strict=True) if real]
            if kept == first["input_ids"][0].tolist():
                found = {
                    "input_ids": [row.ids for row in rows],
                    "attention_mask": [row.attention_mask for row in rows],
                    "token_type_ids": [row.type_ids for row in rows],
                }
                tensors = {name: torch.from_numpy(np.array(found[name])) for name in others}
                return dict(first) | tensors
        features: dict[str, Any] = super().preprocess(inputs, prompt=prompt, **options)
        return features
