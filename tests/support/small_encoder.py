"""An encoder of one narrow layer, whose files are read and checked as those of any other."""

import json
import shutil
from pathlib import Path

from dance_flwr.data.text.encoder_files import DEFAULT_ENCODER, find_folder
from support.graphs import TEXT_DIM

INNER, HEADS = 128, 2


def write_small_encoder(folder: Path) -> str:
    """Cut a layer of `TEXT_DIM` dimensions out of the default encoder; return the folder."""
    from safetensors import safe_open
    from safetensors.numpy import save_file

    source = find_folder(DEFAULT_ENCODER)
    shutil.copytree(
        source,
        folder,
        ignore=shutil.ignore_patterns("*.safetensors", "vocab.txt", "data_config.json", "*.md"),
    )
    tensors = {}
    with safe_open(source / "model.safetensors", "np") as file:
        for name in file.keys():  # noqa: SIM118, which is no mapping
            if ".layer." in name and ".layer.0." not in name:
                continue
            weight = file.get_tensor(name)
            tensors[name] = weight[tuple(slice(_cut(size)) for size in weight.shape)].copy()
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_size": TEXT_DIM, "intermediate_size": INNER, "num_hidden_layers": 1}
    (folder / "config.json").write_text(json.dumps(config | {"num_attention_heads": HEADS}))
    pooling = folder / "1_Pooling" / "config.json"
    settings = json.loads(pooling.read_text())
    pooling.write_text(json.dumps(settings | {"word_embedding_dimension": TEXT_DIM}))
    return str(folder)


def _cut(size: int) -> int:
    return {384: TEXT_DIM, 1536: INNER}.get(size, size)
