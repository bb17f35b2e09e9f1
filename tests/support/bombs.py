"""Parts of files of strangers: texts, entities, folders."""

import json

import pyarrow as pa

LONG = "x" * 200_000  # a text that the limits of the tests allow
MANY = 3_000  # 600 MB of them
ENTITIES = '<!DOCTYPE g [<!ENTITY a "b"><!ENTITY c SYSTEM "file:///etc/passwd">]>'
GRAPHML = (
    '<?xml version="1.0" encoding="%s"?>%s'
    '<graphml><key id="t" for="node" attr.name="text"/><graph>%s</graph></graphml>'
)
NODE = '<node id="%s"><data key="t">%s</data></node>'


def edges(folder, content="source,target\n"):
    (folder / "edges.csv").write_text(content)
    return folder


def graphml(folder, body, declared="", encoding="utf-8", name="g.graphml"):
    (folder / name).write_text(GRAPHML % (encoding, declared, body), encoding)
    return folder / name


def saved(folder, columns, **options):
    """A folder as `save_to_disk` of the datasets library writes it, and edges."""
    how = pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_stream(str(folder / "data.arrow"), columns.schema, options=how) as out:
        out.write_table(columns)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))
    return edges(folder)
