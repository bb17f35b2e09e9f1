"""Tables of nodes and edges: the graph that an import makes of them, or the line that it prints."""

import csv
import json
import unicodedata

import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.imports import case, check, database, lines, packed, parquet, workbook

from dance_flwr.data.imports.options import Options
from dance_flwr.data.imports.text_tables import delimited
from dance_flwr.errors import DataError

N = "id,text,label\n1,one,x\n2,two,y\n3,three,y\n"
E = "source,target\n1,2\n2,3\n"
UV = "u,v\n1,2\n"
START = ":START_ID,:END_ID\n"
KEPT = {"edge_text": "append", "edge_weight": "weight"}
LINES, PARQUET = "nodes.jsonl edges.csv", "nodes.parquet edges.csv"
TSV, LISTED = "nodes.tsv edges.csv", "nodes.csv edges.txt"
NODES = {"id": [1, 2, 3], "text": ["one", "two", "three"], "label": ["x", "y", "y"]}
ENDS = {"source": [1, 2], "target": [2, 3]}
RECORDS = [dict(zip(NODES, row, strict=True)) for row in zip(*NODES.values(), strict=True)]
CATEGORIES = pa.array(["x", None, "x"]).dictionary_encode()
WORDS = "žluťoučký 猫 🐈"
LATIN = 'id,text,label\na,"two\nlines",x\nb,café,y\n'
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
NEO4J = {
    "persons.csv": "personId:ID(Person),text,:LABEL\n1,one,Person\n2,two,Person\n",
    "films.csv": "filmId:ID(Film),text,pages:int,:LABEL\n1,three,1999,Film\n",
    "acts.csv": ":START_ID(Person),role,:END_ID(Film),:TYPE\n1,A,1,ACTS\n2,B,1,ACTS\n",
    "knows.csv": ":START_ID(Person),:END_ID(Person),:TYPE\n1,2,KNOWS\n",
}
NFD = unicodedata.normalize("NFD", "café")


def of(expected, *parts, nodes=N, edges=E, names="nodes.csv edges.csv", **options):
    """A case of a file of nodes and one of edges."""
    return case(dict(zip(names.split(), (nodes, edges), strict=True)), expected, *parts, **options)


def feather(**columns):
    return lambda path: pyarrow.feather.write_feather(
        pa.table(columns), path, compression="zstd", chunksize=2
    )


def arrow(**columns):
    def write(path):
        table = pa.table(columns)
        with pa.ipc.new_stream(str(path), table.schema) as out:
            out.write_table(table)

    return write


