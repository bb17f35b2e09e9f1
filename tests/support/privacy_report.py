"""What the privacy report and the closing lines of a run say, for runs with any keys.

A test module inherits from `PrivacyReport` and parametrises its class over `keys` of runs.
"""

import pytest

from dance_flwr.federation.declarations import disclosure
from dance_flwr.federation.wire.tensors import state_of
from dance_flwr.runs.privacy_report import sent


@pytest.fixture(scope="class")
def any_run(keys, run):
    """A run of two rounds with these keys."""
    return run(**{"rounds": 2, **keys})


def replies(finished):
    return [m for m in finished.messages if m.metadata.src_node_id and m.has_content()]


class PrivacyReport:
    """What is said of a run."""

    def test_every_key_that_was_sent_has_a_word_in_the_closing_line(self, any_run):
        """By the messages as they passed, not by the record that the words are made of."""
        words = sent(any_run.result)
        keys = {(record, k) for m in replies(any_run) for record, c in m.content.items() for k in c}
        of_nodes = [key for key in keys if str(key[1]).lstrip("-").isdigit()]
        briefs = {disclosure(r, "<node>" if (r, k) in of_nodes else str(k)).brief for r, k in keys}
        said = {word.removesuffix(" (withheld)") for word in words}
        assert "" not in briefs and said == briefs and len(words) == len(said)

    def test_counts_by_class_are_named_unless_they_are_of_no_node(self, any_run):
        counts = "counts by class of validation and test nodes"
        privacy = any_run.result["privacy"]
        words, noisy = sent(any_run.result), privacy["dp"] != "none" and not privacy["seeded"]
        assert (counts in words) == (not privacy["secure_aggregation"] and not noisy)
        assert (f"{counts} (withheld)" in words) == (not privacy["secure_aggregation"] and noisy)
        assert "class names, encoder, device" in words

    def test_what_never_left_is_in_no_message(self, any_run):
        """No text, id or list of edges or labels of a client, as a string or as an array."""
        for client in range(any_run.config.clients):
            data = any_run.data(client)
            graph, labels = data.graph.rows, data.labels.cpu().tolist()
            secrets = [*data.ids(), *data.texts()]
            lists = [labels, *(part.tolist() for part in (graph.ptr, graph.index))]
            for message in replies(any_run):
                for record in message.content.config_records.values():
                    said = str(dict(record))
                    assert not [text for text in secrets if text in said]
                for record in message.content.metric_records.values():
                    assert not [value for value in record.values() if value in lists]
                for record in message.content.array_records.values():
                    for tensor in state_of(record).values():
                        assert tensor.flatten().tolist() not in lists

    def test_the_closing_lines_say_it(self, any_run, cli):
        from dance_flwr.cli.report import summary

        text = " ".join(" ".join(summary(any_run.folder, any_run.result, [])).split())
        assert all(word in text for word in sent(any_run.result))
        never = text[text.index("never left") : text.index("Next:")]
        assert "ids, edges, evidence and the label of any node" in never and " labels" not in never
