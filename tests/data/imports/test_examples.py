"""What users have, as files: the graph that an import makes of it, or the line that it prints."""

import gzip
import json
import re
import sqlite3
import unicodedata
import warnings
from pathlib import Path

import networkx as nx
import pandas as pd
import pytest
import torch

from dance_flwr.data.imports.importer import import_graph, read_graph
from dance_flwr.data.imports.options import Options
from dance_flwr.data.imports.report import summary_lines
from dance_flwr.errors import UserError

N = "id,text,label\n1,one,x\n2,two,y\n3,three,y\n"
E = "source,target\n1,2\n2,3\n"


def lines(*records):
    return "\n".join(map(json.dumps, records)) + "\n"


def parquet(**columns):
    return lambda path: pd.DataFrame(columns).to_parquet(path)


def torch_file(**content):
    return lambda path: torch.save(content, path)


def packed(content):
    """A writer of this text, or of what a writer writes, packed by gzip."""

    def write(path):
        plain = path.with_suffix("")
        put(plain, content)
        path.write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()

    return write


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    if callable(content):
        content(path)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def database(**tables):
    def write(path):
        with sqlite3.connect(path) as connection:
            for name, columns in tables.items():
                pd.DataFrame(columns).to_sql(name, connection, index=False)
        connection.close()

    return write


def workbook(**sheets):
    def write(path):
        pytest.importorskip("openpyxl")
        with pd.ExcelWriter(path) as writer:
            for name, columns in sheets.items():
                pd.DataFrame(columns).to_excel(writer, sheet_name=name, index=False)

    return write


def network(writer, *, multigraph=False):
    def write(path):
        graph = nx.MultiDiGraph() if multigraph else nx.Graph()
        for node, text, label in ((1, "one", "x"), (2, "two", "y"), (3, "three", "y")):
            graph.add_node(node, text=text, topic=label)
        graph.add_edges_from([(1, 2), (2, 3), (2, 1)])
        writer(graph, path)

    return write


EDGE_INDEX = torch.tensor([[0, 1], [1, 2]])
NODES = {"id": [1, 2, 3], "text": ["one", "two", "three"], "label": ["x", "y", "y"]}
ENDS = {"source": [1, 2], "target": [2, 3]}
RECORDS = [dict(zip(NODES, row, strict=True)) for row in zip(*NODES.values(), strict=True)]
APOC = [
    *(
        {"type": "node", "id": str(i), "labels": [label], "properties": {"text": text}}
        for i, text, label in ((1, "one", "X"), (2, "two", "Y"), (3, "three", "Y"))
    ),
    *(
        {
            **{"id": str(a), "type": "relationship", "label": "NEAR", "properties": {"since": 1}},
            **{"start": {"id": str(a), "labels": []}, "end": {"id": str(b), "labels": []}},
        }
        for a, b in ((1, 2), (2, 3))
    ),
]
MEMGRAPH = [
    *({**node, "id": int(node["id"])} for node in APOC[:3]),
    *(
        {"start": a, "end": b, "id": a, "label": "NEAR", "properties": {}, "type": "relationship"}
        for a, b in ((1, 2), (2, 3))
    ),
]
JGF = {str(i): {"label": t, "metadata": {"text": t, "topic": "x"}} for i, t in enumerate("abc")}
JGF_EDGES = [{"source": "0", "target": "1"}, {"source": "1", "target": "2", "relation": "r"}]
OBO = {
    "nodes": [
        {"id": f"GO:{i}", "lbl": f"name {i}", "type": "CLASS"}
        | ({"meta": {"definition": {"val": f"what {i} is"}}} if i else {})
        for i in range(3)
    ],
    "edges": [{"sub": f"GO:{i}", "pred": "is_a", "obj": "GO:0"} for i in (1, 2)],
}
LLAMA = {
    "nodes": {
        n: {"name": n, "label": "entity", "properties": {"text": f"about {n}"}} for n in "abc"
    },
    "relations": {
        f"{a}{b}": {"label": "knows", "source_id": a, "target_id": b, "properties": {}}
        for a, b in ("ab", "bc")
    },
    "triplets": [["a", "ab", "b"], ["b", "bc", "c"]],
}
OPENALEX = lines(
    {"id": "https://x/W1", "title": "one", "referenced_works": ["https://x/W2", "https://x/W3"]},
    {"id": "https://x/W2", "title": "two", "referenced_works": []},
    {"id": "https://x/W3", "title": "three", "referenced_works": None, "topic": {"name": "t"}},
)
AMINER = [
    {"id": "a", "title": "one", "references": ["b", "zz"], "venue": {"raw": "V"}},
    {"id": "b", "title": "two", "references": ["a", "c"], "venue": {"raw": "W"}},
    {"id": "c", "title": "three"},
]
MAIL = "message_id,in_reply_to,subject,body\n<1@a>,,Hi,one\n<2@a>,<1@a>,Re,two\n<3@a>,<1@a>,Re,c\n"
APOC_CSV = (
    '"_id","_labels","text","_start","_end","_type","since"\n"1",":X","one",,,,\n'
    '"2",":Y","two",,,,\n"3",":Y","three",,,,\n,,,"1","2","NEAR","1"\n,,,"2","3","NEAR",""\n'
)
TURTLE = """@prefix : <http://a/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:a a :Rock ; rdfs:label "soil" ; rdfs:comment "red soil" ; :near :b .
:b a :Rock ; rdfs:label "stone" ; :near :c . :c a :Sky ; rdfs:label "sky" .
"""
TRIPLES = "".join(
    f"<http://a/{s}> <http://www.w3.org/2000/01/rdf-schema#label> {o!r} .\n".replace("'", '"')
    for s, o in (("a", "soil"), ("b", "stone"))
) + ("<http://a/a> <http://a/near> <http://a/b> .\n")
GRAPHML = (
    '<graphml><key id="t" for="node" attr.name="text"/><graph edgedefault="undirected">'
    + "".join(f'<node id="{i}"><data key="t">text {i}</data></node>' for i in range(3))
    + '<edge source="0" target="1"/><edge source="1" target="2"/></graph></graphml>'
)
NEO4J = {
    "persons.csv": "personId:ID(Person),text,:LABEL\n1,one,Person\n2,two,Person\n",
    "films.csv": "filmId:ID(Film),text,year:int,:LABEL\n1,three,1999,Film\n",
    "acts.csv": ":START_ID(Person),role,:END_ID(Film),:TYPE\n1,A,1,ACTS\n2,B,1,ACTS\n",
    "knows.csv": ":START_ID(Person),:END_ID(Person),:TYPE\n1,2,KNOWS\n",
}
GRAPHRAG = {
    "entities": {
        "id": ["6f2a", "91bc"],
        "human_readable_id": [0, 1],
        "title": ["SOIL", "STONE"],
        "type": ["CONCEPT", ""],
        "description": ["Soil is red.", None],
        "text_unit_ids": [["t1", "t2"], ["t2"]],
    },
    "relationships": {
        "id": ["d01e"],
        "source": ["SOIL"],
        "target": ["STONE"],
        "description": ["Soil covers stone."],
        "weight": [8.5],
    },
    "text_units": {"id": ["t1"], "text": ["Soil"]},
}
# The title of an entity was its name until version 0.4.
FIRST = GRAPHRAG["entities"] | {"name": GRAPHRAG["entities"]["title"]}
del FIRST["title"]
ENTITIES = {"title": ["A", "", "B", "A"], "description": ["one", "none", "two", "again"]}
RELATIONS = {"source": ["A", "", "B"], "target": ["B", "A", "A"], "description": ["d"] * 3}
NFD = unicodedata.normalize("NFD", "café")


