"""What a process of its own does with a text bank."""

from pathlib import Path

from dance_flwr.data.text import bank
from dance_flwr.data.text.encoder import DEFAULT_ENCODER, TextEncoder, resolve_encoder


def encode(root, texts, start, written):
    """Encode texts into a bank with small blocks as soon as all processes are ready.

    How many texts this process encoded goes to the file `written`.
    """
    bank.BLOCK_CHUNKS = 16
    encoder = TextEncoder.from_spec(resolve_encoder(DEFAULT_ENCODER, "float32"))
    start.wait()
    stats = bank.TextBank(Path(root), encoder, 24, 4).ensure(texts, progress=False)
    Path(written).write_text(str(stats.texts_encoded))
