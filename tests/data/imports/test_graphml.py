"""GraphML by its specification, and as Gremlin, Gephi, yEd and LightRAG write it."""

import gzip

import pytest
from support.tables import of_roles, roles_of, values

from dance_flwr.data.imports.importer import read_network
from dance_flwr.errors import DataError

HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<graphml xmlns="http://graphml.graphdrawing.org/xmlns" '
    'xmlns:y="http://www.yworks.com/xml/graphml">\n'
)


def read(folder, body):
    (folder / "g.graphml").write_text(HEAD + body + "\n</graphml>", encoding="utf-8")
    return read_network(folder / "g.graphml")


def test_the_primer_of_graphml_with_defaults(tmp_path):
    """The example of the GraphML Primer: three nodes have no color, one edge has a weight."""
    file = read(
        tmp_path,
        """<key id="d0" for="node" attr.name="color" attr.type="string">
             <default>yellow</default>
           </key>
           <key id="d1" for="edge" attr.name="weight" attr.type="double"/>
           <graph id="G" edgedefault="undirected">
             <node id="n0"><data key="d0">green</data></node>
             <node id="n1"/>
             <node id="n2"><data key="d0">blue</data></node>
             <edge id="e0" source="n0" target="n2"><data key="d1">1.0</data></edge>
             <edge id="e1" source="n0" target="n1"><data key="d1">1.25</data></edge>
             <edge id="e2" source="n1" target="n2"/>
           </graph>""",
    )
    assert values(file.nodes) == {"id": ["n0", "n1", "n2"], "color": ["green", "yellow", "blue"]}
    assert values(file.edges) == {
        "source": ["n0", "n0", "n1"],
        "target": ["n2", "n1", "n2"],
        "id": ["e0", "e1", "e2"],
        "weight": ["1", "1.25", ""],
    }
    assert (file.kind, file.directed, file.facts) == ("GraphML", False, {"encoding": "utf-8"})
    assert roles_of(file) == {
        "id": "id",
        "source": "source",
        "target": "target",
        "weight": "weight",
    }


def test_defaults_of_edges_and_of_keys_for_all(tmp_path):
    body = """<key id="a" for="all" attr.name="topic"><default>soil</default></key>
              <key id="b" attr.name="note"><default>none</default></key>
              <key id="c" for="edge" attr.name="kind"><default>near</default></key>
              <key id="d" for="node" attr.name="seen" attr.type="boolean">
                <default>TRUE</default></key>
              <key id="e" for="graph" attr.name="title"><default>t</default></key>
              <graph edgedefault="directed"><data key="e">a title</data>
                <node id="1"><data key="a"></data></node>
                <node id="2"><data key="a">stone</data><data key="d"> False </data></node>
                <edge source="1" target="2"><data key="b">by hand</data></edge>
                <edge source="2" target="1"><data key="c">far</data></edge>
              </graph>"""
    file = read(tmp_path, body)
    # An empty value is a value: the default is for nodes that have none.
    assert values(file.nodes) == {
        "id": ["1", "2"],
        "topic": ["", "stone"],
        "note": ["none", "none"],
        "seen": ["true", "false"],
    }
    assert values(file.edges, ["topic", "note", "kind"]) == {
        "topic": ["soil", "soil"],
        "note": ["by hand", "none"],
        "kind": ["near", "far"],
    }
    assert file.directed


def test_typed_values_stay_what_the_file_says(tmp_path):
    kinds = {"int": "007", "long": " 12345678901234567890 ", "double": "3.0", "float": "1e-3"}
    kinds |= {"string": "  3.0 ", "boolean": "True"}
    keys = [f'<key id="{k}" for="node" attr.name="{k}" attr.type="{k}"/>' for k in kinds]
    data = [f'<data key="{kind}">{text}</data>' for kind, text in kinds.items()]
    empty = [f'<data key="{kind}"/>' for kind in kinds]
    rows = f'<node id="1">{"".join(data)}</node><node id="2">{"".join(empty)}</node>'
    rows += '<node id="3"><data key="double">NaN</data></node><node id="4"/>'
    file = read(tmp_path, "".join(keys) + f"<graph>{rows}</graph>")
    assert values(file.nodes) == {
        "id": ["1", "2", "3", "4"],
        "int": ["007", "", "", ""],
        "long": ["12345678901234567890", "", "", ""],
        "double": ["3", "", "", ""],
        "float": ["1e-3", "", "", ""],
        "string": ["  3.0 ", "", "", ""],
        "boolean": ["true", "", "", ""],
    }