def case(files, expected, *parts, **options):
    """Files, and what an import makes of them with these options.

    `expected` is "nodes/edges/classes", or "!" and a pattern of the refusal; `parts` are printed or
    warned of.
    """
    return files, expected, parts, options


EDGES = {"edges.csv": E}
JSON = '{"nodes": [{"id": 1, "text": "t"}], "links": [{"source": %s, "target": 2}]}'

CASES = {
    # Tables that are no graph: what is wrong, where, and what was expected.
    "no text": case({"nodes.csv": "id,body\n1,t\n", **EDGES}, "!'text', found id, body"),
    "no nodes": case({"nodes.csv": "id,text\n", **EDGES}, "!at least one node"),
    "an empty file": case({"nodes.csv": "", **EDGES}, "!readable csv table, found: Empty CSV"),
    "an id again": case({"nodes.csv": N + "1,t,x\n", **EDGES}, "!row 4: expected unique ids"),
    "no id": case({"nodes.csv": N + ",t,x\n", **EDGES}, "!row 4: expected a node id"),
    "an unknown part": case(
        {"nodes.csv": "id,text,split\n1,t,dev\n", "edges.csv": "source,target\n"},
        "!row 1: expected split train, val, test or empty, found 'dev'",
    ),
    "no ends": case({"nodes.csv": N, "edges.csv": "a,b\n1,2\n"}, "!'source', 'target', found a, b"),
    "an end without an id": case({"nodes.csv": N, "edges.csv": E + ",1\n"}, "!row 3 source ''"),
    "an unknown end": case({"nodes.csv": N, "edges.csv": E + "1,zz\n"}, "!row 3 target 'zz'"),
    "nodes alone": case({"nodes.csv": N}, "!a table of nodes alone; give the edge table"),
    "edges alone": case(EDGES, "!a table of edges alone; give the node table"),
    "a folder without tables": case(
        {"g/a.docx": "x"}, "!such as nodes.csv and edges.csv, found none"
    ),
    "a broken line": case(
        {"nodes.jsonl": '{"id": 1, "text": "t"}\n{"id": 2,\n', **EDGES}, "!line 2"
    ),
    "a line that is no object": case(
        {"nodes.jsonl": '{"id": 1, "text": "t"}\n[1]\n', **EDGES}, "!line 2: expected a JSON object"
    ),
    "no table": case({"nodes.parquet": b"no table", **EDGES}, "!readable parquet"),
    "JSON without texts": case(
        {"g.json": '{"nodes": [{"id": 1}], "links": []}'}, "!attribute 'text'"
    ),
    "JSON without ids": case(
        {"g.json": '{"multigraph": false, "nodes": [{"text": "t"}], "links": []}'},
        "!attribute 'id'",
    ),
    "JSON with an unknown end": case({"g.json": JSON % 1}, "!'2'"),
    "JSON with a list as an end": case({"g.json": JSON % "[1]"}, "!'source'"),
    # Names of files and of columns, and delimiters.
    "other names, line ends of Windows": case(
        {
            "n.csv": '\ufeffkey,title,body,kind\r\n007,"1, ""2""\r\n3",more,x\r\n7,4,,y\r\n',
            "e.csv": "\ufefffrom,to,weight\r\n007,7,0.5\r\n",
        },
        "2/1/2",
        "longest 14 characters",
        **{"id": "key", "text": "title,body", "label": "kind"},
    ),
    **{
        f"delimited by {name}": case(
            {"n.csv": N.replace(",", mark), "e.csv": E.replace(",", mark)},
            "3/2/2",
            f"delimiter {name}",
        )
        for name, mark in (("comma", ","), ("semicolon", ";"), ("tab", "\t"), ("bar", "|"))
    },
    "delimiters that both fit": case(
        {"nodes.csv": "a;b,c;d\n1;2,3;4\n", **EDGES}, "!that comma and semicolon both fit; name it"
    ),
    **{
        f"a folder with {nodes}": case({f"g/{nodes}": of_nodes, f"g/{edges}": of_edges}, "3/2/2")
        for nodes, of_nodes, edges, of_edges in (
            ("vertices.csv", N, "edges.csv", E),
            ("Entities.tsv", N.replace(",", "\t"), "relationships.csv", E),
            ("node.ndjson", lines(*RECORDS), "relations.txt", E),
            ("nodes.jsonl.gz", packed(lines(*RECORDS)), "links.csv", E),
        )
    },
    "two tables of nodes": case(
        {"g/nodes.csv": N, "g/entities.csv": N, "g/edges.csv": E},
        "!row 4: expected unique ids, found '1' again, and 2 more",
    ),
    "Gephi's label is a name": case(
        {"n.csv": "Id,Label,topic\n1,one,x\n", "e.csv": "Source,Target,Type\n"},
        "1/0/0",
        "the names in 'Label' are the texts",
    ),
    "the text is no class": case(
        {"n.csv": "id,label\n1,one\n2,two\n", "e.csv": "u,v\n1,2\n"}, "2/1/0", text="label"
    ),
    "the text is the class": case(
        {"n.csv": "id,label\n1,one\n2,two\n", "e.csv": "u,v\n1,2\n"},
        "2/1/2",
        text="label",
        label="label",
    ),
    **{
        f"{name} by {mark!r}": case(
            {
                "n.csv": "id,text\n0035,one\n1033,two\n7,three\n",
                name: f"# SNAP\n# From To\n0035{mark}1033\n1033{mark}0035\n1033{mark}7\n",
            },
            "3/2/0",
            *("header none", "2 comment lines", "1 in one direction only"),
        )
        for name in ("cora.cites", "edges.txt", "list.edgelist")
        for mark in "\t ,"
    },
    "a list of edges with weights": case(
        {"n.csv": N, "e.txt": "1 2 0.5\n2 3 1\n"}, "3/2/2", "weight", edge_weight="weight"
    ),
    "a list of edges with a header": case({"n.csv": N, "e.txt": E.replace(",", " ")}, "3/2/2"),
    "a file of words": case(
        {"n.csv": N, "cora.cites": "31336\t0\t0\t1\tNeural_Networks\n"},
        "!expected two columns, the ends of an edge, or a header",
    ),
    # Labels.
    **{
        f"no label, written {missing!r} in {suffix}": case(
            {
                f"nodes.{suffix}": N.replace(",x", f",{missing}")
                if suffix == "csv"
                else lines({**RECORDS[0], "label": missing}, *RECORDS[1:]),
                **EDGES,
            },
            "3/2/1",
            "1 class, 2 nodes labelled, 1 not",
        )
        for missing in ("", "-1", "nan", "NaN", "None", " none ", "NULL", "-1.0")
        for suffix in ("csv", "jsonl")
    },
    "no label, as the user says": case(
        {"nodes.csv": N.replace(",x", ",?").replace("2,two,y", "2,two,-1"), **EDGES},
        "3/2/2",
        "2 classes, 2 nodes labelled, 1 not",
        unlabelled=("?", ""),
    ),
    "a list of labels": case(
        {"nodes.jsonl": lines({"id": 1, "text": "t", "label": ["x", "y"]}), **EDGES},
        "!one value in 'label', found a list in row 1",
    ),
    "a list of texts": case(
        {"nodes.jsonl": lines({"id": 1, "text": ["t", "u"], "label": "x"}), **EDGES},
        "!one value in 'text', found a list in row 1",
    ),
    "a list that is not read": case(
        {"nodes.jsonl": lines(*({**record, "tags": [1, 2]} for record in RECORDS)), **EDGES},
        "3/2/2",
    ),
    "labels of Neo4j": case(
        {"n.csv": ":ID,text,:LABEL\n1,one,A;B\n", "e.csv": ":START_ID,:END_ID\n"},
        "!one label per node.*'A;B'",
    ),
    "labels of Neo4j, not read": case(
        {"n.csv": ":ID,text,:LABEL\n1,one,A;B\n", "e.csv": ":START_ID,:END_ID\n"},
        "1/0/0",
        "columns :LABEL",
        label="none",
    ),
    "descriptions of LightRAG": case(
        {"n.csv": "id,description\n1,first<SEP>second\n2,b\n3,c\n", **EDGES}, "3/2/0", "longest 12"
    ),
    # Quotes.
    "unpaired quote": case(
        {"nodes.tsv": 'id\ttext\n1\t"Open\n2\ttwo\n3\tthe "end"\n', "edges.csv": E},
        "3/2/0",
        "quoting none",
    ),
    "unpaired quote in CSV": case(
        {"nodes.csv": 'id,text\n1,"Open\n2,two\n3,three\n', "edges.csv": E}, "3/2/0", "quoting none"
    ),
    "quotes that fit twice": case(
        {"nodes.tsv": 'id\ttext\n1\t"one\n2\ttwo"\n3\tc\n', "edges.csv": E},
        "!--quoting none for 3 rows, or --quoting standard for 2",
    ),
    "quotes by backslash": case(
        {"nodes.csv": 'id,text\n1,"a \\"b\\", c"\n2,two\n3,three\n', "edges.csv": E},
        "3/2/0",
        "quoting backslash",
    ),
    "tabs by backslash": case(
        {"nodes.tsv": "id\ttext\n1\ta\\\tb\n2\ttwo\n3\tthree\n", "edges.csv": E},
        "3/2/0",
        "quoting backslash",
    ),
    "a row of two lines": case(
        {"nodes.csv": 'id,text\n1,"a\nb"\n2,two\n3,three\n', "edges.csv": E},
        "3/2/0",
        "rows over several lines 1",
    ),
    # Comments and headers.
    "comments": case(
        {"nodes.csv": N, "edges.txt": "# a\n# b\n1 2\n2 3\n"}, "3/2/2", "2 comment lines"
    ),
    "comments of Matrix Market": case(
        {"nodes.csv": N, "edges.edges": "% a\n1 2\n2 3\n"}, "3/2/2", "1 comment line"
    ),
    "ids with the mark of comments": case(
        {"nodes.csv": "id,text\n#1,a\n#2,b\n", "edges.txt": "#1 #2\n"}, "2/1/0"
    ),
    "no header": case({"nodes.csv": N, "edges.csv": "1,2\n2,3\n"}, "3/2/2", "header none"),
    "no header, weights": case(
        {"nodes.csv": N, "edges.tsv": "1\t2\t0.5\n2\t3\t1\n"}, "3/2/2", "header none"
    ),
    "no header, names": case(
        {"nodes.csv": N.replace("1,", "a,"), "edges.csv": "a,2\n2,3\n"}, "!--no-header"
    ),
    "no header, ids with a mark": case(
        {"nodes.csv": "id,text\n#a,one\n#b,two\n", "edges.csv": "#a,#b\n#b,#a\n"}, "!--no-header"
    ),
    "no header, as advised": case(
        {"nodes.csv": N.replace("1,", "a,"), "edges.csv": "a,2\n2,3\n"}, "3/2/2", header=False
    ),
    "a header of R": case(
        {
            "nodes.txt": '"text" "label"\n"1" "one two" "x"\n"2" "two" "y"\n',
            "edges.txt": '"source" "target"\n"1" "1" "2"\n',
        },
        "2/1/2",
        "without a name for the first column",
    ),
    "a header of R, not quoted": case(
        {"nodes.tsv": "text\tlabel\n1\tone\tx\n2\ttwo\ty\n3\tc\ty\n", "edges.csv": E}, "3/2/2"
    ),
    "a comment in mid-file": case(
        {"nodes.csv": N, "edges.txt": "# a\n1 2\n# in the middle\n2 3\n"},
        "!row 3: expected 2 columns.*'# in the middle'; remove it",
    ),
    "a row with a column too many": case(
        {"nodes.csv": N, "edges.csv": E + "2,3,4\n"}, "!row 4: expected 2 columns.*3 in '2,3,4'"
    ),
    "titles alone": case(
        {"nodes.csv": N.replace("text", "title"), "edges.csv": E},
        "3/2/2",
        "the names in 'title' are the texts",
    ),
    # Values that mean none.
    "NA in labels": case({"nodes.csv": N.replace(",x", ",NA"), "edges.csv": E}, "3/2/2", "'NA'"),
    "null of Hive and MySQL": case(
        {"nodes.csv": N.replace("one", "\\N"), "edges.csv": E}, "3/2/2", "text '\\\\N'"
    ),
    "NaN in texts": case(
        {"nodes.csv": N.replace("one", "NaN"), "edges.csv": E},
        "3/2/2",
        "1 of 3 nodes have an empty text",
        missing=("NaN",),
    ),
    "NA is an id": case(
        {"nodes.csv": N.replace("1,", "NA,"), "edges.csv": E.replace("1", "NA")}, "3/2/2"
    ),
    # Ids that differ a little.
    "floats": case(
        {"nodes.csv": N, "edges.csv": "source,target\n1.0,2.0\n2.0,3.0\n"}, "3/2/2", "'.0'"
    ),
    "forms of Unicode": case(
        {"nodes.csv": "id,text\ncafé,a\nb,b\n", "edges.csv": f"source,target\n{NFD},b\n"},
        "2/1/0",
        "Unicode form",
    ),
    "blanks": case({"nodes.csv": N, "edges.csv": "source,target\n1 , 2\n2,3\n"}, "3/2/2", "space"),
    "case": case(
        {"nodes.csv": "id,text\nSoil,a\nb,b\n", "edges.csv": "source,target\nsoil,b\n"},
        "2/1/0",
        "case",
    ),
    "case of two ids": case(
        {"nodes.csv": "id,text\nSoil,a\nSOIL,b\n", "edges.csv": "source,target\nsoil,Soil\n"},
        "!row 1 source 'soil'",
    ),
    "some edges dangle": case(
        {"nodes.csv": N, "edges.csv": E + "1,zz\n2,yy\nxx,ww\n0,2\n"},
        "!found 4 edges with another: row 3 target 'zz', row 4 target 'yy', row 5 source 'xx', ..."
        ".*these are 4 of 6 edges, so check --id",
    ),
    "most edges dangle": case(
        {"nodes.csv": N, "edges.csv": "source,target\n1,2\n7,8\n8,9\n"},
        "!2 of 3 edges.*--dangling 2",
        dangling="drop",
    ),
    "most edges dangle, by number": case(
        {"nodes.csv": N, "edges.csv": "source,target\n1,2\n7,8\n8,9\n"},
        "3/1/2",
        "2 that name an unknown node",
        dangling="2",
    ),
    "D3 by place with names as ids": case(
        {
            "g.json": json.dumps(
                {"nodes": [{"name": "a"}, {"name": "b"}], "links": [{"source": 0, "target": 1}]}
            )
        },
        "2/1/0",
        id="name",
        text="name",
    ),
    # PyG.
    "PyG with as many edges as nodes": case(
        {
            "g.pt": torch_file(
                raw_texts=["a", "b"],
                edge_index=EDGE_INDEX[:, :1].repeat(1, 2),
                edge_attr=torch.ones(2),
                edge_text=["s", "t"],
            )
        },
        "2/1/0",
        "edge_attr",
        "the description of 2 edges",
    ),
    "PyG with fewer texts": case(
        {"g.pt": torch_file(raw_texts=["a"], x=torch.ones(3, 2), edge_index=EDGE_INDEX)},
        "!a text for each of 3 nodes",
    ),
    "PyG beside a table": case(
        {"g.pt": torch_file(raw_texts=["a"], edge_index=EDGE_INDEX), "nodes.csv": N},
        "!g.pt: expected tables.*alone",
    ),
    "PyG with NaN": case(
        {
            "g.pt": torch_file(
                raw_texts=["a", "b", "c"],
                edge_index=EDGE_INDEX,
                y=torch.tensor([1.0, float("nan"), 0.0]),
            )
        },
        "3/2/2",
        "1 not",
    ),
    "PyG with names of classes": case(
        {"g.pt": torch_file(raw_texts=["a", "b"], edge_index=EDGE_INDEX[:, :1], y=["soil", "sky"])},
        "2/1/2",
    ),
    # Edges that are a column.
    "OpenAlex": case({"works.jsonl": OPENALEX}, "3/2/0", "edges from", text="title"),
    "OpenAlex, answer of the server": case(
        {
            "works.json": json.dumps(
                {
                    "meta": {"count": 3},
                    "results": [json.loads(line) for line in OPENALEX.splitlines()],
                }
            )
        },
        "3/2/1",
        text="title",
        label="topic.name",
    ),
    "AMiner": case(
        {"dblp.json": json.dumps(AMINER)},
        "3/2/2",
        "1 that name an unknown node",
        text="title",
        dangling="drop",
        label="venue.raw",
    ),
    "AMiner, refused": case({"dblp.jsonl": lines(*AMINER)}, "!'zz'.*--dangling", text="title"),
    "mail, named as in its headers": case(
        {"mail.csv": MAIL.replace("message_id,in_reply_to", "Message-ID,In-Reply-To")},
        "3/2/0",
        "In-Reply-To",
        id="Message-ID",
        text="subject,body",
    ),
    "forum": case({"posts.tsv": "id\tparent_id\tcontent\n1\t\ta\n2\t1\tb\n3\t1\tc\n"}, "3/2/0"),
    "forum, floats": case(
        {"posts.csv": "id,parent_id,content\n1,,a\n2,1.0,b\n3,1.0,c\n"}, "3/2/0", "'.0'"
    ),
    "mail with several references": case(
        {
            "mail.csv": MAIL.replace("in_reply_to", "references").replace(
                ",<1@a>,Re,c", ",<1@a> <2@a>,Re,c"
            )
        },
        "3/3/0",
        id="message_id",
        text="body",
    ),
    "neighbours as arrays of NumPy": case(
        {"n.csv": "id,text,neighbors\n1,a,[2 3]\n2,b,[]\n3,c,[1]\n"}, "3/2/0"
    ),
    "neighbours in another part": case(
        {f"{i}.jsonl": lines({"id": i, "text": "a", "references": [3 - i]}) for i in (1, 2)},
        "2/1/0",
    ),
    "neighbours as structures": case(
        {
            "n.parquet": parquet(
                id=["p", "q"], text=["a", "b"], references=[[{"id": "q", "w": 1}], []]
            )
        },
        "2/1/0",
    ),
    "hub data set": case(
        {
            "train.parquet": parquet(
                node_id=[1, 2, 3], text=list("abc"), label=[0, 1, 1], neighbors=[[2, 3], [], [2]]
            )
        },
        "3/3/2",
    ),
    "separators in CSV": case({"n.csv": "id,text,links\n1,a,2;3\n2,b,\n3,c,1|2\n"}, "3/3/0"),
    "an id with a separator": case({"n.csv": 'id,text,links\n"A, B",a,\nC,b,"A, B"\n'}, "2/1/0"),
    "lists in quotes": case(
        {"n.csv": "id,text,links\n1,a,\"['2', '3']\"\n2,b,[]\n3,c,\"[1, 2]\"\n"}, "3/3/0"
    ),
    "neighbours as objects": case(
        {
            "n.jsonl": lines(
                {"id": 1, "text": "a", "references": [{"id": 2, "w": 1}]}, {"id": 2, "text": "b"}
            )
        },
        "2/1/0",
    ),
    "Semantic Scholar": case(
        {
            "n.jsonl": lines(
                {"paperId": "p", "text": "a", "references": [{"title": "b", "paperId": "q"}]},
                {"paperId": "q", "text": "b", "references": []},
            )
        },
        "2/1/0",
        id="paperId",
    ),
    "parts of a hub data set": case(
        {
            f"g/data/{part}-00000-of-00001.parquet": parquet(
                node_id=ids, text=ids, neighbour=[[2, 3]]
            )
            for part, ids in (("test", [1]), ("train", [2]), ("validation", [3]))
        },
        "3/3/0",
    ),
    "two parts": case(
        {f"{i}.csv": f'id,text,neighbour\n{i},a,"[1, 2]"\n' for i in (1, 2)}, "2/1/0"
    ),
    # Nodes and edges in one file.
    "APOC, lines": case({"all.jsonl": lines(*APOC)}, "3/2/2", "APOC"),
    "APOC, list": case({"all.json": json.dumps(APOC)}, "3/2/2", "APOC"),
    "APOC, lines named .json": case({"all.json": lines(*APOC)}, "3/2/2", "APOC"),
    "APOC, object": case({"all.json": json.dumps({"nodes": APOC[:3], "rels": APOC[3:]})}, "3/2/2"),
    "APOC, CSV": case({"all.csv": APOC_CSV}, "3/2/2", "APOC"),
    "Memgraph": case({"all.json": json.dumps(MEMGRAPH)}, "3/2/2", "Memgraph"),
    "JSON Graph Format": case(
        {"g.json": json.dumps({"graph": {"nodes": JGF, "edges": JGF_EDGES}})},
        "3/2/1",
        label="topic",
    ),
    "JSON Graph Format 1": case(
        {
            "g.json": json.dumps(
                {
                    "graph": {
                        "edges": JGF_EDGES,
                        "nodes": [{"id": key, **node} for key, node in JGF.items()],
                    }
                }
            )
        },
        "3/2/1",
        label="topic",
    ),
    "JSON Graph Format, graphs": case(
        {"g.json": json.dumps({"graphs": [{"nodes": JGF, "edges": JGF_EDGES}]})},
        "3/2/1",
        label="topic",
    ),
    "OBO graph": case({"go.json": json.dumps({"graphs": [OBO]})}, "3/2/0", "OBO", "0 empty"),
    "OBO graph, obsolete": case(
        {"go.json": json.dumps({"graphs": [{**OBO, "nodes": [*OBO["nodes"], {"id": "GO:9"}]}]})},
        "4/2/0",
        "1 of 4 nodes have an empty text",
    ),
    "LlamaIndex": case({"property_graph_store.json": json.dumps(LLAMA)}, "3/2/1", "LlamaIndex"),
    "node-link": case(
        {
            "g.json": json.dumps(
                {
                    "nodes": RECORDS,
                    "links": [{"source": 1, "target": 2}, {"source": 2, "target": 3}],
                }
            )
        },
        "3/2/2",
    ),
    "entities and relationships": case(
        {
            "kg.json": json.dumps(
                {
                    "entities": [
                        {"name": "a", "description": "one"},
                        {"name": "b", "description": "b"},
                    ],
                    "relationships": [{"source": "a", "target": "b", "type": "is"}],
                }
            )
        },
        "2/1/0",
        id="name",
    ),
    "a key that repeats": case(
        {"g.json": '{"nodes": [{"id": 1, "text": "a", "text": "b"}], "links": []}'},
        "!'text'.*twice",
    ),
    # Several tables of a kind.
    "parts of Spark": case(
        {
            "g/nodes/part-00000.csv": "id,text,label\n1,one,x\n",
            "g/nodes/part-00001.csv": "id,text,label\n2,two,y\n3,three,y\n",
            "g/edges/part-00000.csv": E,
            "g/edges/_SUCCESS": "",
        },
        "3/2/2",
    ),
    "parts by year": case(
        {
            "g/nodes/year=1/part-0.csv": "id,text,label\n1,one,x\n",
            "g/nodes/year=2/part-0.csv": "id,text,label\n2,two,y\n3,three,y\n",
            "g/edges/part-0.csv": E,
        },
        "3/2/2",
    ),
    "parts of Spark in JSON": case(
        {
            "g/vertices/part-00000.json": lines(*RECORDS[:2]),
            "g/vertices/part-00001.json": lines(*RECORDS[2:]),
            "g/edges/part-00000.json": lines({"src": 1, "dst": 2}, {"src": 2, "dst": 3}),
        },
        "3/2/2",
    ),
    "one table per label": case(NEO4J, "3/3/2", "Neo4j"),
    "one table per label in a folder": case(
        {f"g/{name}": content for name, content in NEO4J.items()}, "3/3/2", "Neo4j"
    ),
    "Kuzu": case(
        {
            "city.csv": "id,text\nc1,one\nc2,two\n",
            "user.csv": "id,text,age\nu1,three,3\n",
            "lives.csv": "from,to\nu1,c1\n",
            "near.csv": "from,to\nc1,c2\n",
        },
        "3/2/2",
        label="table",
    ),
    "a header apart": case(
        {
            "g/nodes-header.csv": "id:ID,text,:LABEL\n",
            "g/nodes-1.csv": "1,one,X\n2,two,Y\n",
            "g/rels-header.csv": ":START_ID,:END_ID,:TYPE\n",
            "g/rels-1.csv": "1,2,NEAR\n",
        },
        "2/1/2",
        "header",
    ),
    # What a language model wrote.
    **{
        f"GraphRAG, {name}": case(
            {name.format(of): parquet(**columns) for of, columns in GRAPHRAG.items()},
            "2/1/0",
            *("output of GraphRAG", "text_units.parquet", "the weight of 1 edge"),
        )
        for name in ("o/{}.parquet", "o/output/{}.parquet", "o/create_final_{}.parquet")
    },
    "GraphRAG, the first versions": case(
        {
            "o/artifacts/create_final_entities.parquet": parquet(**FIRST),
            "o/artifacts/create_final_relationships.parquet": parquet(**GRAPHRAG["relationships"]),
            "o/README.md": "notes",
            "o/input/a.md": "a",
        },
        "2/1/1",
        label="type",
    ),
    "GraphRAG, two files": case(
        {f"{of}.parquet": parquet(**GRAPHRAG[of]) for of in ("entities", "relationships")},
        "2/1/0",
        "output of GraphRAG",
    ),
    "GraphRAG, damaged": case(
        {"entities.parquet": b"PAR1", "relationships.parquet": parquet(**RELATIONS)},
        "!readable parquet",
    ),
    "GraphRAG with a nameless entity": case(
        {
            "o/entities.parquet": parquet(**ENTITIES),
            "o/relationships.parquet": parquet(**RELATIONS),
        },
        "!--nameless drop",
    ),
    "GraphRAG without the nameless": case(
        {
            "o/entities.parquet": parquet(**ENTITIES),
            "o/relationships.parquet": parquet(**RELATIONS),
        },
        "!'A' again.*--duplicates merge",
        nameless="drop",
    ),
    "GraphRAG, merged": case(
        {
            "o/entities.parquet": parquet(**ENTITIES),
            "o/relationships.parquet": parquet(**RELATIONS),
        },
        "2/1/0",
        "1 without an id",
        "1 with the id",
        nameless="drop",
        duplicates="merge",
    ),
    "duplicates, the first": case(
        {"nodes.csv": N + "1,other,y\n", "edges.csv": E},
        "3/2/2",
        "1 with the id of another",
        duplicates="first",
    ),
    "nameless lines": case(
        {"nodes.csv": N + ",nobody,y\n", "edges.csv": E + ",1\n"},
        "3/2/2",
        "1 without an id",
        "1 that name no node",
        nameless="drop",
    ),
    # Packed.
    "GraphML, packed": case({"g.graphml.gz": packed(GRAPHML)}, "3/2/0"),
    "JSON, packed": case({"g.json.gz": packed(json.dumps({"graph": {"nodes": JGF}}))}, "3/0/3"),
    "PyG, packed": case(
        {"g.pt.gz": packed(torch_file(raw_texts=list("abc"), edge_index=EDGE_INDEX))}, "3/2/0"
    ),
    "Parquet, packed": case(
        {"nodes.parquet.gz": packed(parquet(**NODES)), "edges.csv.gz": packed(E)}, "3/2/2"
    ),
    "Feather, packed": case(
        {
            "nodes.feather.gz": packed(lambda path: pd.DataFrame(NODES).to_feather(path)),
            "edges.txt.gz": packed("1 2\n2 3\n"),
        },
        "3/2/2",
    ),
    # GML.
    "GML of NetworkX": case({"g.gml": network(nx.write_gml)}, "3/2/2", label="topic"),
    "GML of a multigraph": case(
        {"g.gml": network(nx.write_gml, multigraph=True)}, "3/2/2", label="topic"
    ),
    "GML by hand": case(
        {
            "g.gml": 'Creator "x"\ngraph\n[\n  directed 1\n  node [ id 0 label "soil" ]\n  node\n'
            '  [\n id 1\n label "soil"\n graphics [ x 1.0 ] ]\n edge [ source 0 target 1 ]\n'
            " edge [ source 0 target 1 value 2 ]\n]\n"
        },
        "2/1/0",
        "1 duplicate",
        text="label",
    ),
    "GML in Latin-1": case(
        {"g.gml": 'graph [\n node [ id 0 label "é" ]\n node [ id 1 ]\n]\n'.encode("latin-1")},
        "2/0/0",
        text="label",
        encoding="latin-1",
    ),
    "GML in Latin-1, refused": case(
        {"g.gml": 'graph [\n node [ id 0 label "é" ]\n]\n'.encode("latin-1")},
        "!line 2: expected UTF-8.*--encoding latin-1",
    ),
    "GML, packed": case({"g.gml.gz": packed(network(nx.write_gml))}, "3/2/2", label="topic"),
    # RDF.
    "Turtle": case({"g.ttl": TURTLE}, "3/2/2"),
    "Turtle, texts by predicate": case({"g.ttl": TURTLE}, "3/2/2", text="label,comment"),
    "Turtle, a class by predicate": case(
        {"g.ttl": TURTLE + ":a :of :stone . :b :of :air . :c :of :air ."}, "3/2/2", label="of"
    ),
    "N-Triples": case({"g.nt": TRIPLES}, "2/1/0"),
    "N-Triples with blank nodes": case(
        {"g.nt": TRIPLES.replace("<http://a/b>", "_:b") + "_:c <http://a/near> _:b .\n"}, "3/2/0"
    ),
    "N-Triples, packed": case({"g.nt.gz": packed(TRIPLES)}, "2/1/0"),
    # Notes.
    "Obsidian": case(
        {
            "v/A.md": "#soil\nSee [[B]] and [[C|the sky]].\n",
            "v/sub/B.md": "[[A#part]] ![[p.png]]",
            "v/C.md": "---\ntags: [air]\n---\nblue",
        },
        "3/2/0",
    ),
    "notes beside a table": case(
        {"v/A.md": "[[B]]", "v/B.md": "b", "v/data/t.csv": "a,b\n1,2\n"}, "2/1/0", "data/t.csv"
    ),
    "Markdown links": case(
        {"v/a.md": "[b](sub/b.md) [out](https://x.y)\n", "v/sub/b.md": "[a](../a.md#top)\n"},
        "2/1/0",
    ),
    "notes with tags as classes": case(
        {"v/A.md": "#soil\n[[B]]", "v/B.md": "---\ntags: air\n---\nblue", "v/x.txt": "no note"},
        "2/1/2",
        label="tags",
    ),
    # Workbooks and databases.
    "workbook": case({"g.xlsx": workbook(nodes=NODES, edges=ENDS)}, "3/2/2"),
    "workbook of one table": case(
        {"g.xlsx": workbook(notes={**NODES, "links": ["2;3", "", "1"]})}, "3/2/2"
    ),
    "SQLite": case({"g.sqlite": database(nodes=NODES, edges=ENDS)}, "3/2/2"),
    "SQLite, packed": case({"g.db.gz": packed(database(nodes=NODES, edges=ENDS))}, "3/2/2"),
    "SQLite, other names": case(
        {"g.db": database(papers=NODES, cites={"src": [1, 2], "dst": [2, 3]})}, "3/2/2"
    ),
    "SQLite with a table that is no part of it": case(
        {"g.db": database(nodes=NODES, edges=ENDS, authors={"author": [1], "name": ["A"]})},
        "3/2/2",
        "g.db: authors, 1 row",
    ),
    # An index without a name.
    "index in CSV": case(
        {
            "nodes.csv": ",text,label\n1,one,x\n2,two,y\n3,three,y\n",
            "edges.csv": ",source,target\n0,1,2\n1,2,3\n",
        },
        "3/2/2",
    ),
    "index in Parquet": case(
        {
            "nodes.parquet": lambda path: pd.DataFrame(
                {"text": ["one", "two"]}, index=["a", "b"]
            ).to_parquet(path),
            "edges.csv": "source,target\na,b\n",
        },
        "2/1/0",
    ),
    "index, read again": case(
        {"nodes.csv": "Unnamed: 0,text\n1,one\n2,two\n3,three\n", "edges.csv": E}, "3/2/0"
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_example(tmp_path, name):
    files, expected, parts, options = CASES[name]
    if "ttl" in str(files) or ".nt" in str(files):
        pytest.importorskip("rdflib")
    for file, content in files.items():
        put(tmp_path / file, content)
    paths = list(dict.fromkeys(tmp_path / Path(file).parts[0] for file in files))
    if expected.startswith("!"):
        with pytest.raises(UserError) as caught:
            read_graph(paths, **options)
        assert re.search(expected[1:], str(caught.value)), caught.value
        return
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        report = import_graph(paths, "g", tmp_path / "root", Options(**options))
        graph = read_graph(paths, **options)
        stored = read_graph(tmp_path / "root/graphs/g")
    assert (stored.ids.tolist(), stored.texts) == (graph.ids.tolist(), graph.texts)
    counts = report["counts"]
    assert "{nodes}/{edges}/{classes}".format(**counts) == expected
    assert [graph.num_nodes, graph.num_edges] == [counts["nodes"], counts["edges"]]
    printed = "\n".join([*summary_lines(report), *(str(line.message) for line in warned)])
    for part in parts:
        assert part in printed, printed
