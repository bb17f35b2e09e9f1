"""What is found in a graph before anything is encoded: each check, and that nothing is written."""

from types import SimpleNamespace

import numpy as np
import pytest
from support.graphs import text_graph

from dance_flwr.data import checks
from dance_flwr.data.graphs.folder import write_folder
from dance_flwr.data.graphs.graph import TEST, TRAIN, VAL
from dance_flwr.data.institution import make_folder
from dance_flwr.data.prepare import WARNING, prepare
from dance_flwr.data.text.encoder_files import DEFAULT_ENCODER, TOKENIZER, find_folder
from dance_flwr.errors import DataError
from dance_flwr.federation import declarations
from dance_flwr.federation.wire.rules import list_of, text

NAMES = ("astronomy", "cooking", "sailing")
WARNED = {
    "a class that is tested and not trained": (
        lambda d: d.update(split=[TRAIN, VAL, TEST] * 3, labels=[0, 1, 2] * 3),
        "2 of 3 classes have no training label, so that their 6 validation and test nodes count as "
        "wrong: 'cooking', 'sailing'; raise train-ratio, or give nodes of them the split 'train'",
    ),
    "one class": (
        lambda d: d.update(labels=[1] * 9),
        "all 9 labelled nodes are of one class, 'cooking': every model is right; give --label "
        "another column",
    ),
    "no edges": (
        lambda d: d.update(pairs=[]),
        "the graph has no edges: every node is read alone; check the edge table",
    ),
}


def folder_of(path, edit):
    draft = {
        "labels": [k // 3 for k in range(9)],
        "split": [TRAIN, VAL, TEST] * 3,
        "pairs": [(k, k + 1) for k in range(8)],
        "names": NAMES,
        "clients": 2,
    }
    edit(draft)
    texts = [f"A comet of number {k}." for k in range(9)]
    graph = text_graph("small", [f"n{k}" for k in range(9)], texts, [0] * 9, draft["pairs"])
    values = {
        "labels": np.array(draft["labels"], np.int64),
        "class_names": draft["names"],
        "split": np.array(draft["split"], np.uint8),
    }
    for name, value in values.items():
        object.__setattr__(graph, name, value)
    write_folder(graph, path)
    return {"data": str(path), "clients": draft["clients"], "partition": "random"}


@pytest.mark.parametrize("case", WARNED)
def test_a_warning_is_logged_when_a_partition_is_made_and_when_it_is_found(
    case, run_config, tmp_path
):
    edit, message = WARNED[case]
    config = run_config(**folder_of(tmp_path / "small", edit), data_root=str(tmp_path / "root"))
    for how in ("(made:", "(found)"):
        lines: list[str] = []
        prepare(config, lines.append)
        assert any(how in line for line in lines)
        assert [line for line in lines if line.startswith(WARNING)] == [WARNING + message]


def test_a_text_in_another_language_is_warned_of_both_times(run_config, tmp_path):
    keys = folder_of(tmp_path / "small", lambda draft: None)
    table = tmp_path / "small" / "nodes.csv"
    rows = [
        f"n{k},Исследователи опубликовали удивительные результаты,{NAMES[k // 3]}" for k in range(9)
    ]
    (tmp_path / "small" / "nodes.parquet").unlink()
    table.write_text("\n".join(["id,text,label", *rows]), encoding="utf-8")
    config = run_config(**keys, data_root=str(tmp_path / "root"))
    said = []
    for _ in range(2):
        lines: list[str] = []
        prepare(config, lines.append)
        said.append([line for line in lines if line.startswith(WARNING)])
    assert said[0] == said[1] and len(said[0]) == 1 and "set encoder to" in said[0][0]


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        ("A neural network reads the condensed evidence of CYP2D6, p53 and x_i.", False),
        ("Die Universität veröffentlichte überraschend mehrere Ergebnisse.", False),
        ("Les chercheurs ont publié des résultats étonnants sur les forêts.", False),
        ("Naukowcy opublikowali zaskakujące wyniki dotyczące lasów.", False),
        ("Исследователи опубликовали удивительные результаты.", True),
        ("Ερευνητές δημοσίευσαν εκπληκτικά αποτελέσματα.", True),
        ("نشر الباحثون نتائج مدهشة حول تطور الغابات.", True),
        ("研究人员昨天发表了关于欧洲森林演变的惊人成果。", True),
        ("연구자들은 어제 유럽 숲의 진화에 관한 결과를 발표했습니다.", True),
        ("12 34 56.7 %", False),
        ("", False),
    ],
)
def test_an_encoder_reads_the_languages_that_it_has_words_of(text, warned):
    line = checks.unread_texts([text], find_folder(DEFAULT_ENCODER) / TOKENIZER)
    assert bool(line) == warned and ("encoder" in line) == warned


def test_the_limits_are_those_of_the_wire():
    assert declarations.schema(0)["config"].content["class_names"].rule == list_of(
        text(checks.MAX_CLASS_NAME), 1, checks.MAX_CLASSES
    )


def test_a_site_whose_agreed_classes_no_server_takes_is_refused(tiny, tmp_path):
    agreed = SimpleNamespace(class_names=("a" * 201,))
    with pytest.raises(DataError, match="at most 200 characters"):
        make_folder(str(tiny), agreed, 0, 1, tmp_path / "out")
    assert not (tmp_path / "out").exists()
