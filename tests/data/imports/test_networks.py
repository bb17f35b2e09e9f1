"""Files of networks: GraphML, GEXF, JSON, GML, RDF and notes, as their tools write them."""

import json

import networkx as nx
import pytest
from support.imports import case, check, network, packed

HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<graphml xmlns="http://graphml.graphdrawing.org/xmlns" '
    'xmlns:y="http://www.yworks.com/xml/graphml">\n'
)


def graphml(body, keys="", head=HEAD):
    """A GraphML file; `keys` are `id:attribute` or `id:attribute:type` of nodes, or of `@edges`."""
    declared = ""
    for key in keys.split():
        kind = "edge" if key.startswith("@") else "node"
        name, title, *types = key.strip("@").split(":")
        types = f' attr.type="{types[0]}"' if types else ""
        declared += f'<key id="{name}" for="{kind}" attr.name="{title}"{types}/>\n'
    return {"g.graphml": f"{head}{declared}{body}\n</graphml>"}


def gexf(body, version="1.3", space="http://gexf.net/1.3"):
    head = f'<gexf xmlns="{space}" xmlns:viz="{space}/viz" version="{version}">'
    return {"g.gexf": f'<?xml version="1.0" encoding="UTF-8"?>{head}{body}</gexf>'}


def data(**values):
    return "".join(f'<data key="{key}">{value}</data>' for key, value in values.items())


def nodes(*texts):
    return "".join(f'<node id="{i}">{data(t=text)}</node>' for i, text in enumerate(texts))


def js(content):
    return {"g.json": json.dumps(content)}


