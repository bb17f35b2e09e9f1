"""A client's upload in few bits."""

from collections.abc import Mapping

from flwr.app import Message
from torch import Tensor

from dance_flwr.config.tree import RunConfig
from dance_flwr.federation.client.client import Client
from dance_flwr.federation.privacy.clipping import clipped_update, update_of
from dance_flwr.federation.privacy.quantiser import Quantised, quantise
from dance_flwr.federation.secagg.sums import options_of


def noise_step(message: Message, client: Client) -> float | None:
    """Return the change of a weight per step of a masked sum with distributed noise, else None.

    2 R / (q s) for a client of share s.
    """
    options = options_of(message)
    if client.config.privacy.dp != "distributed" or not options:
        return None
    share = options.share(client.weight)
    # A client of weight 0 adds nothing to the sum.
    return 2 * options.bound / (options.form.levels * share) if share else 0.0


def rounded_upload(
    state: Mapping[str, Tensor], start: Mapping[str, Tensor], config: RunConfig, norm: float
) -> Quantised:
    """Return Q(D) with D = omega - omega_0; entries that are not floats travel unchanged.

    Under central differential privacy D is rounded towards zero, so that the upload is no longer
    than C.

    Parameters
    ----------
    norm : C, under central differential privacy
    """
    central = config.privacy.dp == "central"
    # Clipped again in float64: the clipped model was rounded to the types of omega_0.
    update = clipped_update(state, start, norm)[0] if central else update_of(state, start)
    floats = {name: y for name, y in update.items() if start[name].is_floating_point()}
    upload = quantise(floats, config.upload_precision, toward_zero=central)
    return Quantised({name: upload.tensors.get(name, state[name]) for name in start}, upload.scales)
