"""The output folder of Microsoft GraphRAG, with the columns of its documentation."""

import pandas as pd
import pytest
from support.tables import of_roles, roles_of, values

from dance_flwr.data.imports.importer import read_network
from dance_flwr.errors import DataError

ENTITIES = {
    "id": ["6f2a", "91bc"],
    "human_readable_id": [0, 1],
    "title": ["SOIL", "STONE"],
    "type": ["CONCEPT", ""],
    "description": ["Soil is red.", None],
    "text_unit_ids": [["t1", "t2"], ["t2"]],
    "frequency": [2, 1],
    "degree": [1, 1],
    "x": [0.0, 0.5],
    "y": [0.0, 0.0],
}
RELATIONSHIPS = {
    "id": ["d01e"],
    "human_readable_id": [0],
    "source": ["SOIL"],
    "target": ["STONE"],
    "description": ["Soil covers stone."],
    "weight": [8.5],
    "combined_degree": [2],
    "text_unit_ids": [["t2"]],
}


def output(folder, name="{}.parquet", **changes):
    folder.mkdir(parents=True, exist_ok=True)
    entities = {changes.get(column, column): v for column, v in ENTITIES.items()}
    pd.DataFrame(entities).to_parquet(folder / name.format("entities"))
    pd.DataFrame(RELATIONSHIPS).to_parquet(folder / name.format("relationships"))
    pd.DataFrame({"id": ["t1"]}).to_parquet(folder / name.format("text_units"))
    return folder


@pytest.mark.parametrize("name", ["{}.parquet", "create_final_{}.parquet"])
def test_relationships_name_entities_by_title(tmp_path, name):
    file = read_network(output(tmp_path, name))
    assert file.kind == "output of GraphRAG" and file.directed is False
    assert [path.name for path in file.files] == [
        name.format("entities"),
        name.format("relationships"),
    ]
    assert of_roles(file) == {
        "id": ["SOIL", "STONE"],
        "text": ["Soil is red.", ""],
        "source": ["SOIL"],
        "target": ["STONE"],
        "description": ["Soil covers stone."],
        "weight": ["8.5"],
    }
    # The type of an entity is a label only where the user says so.
    assert "label" not in roles_of(file)
    assert values(file.nodes, ["type", "human_readable_id", "x"]) == {
        "type": ["CONCEPT", ""],
        "human_readable_id": ["0", "1"],
        "x": ["0", "0.5"],
    }


@pytest.mark.parametrize("inner", ["output", "artifacts", "output/artifacts"])
def test_the_folder_of_a_project_whose_entities_have_names_as_in_the_first_versions(
    tmp_path, inner
):
    output(tmp_path / inner, title="name")
    file = read_network(tmp_path)
    assert roles_of(file)["id"] == "name" and of_roles(file)["id"] == ["SOIL", "STONE"]


def test_other_folders_are_none_of_graphrag(tmp_path):
    assert read_network(tmp_path) is None
    output(tmp_path)
    (tmp_path / "entities.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="readable parquet"):
        read_network(tmp_path)
    (tmp_path / "entities.parquet").unlink()
    assert read_network(tmp_path) is None
