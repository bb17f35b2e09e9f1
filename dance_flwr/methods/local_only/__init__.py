"""No sharing: every client trains its own model on its own graph, as if it were alone. The floor of
a comparison.

The server keeps each client's model and hands it back to that client alone, so that rounds,
validation, best round and resumption are those of every other method; no number of one client
reaches another. The initial model is the same at all clients, as it is everywhere else, and Adam
starts anew in each round, as it does there.

Test accuracy of `local-only` on Cora: 87.72 % here.
Test accuracy of `local-only` on CiteSeer: 76.44 % here.
"""

from dance_flwr.methods.contract import MethodCard, MethodSpec, Uplink

METHOD = MethodSpec(
    client="dance_flwr.methods.local_only.client:LocalOnly",
    server="dance_flwr.methods.personalised:Personalised",
    uplink=Uplink.EACH,
    card=MethodCard(
        condenses=False,
        trains_on="every labelled training node of the full local graph",
        leaves_client="its own model's parameters, kept by the server for this client alone; counts, seconds",
        source="reference without federation",
        evaluation="personalised",
    ),
)
