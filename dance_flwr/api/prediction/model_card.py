"""The model card of a bundle, as `huggingface_hub` writes them."""

from collections.abc import Mapping
from typing import Any

from dance_flwr.data.federation_file import Agreement
from dance_flwr.errors import counted
from dance_flwr.escaping import markdown
from dance_flwr.methods import get_spec
from dance_flwr.nn.calibration import Calibration

_TEXT = """\
---
{metadata}
---

# {method}, trained by a federation of {clients} clients

A node classifier for text-attributed graphs. Federated learning, {rounds} rounds with dance-flwr
{version}; the model of round {best}, {choice}.

```bash
dance-flwr predict BUNDLE --data FOLDER --out predictions.parquet{evidence}
```

| | |
| --- | --- |
| classes | {classes} |
| predicts with | {deploys} |
| text encoder | {encoder}, weights {encoder_sha256} |
| accuracy on the clients' test nodes | {accuracy} |
| calibration | {calibration} |
| what left the clients in training | {leaves} |
| secure aggregation | {masks} |
| differential privacy | {privacy} |
| model | {model} |
| provenance of the code | {code} |

## Limits

Accuracy is that of the clients' own nodes, most of whose neighbours had labels in training. Nodes
of another institution have other classes, texts and edges, and no training labels among their
neighbours: check a sample by hand before you rely on it. A model can reveal something of the data
that it was trained on; without differential privacy nothing bounds how much.
"""


def card_text(facts: Mapping[str, Any], agreement: Agreement, calibration: Calibration) -> str:
    """Return the model card as Markdown, with its metadata in front."""
    from huggingface_hub import ModelCard, ModelCardData

    config, privacy = facts["config"], facts["privacy"]
    spec = get_spec(facts["method"])
    data = ModelCardData(
        library_name="dance-flwr",
        tags=["federated-learning", "text-attributed-graph", "node-classification", "flower"],
        pipeline_tag="graph-ml",
    )
    text = _TEXT.format(
        metadata=data.to_yaml(),
        method=facts["method"],
        clients=config["clients"],
        rounds=config["rounds"],
        version=facts["dance_flwr"],
        best=facts["best_round"],
        evidence=" --evidence evidence.jsonl" if spec.keeps_evidence else "",
        # Names of data come from strangers, and the hub renders HTML.
        classes=", ".join(map(markdown, agreement.class_names)),
        encoder=markdown(agreement.encoder),
        encoder_sha256=markdown(agreement.encoder_sha256[:12]),
        choice="the best on validation"
        if facts["validated"]
        else "the last one, as no round was validated",
        accuracy=_accuracy(facts),
        deploys=f"the mixture with one client's own model ({own['kind']}), whose share is "
        f"{own['share']:g}"
        if (own := facts.get("own"))
        else "the global model",
        calibration=str(calibration),
        leaves=spec.card.leaves_client,
        masks="on" if privacy["secure_aggregation"] else "off",
        privacy=_spent(privacy),
        model=facts["model_fingerprint"],
        code=markdown(facts.get("provenance", "not recorded")),
    )
    return str(ModelCard(text))


def _spent(privacy: Mapping[str, Any]) -> str:
    if privacy["dp"] == "none":
        return "none"
    epsilon, delta = f"{privacy['epsilon']:.4g}", f"{privacy['delta']:g}"
    return f"{privacy['dp']}, epsilon {epsilon} of training nodes at delta {delta}"


def _accuracy(facts: Mapping[str, Any]) -> str:
    if facts["test_accuracy"] is None:
        if facts["privacy"]["dp"] != "none":
            return "not measured: clients count no test node under differential privacy"
        return "not measured: no client has test nodes, or masks hide them"
    score = f"{facts['test_accuracy']:.4f} ({counted(facts['test_nodes'], 'node')})"
    f1 = facts["test_macro_f1"]  # of personal models, not known of the global one
    return score if f1 is None else f"{score}, macro-F1 {f1:.4f}"
