"""Published graphs that can be fetched by name: their counts, splits and files; built-in ones.

Every published graph is checked when it is imported: the counts must match the paper's table.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dance_flwr.errors import DataError

if TYPE_CHECKING:
    from dance_flwr.data.graphs.graph import TextGraph

# Papers count edges in three ways, and each table in one of them.
BOTH_WAYS, ONE_WAY, ARCS = "both ways", "one way", "arcs"


@dataclass(frozen=True)
class GraphSource:
    """A data set that is built on this machine, registered in `dance_flwr.datasets`.

    Attributes
    ----------
    build : returns the graph
    identity : returns a string that changes with the graph, without building the graph
    """

    build: Callable[[], "TextGraph"]
    identity: Callable[[], str]


@dataclass(frozen=True)
class RemoteFile:
    """One file of a data set and its source.

    Attributes
    ----------
    path : path in the hub repository or after `url`; its last part is the local name
    repo : data set repository on the hub, whose commit is recorded beside the file; empty if the
        file is not on the hub
    url : address of the file; empty for a hub file and for a file without a direct download
    page : web page that links to the file
    """

    path: str
    repo: str = ""
    url: str = ""
    page: str = ""

    @property
    def name(self) -> str:
        """Local file name."""
        return self.path.rpartition("/")[2]

    @property
    def short(self) -> str:
        """Hub repository, or host, owner and repository of the address."""
        return self.repo or "/".join(
            self.origin.split(" ")[0].removeprefix("https://").split("/")[:3]
        )

    @property
    def network(self) -> str:
        """What a download reaches: the hub, or another place on the web."""
        return "hub" if self.repo else "web"

    @property
    def origin(self) -> str:
        """Address at which a person can download the file."""
        if self.repo:
            return f"https://huggingface.co/datasets/{self.repo}/blob/main/{self.path}"
        return self.url or self.page


@dataclass(frozen=True)
class Dataset:
    """One published graph.

    Attributes
    ----------
    name : name on the command line
    nodes, edges, classes : counts as printed in the paper
    counting : unit of `edges`: both directions (`BOTH_WAYS`), undirected edges (`ONE_WAY`), or the
        arcs of the published list (`ARCS`)
    split : shares (train, val, test) of the labelled nodes
    official : whether the published masks are the split; `split` then only describes them
    inductive : whether validation and test nodes, with their edges, are unseen in training
    text : content of a node's text
    licence : as stated by the source
    layout : file layout, see `dance_flwr.data.imports.layouts`
    files : files to download
    """

    name: str
    nodes: int
    edges: int
    classes: int
    files: tuple[RemoteFile, ...]
    split: tuple[float, float, float] = (0.6, 0.2, 0.2)
    text: str = "title and abstract of the paper"
    licence: str = "MIT (collection); texts by their authors"
    layout: str = "pyg"
    counting: str = BOTH_WAYS
    official: bool = False
    inductive: bool = False

    def edge_counts(self, counts: dict[str, int]) -> list[int]:
        """Return the edge counts that a paper may print for a graph, the one without loops first.

        Published counts may include each self loop once; a stored graph never has self loops.
        """
        plain = {
            BOTH_WAYS: counts["directed_edges"],
            ONE_WAY: counts["edges"],
            ARCS: counts["arcs"],
        }[self.counting]
        return [plain, plain + counts["self_loops"]]

    def check(self, counts: dict[str, int]) -> None:
        """Compare a graph's counts with those of the paper, and refuse one without texts."""
        edges = self.edge_counts(counts)
        same = (counts["nodes"], counts["classes"]) == (self.nodes, self.classes)
        if not same or self.edges not in edges:
            raise DataError(
                f"{self.name}: expected {self.nodes} nodes, {self.edges} edges ({self.counting}) "
                f"and {self.classes} classes as in the paper's table, found {counts['nodes']} "
                f"nodes, {edges[0]} edges and {counts['classes']} classes; use another source, or "
                "another --name for another graph"
            )
        # The counts of a copy without texts are right, too.
        if counts["empty_texts"] == counts["nodes"]:
            raise DataError(
                f"{self.name}: expected node texts, found only empty ones; use a source with texts"
            )