CASES = {
    # Tables that are no graph: what is wrong, where, and what was expected.
    "no text": of("!'text', found id, body", nodes="id,body\n1,t\n"),
    "no nodes": of("!at least one node", nodes="id,text\n"),
    "an empty file": of("!readable csv table, found an empty file", nodes=""),
    "an id again": of("!row 4: expected unique ids", nodes=N + "1,t,x\n"),
    "no id": of("!row 4: expected a node id", nodes=N + ",t,x\n"),
    "an unknown part": of(
        "!row 1: expected split train, val, test or empty, found 'dev'",
        nodes="id,text,split\n1,t,dev\n",
        edges="source,target\n",
    ),
    "no ends": of("!'source', 'target', found a, b", edges="a,b\n1,2\n"),
    "an end without an id": of("!row 3 source ''", edges=E + ",1\n"),
    "an unknown end": of("!row 3 target 'zz'", edges=E + "1,zz\n"),
    "nodes alone": case({"nodes.csv": N}, "!a table of nodes alone; give the edge table"),
    "edges alone": case({"edges.csv": E}, "!a table of edges alone; give the node table"),
    "a folder without tables": case(
        {"g/a.docx": "x"}, "!such as nodes.csv and edges.csv, found none"
    ),
    "a broken line": of("!line 2", nodes='{"id": 1, "text": "t"}\n{"id": 2,\n', names=LINES),
    "a line that is no object": of(
        "!line 2: expected a JSON object", nodes='{"id": 1, "text": "t"}\n[1]\n', names=LINES
    ),
    # Names of files and of columns, and delimiters.
    "other names, line ends of Windows": of(
        "2/1/2",
        nodes='\ufeffkey,title,body,kind\r\n007,"1, ""2""\r\n3",more,x\r\n7,4,,y\r\n',
        edges="\ufefffrom,to,weight\r\n007,7,0.5\r\n",
        **{"id": "key", "text": "title,body", "label": "kind"},
    ),
    **{
        f"delimited by {name}": of(
            "3/2/2", f"delimiter {name}", nodes=N.replace(",", mark), edges=E.replace(",", mark)
        )
        for name, mark in (("comma", ","), ("semicolon", ";"), ("tab", "\t"), ("bar", "|"))
    },
    "delimiters that both fit": of(
        "!that comma and semicolon both fit; name it", nodes="a;b,c;d\n1;2,3;4\n"
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
    "Gephi's label is a name": of(
        "1/0/0",
        "the names in 'Label' are the texts",
        nodes="Id,Label,topic\n1,one,x\n",
        edges="Source,Target,Type\n",
    ),
    "the text is no class": of("2/1/0", nodes="id,label\n1,a\n2,b\n", edges=UV, text="label"),
    "the text is the class": of(
        "2/1/2", nodes="id,label\n1,a\n2,b\n", edges=UV, text="label", label="label"
    ),
    **{
        f"{name} by {mark!r}": of(
            "3/2/0",
            *("header none", "2 comment lines", "1 in one direction only"),
            nodes="id,text\n0035,one\n1033,two\n7,three\n",
            edges=f"# SNAP\n# From To\n0035{mark}1033\n1033{mark}0035\n1033{mark}7\n",
            names=f"nodes.csv {name}",
        )
        for name in ("cora.cites", "edges.txt", "list.edgelist")
        for mark in "\t ,"
    },
    "a list of edges with weights": of(
        "3/2/2", edges="1 2 0.5\n2 3 1\n", names=LISTED, edge_weight="weight"
    ),
    "a list of edges with a header": of("3/2/2", edges=E.replace(",", " "), names=LISTED),
    "a file of words": of(
        "!expected two columns, the ends of an edge, or a header",
        edges="31336\t0\t0\t1\tNeural_Networks\n",
        names=LISTED,
    ),
    # Labels.
    **{
        f"no label, written {missing!r}": of(
            "3/2/1", "1 class, 2 nodes labelled, 1 not", nodes=N.replace(",x", f",{missing}")
        )
        for missing in ("", "-1", "nan", "NaN", "None", " none ", "NULL", "-1.0")
    },
    **{
        f"no label in JSON lines, written {missing!r}": of(
            "3/2/1", nodes=lines({**RECORDS[0], "label": missing}, *RECORDS[1:]), names=LINES
        )
        for missing in (None, " none ", -1)
    },
    "no label, as the user says": of(
        "3/2/2",
        "2 classes, 2 nodes labelled, 1 not",
        nodes=N.replace(",x", ",?").replace("2,two,y", "2,two,-1"),
        unlabelled=("?", ""),
    ),
    **{
        f"a list in {name}": of(
            f"!one value in '{name}', found a list in row 1",
            nodes=lines({**RECORDS[0], name: ["t", "u"]}),
            names=LINES,
        )
        for name in ("label", "text")
    },
    "a list that is not read": of(
        "3/2/2", nodes=lines(*({**record, "tags": [1, 2]} for record in RECORDS)), names=LINES
    ),
    "labels of Neo4j": of(
        "!one label per node.*'A;B'", nodes=":ID,text,:LABEL\n1,one,A;B\n", edges=START
    ),
    "labels of Neo4j, not read": of(
        "1/0/0", "columns :LABEL", nodes=":ID,text,:LABEL\n1,a,A;B\n", edges=START, label="none"
    ),
    "descriptions of LightRAG": of("3/2/0", nodes="id,description\n1,first<SEP>second\n2,b\n3,c\n"),
    **{
        f"{what}s that look alike, {number}": of(
            "2/0/2" if what == "class name" else "2/0/1",
            f"{what}s that differ only in Unicode form",
            *map(ascii, pair),
            nodes="id,text,label\n"
            + ("a,t,{}\nb,t,{}\n" if what == "class name" else "{},t,x\n{},t,x\n").format(*pair),
            edges="source,target\n",
        )
        for number, pair in enumerate((("café", NFD), ("Sky", "sky"), ("sky", " sky")))
        for what in ("class name", "id")
    },
    "columns that are missing": of(
        "!'zz', 'headlin', 'abstrct', 'aera', found key, headline, abstract, Area:string; "
        ".*'form', 'target', 'w', found from, too; name them with "
        "--id, --text, --label, --source, --target, --edge-weight of `dance-flwr data import`"
        ".*did you mean 'headline' and 'abstract' and 'area' and 'from'",
        nodes="key,headline,abstract,Area:string\na,one,two,x\n",
        edges="from,too\na,a\n",
        **{"text": "headlin,abstrct", "label": "aera", "id": "zz"},
        **{"source": "form", "edge_weight": "w"},
    ),
    **{
        f"ids under a longer name, {name}": of(
            f"!expected a column or attribute 'id', .*{end}$",
            nodes=f"title,{name}\none,a\ntwo,b\n",
            edges="source,target\na,b\n",
        )
        for name, end in {
            "paper_id": "did you mean 'paper_id'\\?",
            "userId": "did you mean 'userId'\\?",
            "valid": "give --no-header",
        }.items()
    },
    # Edges with more than their ends.
    "what an import says": of(
        "4/2/2",
        "1 of 4 nodes have an empty text",
        *("encoding", "utf-8", "delimiter comma", "columns pages", "longest 5 characters, 1 empty"),
        *("2 classes, 3 nodes labelled, 1 not", "2  y  (rare)"),
        "1 duplicates merged, 1 self-loops dropped, 1 in one direction only, read in both",
        "; 1 isolated node",
        "the relation of 4 edges; --edge-text append keeps them",
        "the weight of 4 edges; --edge-weight COLUMN keeps them",
        nodes="id,text,label,pages\na,one,x,1\nb,,y,2\nc,three,,3\nd,four,y,4\n",
        edges="source,target,relation,weight\na,b,is,2\nb,a,is,\nb,c,,1\nb,c,has,1\na,a,is,1\n",
    ),
    "texts and weights of edges": of(
        "3/2/2",
        edges="source,target,relation,description,weight\n"
        "1,2,is,first<SEP>second,2\n2,1,has,,0.5\n2,3,,only this,1\n1,1,loop,,1\n",
        **KEPT,
    ),
    **{
        f"a weight of {weight!r}": of(
            f"!row 2: expected a number of at least 0 in 'weight', found '{weight}'",
            edges=f"source,target,weight\n1,2,1\n2,3,{weight}\n",
            edge_weight="weight",
        )
        for weight in ("heavy", "-1", "nan", "inf", "")
    },
    # Tables of tools, from their documentation.
    "Gephi tables": of(
        "3/2/2",
        "the weight of 2 edges",
        nodes="Id,Label,topic\n1,one,x\n2,two,y\n3,three,y\n",
        edges="Source,Target,Type,Weight\n1,2,Undirected,2\n2,3,Undirected,1\n",
        label="topic",
    ),
    "Neo4j tables": of(
        "3/2/2",
        "the relation of 2 edges",
        nodes=":ID(Note),text,:LABEL\n1,one,x\n2,two,y\n3,three,y\n",
        edges=":START_ID(Note),:END_ID(Note),:TYPE\n1,2,NEAR\n2,3,NEAR\n",
    ),
    "Neo4j tables, the edges first": case(
        {
            "e.csv": ":START_ID(Note),since:int,:END_ID(Note),:TYPE\n1,1999,2,NEAR\n",
            "n.csv": 'noteId:ID(Note),name:string,:LABEL\n"1","one","x"\n"2","two","y"\n',
        },
        "2/1/2",
        text="name",
        edge_text="append",
    ),
    "Neptune tables": of(
        "3/2/2",
        nodes="~id,~label,name:String,age:Int\n1,x,one,4\n2,y,two,5\n3,y,three,\n",
        edges="~id,~from,~to,~label,weight:Double\ne1,1,2,knows,0.5\ne2,2,3,knows,1.0\n",
        text="name",
        **KEPT,
    ),
    **{
        f"edges from {names}": of("3/2/2", edges=f"{names}\n{E.partition(chr(10))[2]}", **options)
        for names, options in (
            *(("src,dst", {}), ("from,to", {}), ("u,v", {}), ("head,tail", {})),
            ("one,two", {"source": "one", "target": "two"}),
        )
    },
    "Feather and Arrow": of(
        "3/2/1",
        "1 of 3 nodes have an empty text",
        nodes=feather(id=[1, 2, 3], text=["one " * 9, "two", ""], label=CATEGORIES),
        edges=arrow(**ENDS),
        names="nodes.feather edges.arrow",
    ),
    # Encodings; UTF-8 with a byte-order mark is above.
    **{
        f"{kind} in {encoding}": of(
            "1/0/0",
            encoding.removesuffix("-be"),
            nodes=(("\ufeff" if encoding == "utf-16-be" else "") + text).encode(encoding),
            edges="source,target\n".encode("utf-8-sig"),
            names=names,
        )
        for kind, text, names in (
            ("CSV", f'id,text\n1,"{WORDS}"\n', "nodes.csv edges.csv"),
            ("JSON lines", f'{{"id": 1, "text": "{WORDS}"}}\n', LINES),
        )
        for encoding in ("utf-16", "utf-16-be", "utf-32")
    },
    "Latin-1, refused": of(
        r"!line 4: expected UTF-8, found other bytes in 'b,caf\\xe9,y'; save it as UTF-8, "
        "or give its encoding, for example --encoding latin-1",
        nodes=LATIN.encode("latin-1"),
    ),
    **{
        f"{encoding}, as the user says": of(
            "2/0/2",
            nodes=LATIN.encode(encoding),
            edges="source,target\n".encode(encoding),
            encoding=encoding,
        )
        for encoding in ("latin-1", "utf-16-le")
    },
    "an unknown encoding": of("!--encoding: expected .* such as latin-1", encoding="klingon"),
    "UTF-16 without a mark": of(
        "!UTF-16 without a byte-order mark; give --encoding", nodes=LATIN.encode("utf-16-le")
    ),
    "an unknown rule": of("!--dangling: expected refuse or drop", dangling="x"),
    # Quotes.
    **{
        name: of("3/2/0", f"quoting {how}", nodes=f"id\ttext\n{rows}", names=TSV)
        for name, how, rows in (
            ("unpaired quote", "none", '1\t"Open\n2\ttwo\n3\tthe "end"\n'),
            ("tabs by backslash", "backslash", "1\ta\\\tb\n2\ttwo\n3\tthree\n"),
        )
    },
    "quotes that fit twice": of(
        "!--quoting none for 3 rows, or --quoting standard for 2",
        nodes='id\ttext\n1\t"one\n2\ttwo"\n3\tc\n',
        names=TSV,
    ),
    "quotes by backslash": of(
        "3/2/0", "quoting backslash", nodes='id,text\n1,"a \\"b\\", c"\n2,two\n3,three\n'
    ),
    **{
        f"quotes both ways, {what}": of(expected, *says, nodes=f"id,text\n{rows}")
        for what, rows, expected, *says in (
            (
                "doubled first",
                '1,"a ""b"", c"\n2,"d \\"e\\", f"\n3,g\n',
                "3/2/0",
                "quoting backslash",
            ),
            ("an end of two", '1,"x \\""\n2,"a\nb"\n3,"""c"""\n', "3/2/0", "over several lines 1"),
            ("a path", '1,"C:\\"\n2,"say \\"x\\""\n3,"""c"""\n', "3/2/0", "quoting none"),
            ("paths", '1,"C:\\"\n2,"b ""c"""\n3,c\n', "3/2/0"),
            (
                "a row over two lines or not",
                '1,"a""\n2,""b"\n3,"c \\" d"\n',
                "!--quoting none for 3 rows, or --quoting backslash for 2",
            ),
            (
                "a row of two lines or two rows",
                '1,"\\"\nx,bx"\n2,"a\\\\"\n3," "\n',
                "!--quoting backslash for 3 rows, or --quoting standard for 4",
            ),
            ("stray ones", '1,"a, b" c\n2,"d\n3,e"\n', "!line 2: .*found others; .*standard$"),
        )
    },
    "quotes of R, escaped, and no name for those of rows": of(
        "3/2/0",
        "quoting backslash",
        nodes='"text"\n"1","a \\"b\\" c"\n"2","two"\n"3","d"\n',
    ),
    "a row of two lines": of(
        "3/2/0", "rows over several lines 1", nodes='id,text\n1,"a\nb"\n2,two\n3,three\n'
    ),
    # Comments and headers.
    "comments of Matrix Market": of(
        "3/2/2", "1 comment line", edges="% a\n1 2\n2 3\n", names="nodes.csv edges.edges"
    ),
    "ids with the mark of comments": of(
        "2/1/0", nodes="id,text\n#1,a\n#2,b\n", edges="#1 #2\n", names=LISTED
    ),
    "no header": of("3/2/2", "header none", edges="1,2\n2,3\n"),
    "no header, names": of("!--no-header", nodes=N.replace("1,", "a,"), edges="a,2\n2,3\n"),
    "no header, ids with a mark": of(
        "!--no-header", nodes="id,text\n#a,one\n#b,two\n", edges="#a,#b\n#b,#a\n"
    ),
    "no header, as advised": of(
        "3/2/2", nodes=N.replace("1,", "a,"), edges="a,2\n2,3\n", header=False
    ),
    "no header, its first edge named": of(
        "!ids of nodes 'a' and '2'; give --no-header",
        nodes=N.replace("1,", "a,"),
        edges="a,2\n2,3\n",
        source="a",
        target="2",
    ),
    "no header, no ids by name": of(
        "!found a, red wine; .* give --no-header", nodes="a,red wine\nb,tea\n"
    ),
    "no header, as said": of(
        "!^(?!.*--no-header)",
        nodes="id;text\n1;a\n2;b\n",
        edges="1,2\n",
        header=False,
        delimiter=";",
    ),
    "quotes that are neither doubled nor escaped": of(
        "!found others; .*--quoting standard", nodes='"id","text"\n"1","a "b" c"\n"2","d"\n'
    ),
    "quotes that are neither doubled nor escaped, as advised": of(
        "2/1/0",
        nodes='"id","text"\n"1","a "b" c"\n"2","d"\n',
        edges="src,dst\n1,2\n",
        quoting="standard",
    ),
    "no header, a value that is a name of columns": of(
        "3/2/2",
        nodes="1,text,x\n2,two,y\n3,three,x\n",
        header=False,
        id="column 1",
        text="column 2",
        label="column 3",
    ),
    "a header of titles, beside none": of(
        "3/2/0", nodes="id,title\na,A\nb,B\nc,C\n", edges="a,b\nb,c\n", header=False
    ),
    "a header of R": of(
        "2/1/2",
        "without a name for the first column",
        nodes='"text" "label"\n"1" "one two" "x"\n"2" "two" "y"\n',
        edges='"source" "target"\n"1" "1" "2"\n',
        names="nodes.txt edges.txt",
    ),
    "a header of R, not quoted": of("3/2/2", nodes=N[3:].replace(",", "\t"), names=TSV),
    "a comment in mid-file": of(
        "!row 3: expected 2 columns.*'# in the middle'; remove it",
        edges="# a\n1 2\n# in the middle\n2 3\n",
        names=LISTED,
    ),
    "a row with a column too many": of(
        "!row 4: expected 2 columns.*3 in '2,3,4'", edges=E + "2,3,4\n"
    ),
    "titles alone": of(
        "3/2/2", "the names in 'title' are the texts", nodes=N.replace("text", "title")
    ),
    # Values that mean none.
    "NA in labels": of("3/2/2", "'NA'", nodes=N.replace(",x", ",NA")),
    "null of Hive and MySQL": of("3/2/2", "text '\\\\N'", nodes=N.replace("one", "\\N")),
    "NaN in texts": of(
        "3/2/2", "1 of 3 nodes have an empty text", nodes=N.replace("one", "NaN"), missing=("NaN",)
    ),
    "NA is an id": of("3/2/2", nodes=N.replace("1,", "NA,"), edges=E.replace("1", "NA")),
    # Ids that differ a little.
    "floats": of("3/2/2", "'.0'", edges="source,target\n1.0,2.0\n2.0,3.0\n"),
    "forms of Unicode": of(
        "2/1/0", "Unicode form", nodes="id,text\ncafé,a\nb,b\n", edges=f"source,target\n{NFD},b\n"
    ),
    "blanks": of("3/2/2", "space", edges="source,target\n1 , 2\n2,3\n"),
    "case": of("2/1/0", "case", nodes="id,text\nSoil,a\nb,b\n", edges="source,target\nsoil,b\n"),
    "case of two ids": of(
        "!row 1 source 'soil'",
        nodes="id,text\nSoil,a\nSOIL,b\n",
        edges="source,target\nsoil,Soil\n",
    ),
    "some edges dangle": of(
        "!found 4 edges with another: row 3 target 'zz', row 4 target 'yy', row 5 source 'xx', ..."
        ".*these are 4 of 6 edges, so check --id",
        edges=E + "1,zz\n2,yy\nxx,ww\n0,2\n",
    ),
    "most edges dangle": of(
        "!2 of 3 edges.*--dangling 2", edges="source,target\n1,2\n7,8\n8,9\n", dangling="drop"
    ),
    "most edges dangle, by number": of(
        "3/1/2", "2 that name an unknown node", edges="source,target\n1,2\n7,8\n8,9\n", dangling="2"
    ),
    # Edges that are a column.
    "OpenAlex": case({"works.jsonl": OPENALEX}, "3/2/0", "edges from", text="title"),
    "OpenAlex, answer of the server": case(
        {"works.json": f'{{"meta": {{}}, "results": [{",".join(OPENALEX.splitlines())}]}}'},
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
    "neighbours as arrays of NumPy, strings": case(
        {"n.csv": "id,text,neighbors\na,1,['b' 'c']\nb,2,[]\nc,3,['a']\n"},
        "3/2/0",
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
    "APOC, CSV": case({"all.csv": APOC_CSV}, "3/2/2", "APOC"),
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
    "duplicates, the first": of(
        "3/2/2", "1 with the id of another", nodes=N + "1,other,y\n", duplicates="first"
    ),
    "nameless lines": of(
        "3/2/2",
        "1 without an id",
        "1 that name no node",
        nodes=N + ",nobody,y\n",
        edges=E + ",1\n",
        nameless="drop",
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
    # Workbooks and databases.
    "workbook": case({"g.xlsx": workbook(nodes=NODES, edges=ENDS)}, "3/2/2"),
    "workbook of one table": case(
        {"g.xlsx": workbook(notes={**NODES, "links": ["2;3", "", "1"]})}, "3/2/2"
    ),
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
    "index in CSV": of(
        "3/2/2",
        nodes=",text,label\n1,one,x\n2,two,y\n3,three,y\n",
        edges=",source,target\n0,1,2\n1,2,3\n",
    ),
    "index in Parquet": of(
        "2/1/0",
        nodes=lambda path: pd.DataFrame({"text": ["one", "two"]}, index=["1", "2"]).to_parquet(
            path
        ),
        edges=UV,
        names=PARQUET,
    ),
    "index, read again": of("3/2/0", nodes="Unnamed: 0,text\n1,one\n2,two\n3,three\n"),
}


@pytest.mark.parametrize("name", CASES)
def test_tables(tmp_path, request, name):
    check(tmp_path, name, *CASES[name], update=request.config.getoption("--update-golden"))


@pytest.mark.parametrize("quote", ["", '"'])
def test_a_row_may_be_longer_than_a_block_of_the_reader(tmp_path, quote):
    file, text = tmp_path / "nodes.csv", "many words " * 120_000
    file.write_text(f"id,text\n1,a\n2,{quote}{text}{quote}\n3,c\n", "utf-8")
    read = delimited(file, Options()).read(["text"])
    assert read["text"].to_pylist() == ["a", text, "c"]


# Without "\r" at the end of a row, which csv does not quote and nobody can tell from a line end.
CELL = st.text(
    st.one_of(
        st.sampled_from(",;\t|\"\n '#-17aé"),
        st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\ufeff"),
    ),
    max_size=6,
)
NAME = st.one_of(CELL.filter(bool), st.sampled_from(["id", "text", "label", "source", "NaN", "01"]))


@st.composite
def frames(draw):
    names = draw(st.lists(NAME, min_size=2, max_size=4, unique=True))
    rows = draw(st.lists(st.lists(CELL, min_size=len(names), max_size=len(names)), max_size=5))
    return pd.DataFrame(rows, columns=names, dtype=str)


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    frame=frames(),
    mark=st.sampled_from(",;\t|"),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    line_end=st.sampled_from(["\n", "\r\n"]),
    packed=st.booleans(),
)
def test_a_table_of_pandas_is_read_back_or_refused(
    tmp_path_factory, frame, mark, encoding, quoting, line_end, packed
):
    path = tmp_path_factory.mktemp("frame") / ("t.csv.gz" if packed else "t.csv")
    options = {"encoding": encoding, "quoting": quoting, "lineterminator": line_end}
    frame.to_csv(path, index=False, sep=mark, **options)
    known = {"id": frame.columns[0]}  # numbers alone are no header
    try:
        table = delimited(path, Options(**known))
        columns = table.read(table.names)
    except DataError as error:
        assert "\n" not in str(error)
        table = delimited(path, Options(delimiter=mark, quoting="standard", **known))
        columns = table.read(table.names)
    assert table.names == list(frame.columns)
    assert {n: c.to_pylist() for n, c in columns.items()} == frame.to_dict("list")