def test_directions_of_single_edges(tmp_path):
    edges = """<node id="a"/><edge source="a" target="a"/>
               <edge directed="true" source="a" target="a"/>
               <edge directed="false" source="a" target="a"/>"""
    file = read(tmp_path, f'<graph edgedefault="undirected">{edges}</graph>')
    assert file.directed and file.facts["directed"] == "1 of 3 edges"
    assert values(file.edges, ["directed"]) == {"directed": ["", "true", "false"]}
    assert read(tmp_path, f'<graph edgedefault="directed">{edges}</graph>').facts["directed"] == (
        "2 of 3 edges"
    )
    assert read(tmp_path, '<graph edgedefault="directed"><node id="a"/></graph>').directed


def test_attributes_named_like_ids_and_ends_keep_their_names(tmp_path):
    body = """<key id="k" for="node" attr.name="id"/><key id="l" for="edge" attr.name="source"/>
              <key id="m" for="edge" attr.name="@source"/>
              <graph><node id="a"><data key="k">7</data></node>
              <edge source="a" target="a"><data key="l">Nature</data></edge></graph>"""
    file = read(tmp_path, body)
    assert values(file.nodes) == {"@id": ["a"], "id": ["7"]}
    assert values(file.edges, ["@@source", "source"]) == {"@@source": ["a"], "source": ["Nature"]}
    assert (roles_of(file)["id"], roles_of(file)["source"]) == ("@id", "@@source")


def test_values_of_a_key_that_repeats_are_a_list(tmp_path):
    keys = '<key id="k" for="node" attr.name="topic"/><key id="t" for="node" attr.name="text"/>'
    node = '<node id="a">%s<data key="t">t</data></node>' % ('<data key="k">x</data>' * 3)
    file = read(tmp_path, f"{keys}<graph>{node}</graph>")
    assert values(file.nodes, ["text"]) == {"text": ["t"]}
    with pytest.raises(DataError, match=r"one value in 'topic', found a list in row 1; name"):
        values(file.nodes)


def test_two_keys_of_one_name_are_one_column(tmp_path):
    """NetworkX declares a key for each type of an attribute's values."""
    body = """<key id="a" for="node" attr.name="x" attr.type="long"/>
              <key id="b" for="node" attr.name="x" attr.type="string"/>
              <graph><node id="1"><data key="a">3</data></node>
              <node id="2"><data key="b">three</data></node></graph>"""
    assert values(read(tmp_path, body).nodes)["x"] == ["3", "three"]


def test_other_encodings_and_names_of_files(tmp_path):
    body = '<key id="t" for="node" attr.name="text"/><graph><node id="a"><data key="t">%s</data>'
    text = HEAD.replace("UTF-8", "%s") + body + "</node></graph></graphml>"
    for encoding, name in (
        ("utf-16", "g.graphml"),
        ("ISO-8859-1", "g.xml"),
        ("UTF-8", "g.GraphML"),
    ):
        (tmp_path / name).write_text(text % (encoding, "é"), encoding)
        file = read_network(tmp_path / name)
        assert values(file.nodes)["text"] == ["é"]
        assert file.facts["encoding"] == encoding.lower()
    (tmp_path / "other.xml").write_text("<html/>")
    assert read_network(tmp_path / "other.xml") is None


def test_a_text_about_entities_declares_none(tmp_path):
    said = 'write <!ENTITY e "x"> in the head'
    file = read(
        tmp_path,
        f"""<key id="t" for="node" attr.name="text" attr.type="string"/>
            <graph edgedefault="directed"><!-- no <!ENTITY e "x"> here -->
            <node id="a"><data key="t"><![CDATA[{said}]]></data></node></graph>""",
    )
    assert values(file.nodes)["text"] == [said]


def test_the_first_of_several_graphs_is_read(tmp_path):
    file = read(tmp_path, "<graph/>" + '<graph><node id="a"/><edge source="a" target="a"/></graph>')
    assert file.facts["graphs"] == "the first of 2"
    assert values(file.nodes) == {"id": []} and values(file.edges)["source"] == []


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ("<graph><node", "not well-formed"),
        ("", "no graph in it"),
        ("<graph><node/></graph>", "an element without 'id'"),
        ('<graph><edge source="a"/></graph>', "an element without 'target'"),
        ('<graph><node id="a"><data key="k">x</data></node></graph>', "unknown key 'k'"),
        ("<graph><hyperedge/></graph>", "a hyperedge"),
        ('<graph><node id="a" id="b"/></graph>', "duplicate attribute"),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path, body, part):
    with pytest.raises(DataError) as caught:
        read(tmp_path, body)
    message = str(caught.value)
    assert part in message and "\n" not in message and message.endswith("; export it again")


