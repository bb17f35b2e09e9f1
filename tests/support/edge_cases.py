"""Graphs at the limits of what a client may hold."""

import numpy as np

from dance_flwr.data.graphs.graph import TEST, TRAIN, VAL
from support.graphs import WORDS, sentences

NODES = 9  # of a client


class Draft:
    """Clients of nine nodes in a ring, per class one each in train, val and test."""

    def __init__(self, clients=2):
        numbers = range(NODES * clients)
        self.ids = [f"c{i // NODES}-{i % NODES}" for i in numbers]
        self.labels = [i % 3 for i in numbers]
        self.split = [(TRAIN, VAL, TEST)[i % NODES // 3] for i in numbers]
        self.pairs = [(i, i - i % NODES + (i + 1) % NODES) for i in numbers]

    def replace(self, part, other, client):
        """Move the nodes of a client from one part of the split to another one."""
        own = slice(NODES * client, NODES * (client + 1))
        self.split[own] = [other if code == part else code for code in self.split[own]]

    def without(self, *parts):
        """The draft, whose nodes of these parts of the split are for training."""
        self.split = [TRAIN if code in parts else code for code in self.split]
        return self

    def parts(self):
        """Ids, texts, labels, pairs and split, as the fixture `crafted` and `text_graph` ask."""
        rng, names = np.random.default_rng(3), sorted(WORDS)
        texts = [sentences(rng, WORDS[names[label % 3]], 2) for label in self.labels]
        return self.ids, texts, self.labels, self.pairs, self.split
