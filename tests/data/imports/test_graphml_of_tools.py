"""GraphML of Gremlin, Gephi, yEd and LightRAG: golden tables of nodes and edges."""

from support.tables import of_roles, values

from dance_flwr.data.imports.importer import read_network

HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<graphml xmlns="http://graphml.graphdrawing.org/xmlns" '
    'xmlns:y="http://www.yworks.com/xml/graphml">\n'
)


def read(folder, body):
    (folder / "g.graphml").write_text(HEAD + body + "\n</graphml>", encoding="utf-8")
    return read_network(folder / "g.graphml")


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
    assert (file.roles["text"], file.roles["relation"]) == ("label", "label")
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
