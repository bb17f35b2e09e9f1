"""One client of five lies in its replies: its reply is refused by name, and the run goes on."""

import json
import math

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from support.altered import crash, described, entries, records
from support.killing import Kill, Killed, same

import client_app
import server_app
from dance_flwr.config.tree import flatten
from dance_flwr.errors import UserError
from dance_flwr.federation.secagg import client as secagg_client
from dance_flwr.federation.secagg.sums import options_of
from dance_flwr.federation.wire import keys, messages
from dance_flwr.federation.wire.tensors import arrays_of
from dance_flwr.metrics import Counts, Training
from dance_flwr.nn.mixture import MAX_LOSS, SHARES
from dance_flwr.runs.checkpoint import Checkpoint
from dance_flwr.runs.recorder import Recorder
from dance_flwr.runs.result import load_model
from dance_flwr.runs.simulation.in_process import InProcessGrid

LIAR, CLIENTS = 3, 5
HUGE = 10**9
SETTINGS = {"method": "fedavg-full", "clients": CLIENTS, "min_valid_replies": 4, "rounds": 2}


def metrics(**changes):
    named = {name.replace("_", "-"): value for name, value in changes.items()}
    return entries(keys.METRICS, MetricRecord, **named)


def model(change):
    """An alteration of the uploaded model, given as tensors by name."""

    def altered(reply):
        return records(arrays=arrays_of(change(messages.model_of(reply))))(reply)

    return altered


def first(change):
    """An alteration of the first tensor of the model."""
    return model(lambda state: state | {name: change(state[name]) for name in list(state)[:1]})


def raw(**attributes):
    """The first array of the model with other attributes, as bytes that nobody checked."""

    def change(reply):
        arrays = messages.arrays_in(reply)
        name, old = next(iter(arrays.items()))
        facts = {"dtype": old.dtype, "shape": old.shape, "stype": old.stype, "data": old.data}
        return records(arrays=ArrayRecord(dict(arrays) | {name: Array(**facts | attributes)}))(
            reply
        )

    return change


def failed(reply):
    """An error whose line has a megabyte."""
    return Message(Error(0, "x" * 10**6), metadata=reply.metadata)


def empty(reply):
    return messages.with_content(reply, RecordDict())


def as_text(reply):
    found = {name: str(value) for name, value in messages.metrics_of(reply.content).items()}
    return records(metrics=ConfigRecord(found))(reply)


