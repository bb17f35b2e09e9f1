"""A method that asks a language model about texts of its client while it trains."""

from dance_flwr.llm.config import LlmConfig
from dance_flwr.llm.session import open_session
from dance_flwr.methods.contract import MethodCard, MethodSpec
from dance_flwr.methods.sampling_config import SamplingConfig
from dance_flwr.methods.whole_graph import FedAvgFull
from support.prompts import prompt

NAME = "asking"
NODES = 3  # whose texts are in prompts


class Asking(FedAvgFull):
    """FedAvg, with questions."""

    def train(self, model, data, config, info):
        with open_session(data, config, info.run) as session:
            for text in data.texts()[:NODES]:
                session.ask(prompt(text, "a planet"))
        return super().train(model, data, config, info)


METHOD = MethodSpec(
    client=Asking,
    sections=(SamplingConfig, LlmConfig),
    card=MethodCard(
        condenses=False,
        trains_on="every labelled training node of the full local graph",
        leaves_client="model parameters, counts, seconds; texts, to the endpoint the client chose",
        source="a test",
        needs_llm=True,
    ),
)