@pytest.mark.parametrize("written", ["\x0b", "\0", "&#11;", "&#x1F;", "&#0;"], ids=ascii)
@pytest.mark.parametrize("place", ["text", "attribute", "far", "GEXF", "packed"])
def test_a_control_character_is_named(tmp_path, written, place):
    """In XML no tool can write one again, so that another export of these texts fails, too."""
    filled = "x" * (1 << 18) if place == "far" else ""  # a reference over the end of a block
    text = f"{filled}ä{written}b"
    bodies = {
        "attribute": f'<graph><node id="a"/><node id="{text}"/></graph></graphml>',
        "GEXF": f'<graph><nodes>\n<node id="{text}"/></nodes></graph></gexf>',
    }
    key = '<key id="t" for="node" attr.name="text" attr.type="string"/>\n'
    node = f'<graph><node id="a"><data key="t">{text}</data></node></graph></graphml>'
    body = bodies.get(place, key + node)
    head = '<gexf version="1.3">' if place == "GEXF" else HEAD
    name = "g.gexf" if place == "GEXF" else "g.graphml"
    file = tmp_path / (f"{name}.gz" if place == "packed" else name)
    content = (head + body).encode()
    file.write_bytes(gzip.compress(content) if place == "packed" else content)
    with pytest.raises(DataError) as caught:
        read_network(file)
    message = str(caught.value)
    # The only one in this file, so that where it is can be counted.
    line = (head + body).split(written)[0]
    character = written if written[0] == "&" else f"U+{ord(written):04X}"
    at = f"line {line.count(chr(10)) + 1}, column {len(line) - line.rfind(chr(10))}"
    assert f"found the control character {character} at {at}, " in message
    assert "\n" not in message


def test_gremlin_labels_of_vertices_and_edges(tmp_path):
    """As TinkerPop's reference documentation shows "The Crew" and "Modern"."""
    file = read(
        tmp_path,
        """<key id="name" for="node" attr.name="name" attr.type="string"></key>
           <key id="age" for="node" attr.name="age" attr.type="int"></key>
           <key id="labelV" for="node" attr.name="labelV" attr.type="string"></key>
           <key id="labelE" for="edge" attr.name="labelE" attr.type="string"></key>
           <key id="weight" for="edge" attr.name="weight" attr.type="float"></key>
           <graph id="G" edgedefault="directed">
             <node id="1"><data key="labelV">person</data><data key="name">marko</data>
               <data key="age">29</data></node>
             <node id="3"><data key="labelV">software</data><data key="name">lop</data></node>
             <edge id="9" source="1" target="3"><data key="labelE">created</data>
               <data key="weight">0.4</data></edge>
           </graph>""",
    )
    assert file.kind == "GraphML of TinkerPop" and file.directed
    assert of_roles(file) == {
        "id": ["1", "3"],
        "label": ["person", "software"],
        "source": ["1"],
        "target": ["3"],
        "relation": ["created"],
        "weight": ["0.4"],
    }
    assert values(file.nodes, ["name", "age"]) == {"name": ["marko", "lop"], "age": ["29", ""]}


def test_gephi_names_columns_by_their_titles(tmp_path):
    file = read(
        tmp_path,
        """<key attr.name="label" attr.type="string" for="node" id="label"/>
           <key attr.name="Edge Label" attr.type="string" for="edge" id="edgelabel"/>
           <key attr.name="weight" attr.type="double" for="edge" id="weight"/>
           <key attr.name="Edge Id" attr.type="string" for="edge" id="edgeid"/>
           <key attr.name="r" attr.type="int" for="node" id="r"/>
           <key attr.name="Modularity Class" attr.type="int" for="node" id="modularity_class"/>
           <graph edgedefault="undirected">
             <node id="0"><data key="label">Soils of the north</data>
               <data key="modularity_class">2</data><data key="r">153</data></node>
             <node id="1"><data key="label">Stones</data></node>
             <edge source="0" target="1"><data key="edgeid">7</data>
               <data key="edgelabel">cites</data><data key="weight">2.0</data></edge>
           </graph>""",
    )
    assert file.kind == "GraphML of Gephi" and file.directed is False
    assert of_roles(file) == {
        "id": ["0", "1"],
        "text": ["Soils of the north", "Stones"],
        "source": ["0"],
        "target": ["1"],
        "relation": ["cites"],
        "weight": ["2"],
    }
    assert values(file.nodes, ["Modularity Class"]) == {"Modularity Class": ["2", ""]}
    assert values(file.edges, ["Edge Id"]) == {"Edge Id": ["7"]}


