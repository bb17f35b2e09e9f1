"""FedAvg on the full local graphs without condensation: the reference.

McMahan, Moore, Ramage, Hampson and Aguera y Arcas, "Communication-Efficient Learning of Deep
Networks from Decentralized Data", AISTATS 2017, with the GCN of Kipf and Welling, ICLR 2017. Each
client trains backbone and head on all its labelled training nodes.

Uplink: the model, of which the server needs the weighted mean only.

Deviations: Adam, with fresh moments in each round, where the paper uses plain gradient descent.
"""

from dance_flwr.methods.contract import MethodCard, MethodSpec, Uplink
from dance_flwr.methods.sampling_config import SamplingConfig

METHOD = MethodSpec(
    client="dance_flwr.methods.whole_graph:FedAvgFull",
    uplink=Uplink.SUM,
    sections=(SamplingConfig,),
    card=MethodCard(
        condenses=False,
        trains_on="every labelled training node of the full local graph",
        leaves_client="model parameters, counts, seconds",
        source="McMahan et al. 2017; Kipf and Welling 2017",
    ),
    label_reuse=True,
)