TYPES = {"int": "007", "long": " 12345678901234567890 ", "double": "3.0", "float": "1e-3"}
TYPES |= {"string": "  3.0 ", "boolean": "True"}
DIRECTED = (
    '<graph edgedefault="%s"><node id="a"/><edge source="a" target="a"/>'
    '<edge directed="true" source="a" target="a"/><edge directed="false" source="a" target="a"/>'
    "</graph>"
)
SAID = 'write <!ENTITY e "x"> in the head'
# As the documentation of the tools shows their files.
GRAPHML = {
    "GraphML Primer, with defaults": case(
        graphml(
            """<key id="d0" for="node" attr.name="color" attr.type="string">
                 <default>yellow</default></key>
               <key id="d1" for="edge" attr.name="weight" attr.type="double"/>
               <graph id="G" edgedefault="undirected">
                 <node id="n0"><data key="d0">green</data></node>
                 <node id="n1"/>
                 <node id="n2"><data key="d0">blue</data></node>
                 <edge id="e0" source="n0" target="n2"><data key="d1">1.0</data></edge>
                 <edge id="e1" source="n0" target="n1"><data key="d1">1.25</data></edge>
                 <edge id="e2" source="n1" target="n2"/>
               </graph>"""
        ),
        "3/3/0",
        *("encoding", "utf-8", "0 self-loops dropped;", "the weight of 2 edges"),
        text="color",
    ),
    # An empty value is a value: the default is for nodes that have none.
    "GraphML, defaults of edges and of keys for all": case(
        graphml(
            """<key id="a" for="all" attr.name="topic"><default>soil</default></key>
               <key id="b" attr.name="description"><default>none</default></key>
               <key id="c" for="edge" attr.name="relation"><default>near</default></key>
               <key id="d" for="node" attr.name="seen" attr.type="boolean">
                 <default>TRUE</default></key>
               <key id="e" for="graph" attr.name="title"><default>t</default></key>
               <graph edgedefault="directed"><data key="e">a title</data>
                 <node id="1"><data key="a"></data></node>
                 <node id="2"><data key="a">stone</data><data key="d"> False </data></node>
                 <edge source="1" target="2"><data key="b">by hand</data></edge>
                 <edge source="2" target="1"><data key="c">far</data></edge>
               </graph>"""
        ),
        "2/1/1",
        "0 in one direction only",
        text="description,seen",
        label="topic",
        edge_text="append",
    ),
    "GraphML, values of every type": case(
        graphml(
            f'<graph><node id="1">{data(**TYPES)}</node>'
            f'<node id="2">{data(**dict.fromkeys(TYPES, ""))}</node>'
            f'<node id="3">{data(double="NaN")}</node><node id="4"/></graph>',
            " ".join(f"{kind}:{kind}:{kind}" for kind in TYPES),
        ),
        "4/0/0",
        text=",".join(TYPES),
    ),
    **{
        f"GraphML, single edges, else {default}": case(
            graphml(DIRECTED % default), "1/0/0", f"{number} of 3 edges", text="id"
        )
        for default, number in (("undirected", 1), ("directed", 2))
    },
    "GraphML, attributes named like ids and ends": case(
        graphml(
            f'<graph><node id="a">{data(k=7)}</node>'
            f'<edge source="a" target="a">{data(l="Nature")}</edge></graph>',
            "k:id @l:source @m:@source",
        ),
        "1/0/0",
        text="id",
    ),
    "GraphML, a key that repeats": case(
        graphml(
            f'<graph><node id="a">{data(k="x") * 3}{data(t="t")}</node></graph>', "k:topic t:text"
        ),
        "!one value in 'topic', found a list in row 1; name",
        label="topic",
    ),
    # NetworkX declares a key for each type of an attribute's values.
    "GraphML, two keys of one name": case(
        graphml(
            f'<graph><node id="1">{data(a=3)}</node><node id="2">{data(b="three")}</node></graph>',
            "a:x:long b:x:string",
        ),
        "2/0/0",
        text="x",
    ),
    **{
        f"GraphML in {encoding}, {name}": case(
            {
                name: graphml(
                    f"<graph>{nodes('é')}</graph>", "t:text", HEAD.replace("UTF-8", encoding)
                )["g.graphml"].encode(encoding)
            },
            "1/0/0",
            encoding.lower(),
        )
        for encoding, name in (
            *(("utf-16", "g.graphml"), ("ISO-8859-1", "g.xml"), ("UTF-8", "g.GraphML")),
        )
    },
    "another file of XML": case({"g.xml": "<html/>"}, "!a file ending in '.xml'"),
    "GraphML, a text about entities": case(
        graphml(
            '<graph><!-- no <!ENTITY e "x"> here -->' + nodes(f"<![CDATA[{SAID}]]>") + "</graph>",
            "t:text:string",
        ),
        "1/0/0",
    ),
    "GraphML, several graphs": case(
        graphml(
            f'<graph>{nodes("a")}</graph><graph><node id="b"/><edge source="b" target="b"/>'
            "</graph>",
            "t:text",
        ),
        "1/0/0",
        "the first of 2",
    ),
    "GraphML, packed": case(
        {
            "g.graphml.gz": packed(
                graphml(
                    f'<graph edgedefault="undirected">{nodes("a", "b", "c")}'
                    '<edge source="0" target="1"/><edge source="1" target="2"/></graph>',
                    "t:text",
                )["g.graphml"]
            )
        },
        "3/2/0",
    ),
    **{
        f"GraphML, refused for {part}": case(graphml(body), f"!{part}.*export it again$")
        for body, part in (
            ("<graph><node", "not well-formed"),
            ("", "no graph in it"),
            ("<graph><node/></graph>", "an element without 'id'"),
            ('<graph><edge source="a"/></graph>', "an element without 'target'"),
            ('<graph><node id="a"><data key="k">x</data></node></graph>', "unknown key 'k'"),
            ("<graph><hyperedge/></graph>", "a hyperedge"),
            ('<graph><node id="a" id="b"/></graph>', "duplicate attribute"),
            (f"<graph>{nodes('ä' + chr(11))}</graph>", "line 3, column 35; remove control"),
            (f"<graph>{nodes('b&#11;')}</graph>", "number: line 3, column 35; remove control"),
        )
    },
    # As TinkerPop's reference documentation shows "The Crew" and "Modern".
    "GraphML of Gremlin": case(
        graphml(
            f'<graph id="G" edgedefault="directed">'
            f'<node id="1">{data(labelV="person", name="marko", age=29)}</node>'
            f'<node id="3">{data(labelV="software", name="lop")}</node>'
            f'<edge id="9" source="1" target="3">{data(labelE="created", weight=0.4)}</edge>'
            "</graph>",
            "name:name:string age:age:int labelV:labelV:string @labelE:labelE:string "
            "@weight:weight:float",
        ),
        "2/1/2",
        "1 in one direction only",
        text="name,age",
        edge_weight="weight",
        edge_text="append",
    ),
    "GraphML of Gephi": case(
        graphml(
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
               </graph>"""
        ),
        "2/1/1",
        label="Modularity Class",
        edge_weight="weight",
        edge_text="append",
    ),
    "GraphML of yEd": case(
        graphml(
            """<!--Created by yEd 3.23-->
               <key attr.name="Description" attr.type="string" for="graph" id="d0"/>
               <key for="port" id="d1" yfiles.type="portgraphics"/>
               <key attr.name="url" attr.type="string" for="node" id="d4"/>
               <key for="node" id="d6" yfiles.type="nodegraphics"/>
               <key for="graphml" id="d7" yfiles.type="resources"/>
               <key attr.name="description" attr.type="string" for="edge" id="d9"/>
               <key for="edge" id="d10" yfiles.type="edgegraphics"/>
               <graph edgedefault="directed" id="G"><data key="d0" xml:space="preserve"/>
                 <node id="n0">
                   <data key="d4" xml:space="preserve"><![CDATA[http://a.example]]></data>
                   <data key="d6"><y:ShapeNode><y:Geometry height="30.0" x="0.0" y="0.0"/>
                     <y:NodeLabel alignment="center" textColor="#000000">Red &amp;
Soil<y:LabelModel><y:SmartNodeLabelModel distance="4.0"/></y:LabelModel></y:NodeLabel>
                     <y:NodeLabel>second</y:NodeLabel></y:ShapeNode></data>
                 </node>
                 <node id="n1" yfiles.foldertype="group">
                   <data key="d6"><y:ProxyAutoBoundsNode><y:Realizers active="0"><y:GroupNode>
                     <y:NodeLabel hasText="false"/><y:NodeLabel>Stones</y:NodeLabel>
                   </y:GroupNode></y:Realizers></y:ProxyAutoBoundsNode></data>
                   <graph edgedefault="directed" id="n1:"><node id="n1::n0"/>
                     <edge id="n1::e0" source="n1::n0" target="n0"/></graph>
                 </node>
                 <edge id="e0" source="n0" target="n1"><data key="d9"/>
                   <data key="d10"><y:PolyLineEdge><y:LineStyle color="#000000"/>
                     <y:EdgeLabel>lies on</y:EdgeLabel></y:PolyLineEdge></data></edge>
               </graph>
               <data key="d7"><y:Resources/></data>"""
        ),
        "3/2/0",
        *("graphs inside of nodes", "1, their nodes and edges included"),
        "further labels left out",
        text="label,url",
        edge_text="append",
    ),
    "GraphML of LightRAG": case(
        graphml(
            '<graph edgedefault="undirected"><node id="SOIL">'
            + data(d0="SOIL", d1="CONCEPT", d2="Soil is red.&lt;SEP&gt;Soil is deep.")
            + '</node><node id="STONE"/><edge source="SOIL" target="STONE">'
            + data(d4="7.0", d5="Soil covers stone.", d6="cover, depth")
            + "</edge></graph>",
            "d0:entity_id d1:entity_type d2:description d3:source_id "
            "@d4:weight:double @d5:description:string @d6:keywords:string",
        ),
        "2/1/1",
        label="entity_type",
        edge_weight="weight",
        edge_text="append",
    ),
}
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
CHANGING = """<graph mode="dynamic" timeformat="date">
    <attributes class="node" mode="dynamic">
      <attribute id="0" title="price" type="float"/>
      <attribute id="1" title="tags" type="liststring"/>
      <attribute id="2" title="text" type="string"/></attributes>
    <nodes><node id="a" start="2009-03-01"><attvalues>
      <attvalue for="0" value="0.6" start="2009-03-01" end="2009-03-05"/>
      <attvalue for="0" value="0.7" start="2009-03-06"/>
      <attvalue for="1" value="[soil, stone]"/>
      <attvalue for="2" value="t"/></attvalues></node></nodes></graph>"""
GEXF = {
    **{
        f"GEXF {version} of the documentation": case(
            gexf(WEB, version, space),
            "2/1/2",
            f"GEXF {version}",
            text="label,url,indegree",
            label="frog",
        )
        for version, space in (
            *(("1.3", "http://gexf.net/1.3"), ("1.2", "http://www.gexf.net/1.2draft")),
        )
    },
    "GEXF, the label is the text": case(gexf(WEB), "2/1/0"),
    # A label is a name only where no attribute is a text.
    "GEXF of Gephi, with kinds, weights and drawing": case(
        gexf(
            """<meta><creator>Gephi 0.10.1</creator></meta>
               <graph defaultedgetype="undirected" mode="static" idtype="string">
               <attributes class="node" mode="static">
                 <attribute id="text" title="text" type="string"/></attributes>
               <attributes class="edge" mode="static"><attribute id="since" title="since"
                 type="integer"><default>2001</default></attribute></attributes>
               <nodes count="2">
                 <node id="a" label="Soil"><attvalues>
                   <attvalue for="text" value="Red soil.&#10;Deep soil."/></attvalues>
                   <viz:size value="10.0"/><viz:position x="1" y="2" z="0"/>
                   <viz:color r="153" g="153" b="153"/></node>
                 <node id="b" label="Stone"/>
               </nodes>
               <edges count="3">
                 <edge id="0" source="a" target="b" kind="cites" label="in 1999" weight="2.0"/>
                 <edge id="1" source="a" target="b" kind="mentions" type="directed" weight="1">
                   <attvalues><attvalue for="since" value="1999"/></attvalues>
                   <viz:thickness value="2"/></edge>
                 <edge source="b" target="b" type="mutual" weight="0.5"/>
               </edges></graph>"""
        ),
        "2/1/2",
        "2 of 3 edges",
        edge_weight="weight",
        edge_text="append",
    ),
    "GEXF, a value of an edge by its default": case(
        gexf(
            '<graph><attributes class="edge"><attribute id="s" title="since" type="integer">'
            '<default>2001</default></attribute></attributes><nodes><node id="a" label="A"/>'
            '<node id="b"/></nodes><edges><edge source="a" target="b"/></edges></graph>'
        ),
        "2/1/0",
        edge_weight="since",
    ),
    "GEXF, a hierarchy": case(
        gexf(
            """<graph><nodes><node id="a" label="A"><nodes><node id="b" label="B">
               <nodes><node id="c"/></nodes></node></nodes>
               <edges><edge source="b" target="c" label="within"/></edges></node>
               <node id="d" pid="a"/></nodes></graph>"""
        ),
        "4/1/2",
        "3, taken out",
        text="label",
        label="pid",
        edge_text="append",
    ),
    "GEXF, values that change": case(gexf(CHANGING), "1/0/0", text="text,start"),
    **{
        f"GEXF, {name} is a list": case(
            gexf(CHANGING), f"!one value in '{name}', found a list in row 1", text=name
        )
        for name in ("price", "tags")
    },
    "GEXF, a list that no node has": case(
        gexf(
            '<graph><attributes class="node"><attribute id="0" title="tags" type="liststring"/>'
            '</attributes><nodes><node id="a"/></nodes></graph>'
        ),
        "1/0/0",
        text="tags",
    ),
    # A weight that is not declared, as Gephi 0.7 wrote it.
    "GEXF, attributes named like those of the format": case(
        gexf(
            """<graph><attributes class="node"><attribute id="0" title="label" type="string"/>
               </attributes><attributes class="edge"><attribute id="0" title="label"
               type="string"/></attributes><nodes><node id="a" label="A"><attvalues>
               <attvalue for="0" value="soil"/></attvalues></node><node id="b" label="B"/></nodes>
               <edges><edge source="a" target="b" label="E"><attvalues>
               <attvalue id="0" value="near"/><attvalue for="weight" value="2.0"/></attvalues>
               </edge></edges></graph>"""
        ),
        "2/1/1",
        label="label",
        edge_weight="weight",
        edge_text="append",
    ),
    **{
        f"GEXF, refused for {part}": case(gexf(body), f"!{part}.*export it again$")
        for body, part in (
            ("<graph><nodes><node", "not well-formed"),
            ("", "no graph in it"),
            ("<graph/><graph><nodes><node id='a'/></nodes></graph>", "several graphs"),
            ("<graph><nodes><node label='a'/></nodes></graph>", "an element without 'id'"),
            (
                "<graph><nodes><node id='a'><attvalues><attvalue for='0' value='1'/></attvalues>"
                "</node></nodes></graph>",
                "unknown key '0'",
            ),
            ("<graph><attributes><attribute id='0'/></attributes></graph>", "without 'class'"),
        )
    },
}

D3 = [{"name": "Myriel", "group": 1}, {"name": "Napoleon", "group": 1}, {"name": "Valjean"}]


def d3(ids, *ends):
    """The three nodes with these ids, and a link."""
    nodes = D3 if ids is None else [{**n, "id": i} for n, i in zip(D3, ids, strict=True)]
    return js({"nodes": nodes, "links": [{"source": ends[0], "target": ends[1]}]})


def node_link(edges):
    graph = nx.MultiDiGraph()
    graph.add_node(1, text="soil", pages=1999.0, score=0.5, seen=True, note=None)
    graph.add_node("b", text="stone", score=float("nan"))
    graph.add_edge(1, "b", relation="under", weight=2)
    graph.add_edge(1, "b", relation="near", weight=1)
    return js(nx.node_link_data(graph, edges=edges))


CY = (
    '{"nodes": [{"data": {"id": "a", "label": "soil"}, "position": {"x": 1}, "selected": false}, '
    '{"data": {"id": "b"}, "classes": "top"}], "edges": [{"data": '
    '{"id": "ab", "source": "a", "target": "b", "interaction": "pp", "weight": 0.5}}]}'
)
CY_LIST = [{**e, "group": k} for k, rows in json.loads(CY).items() for e in reversed(rows)]
MANY = [{"id": i, "text": "\ud800" if i == 4500 else "t"} for i in range(5000)]
LIST = (
    '{"nodes": [{"id": 1, "text": "a", "tags": ["x"]}, {"id": 2, "at": {"x": 1}}], "links": [%s]}'
)
JGF = """"nodes": {"0": {"label": "a", "metadata": {"text": "a", "topic": "x"}},
    "1": {"label": "b", "metadata": {"text": "b", "topic": "x"}},
    "2": {"metadata": {"topic": "x"}}}"""
JGF_LIST = """"nodes": [{"id": "0", "metadata": {"text": "a", "topic": "x"}},
    {"id": "1", "metadata": {"text": "b", "topic": "x"}},
    {"id": "2", "metadata": {"topic": "x"}}]"""
JGF_EDGES = """"edges": [{"source": "0", "target": "1"},
    {"source": "1", "target": "2", "relation": "r"}]"""
OBO = """{"graphs": [{"nodes": [{"id": "GO:0", "lbl": "name 0", "type": "CLASS"},
    {"id": "GO:1", "lbl": "name 1", "meta": {"definition": {"val": "what 1 is"}}}, {"id": "GO:9"}],
    "edges": [{"sub": "GO:1", "pred": "is_a", "obj": "GO:0"}]}]}"""
LLAMA = """{"nodes": {
    "a": {"name": "a", "label": "entity", "properties": {"text": "about a"}},
    "b": {"name": "b", "label": "entity", "properties": {"text": "about b"}}},
    "relations": {"ab": {"label": "knows", "source_id": "a", "target_id": "b", "properties": {}}},
    "triplets": [["a", "ab", "b"]]}"""
APOC = [
    '{"type": "node", "id": "1", "labels": ["X"], "properties": {"text": "one"}}',
    '{"type": "node", "id": "2", "labels": ["Y"], "properties": {"text": "two"}}',
]
RELS = [
    '{"id": "1", "type": "relationship", "label": "NEAR", "properties": {"since": 1}, '
    '"start": {"id": "1", "labels": []}, "end": {"id": "2", "labels": []}}',
]
MEMGRAPH = """[{"id": 1, "labels": ["X"], "properties": {"text": "one"}, "type": "node"},
    {"id": 2, "labels": ["Y"], "properties": {"text": "two"}, "type": "node"},
    {"start": 1, "end": 2, "id": 1, "label": "NEAR", "properties": {}, "type": "relationship"}]"""
JSON = '{"nodes": [{"id": 1, "text": "t"}], "links": [{"source": %s, "target": 2}]}'
JSONS = {
    **{
        f"node-link of NetworkX, {edges}": case(
            node_link(edges),
            "2/1/1",
            "1 in one direction only",
            text="text,pages,score,note",
            label="seen",
            edge_weight="weight",
            edge_text="append",
        )
        for edges in ("links", "edges")
    },
    # As `miserables.json` of D3 version 3 has them.
    "D3, links by place": case(
        js({"nodes": D3, "links": [{"source": 1, "target": 0, "value": 8}]}),
        "3/1/1",
        "by place",
        text="name",
        label="group",
        edge_weight="value",
    ),
    **{
        f"D3, ids {ids}, link {ends}": case(d3(ids, *ends), "3/1/0", how, text="name")
        for ids, ends, how in (
            (["a", "b", "c"], ["a", "c"], "by id"),
            ([0, 1, 2], [0, 2], "by id"),
            ([2, 1, 0], [0, 2], "by id"),
            ([10, 11, 12], [0, 2], "by place"),
            ([1, 2, 3], [0, 2], "by place"),
            (["1", "2", "3"], [1, 3], "by id"),
            (None, ["Myriel", "Valjean"], "by name"),
        )
    },
    **{
        f"D3, ids {ids}, a link to {end}": case(d3(ids, first, end), f"!{found}", text="name")
        for ids, first, end, found in (
            (["a", "b", "c"], "a", "zz", "'zz'"),
            ([0, 1, 2], 0, 9, "'9'"),
            ([10, 11, 12], True, False, "'true'"),
        )
    },
    "D3 by place with names as ids": case(
        js({"nodes": [{"name": "a"}, {"name": "b"}], "links": [{"source": 0, "target": 1}]}),
        "2/1/0",
        id="name",
        text="name",
    ),
    "D3, places beside a column index": case(
        js(
            {
                "nodes": [{"index": 7, "text": "a"}, {"index": 8}],
                "links": [{"source": 0, "target": 1}],
            }
        ),
        "2/1/0",
        text="text,index",
    ),
    **{
        f"D3, places {ends}": case(
            js(
                {
                    "nodes": D3,
                    "links": [{"source": 0, "target": 1}, {"source": ends[0], "target": ends[1]}],
                }
            ),
            expected,
            *says,
            id="name",
            text="name",
            dangling=dangling,
        )
        for ends, dangling, expected, *says in (
            (("1", "2"), "refuse", "3/2/0", "by place"),
            (("1.0", 2.0), "refuse", "3/2/0", "by place", "differ from those of the nodes in '.0'"),
            ((2, 3), "refuse", "!1 edge with another: row 2 target '3'; .*--dangling drop$"),
            ((2, 3), "drop", "3/1/0", "by place", "1 that name an unknown node"),
            ((-1, "0"), "refuse", "!1 edge with another: row 2 source '-1'; .*--dangling drop$"),
            ((-1, "0"), "drop", "3/1/0", "1 that name an unknown node"),
            ((2, None), "drop", "3/1/0", "by place", "1 that name an unknown node"),
        )
    },
    **{
        f"D3, places in {' and '.join(ends)}": case(
            js({"nodes": D3, "links": [dict(zip(ends, (0, 2), strict=True))]}),
            "3/1/0",
            "by place",
            text="name",
            **options,
        )
        for ends, options in (
            (("from", "to"), {}),
            (("a", "b"), {"source": "a", "target": "b"}),
        )
    },
    "D3, places from 1": case(
        js({"nodes": D3, "links": [{"source": i, "target": i % 3 + 1} for i in (1, 2, 3)]}),
        "!places of nodes from 0 to 2, found 1 to 3, .*subtract 1",
        id="name",
        text="name",
    ),
    "D3, a name that none has": case(
        d3(None, "Myriel", "Javert"), "!1 edge with another: row 1 target 'Javert'", text="name"
    ),
    "D3 without any id": case(
        js({"nodes": [{"key": "x1"}, {"key": "x2"}], "links": [{"source": "x1", "target": "x2"}]}),
        "!attribute 'id'.*--id",
        text="key",
    ),
    **{
        f"Cytoscape, {name}": case(
            {file: content},
            "2/1/0",
            *("position.x", "selected", "classes"),
            text="label",
            edge_weight="weight",
            edge_text="append",
        )
        for name, file, content in (
            ("by group", "g.json", f'{{"elements": {CY}, "style": []}}'),
            ("of its program", "g.cyjs", f'{{"format_version": "1.0", "elements": {CY}}}'),
            ("in one list", "g.json", json.dumps({"elements": CY_LIST})),
            ("a list alone", "g.json", json.dumps(CY_LIST)),
        )
    },
    "JSON with hyperedges": case(
        {"g.json": '{"graph": {"nodes": {"a": {}}, "hyperedges": [{"nodes": ["a"]}]}}'},
        "1/0/0",
        "hyperedges",
        text="id",
    ),
    "JSON with lists and objects": case({"g.json": LIST % ""}, "2/0/0", "tags, at.x"),
    "JSON, a list as a text": case(
        {"g.json": LIST % ""}, "!one value in 'tags', found a list in row 1; name", text="tags"
    ),
    "JSON, a list as an end": case(
        {"g.json": LIST % '{"source": [1], "target": 2}'},
        "!one value in 'source', found a list in row 1; name another",
    ),
    "JSON, an unknown column": case(
        {"g.json": LIST % ""}, r"!'title', found id, text, tags, at\.x", text="title"
    ),
    "JSON, half a character": case(
        js({"nodes": MANY, "links": []}), "!nodes 4097 to 5000, found half a character"
    ),
    # As tools write it that escape too little; Python's reader refuses it by default.
    "JSON with a control character": case(
        {"g.json": '{"nodes": [{"id": "a", "text": "x\x0by"}], "links": []}'}, "1/0/0"
    ),
    "JSON without texts": case(js({"nodes": [{"id": 1}], "links": []}), "!attribute 'text'"),
    "JSON without ids": case(
        js({"multigraph": False, "nodes": [{"text": "t"}], "links": []}), "!attribute 'id'"
    ),
    "JSON with an unknown end": case({"g.json": JSON % 1}, "!'2'"),
    "a key that repeats": case(
        {"g.json": '{"nodes": [{"id": 1, "text": "a", "text": "b"}], "links": []}'},
        "!'text'.*twice",
    ),
    **{
        f"JSON, refused: {content!s:.50}": case(
            {"g.json": content if isinstance(content, str) else json.dumps(content)}, f"!{part}"
        )
        for content, part in (
            (3, "expected lists 'nodes' and 'links'"),
            ({"nodes": []}, "expected lists 'nodes' and 'links'"),
            (nx.adjacency_data(nx.Graph([(1, 2)])), "from NetworkX with node_link_data"),
            ({"nodes": [1], "links": []}, "an object for every one of the nodes"),
            ({"nodes": [], "links": ["a"]}, "an object for every one of the edges"),
            ({"elements": {"nodes": 3, "edges": []}}, "'elements' of Cytoscape"),
            ({"elements": {"nodes": [1], "edges": []}}, "an object for every one of the nodes"),
            ({"graph": {"nodes": {"a": 3}}}, "an object for every one of the nodes"),
            ({"graph": {"nodes": {}, "edges": [["a"]]}}, "an object for every one of the edges"),
            ({"elements": [{"data": 3}]}, "an object for every one of the nodes"),
            ("[" * 100_000, "expected JSON of a graph"),
            ('{"nodes": [}', "expected JSON of a graph"),
        )
    },
    # Nodes and edges in one file.
    **{
        f"APOC, {name}": case({file: content}, "2/1/2", "APOC", edge_text="append")
        for name, file, content in (
            ("lines", "all.jsonl", "\n".join(APOC + RELS)),
            ("lines named .json", "all.json", "\n".join(APOC + RELS)),
            ("list", "all.json", f"[{', '.join(APOC + RELS)}]"),
            ("object", "all.json", f'{{"nodes": [{", ".join(APOC)}], "rels": [{RELS[0]}]}}'),
        )
    },
    "Memgraph": case({"all.json": MEMGRAPH}, "2/1/2", "Memgraph"),
    **{
        f"JSON Graph Format, {name}": case({"g.json": content}, "3/2/1", label="topic")
        for name, content in (
            ("2", f'{{"graph": {{{JGF}, {JGF_EDGES}}}}}'),
            ("1", f'{{"graph": {{{JGF_EDGES}, {JGF_LIST}}}}}'),
            ("graphs", f'{{"graphs": [{{{JGF}, {JGF_EDGES}}}]}}'),
        )
    },
    "JSON, packed": case({"g.json.gz": packed(f'{{"graph": {{{JGF}}}}}')}, "3/0/1", label="topic"),
    "OBO graph": case({"go.json": OBO}, "3/1/0", "OBO", "1 of 3 nodes have an empty text"),
    "LlamaIndex": case({"property_graph_store.json": LLAMA}, "2/1/1", "LlamaIndex"),
    "entities and relationships": case(
        {
            "g.json": '{"entities": [{"name": "a", "description": "one"}, {"name": "b"}], '
            '"relationships": [{"source": "a", "target": "b", "type": "is"}]}'
        },
        "2/1/0",
        id="name",
        text="description",
    ),
}

GML = 'graph [\n node [ id 0 label "é" ]\n node [ id 1 ]\n]\n'.encode("latin-1")
TURTLE = """@prefix : <http://a/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:a a :Rock ; rdfs:label "soil" ; rdfs:comment "red soil" ; :near :b .
:b a :Rock ; rdfs:label "stone" ; :near :c . :c a :Sky ; rdfs:label "sky" .
"""
TRIPLES = """<http://a/a> <http://www.w3.org/2000/01/rdf-schema#label> "soil" .
<http://a/b> <http://www.w3.org/2000/01/rdf-schema#label> "stone" .
<http://a/a> <http://a/near> <http://a/b> .
"""
OTHERS = {
    "GML of NetworkX": case({"g.gml": network(nx.write_gml)}, "3/2/2", label="topic"),
    "GML of a multigraph": case(
        {"g.gml.gz": packed(network(nx.write_gml, nx.MultiDiGraph))}, "3/2/2", label="topic"
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
    "GML, texts over several lines": case(
        {
            "g.gml": '# 12" long: graph [\ngraph [ comment "of graph [" node [ id 1 label "[one]'
            '\r\n&#101;nd &quot;q&quot; &amp; #2" ] node [ id 2 label "a\n\nb" ] node [ id 3\n'
            'label "c\x85d" ] edge [ source 1 target 2 label "x\n]" ] edge [ source 2 target 1 ] ]'
        },
        "3/1/0",
        text="label",
        label="none",
        edge_text="append",
    ),
    "GML, numbers": case(
        {
            "g.gml": "graph [ node [ id -1 at [ x -2e3 y +1E-3 z .5 ] ] node [ id 2 at [ x 5. "
            'y -.5E2 z +inf w nan ] ] edge [ source -1 target 2.0 w 1e1 ] node [ id 3 label "n" ] ]'
        },
        "3/1/0",
        text="at.x,at.y,at.z",
        edge_weight="w",
        label="none",
    ),
    "GML, escaped quotes": case(
        {
            "g.gml": 'graph [ node [ id 1 label "a \\" b" ] node [ id 2 label "C:\\\\" ]\n'
            "edge [ source 1 target 2 ] ]"
        },
        "2/1/0",
        "escaped by backslashes",
        text="label",
        label="none",
    ),
    "GML, backslashes": case(
        {"g.gml": 'graph [ node [ id 1 label "C:\\" ] node [ id 2 label "D:\\" ] ]'},
        "2/0/0",
        text="label",
        label="none",
    ),
    "GML, an edge to no node": case(
        {
            "g.gml": "graph [ node [ id 1 label a ] node [ id 2 label b ] "
            "edge [ source 1 target 2 ] edge [ source 1 target 3 ] ]"
        },
        "2/1/0",
        "1 that name an unknown node",
        text="label",
        label="none",
        dangling="drop",
    ),
    **{
        f"GML, {what}": case({"g.gml": content}, f"!g.gml{found}")
        for what, content, found in (
            (
                "an open text",
                'graph [\n node [ id 1\n label "a ] ]',
                " line 3: .*'\"a.*&quot;",
            ),
            ("a value without quotes", "graph [\n node [\n x y ] ]", " line 3: .*quotes.*'y ]"),
            ("no closing bracket", "graph [\n node [ id 1 ]\n", " line 2: .*, found the end"),
            ("a bracket too many", "graph [ ]\n]\n", " line 2: .*']'"),
            ("no graph", 'Creator "x"\n', ": .*one graph.*found none"),
            ("two graphs", "graph [ ] graph [ ]", ": .*one graph.*found 2"),
        )
    },
    "GML in Latin-1": case({"g.gml": GML}, "2/0/0", text="label", encoding="latin-1"),
    "GML in Latin-1, refused": case({"g.gml": GML}, "!line 2: expected UTF-8.*--encoding latin-1"),
    "Turtle": case({"g.ttl": TURTLE}, "3/2/2"),
    "Turtle, texts by predicate": case({"g.ttl": TURTLE}, "3/2/2", text="label,comment"),
    "Turtle, a class by predicate": case(
        {"g.ttl": TURTLE + ":a :of :stone . :b :of :air . :c :of :air ."}, "3/2/2", label="of"
    ),
    "N-Triples": case({"g.nt.gz": packed(TRIPLES)}, "2/1/0"),
    "N-Triples with blank nodes": case(
        {"g.nt": TRIPLES.replace("<http://a/b>", "_:b") + "_:c <http://a/near> _:b .\n"}, "3/2/0"
    ),
    "Obsidian": case(
        {
            "v/A.md": "#soil\nSee [[B]] and [[C|the sky]].\n",
            "v/sub/B.md": "[[A#part]] ![[p.png]]",
            "v/C.md": "---\ntags: [air]\n---\nblue",
        },
        "3/2/0",
    ),
    "notes, a link to one of two of a name": case(
        {"v/A.md": "[[N]]", "v/a/N.md": "n", "v/b/N.md": "[[A]]"}, "!target 'N'"
    ),
    "notes, a link to the one on top": case(
        {"v/A.md": "[[N]]", "v/N.md": "n", "v/Z/N.md": "z"}, "3/1/0"
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
}
CASES = GRAPHML | GEXF | JSONS | OTHERS


@pytest.mark.parametrize("name", CASES)
def test_a_file_of_a_network(tmp_path, request, name):
    check(tmp_path, name, *CASES[name], update=request.config.getoption("--update-golden"))
