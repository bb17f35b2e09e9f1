"""Tables of the attacks, made from their measurements."""

from collections.abc import Mapping, Sequence
from typing import Any

from dance_flwr.errors import counted
from dance_flwr_studies.engine.cells import Row, Section
from dance_flwr_studies.protocols.attacks.observations import DRAWS, MEAN, OTHER
from dance_flwr_studies.reports.tables import NOTHING, Group, groups, markdown, shared_settings

BEFORE = "nothing of this round"  # the observation of a server without any upload
HOW = (
    "The adversary is a server that follows the protocol and is curious. It knows the global model "
    "before a round and what it received in it; for every candidate node it also has the text, the "
    "edges and the label, and may run models on the victim's graph.\n\nAUC: members are the "
    "labelled nodes over which a client took its loss of the plain view in this round; others are "
    "its validation and test nodes. The score is the slope of a node's loss from the model before "
    "the round to the model received (after Yeom et al. 2018, who take the loss itself). "
    f"`{BEFORE}`: without any upload, by the loss under the global model. `{OTHER}` is a control, "
    "as members are not chosen at random. Labels: correlation over (client, class) between the "
    "change of the plain head's bias and the client's share of the class among its members, both "
    "as differences from the mean over clients. AUC 50 % and correlation 0 are chance.\n\nAll "
    "clients train in every round and are averaged without noise before the attacked round; its "
    f"uploads are then clipped and noised as the line says, {DRAWS} draws on average. Epsilon is "
    "client-level and of the whole run."
)

CRAFTED = (
    "Rows of labelled nodes that a sum of one round shows, where a malicious server crafts the "
    "model that clients start from (Fowl et al. 2022; Boenisch et al. 2021), and how many are left "
    "where nodes check it, in round 1 and later. A row counts where a cosine exceeds 0.999; rows "
    "with a near-duplicate are left out. Totals over seeds."
)


def render(rows: Sequence[Row]) -> Section:
    """Return a table of observations per data set, and the missing measurements."""
    missing = [
        f"{row.labels['dataset']} {row.labels['method']} seed {row.labels['seed']}"
        for row in rows
        if not row.measure
    ]
    parts = [HOW] + ([f"Not measured yet: {', '.join(missing)}."] if missing else [])
    members: dict[str, list[Row]] = {}
    for row in (row for row in rows if row.measure):
        members.setdefault(str(row.labels["dataset"]), []).append(row)
    for dataset, measured in members.items():
        lines = [line for row in measured for line in _lines(row)]
        parts += [f"**{dataset}**: {_facts(measured, lines)}.", _table(lines)]
        if crafted := [row.measure["crafted"] for row in measured if "crafted" in row.measure]:
            # What it is, is said once.
            parts += [*([] if CRAFTED in parts else [CRAFTED]), _crafted_table(crafted)]
    return Section(tuple(parts))


def _lines(row: Row) -> list[Row]:
    shared = {name: row.labels[name] for name in ("dataset", "method", "seed")}
    return [
        Row(
            row.experiment,
            shared | {"round": seen["round"], "observation": seen["observation"]},
            row.name,
            config=row.measure["config"],
            result=seen,
        )
        for seen in row.measure["seen"]
    ]


def _facts(measured: Sequence[Row], lines: Sequence[Row]) -> str:
    sizes = []
    for method in dict.fromkeys(str(row.labels["method"]) for row in measured):
        rows = [row for row in measured if row.labels["method"] == method]
        counts = [n for row in rows for facts in row.measure["clients"] for n in facts["members"]]
        sizes.append(
            f"{method} {counted(len(rows), 'seed')}, {min(counts)} to {max(counts)} members"
        )
    keys = ("clients", "rounds", "local-epochs", "privacy.clipping-norm", "privacy.delta")
    return "; ".join([*sizes, shared_settings(lines, keys)])


def _table(lines: Sequence[Row]) -> str:
    """Return for each method the AUC in the last attacked round, and labels in the first.

    Membership shows most when a model is nearly trained, labels when it begins.
    """
    rounds = sorted({int(line.labels["round"]) for line in lines})
    methods = list(dict.fromkeys(str(line.labels["method"]) for line in lines))
    by_name: dict[str, dict[tuple[str, int], Group]] = {}
    # One method at a time: methods are tuned separately, and none is compared with another.
    for method in methods:
        for group in groups([line for line in lines if line.labels["method"] == method]):
            name = group.name(str(group.labels["observation"]))
            by_name.setdefault(name, {})[method, int(group.labels["round"])] = group
    table = []
    for name, members in by_name.items():
        epsilon = next(iter(members.values())).rows[0].result["epsilon"]
        line = [name, NOTHING if epsilon is None else f"{epsilon:.3g}"]
        for method in methods:
            last, first = members.get((method, rounds[-1])), members.get((method, rounds[0]))
            line += [last.stat(_auc).percent if last else NOTHING]
            # A mean is the same for every client: it has no correlation with their labels.
            labels = first if not name.startswith(MEAN) else None
            line += [labels.stat("bias").text() if labels else NOTHING]
        table.append(line)
    columns = [
        f"{method}: {what}"
        for method in methods
        for what in (f"AUC %, round {rounds[-1]}", f"labels, round {rounds[0]}")
    ]
    return markdown(["the server has", "epsilon", *columns], table, 2)


def _auc(row: Row) -> float | None:
    """Return the AUC by slope; by the loss itself for a server without any upload."""
    value = row.result.get("slope_auc", row.result.get("auc"))
    return None if value is None else float(value)


def _crafted_table(measured: Sequence[Mapping[str, Any]]) -> str:
    total = sum(counts["labelled"] for counts in measured)
    table = [
        [name, *(str(sum(column)) for column in zip(*rows, strict=True))]
        for name in measured[0]
        if name != "labelled" and (rows := [counts[name] for counts in measured])
    ]
    start = f"start model, of {total:,} rows"
    return markdown([start, "unchecked", "checked, round 1", "checked, later"], table)
