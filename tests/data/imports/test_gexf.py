"""GEXF 1.2 and 1.3, from the examples of its documentation and as Gephi exports it."""

import pytest
from support.tables import of_roles, roles_of, values

from dance_flwr.data.imports.importer import read_network
from dance_flwr.errors import DataError


def read(folder, body, version="1.3", space="http://gexf.net/1.3"):
    content = f'<gexf xmlns="{space}" xmlns:viz="{space}/viz" version="{version}">{body}</gexf>'
    (folder / "g.gexf").write_text('<?xml version="1.0" encoding="UTF-8"?>' + content, "utf-8")
    return read_network(folder / "g.gexf")


WEB = """<meta lastmodifieddate="2009-03-20"><creator>Gephi.org</creator>
           <description>A Web network</description></meta>
         <graph defaultedgetype="directed">
           <attributes class="node">
             <attribute id="0" title="url" type="string"/>
             <attribute id="1" title="indegree" type="float"/>
             <attribute id="2" title="frog" type="boolean"><default>true</default></attribute>
           </attributes>
           <nodes>
             <node id="0" label="Gephi"><attvalues><attvalue for="0" value="http://gephi.org"/>
               <attvalue for="1" value="1"/></attvalues></node>
             <node id="3" label="Barabasi &amp; Lab"><attvalues><attvalue for="1" value="1.0"/>
               <attvalue for="2" value="False"/></attvalues></node>
           </nodes>
           <edges><edge id="0" source="0" target="3"/></edges>
         </graph>"""


@pytest.mark.parametrize(
    ("version", "space"),
    [("1.3", "http://gexf.net/1.3"), ("1.2", "http://www.gexf.net/1.2draft")],
)
def test_the_web_of_the_documentation_with_defaults(tmp_path, version, space):
    file = read(tmp_path, WEB, version, space)
    assert values(file.nodes) == {
        "id": ["0", "3"],
        "label": ["Gephi", "Barabasi & Lab"],
        "url": ["http://gephi.org", ""],
        "indegree": ["1", "1"],
        "frog": ["true", "false"],
    }
    assert values(file.edges) == {"source": ["0"], "target": ["3"], "id": ["0"]}
    assert (file.kind, file.directed) == (f"GEXF {version} of Gephi", True)
    assert roles_of(file) == {"id": "id", "text": "label", "source": "source", "target": "target"}


def test_an_export_of_gephi_with_kinds_weights_and_drawing(tmp_path):
    file = read(
        tmp_path,
        """<meta><creator>Gephi 0.10.1</creator></meta>
           <graph defaultedgetype="undirected" mode="static" idtype="string">
           <attributes class="node" mode="static">
             <attribute id="text" title="text" type="string"/></attributes>
           <attributes class="edge" mode="static">
             <attribute id="since" title="since" type="integer"><default>2001</default></attribute>
             </attributes>
           <nodes count="2">
             <node id="a" label="Soil"><attvalues>
               <attvalue for="text" value="Red soil.&#10;Deep soil."/></attvalues>
               <viz:size value="10.0"/><viz:position x="1" y="2" z="0"/>
               <viz:color r="153" g="153" b="153"/></node>
             <node id="b" label="Stone"/>
           </nodes>
           <edges count="3">
             <edge id="0" source="a" target="b" kind="cites" label="in 1999" weight="2.0"/>
             <edge id="1" source="a" target="b" kind="mentions" type="directed">
               <attvalues><attvalue for="since" value="1999"/></attvalues>
               <viz:thickness value="2"/></edge>
             <edge source="b" target="b" type="mutual" weight="0.5"/>
           </edges></graph>""",
    )
    assert values(file.nodes) == {
        "id": ["a", "b"],
        "label": ["Soil", "Stone"],
        "text": ["Red soil.\nDeep soil.", ""],
    }
    assert values(file.edges) == {
        "source": ["a", "a", "b"],
        "target": ["b", "b", "b"],
        "id": ["0", "1", ""],
        "label": ["in 1999", "", ""],
        "weight": ["2", "", "0.5"],
        "kind": ["cites", "mentions", ""],
        "type": ["", "directed", "mutual"],
        "since": ["2001", "1999", "2001"],
    }
    assert file.facts == {"encoding": "utf-8", "directed": "2 of 3 edges"}
    # A label is a name only where no attribute is a text.
    assert set(roles_of(file)) == {"id", "source", "target", "relation", "description", "weight"}
    assert of_roles(file)["relation"] == ["cites", "mentions", ""]
    assert of_roles(file)["description"] == ["in 1999", "", ""]


