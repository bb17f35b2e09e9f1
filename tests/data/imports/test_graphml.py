"""GraphML by its specification: defaults, types, directions, encodings, and what is refused."""

import pytest
from support.tables import values

from dance_flwr.data.imports.importer import read_network
from dance_flwr.errors import DataError

HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n'
)


def read(folder, body):
    (folder / "g.graphml").write_text(HEAD + body + "\n</graphml>", encoding="utf-8")
    return read_network(folder / "g.graphml")


def refused(folder, body):
    with pytest.raises(DataError) as caught:
        read(folder, body)
    assert "\n" not in str(caught.value) and "g.graphml" in str(caught.value)
    return str(caught.value)


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
    assert file.roles == {"id": "id", "source": "source", "target": "target", "weight": "weight"}


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
    assert (file.roles["id"], file.roles["source"]) == ("@id", "@@source")


def test_values_of_a_key_that_repeats_are_a_list(tmp_path):
    keys = '<key id="k" for="node" attr.name="topic"/><key id="t" for="node" attr.name="text"/>'
    node = '<node id="a">%s<data key="t">t</data></node>' % ('<data key="k">x</data>' * 3)
    file = read(tmp_path, f"{keys}<graph>{node}</graph>")
    assert values(file.nodes, ["text"]) == {"text": ["t"]}
    with pytest.raises(DataError, match=r"one value in 'topic', found a list in row 1 .*; name"):
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
    message = refused(tmp_path, body)
    assert part in message and message.endswith("; export it again")
