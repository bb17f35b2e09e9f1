"""FedPer: the body is federated, and every client has a head of its own.

Arivazhagan, Aggarwal, Singh and Choudhary, "Federated Learning with Personalization Layers",
arXiv 1912.00818, 2019. theta is the backbone, phi_k the linear head of client k:

    theta <- sum_k w_k theta_k / sum_k w_k,  (theta_k, phi_k) from minimising F_k(theta, phi_k).

Body and head are trained together in every local epoch, and phi_k stays in the client's folder.
Each client is scored with the common body and its own head.

Uplink: the model, of which the server needs the weighted mean only. Its head is the initial one, as
received: so the names of an upload are those of every method.

Deviations: Adam in place of gradient descent, as everywhere here; heads are averaged over rounds at
the client as bodies are at the server (`ema-decay`).
"""

from dance_flwr.methods.contract import MethodCard, MethodSpec, Uplink
from dance_flwr.methods.sampling_config import SamplingConfig

METHOD = MethodSpec(
    client="dance_flwr.baselines.fedper.client:FedPer",
    uplink=Uplink.SUM,
    sections=(SamplingConfig,),
    card=MethodCard(
        condenses=False,
        trains_on="every labelled training node of the full local graph",
        leaves_client="parameters of the backbone and the untrained head, counts, seconds",
        source="Arivazhagan et al. 2019, arXiv 1912.00818",
        evaluation="personalised",
    ),
)