def test_a_hierarchy_is_taken_out_and_said(tmp_path):
    nested = """<graph><nodes><node id="a" label="A"><nodes><node id="b" label="B">
                <nodes><node id="c"/></nodes></node></nodes>
                <edges><edge source="b" target="c" label="within"/></edges></node>
                <node id="d" pid="a"/></nodes></graph>"""
    file = read(tmp_path, nested)
    assert values(file.nodes)["pid"] == ["", "a", "b", "a"]
    assert values(file.nodes, ["id", "label"]) == {
        "id": ["a", "b", "c", "d"],
        "label": ["A", "B", "", ""],
    }
    assert file.facts["nodes inside of nodes"] == "3, taken out"
    assert of_roles(file)["relation"] == ["within"]


def test_values_that_change_and_lists_are_refused_when_they_are_read(tmp_path):
    body = """<graph mode="dynamic" timeformat="date">
              <attributes class="node" mode="dynamic">
                <attribute id="0" title="price" type="float"/>
                <attribute id="1" title="tags" type="liststring"/>
                <attribute id="2" title="text" type="string"/></attributes>
              <nodes><node id="a" start="2009-03-01"><attvalues>
                <attvalue for="0" value="0.6" start="2009-03-01" end="2009-03-05"/>
                <attvalue for="0" value="0.7" start="2009-03-06"/>
                <attvalue for="1" value="[soil, stone]"/>
                <attvalue for="2" value="t"/></attvalues></node></nodes></graph>"""
    file = read(tmp_path, body)
    assert file.facts["mode"] == "dynamic; values that change are lists"
    assert values(file.nodes, ["id", "start", "text"]) == {
        "id": ["a"],
        "start": ["2009-03-01"],
        "text": ["t"],
    }
    for name in ("price", "tags"):
        with pytest.raises(DataError, match=f"one value in '{name}', found a list in row 1"):
            values(file.nodes, [name])


def test_attributes_named_like_those_of_the_format(tmp_path):
    body = """<graph><attributes class="node"><attribute id="0" title="label" type="string"/>
              </attributes><attributes class="edge"><attribute id="0" title="label" type="string"/>
              </attributes>
              <nodes><node id="a" label="A"><attvalues><attvalue for="0" value="soil"/></attvalues>
              </node></nodes><edges><edge source="a" target="a" label="E"><attvalues>
              <attvalue id="0" value="near"/><attvalue for="weight" value="2.0"/></attvalues>
              </edge></edges></graph>"""
    file = read(tmp_path, body)
    assert values(file.nodes) == {"id": ["a"], "@label": ["A"], "label": ["soil"]}
    assert values(file.edges) == {
        "source": ["a"],
        "target": ["a"],
        "@label": ["E"],
        "label": ["near"],
        "weight": ["2"],  # not declared, as Gephi 0.7 wrote it
    }
    assert of_roles(file)["text"] == ["A"] and of_roles(file)["weight"] == ["2"]


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ("<graph><nodes><node", "not well-formed"),
        ("", "no graph in it"),
        ("<graph/><graph><nodes><node id='a'/></nodes></graph>", "several graphs"),
        ("<graph><nodes><node label='a'/></nodes></graph>", "an element without 'id'"),
        (
            "<graph><nodes><node id='a'><attvalues><attvalue for='0' value='1'/></attvalues></node>"
            "</nodes></graph>",
            "unknown key '0'",
        ),
        ("<graph><attributes><attribute id='0'/></attributes></graph>", "without 'class'"),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path, body, part):
    with pytest.raises(DataError) as caught:
        read(tmp_path, body)
    message = str(caught.value)
    assert part in message and "\n" not in message and message.endswith("; export it again")


def test_a_list_that_no_node_has_is_empty(tmp_path):
    attribute = '<attribute id="0" title="tags" type="liststring"/>'
    attributes = f'<attributes class="node">{attribute}</attributes>'
    file = read(tmp_path, f'<graph>{attributes}<nodes><node id="a"/></nodes></graph>')
    assert values(file.nodes) == {"id": ["a"], "tags": [""]}