_BED = "xxwu/LLMNodeBed"
_TAG = "Graph-COM/Text-Attributed-Graphs"
_WIKICS = "https://github.com/pmernyei/wiki-cs-dataset/raw/master/dataset/"
_TAPE = "https://github.com/XiaoxinHe/TAPE"
_OGB = "https://snap.stanford.edu/ogb/data/"

_ROWS = (
    Dataset("cora", 2708, 10556, 7, (RemoteFile("cora.pt", repo=_BED),)),
    Dataset("citeseer", 3186, 8450, 6, (RemoteFile("citeseer.pt", repo=_BED),)),
    Dataset(
        *("wikics", 11701, 431726, 10),
        tuple(RemoteFile(name, url=_WIKICS + name) for name in ("data.json", "metadata.json")),
        split=(0.05, 0.225, 0.5),
        text="title and tokens of the article",
        licence="MIT",
        layout="wikics",
        official=True,
    ),
    Dataset(
        *("arxiv2023", 46198, 38863, 38),
        (
            RemoteFile(
                "dataset/arxiv_2023/graph.pt", url=f"{_TAPE}/raw/main/dataset/arxiv_2023/graph.pt"
            ),
            RemoteFile("paper_info.csv", page=f"{_TAPE} (arxiv_2023_orig, a link in its README)"),
        ),
        split=(0.63, 0.2, 0.17),
        layout="tape",
        counting=ONE_WAY,
    ),
    Dataset(
        *("instagram", 11339, 144010, 2),
        (RemoteFile("instagram.pt", repo=_BED),),
        split=(0.1, 0.1, 0.8),
        text="profile of the user",
        inductive=True,
    ),
    Dataset(
        *("reddit", 33434, 269442, 2),
        (RemoteFile("reddit.pt", repo=_BED),),
        split=(0.1, 0.1, 0.8),
        text="last 3 posts of the user",
        inductive=True,
    ),
    Dataset(
        *("ratings", 24492, 186100, 5),
        (RemoteFile("ratings.pt", repo="zkchen/tsgfm"),),
        split=(0.25, 0.25, 0.5),
        text="name of the product",
        licence="none stated",
    ),
    Dataset(
        *("children", 76875, 1162522, 24),
        tuple(
            RemoteFile(f"bookchild/{name}", repo=_TAG)
            for name in ("processed_data.pt", "raw_texts.pt", "categories.csv")
        ),
        text="name and description of the book",
        licence="Apache-2.0 (collection); texts by their authors",
        layout="pyg+texts",
        counting=ONE_WAY,
    ),
    Dataset(
        *("ogbn-arxiv", 169343, 1166243, 40),
        (
            RemoteFile("arxiv.zip", url=_OGB + "nodeproppred/arxiv.zip"),
            RemoteFile("titleabs.tsv.gz", url=_OGB + "misc/ogbn_arxiv/titleabs.tsv.gz"),
        ),
        split=(0.54, 0.18, 0.28),
        licence="ODC-BY",
        layout="ogbn",
        counting=ARCS,
        official=True,
    ),
)
CATALOGUE: dict[str, Dataset] = {row.name: row for row in _ROWS}


def graphs_folder(root: Path) -> Path:
    """Return the folder of the imported graphs under a data root."""
    return root / "graphs"


def imported_graphs(root: Path) -> dict[str, Path]:
    """Return name -> folder of every graph that was imported or fetched under a data root."""
    folder = graphs_folder(root)
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return {path.name: path for path in paths if path.is_dir() and not path.name.startswith(".")}


def downloads_folder(root: Path, name: str) -> Path:
    """Return the folder of a published graph's files as downloaded."""
    return root / "downloads" / name
