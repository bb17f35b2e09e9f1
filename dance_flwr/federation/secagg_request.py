"""What a masked sum asks of every client alike, as a digest that goes into all masks.

A server that asks one client for something else than the others (another model, total weight, norm,
task or setting) could tell its part of a sum from theirs, although the sum is over all of them: the
model inconsistency of Pasquini et al. 2022, "Eluding Secure Aggregation in Federated Learning". The
masks of two clients that were asked different things do not cancel, so that such a sum is noise.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from flwr.app import ArrayRecord, RecordDict

from dance_flwr.config.tree import FREE, RunConfig, flatten
from dance_flwr.federation.flower import SECAGG_CONFIGS
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire.tensors import numpy_of
from dance_flwr.privacy.signatures import digest

_OWN = (SECAGG_CONFIGS, keys.SIGNED)  # what differs by client: keys and shares


def request_digest(content: RecordDict, config: RunConfig) -> str:
    """Return a digest of the model, the settings and the integers that a sum asks for.

    Parameters
    ----------
    content : of the request of the collect stage, or of the app's message that it is made from
    config : of the run; keys that bind no result are left out
    """
    records = {name: _facts(record) for name, record in content.items() if name not in _OWN}
    run = {key: value for key, value in flatten(config).items() if key not in FREE}
    return digest("request", records=records, run=run)


def _facts(record: Mapping[str, Any]) -> list[list[Any]]:
    if not isinstance(record, ArrayRecord):
        return [[name, record[name]] for name in sorted(record)]
    return [
        [name, str(array.dtype), list(array.shape), hashlib.sha256(array.tobytes()).hexdigest()]
        for name, array in numpy_of(record).items()
    ]
