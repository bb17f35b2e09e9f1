"""Files as other tools write them: those that the README imports, and saved data sets."""

import json
from pathlib import Path

import networkx as nx
import pandas as pd
import pyarrow as pa
import torch
from torch_geometric.data import Data

TEXTS = ["soil and stone", "stone and water", "water and sky", "sky and soil"]
KINDS = ["earth", "earth", "air", "air"]
PAIRS = [(0, 1), (1, 2), (2, 3)]


def write_files_of_tools(folder: Path) -> None:
    """Write one graph of four nodes in every format of the section "Your own graph"."""
    ids = [f"n{i}" for i in range(4)]
    ends = {"source": [ids[a] for a, _ in PAIRS], "target": [ids[b] for _, b in PAIRS]}

    def table(name, **columns):
        pd.DataFrame(columns).to_csv(folder / name, index=False)

    table("papers.csv", id=ids, title=ids, abstract=TEXTS, topic=KINDS)
    table("links.csv", **ends)
    table("books.csv", Id=ids, Label=TEXTS, ideology=KINDS)
    gephi = {"Source": ends["source"], "Target": ends["target"], "Type": ["Undirected"] * 3}
    table("sales.csv", **gephi, Weight=[1, 2, 1])
    table("notes.csv", **{"id:ID(Note)": ids, "name:string": TEXTS, ":LABEL": KINDS})
    neo4j = {":START_ID(Note)": ends["source"], ":END_ID(Note)": ends["target"]}
    table("rels.csv", **neo4j, **{":TYPE": ["NEAR"] * 3})
    graph = nx.Graph()
    for name, text, kind in zip(ids, TEXTS, KINDS, strict=True):
        graph.add_node(name, desc=text, labelV=kind, description=text, entity_type=kind)
    for a, b in PAIRS:
        graph.add_edge(ids[a], ids[b], labelE="near", description="One lies on the other.")
    nx.write_graphml(graph, folder / "air.graphml")
    nx.write_graphml(graph, folder / "kg.graphml")
    nodes = [{"name": text, "group": kind} for text, kind in zip(TEXTS, KINDS, strict=True)]
    links = [{"source": a, "target": b, "value": 1} for a, b in PAIRS]
    (folder / "novel.json").write_text(json.dumps({"nodes": nodes, "links": links}))
    (folder / "output").mkdir()
    entities = {"id": ids, "title": ids, "type": KINDS, "description": TEXTS}
    pd.DataFrame(entities).to_parquet(folder / "output" / "entities.parquet")
    relations = {**ends, "description": ["One lies on the other."] * 3, "weight": [1.0, 2.0, 1.0]}
    pd.DataFrame(relations).to_parquet(folder / "output" / "relationships.parquet")
    edges, labels = torch.tensor(PAIRS).T.contiguous(), torch.tensor([0, 0, 1, 1])
    torch.save(Data(edge_index=edges, y=labels, raw_texts=TEXTS), folder / "graph.pt")


def saved(folder, table, classes=None):
    """A folder as `save_to_disk` of the datasets library writes it.

    `classes` are names by the column whose numbers they name.
    """
    folder.mkdir(parents=True)
    with (
        pa.OSFile(str(folder / "data-00000-of-00001.arrow"), "wb") as sink,
        pa.ipc.new_stream(sink, table.schema) as out,
    ):
        for batch in table.to_batches(max_chunksize=2):
            out.write_batch(batch)
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    features = {"text": {"dtype": "string", "_type": "Value"}}
    features |= {k: {"names": v, "_type": "ClassLabel"} for k, v in (classes or {}).items()}
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}))
    return folder