TRAINING = {
    "nothing": empty,
    "an error of a megabyte": failed,
    "an exception of a megabyte": crash,
    "no metrics": records(metrics=None),
    "text in the place of numbers": as_text,
    "no weight": metrics(num_examples=None),
    "a weight of 1e12": metrics(num_examples=10**12),
    "a weight beyond 64 bits": metrics(num_examples=10**5000),
    "a negative weight": metrics(num_examples=-5),
    "a weight of zero": metrics(num_examples=0),
    "half a node": metrics(num_examples=3.5),
    "a weight of NaN": metrics(num_examples=math.nan),
    "a list of weights": metrics(num_examples=[1, 2]),
    "no loss": metrics(loss=None),
    "a loss of NaN": metrics(loss=math.nan),
    "an infinite loss": metrics(loss=math.inf),
    "a loss of 1e308": metrics(loss=1e308),
    "a list of losses": metrics(loss=[1.0, 2.0]),
    "negative counts of nodes": metrics(condensed_nodes=-7),
    "a list of counts": metrics(condensed_nodes=[1, 2]),
    "no seconds": metrics(seconds_train=None),
    "negative seconds": metrics(seconds_train=-1.0),
    "seconds of NaN": metrics(seconds_train=math.nan),
    "one more metric": metrics(surprise=1),
    "no model": records(arrays=None),
    "a model in another record": lambda reply: records(
        arrays=None, model=messages.arrays_in(reply)
    )(reply),
    "one more record": records(more=ConfigRecord({"a": "b" * 10**6})),
    "an empty model": model(lambda state: {}),
    "a missing array": model(lambda state: dict(list(state.items())[1:])),
    "one more array": model(lambda state: state | {"surprise": torch.ones(2)}),
    "another shape": first(lambda tensor: tensor.flatten()[:-1]),
    "another type": first(lambda tensor: tensor.double()),
    "NaN": first(lambda tensor: tensor * math.nan),
    "infinity": first(lambda tensor: tensor + math.inf),
    "a finite model of 3e38": model(
        lambda state: {
            name: torch.full_like(tensor, 3e38) if tensor.is_floating_point() else tensor
            for name, tensor in state.items()
        }
    ),
    "bytes that are no array": raw(data=b"\x93NUMPY or not"),
    "no bytes": raw(data=b""),
    "a pickle": raw(data=b"\x80\x04K\x01.", dtype="object"),
    "a shape of 1e12": raw(shape=(10**6, 10**6)),
    "a type that is none": raw(dtype="float33"),
    "statistics that nobody asked for": records(statistics=arrays_of({"a": torch.ones(2)})),
    "scales that nobody asked for": records(scales=arrays_of({keys.STEPS: torch.ones(2)})),
}
VALIDATION = {
    "nothing": empty,
    "an error of a megabyte": failed,
    "no metrics": records(metrics=None),
    "text in the place of numbers": as_text,
    "1e9 hits": metrics(val_correct_deployed=HUGE),
    "negative hits": metrics(val_correct_deployed=-1),
    "hits of NaN": metrics(val_correct_deployed=math.nan),
    "a list of hits": metrics(val_correct_deployed=[1]),
    "no hits": metrics(val_correct_deployed=None),
    "hits of an unknown view": metrics(val_correct_oracle=1),
    "1e9 nodes": metrics(val_total=HUGE, num_examples=HUGE),
    "negative nodes": metrics(val_total=-1, num_examples=-1),
    "no nodes": metrics(val_total=None),
    "half a node": metrics(val_total=2.5),
    "another weight": metrics(num_examples=HUGE),
    "one class too many": metrics(val_actual=[1, 1, 1, 1]),
    "a million classes": metrics(val_actual=[0] * 10**6),
    "no class": metrics(val_actual=[]),
    "no list of classes": metrics(val_actual=3),
    "negative classes": metrics(val_predicted=[-HUGE, HUGE, 0]),
    "classes of NaN": metrics(val_predicted=[math.nan] * 3),
    "classes that do not add up": metrics(val_true_positives=[HUGE] * 3),
}
# Where the weight is that of the training, and no sum of counts.
BESIDE_TRAINING = {name: lie for name, lie in VALIDATION.items() if name != "another weight"}
FINAL = {
    "no test split": metrics(test_total=None),
    "1e9 hits in the test": metrics(test_correct_deployed=HUGE),
    "1e9 test nodes": metrics(test_total=HUGE),
    "negative tokens": metrics(tokens_evidence_tokens=-1),
    "1e13 tokens of a language model": metrics(tokens_llm_fresh_prompt=10**13),
    "tokens beyond 64 bits": metrics(tokens_evidence_tokens=10**5000),
    "more distinct tokens than tokens": metrics(tokens_distinct_tokens=7),
    "half a call": metrics(tokens_llm_fresh_calls=0.5),
    "no count of calls": metrics(tokens_llm_fresh_calls=None),
    "no names of a model": records(config=None),
    "a model of a megabyte": described(llm="x" * 10**6),
    "a model that is a number": described(llm=7),
    "one more name": described(surprise="x"),
}
DESCRIPTION = {
    "nothing": empty,
    "an error of a megabyte": failed,
    "no nodes": described(num_nodes=None),
    "nodes in words": described(num_nodes="many"),
    "negative nodes": described(num_nodes=-1),
    "1e18 nodes": described(num_nodes=10**18),
    "one more field": described(surprise=1),
    "classes that are no list": described(class_names=7),
    "classes that are no names": described(class_names=[1, 2, 3]),
    "other classes": described(class_names=["a", "b"]),
    "another width": described(text_dim=1),
    "a negative width": described(text_dim=-3),
    "a device of a megabyte": described(device="x" * 10**6),
    "another encoder": described(encoder_sha256="0" * 64),
}


def liar(kind, *changes, final=False):
    """The ClientApp, with a client whose replies of one kind are altered, in another way per round.

    The last way is also that of what is asked after the rounds.
    """

    def app(message, context):
        reply = client_app.app(message, context)
        asked = (
            message.metadata.message_type == kind and context.node_config[keys.PARTITION_ID] == LIAR
        )
        config = messages.config_of(message)
        if not asked or (final and not config.get(keys.FINAL)):
            return reply
        return changes[min(config.get(keys.ROUND, 1), len(changes)) - 1](reply)

    return app


def strict(text):
    """JSON of the standard: no NaN, no infinity."""
    return json.loads(text, parse_constant=pytest.fail)


def refused_by_name(finished):
    """The result of a run that went on without the liar, whose files are JSON of the standard."""
    text = (finished.folder / "result.json").read_text("utf-8")
    for line in (finished.folder / "history.jsonl").read_text("utf-8").splitlines():
        strict(line)
    result = strict(text)
    assert len(text) < 20_000 + 2_000 * len(result["history"])
    assert 0 <= result["test_accuracy"] <= 1
    assert all(0 <= row["val_accuracy"] <= 1 for row in result["history"])
    return result


