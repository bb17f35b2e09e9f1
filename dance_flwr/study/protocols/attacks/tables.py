"""Tables of the attacks, made from their measurements."""

from collections.abc import Sequence

from dance_flwr.study.engine.cells import Row, Section
from dance_flwr.study.protocols.attacks.observations import DRAWS, OTHER
from dance_flwr.study.reports.tables import NOTHING, Group, groups, markdown, shared_settings

BEFORE = "nothing of this round"  # the observation of a server without any upload

HOW = (
    "The adversary is a server that follows the protocol and is curious. It knows the global "
    "model before a round and what it received in it. It is made strong on purpose: for every "
    "candidate node it also has the text, the edges and the label, and may run models on the "
    "victim's graph.\n\n"
    "Members are the labelled nodes over which a client took its loss of the plain view in this "
    "round; others are its validation and test nodes, on whose labels nobody trains. The score is "
    "the fall of a node's loss from the model before the round to the model received (after Yeom "
    "et al. 2018, who take the loss itself), or its slope, the linear part of that fall, which "
    f"noise hides less. `{BEFORE}` is the server without any upload: the loss itself under the "
    "global model. That is what earlier rounds told it and what the choice of the members tells; "
    f"nothing done to this round's uploads takes it back. `{OTHER}` is a control, as members are "
    "not chosen at random: what the same scores show where the upload was trained on none of the "
    "nodes. The column on training nodes left out asks which of a client's training nodes were in "
    "this round.\n\n"
    "Label columns: correlation over (client, class) between the change of the plain head, its "
    "bias or the row sums of its weights, and the client's share of the class among its members, "
    "both as differences from the mean over clients. A mean is the same for every client, so "
    "nothing tells one from another: the correlation is not defined, and 0 stands for it. AUC 50 "
    "% and correlation 0 are chance.\n\n"
    "All clients train in every round and are averaged in process, without noise before the "
    "attacked round. Its uploads are then clipped and noised as each line says; such lines are "
    f"means over {DRAWS} draws of the noise. Own uploads have local noise, means have distributed "
    "noise sized for the fewest clients with which secure aggregation may end. Sigma is in units "
    "of the clipping norm, epsilon that of all rounds of the run. Attack models that are trained, "
    "and servers that combine rounds or deviate from the protocol, are not measured: a number "
    "near chance says that these two attacks fail, no more. Mean over clients, then mean ± sample "
    "standard deviation over seeds."
)


def render(rows: Sequence[Row]) -> Section:
    """Return a table of observations per data set and method, and what is not measured yet."""
    missing = [
        f"{row.labels['dataset']} {row.labels['method']} seed {row.labels['seed']}"
        for row in rows
        if not row.measure
    ]
    parts = [HOW] + ([f"Not measured yet: {', '.join(missing)}."] if missing else [])
    # One method at a time: methods are tuned separately, and none is compared with another.
    members: dict[tuple[str, str], list[Row]] = {}
    for row in (row for row in rows if row.measure):
        key = str(row.labels["dataset"]), str(row.labels["method"])
        members.setdefault(key, []).append(row)
    for (dataset, method), measured in members.items():
        lines = [line for row in measured for line in _lines(row)]
        parts += [f"**{dataset}, {method}**: {_facts(measured, lines)}.", _table(groups(lines))]
    return Section(tuple(parts))


def _lines(row: Row) -> list[Row]:
    """Return one row with a result per round and observation of a measurement."""
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
    """Return sizes over clients and seeds, and the settings that all lines share."""
    facts = [facts for row in measured for facts in row.measure["clients"]]
    names = {"members of a client": "members", "others": "others", "update norms": "update_norm"}
    sizes = []
    for name, key in names.items():
        if values := [value for one in facts for value in one[key]]:
            sizes.append(f"{name} {min(values):g} to {max(values):g}")
    keys = ("clients", "rounds", "local-epochs", "learning-rate")
    privacy_keys = ("privacy.clipping-norm", "privacy.delta")
    return ", ".join([*sizes, shared_settings(lines, (*keys, *privacy_keys))])


def _table(compared: Sequence[Group]) -> str:
    headings = ["the server has", "round", "epsilon", "AUC %", "found at 5 % false positives, %"]
    headings += ["AUC by slope %", "found by slope, %"]
    headings += ["slope against training nodes left out, AUC %", "labels by bias"]
    headings += ["labels by weights", "seeds"]
    shares = ("auc", "tpr", "slope_auc", "slope_tpr", "slope_auc_left_out")
    lines = []
    for group in compared:
        epsilon = group.rows[0].result["epsilon"]
        line = [group.name(str(group.labels["observation"])), str(group.labels["round"])]
        line += [NOTHING if epsilon is None else f"{epsilon:.3g}"]
        line += [group.stat(key).percent for key in shares]
        line += [group.stat("bias").text(), group.stat("weight").text(), group.stat("auc").seeds]
        lines.append(line)
    return markdown(headings, lines)