def test_yed_keeps_texts_in_its_drawing(tmp_path):
    file = read(
        tmp_path,
        """<!--Created by yEd 3.23-->
           <key attr.name="Description" attr.type="string" for="graph" id="d0"/>
           <key for="port" id="d1" yfiles.type="portgraphics"/>
           <key attr.name="url" attr.type="string" for="node" id="d4"/>
           <key attr.name="description" attr.type="string" for="node" id="d5"/>
           <key for="node" id="d6" yfiles.type="nodegraphics"/>
           <key for="graphml" id="d7" yfiles.type="resources"/>
           <key attr.name="description" attr.type="string" for="edge" id="d9"/>
           <key for="edge" id="d10" yfiles.type="edgegraphics"/>
           <graph edgedefault="directed" id="G">
             <data key="d0" xml:space="preserve"/>
             <node id="n0">
               <data key="d4" xml:space="preserve"><![CDATA[http://a.example]]></data>
               <data key="d5"/>
               <data key="d6">
                 <y:ShapeNode><y:Geometry height="30.0" width="30.0" x="0.0" y="0.0"/>
                   <y:NodeLabel alignment="center" textColor="#000000">Red &amp;
Soil<y:LabelModel>
                     <y:SmartNodeLabelModel distance="4.0"/></y:LabelModel></y:NodeLabel>
                   <y:NodeLabel>second</y:NodeLabel>
                   <y:Shape type="rectangle"/></y:ShapeNode>
               </data>
             </node>
             <node id="n1" yfiles.foldertype="group">
               <data key="d6"><y:ProxyAutoBoundsNode><y:Realizers active="0"><y:GroupNode>
                 <y:NodeLabel hasText="false"/><y:NodeLabel>Stones</y:NodeLabel>
               </y:GroupNode></y:Realizers></y:ProxyAutoBoundsNode></data>
               <graph edgedefault="directed" id="n1:">
                 <node id="n1::n0"/>
                 <edge id="n1::e0" source="n1::n0" target="n0"/>
               </graph>
             </node>
             <edge id="e0" source="n0" target="n1"><data key="d9"/>
               <data key="d10"><y:PolyLineEdge><y:LineStyle color="#000000"/>
                 <y:EdgeLabel>lies on<y:LabelModel/></y:EdgeLabel></y:PolyLineEdge></data>
             </edge>
           </graph>
           <data key="d7"><y:Resources/></data>""",
    )
    assert file.kind == "GraphML of yEd" and file.directed
    assert values(file.nodes) == {
        "id": ["n0", "n1", "n1::n0"],
        "label": ["Red &\nSoil", "Stones", ""],
        "url": ["http://a.example", "", ""],
        "description": ["", "", ""],
    }
    assert values(file.edges) == {
        "source": ["n1::n0", "n0"],
        "target": ["n0", "n1"],
        "id": ["n1::e0", "e0"],
        "label": ["", "lies on"],
        "description": ["", ""],
    }
    assert (roles_of(file)["text"], roles_of(file)["relation"]) == ("label", "label")
    assert file.facts == {
        "encoding": "utf-8",
        "graphs inside of nodes": "1, their nodes and edges included",
        "further labels left out": "1",
    }


def test_lightrag_describes_nodes_and_edges(tmp_path):
    names = ("entity_id", "entity_type", "description", "source_id")
    keys = [f'<key id="d{i}" for="node" attr.name="{n}"/>' for i, n in enumerate(names)]
    names = ("weight", "description", "keywords")
    kinds = {"weight": "double"}
    keys += [
        f'<key id="d{i}" for="edge" attr.name="{n}" attr.type="{kinds.get(n, "string")}"/>'
        for i, n in enumerate(names, 4)
    ]
    body = """<graph edgedefault="undirected">
        <node id="SOIL"><data key="d0">SOIL</data><data key="d1">CONCEPT</data>
          <data key="d2">Soil is red.&lt;SEP&gt;Soil is deep.</data></node>
        <node id="STONE"/>
        <edge source="SOIL" target="STONE"><data key="d4">7.0</data>
          <data key="d5">Soil covers stone.</data><data key="d6">cover, depth</data></edge>
        </graph>"""
    file = read(tmp_path, "".join(keys) + body)
    assert file.kind == "GraphML of LightRAG"
    assert of_roles(file) == {
        "id": ["SOIL", "STONE"],
        "text": ["Soil is red.<SEP>Soil is deep.", ""],
        "source": ["SOIL"],
        "target": ["STONE"],
        "weight": ["7"],
        "relation": ["cover, depth"],
        "description": ["Soil covers stone."],
    }
    assert values(file.nodes, ["entity_type"]) == {"entity_type": ["CONCEPT", ""]}