@pytest.mark.parametrize(
    ("kind", "lies", "options"),
    [
        (keys.TRAIN, TRAINING, {}),
        (keys.EVALUATE, VALIDATION, {"client_fraction": 0.9}),
        # A training that also validates; its first one has nothing to validate.
        (keys.TRAIN, {"as training": TRAINING["nothing"]} | BESIDE_TRAINING, {}),
    ],
    ids=["training", "validation", "both"],
)
def test_a_lie_of_a_round_is_refused_and_the_run_goes_on(run, kind, lies, options):
    """A lie per round."""
    finished = run(app=liar(kind, *lies.values()), **SETTINGS | {"rounds": len(lies)} | options)
    for name, row in zip(lies, refused_by_name(finished)["history"], strict=True):
        assert row["absent"].keys() == {str(LIAR)}, name
        assert 0 < len(row["absent"][str(LIAR)]) < 1100, name


@pytest.mark.parametrize("name", FINAL)
def test_a_lie_about_the_final_model_is_refused_and_the_run_ends(run, name):
    app = liar(keys.EVALUATE, FINAL[name], final=True)
    result = refused_by_name(run(app=app, **SETTINGS | {"rounds": 1}))
    assert {row["client"] for row in result["clients"]} == {0, 1, 2, 4}


@pytest.mark.parametrize("name", DESCRIPTION)
def test_a_lie_about_the_data_is_refused_and_the_run_goes_on(run, name):
    app = liar(keys.DESCRIBE, DESCRIPTION[name])
    result = refused_by_name(run(app=app, **SETTINGS | {"rounds": 1}))
    assert {row["client"] for row in result["clients"]} == {0, 1, 2, 4}


def test_a_loss_that_is_no_number_is_null(run_config, tmp_path):
    """A method's own server side may report it; every file stays JSON of the standard."""
    counts = Counts({"deployed": 1}, 2, [1, 0, 0], [1, 1, 0], [1, 1, 0])
    recorder = Recorder(
        tmp_path, Checkpoint("", run_config(method="fedavg-full")), lambda: ({}, {})
    )
    recorder.on_train(Training(math.nan, {"forward": math.inf}, {}))
    recorder.on_validation(counts)
    recorder.end_round(1, {"w": torch.ones(2)})
    recorder.write({0: {"val": counts, "test": counts}}, {})
    (row,) = strict((tmp_path / "result.json").read_text("utf-8"))["history"]
    assert row == strict((tmp_path / "history.jsonl").read_text("utf-8"))
    assert row["loss"] is None and row["seconds"] == {"forward": None}


@pytest.mark.parametrize("wanted", [0, 10])
def test_one_of_five_moves_the_shares_of_own_models_no_further_than_another_client(run, wanted):
    """It says that one share has no loss, and every other one the largest."""

    def lie(reply):
        asked = messages.metrics_of(reply.content)
        worst = [MAX_LOSS * asked[keys.WEIGHT]] * len(SHARES)
        worst[wanted] = 0
        return metrics(**{keys.LOSSES: worst})(reply) if keys.LOSSES in asked else reply

    finished = run(app=liar(keys.EVALUATE, lie), personal="mix", **SETTINGS | {"rounds": 1})
    replies = [messages.metrics_of(m.content) for m in finished.replies(keys.EVALUATE)]
    own = [(m[keys.LOSSES], m[keys.WEIGHT]) for m in replies if keys.LOSSES in m]
    gains = [[(x - every[0]) / n for x in every] for every, n in own]
    (told,) = {
        tuple(config[keys.LOSSES] + [config[keys.SCORED_NODES]])
        for m in finished.messages
        if keys.LOSSES in (config := m.content.config_records.get(keys.CONFIG, {}))
    }
    for place, column in enumerate(zip(*gains, strict=True)):
        others = [gain for client, gain in enumerate(column) if client != LIAR]
        assert min(others) - 1 <= (told[place] - told[0]) / told[-1] <= max(others) + 1


def at_the_end(change):
    """An alteration of the counts of the final model alone."""
    return lambda reply: (
        change(reply) if "test-total" in messages.metrics_of(reply.content) else reply
    )


MASKED = {"clients": CLIENTS, "rounds": 1, "privacy_secure_aggregation": True}


def lying_under_masks(monkeypatch, change):
    """Let one client alter its counts of a masked validation."""
    honest = client_app._answer

    def lying(task, message, context):
        reply = honest(task, message, context)
        options = options_of(message)
        lies = options is not None and options.task == keys.EVALUATE
        return change(reply) if lies and context.node_config[keys.PARTITION_ID] == LIAR else reply

    monkeypatch.setattr(client_app, "_answer", lying)


