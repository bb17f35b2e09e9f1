"""Ask a SuperLink whether it knows a node's key, without side effects."""

import httpx
from cryptography.hazmat.primitives.asymmetric import ec

from dance_flwr.errors import UserError
from dance_flwr.federation.flower import (
    ActivateNodeRequest,
    ApiErrorCode,
    DeactivateNodeRequest,
    FleetHttpClient,
    FlowerError,
    NodeAuthHttpInterceptor,
    public_key_to_bytes,
)

# Flower looks up the key first and then rejects this interval, so the node is never activated.
_NO_INTERVAL = 0.0


def is_registered(
    superlink: str, root_certificates: bytes | None, key: ec.EllipticCurvePrivateKey
) -> bool:
    """Return whether a SuperLink knows this key.

    Sends a signed request to activate the node, with a heartbeat interval that the SuperLink
    rejects. Flower's answer distinguishes an unknown key, a rejected interval, and a wrong
    signature or clock.

    Parameters
    ----------
    superlink : host:port, reached over TLS
    root_certificates : PEM; None for the system's
    key : private key of the node

    Raises
    ------
    UserError : the signature was rejected, or the SuperLink gave another answer
    """
    client = FleetHttpClient.from_server_address(
        superlink,
        False,
        root_certificates,
        interceptors=[NodeAuthHttpInterceptor(key, key.public_key())],
    )
    request = ActivateNodeRequest(
        public_key=public_key_to_bytes(key.public_key()), heartbeat_interval=_NO_INTERVAL
    )
    with client:
        try:
            answer = client.ActivateNode(request)
        except httpx.HTTPStatusError as error:
            return _read(error.response)
        except (httpx.HTTPError, ValueError) as error:
            raise UserError(
                f"expected an answer of the Fleet API, found {error}; try again"
            ) from None
        # Another version of Flower accepted the interval.
        client.DeactivateNode(DeactivateNodeRequest(node_id=answer.node_id))
        return True


def _read(response: httpx.Response) -> bool:
    error = FlowerError.from_json(response.text)
    # Flower looks up the key before it reads the interval, so a refused interval means a known key.
    if error is not None and error.code == ApiErrorCode.FLEET_INVALID_HEARTBEAT_INTERVAL:
        return True
    if error is not None and error.code == ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED:
        return False
    # A signature holds a time, which the server compares with its own clock.
    if response.status_code == httpx.codes.UNAUTHORIZED:
        raise UserError(
            "expected the signature to be accepted, found it refused; "
            "set this machine's clock (NTP)"
        )
    raise UserError(
        f"expected an answer of Flower 1.42's Fleet API, found HTTP status {response.status_code}; "
        "compare the versions of flwr with the server operator"
    )