@pytest.mark.parametrize(
    "change",
    [
        metrics(val_correct_deployed=10**6),
        metrics(val_total=10**6, num_examples=10**6),
        metrics(val_true_positives=[10**6, 0, 0]),
        at_the_end(metrics(tokens_llm_fresh_prompt=2**55)),
        at_the_end(metrics(tokens_distinct_chunks=5)),
    ],
    ids=["hits", "nodes", "classes", "tokens", "chunks"],
)
def test_a_masked_sum_that_cannot_be_true_is_refused(run, change, monkeypatch):
    """Nobody sees what the liar puts into the sum; the sum itself is seen."""
    lying_under_masks(monkeypatch, change)
    with pytest.raises(UserError, match="a client is broken or lies"):
        run(method="fedavg-full", **MASKED)


def test_an_update_that_no_honest_sum_has_becomes_no_model(run, tmp_path, monkeypatch):
    """One client of five puts 2^30 into every entry of round 2: nothing of it is kept."""
    settings = MASKED | {"rounds": 3, "method": "fedavg-full"}
    honest = run(**settings)
    encode, left = secagg_client.to_steps, [CLIENTS + LIAR + 1]

    def lying(update, levels, **options):
        left[0] -= 1
        steps = encode(update, levels, **options)
        return steps if left[0] else np.full_like(steps, 2**30)

    monkeypatch.setattr(secagg_client, "to_steps", lying)
    with pytest.raises(
        UserError, match=r"expected updates of at most .* a client is broken or lies"
    ):
        run(folder=tmp_path / "run", **settings)
    monkeypatch.undo()
    finished = run(folder=tmp_path / "run", resume=True, **settings)
    same(finished, honest)


def test_within_what_honest_sums_have_one_of_five_moves_every_weight_by_the_range(run, monkeypatch):
    """What is left to a liar under masks: docs/security.md says so."""
    honest, encode, left = run(method="fedavg-full", **MASKED), secagg_client.to_steps, [LIAR + 1]

    def lying(update, levels, **options):
        left[0] -= 1
        steps = encode(update, levels, **options)
        return steps if left[0] else np.full_like(steps, int(0.95 * levels / 2))

    monkeypatch.setattr(secagg_client, "to_steps", lying)
    moved = load_model(run(method="fedavg-full", **MASKED).folder)
    distances = [(moved[name] - state).abs() for name, state in load_model(honest.folder).items()]
    assert honest.config.privacy.update_range == 1
    assert min(each.min() for each in distances) > 0.9 and max(each.max() for each in distances) < 1


def consistent(reply, more=10**6):
    """A million nodes more, all of one class, all of them hits."""
    counts = dict(messages.metrics_of(reply.content))
    for name, value in counts.items():
        if isinstance(value, list):
            counts[name] = [value[0] + more, *value[1:]]
        elif name == keys.WEIGHT or name.split("-")[1:2] in (["total"], ["correct"]):
            counts[name] = value + more
    reply.content[keys.METRICS] = MetricRecord(counts)
    return reply


@pytest.mark.parametrize("resumed", [False, True])
def test_masked_counts_are_bounded_by_the_nodes_of_all_after_a_resume_too(
    run, tmp_path, monkeypatch, resumed
):
    settings = MASKED | {"rounds": 3, "method": "fedavg-full"}
    if resumed:
        with pytest.raises(Killed):
            run(folder=tmp_path, on_message=Kill(collects_in_round_2), **settings)
    lying_under_masks(monkeypatch, consistent)
    with pytest.raises(UserError, match="num-examples to be a whole number from 0 to"):
        run(folder=tmp_path, resume=resumed, **settings)


def collects_in_round_2(message):
    """Whether the server asks for a training in round 2."""
    records = message.content.config_records if message.has_content() else {}
    options = options_of(message) if records and not message.metadata.src_node_id else None
    trains = options is not None and options.task == keys.TRAIN
    return trains and records["config"][keys.ROUND] == 2


def test_a_false_greeting_of_a_surplus_node_is_left_out(run_config, tmp_path):
    """Six nodes for five clients: the sixth greets with other code, or with nonsense."""
    for number, change in enumerate([described(code="other"), described(partition="six"), crash]):

        def app(message, context, change=change):
            reply = client_app.app(message, context)
            sixth = context.node_config[keys.PARTITION_ID] == CLIENTS
            return change(reply) if sixth else reply

        folder = tmp_path / str(number)
        config = run_config(**SETTINGS, out=str(folder))
        grid = InProcessGrid(app, flatten(config), CLIENTS + 1)
        server_app.run(grid, config, f"surplus-{number}", folder)
        clients = strict((folder / "result.json").read_text("utf-8"))["clients"]
        assert [row["client"] for row in clients] == list(range(CLIENTS))
