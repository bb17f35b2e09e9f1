"""Check whether a node can join a federation; every check gives one line."""

import os
import platform
import shutil
import socket
import ssl
import stat
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple
from urllib.request import getproxies, proxy_bypass

import httpx
import numpy as np
from click import ClickException
from cryptography import x509

from dance_flwr.config.options import Value
from dance_flwr.config.paths import MANIFEST
from dance_flwr.data.card import CARD, read_card
from dance_flwr.data.digests import check_files
from dance_flwr.data.federation_file import (
    Agreement,
    class_mismatch,
    installed_version,
    read_agreement,
)
from dance_flwr.data.partition import read_manifest
from dance_flwr.data.text.bank_slice import META, load_slice, read_meta
from dance_flwr.deploy.network import Probe, probe
from dance_flwr.errors import DataError, UserError, counted
from dance_flwr.federation import flower
from dance_flwr.federation.node_config import client_number, terms_of
from dance_flwr.federation.secagg.signatures import fingerprint_of, line_of, load_key
from dance_flwr.federation.wire import keys
from dance_flwr.fingerprint import PROTOCOL

# Seconds; Flower's node authentication rejects signatures outside these limits.
MAX_FAST, MAX_SLOW = 5.0, 305.0
_WARN_FAST, _WARN_SLOW = 2.0, 60.0
_WARN_DAYS = 30  # before a certificate ends
_WARN_BYTES = 10**9  # free on disk or GPU; how much a run needs depends on its settings
# OpenSSL's X509_V_ERR_...
_NOT_YET, _EXPIRED, _NAME, _ADDRESS = 9, 10, 62, 64
# Codes of a chain that does not lead to an authority in the given file.
_SIGNER = (2, 7, 18, 19, 20, 21, 24, 30, 79)
# Terms that suit every node. An epsilon does not: few clients cannot afford one.
_EXPECTED_TERMS = (
    *(keys.DEMANDS_MASKS, keys.MIN_CLIENTS, keys.METHODS),
    *(keys.MAX_ROUNDS, keys.MAX_TRAININGS),
)
_AGAIN = "copy the client's folder again"


class Status(StrEnum):
    """Status of a checked point; only a PROBLEM prevents a node from joining."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "PROBLEM"
    UNCHECKED = "not checked"


class Result(NamedTuple):
    """The status of one point, and a line about it."""

    status: Status
    text: str


class PointError(Exception):
    """What a check raises about a point that is not in order."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text)
        self.status = status


def unchecked(reason: str) -> PointError:
    """Return that a point could not be checked."""
    return PointError(Status.UNCHECKED, reason)


def warning(expected: str, found: str, action: str) -> PointError:
    """Return that the operator should look at a point; the node can join nevertheless."""
    return PointError(Status.WARNING, f"expected {expected}, found {found}; {action}")


def problem(expected: str, found: str, action: str) -> PointError:
    """Return that a point prevents the node from joining."""
    return PointError(Status.PROBLEM, f"expected {expected}, found {found}; {action}")


@dataclass(frozen=True)
class Node:
    """A node before it joins.

    Attributes
    ----------
    superlink : host:port of the SuperLink
    root_certificates : PEM file of the authority that signed the SuperLink's certificate
    key : the SuperNode's private key
    data : the client's folder
    agreed : the agreed federation file
    node_config : the SuperNode's `--node-config`, a TOML file or `KEY=VALUE ...`
    now : this machine's clock
    """

    superlink: str
    root_certificates: Path
    key: Path
    data: Path
    agreed: Path
    node_config: str
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    @cached_property
    def probe(self) -> Probe:
        """Result of one connection to the SuperLink's port, for all checks."""
        return probe(self.superlink, self.root_certificates, self.now)

    @cached_property
    def agreement(self) -> Agreement:
        """Content of the agreed federation file."""
        return read_agreement(self.agreed)

    @cached_property
    def config(self) -> Mapping[str, Value]:
        """The keys of `node_config`."""
        return parse_node_config(self.node_config)


def parse_node_config(text: str) -> Mapping[str, Value]:
    """Return the keys of a SuperNode's `--node-config`.

    Raises
    ------
    UserError : it cannot be read
    """
    try:
        config: Mapping[str, Value] = flower.parse_config_args([text])
        return config
    except (ClickException, OSError, ValueError) as error:
        found = f"{text} ({error.strerror})" if isinstance(error, OSError) else text
        raise UserError(
            'expected a TOML file, or KEY=VALUE with VALUE a number, true, false or "text", '
            f"found {found}; correct --node-config"
        ) from None


def check_address(node: Node) -> str:
    """Check that the address resolves, its port accepts connections, and a SuperLink answers."""
    probe = node.probe
    where = f"{probe.host}:{probe.port}"
    if probe.unreached is not None:
        raise _unreached(probe.unreached, probe.host, probe.port)
    if not probe.secure:
        return f"{where} accepts connections"
    # A port that accepts TLS may be any server's.
    if probe.health != 200:
        raise problem(
            f"a SuperLink at {where} (status 200 for /health)",
            "no HTTP answer" if probe.health is None else f"HTTP status {probe.health}",
            "ask the server operator for address and port",
        )
    return f"{where} answers as a SuperLink"


def _unreached(error: Exception, host: str, port: int) -> Exception:
    if isinstance(error, UserError):
        return error
    expected, found = f"{host}:{port} to accept connections", _reason(error)
    # A SuperNode would connect through the proxy, so this failure proves nothing.
    if (getproxies().get("https") or getproxies().get("all")) and not proxy_bypass(host):
        return warning(
            expected,
            f"{found}, and in the environment a proxy that this check does not use",
            "a SuperNode connects through that proxy: read its log, or set NO_PROXY",
        )
    action = (
        f"let your firewall pass outgoing TCP connections to port {port}, "
        "and confirm the address with the server operator"
    )
    if isinstance(error, socket.gaierror):
        expected = f"that {host!r} has an address"
        action = "correct the name, or ask the server operator for it"
    elif isinstance(error, ConnectionRefusedError):
        action = "ask the server operator whether the SuperLink runs and listens on this port"
    return problem(expected, found, action)


def check_tls(node: Node) -> str:
    """Check that the TLS handshake succeeds with the node's root certificates."""
    if node.probe.unreached is not None:
        raise unchecked("the SuperLink was not reached")
    probe, error = node.probe, node.probe.refused
    if error is None:
        return f"certificate accepted, signed by {node.root_certificates}"
    if isinstance(error, UserError):  # the root certificates cannot be used
        raise error
    if isinstance(error, ssl.SSLCertVerificationError):
        raise _refused(error, probe, node.root_certificates)
    raise problem(
        f"TLS at {probe.host}:{probe.port}",
        f"none ({_reason(error)})",
        "ask the server operator whether the SuperLink was started with --ssl-certfile and not "
        "with --insecure, and whether a proxy between you and it intercepts TLS",
    )


def _refused(error: ssl.SSLCertVerificationError, probe: Probe, signer: Path) -> PointError:
    seen, code = probe.certificate, error.verify_code
    if code in (_EXPIRED, _NOT_YET):
        state = "expired" if code == _EXPIRED else "not valid yet"
        span = f" ({seen.not_valid_before_utc:%Y-%m-%d} to " if seen else ""
        span += f"{seen.not_valid_after_utc:%Y-%m-%d})" if seen else ""
        return problem(
            "a certificate that is valid today",
            f"one that is {state}{span}",
            "the server operator must renew it; "
            "if the dates are right, this machine's clock is wrong",
        )
    if code in (_NAME, _ADDRESS):
        return problem(
            f"a certificate for {probe.host!r}",
            f"one for {', '.join(_names(seen)) or 'no name at all'}",
            "use one of these names as the address, or ask the server operator for a certificate "
            "with your name",
        )
    if code in _SIGNER:
        other = f"one of {seen.issuer.rfc4514_string()} with another key" if seen else "another"
        return problem(
            f"a certificate signed by {signer}",
            f"{other} ({error.verify_message})",
            "ask the server operator for the ca.crt in use, and verify its sha256 by telephone",
        )
    return problem(
        "a certificate that verifies", error.verify_message, "show this line to the server operator"
    )


def _names(certificate: x509.Certificate | None) -> list[str]:
    extensions = [each.value for each in certificate.extensions] if certificate else []
    lists = [each for each in extensions if isinstance(each, x509.SubjectAlternativeName)]
    return [str(name.value) for names in lists for name in names]


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str((isinstance(error, OSError) and error.strerror) or error or "no reason")


def check_certificate(node: Node) -> str:
    """Check that the certificates of the SuperLink and its authority do not expire soon."""
    if (certificate := node.probe.certificate) is None:
        raise unchecked("no certificate was seen")
    what, action = "the SuperLink's certificate", "the server operator must renew it"
    end = certificate.not_valid_after_utc
    # A certificate is worth nothing without its authority.
    for root in node.probe.roots:
        if root.not_valid_after_utc < end:
            end, what = root.not_valid_after_utc, f"{node.root_certificates}"
            action = "ask the server operator for a new ca.crt"
    days = (end - node.now()).total_seconds() / 86400
    if days < 0:
        raise problem(f"{what} to hold", f"that it ended on {end:%Y-%m-%d}", action)
    left = counted(round(days), "day")
    if days < _WARN_DAYS:
        hold = f"{what} to hold for {_WARN_DAYS} days or more"
        raise warning(hold, f"{left} ({end:%Y-%m-%d})", action)
    return f"{what} holds for {left}, until {end:%Y-%m-%d}"


def check_clock(node: Node) -> str:
    """Check that the clock is within the tolerance of Flower's node authentication."""
    probe = node.probe
    if not probe.secure:
        if (certificate := probe.certificate) is None:
            raise unchecked("without a connection there is nothing to compare with")
        # Never ok: a year of validity says nothing of seconds.
        start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        place = "within" if start <= node.now() <= end else "outside"
        raise unchecked(
            f"without TLS only this is known: the clock lies {place} the certificate's dates"
        )
    if probe.clock_offset is None:
        raise unchecked(
            "the SuperLink sent no Date header; compare the clocks yourself, or use NTP on both"
        )
    side = "ahead of" if probe.clock_offset > 0 else "behind"
    differs = f"this clock {abs(probe.clock_offset):.0f} s {side} the server's"
    limits = f"at most {MAX_FAST:.0f} s ahead of the server's clock and {MAX_SLOW:.0f} s behind it"
    if not -MAX_SLOW < probe.clock_offset < MAX_FAST:
        raise problem(
            limits, differs, "set the clock (NTP): Flower rejects signatures outside these limits"
        )
    if not -_WARN_SLOW <= probe.clock_offset <= _WARN_FAST:
        raise warning(limits, differs, "set the clock (NTP) before it drifts further")
    return "agrees with the server's Date header to about a second"


def check_key(node: Node) -> str:
    """Check that the key is readable, private, of Flower's type, and matches its public half."""
    path, key = node.key, load_key(node.key)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise problem(
            "a key that only its owner can read (mode 600)",
            f"mode {mode:o} of {path}",
            f"chmod 600 {path}; "
            "if others had access to this machine, create and register a new key",
        )
    public = path.with_name(f"{path.name}.pub")
    own = line_of(key.public_key()).split()[1:2]
    if public.is_file() and public.read_bytes().split()[1:2] != own:
        raise warning(  # the SuperNode reads the private key alone
            f"{public.name} to be the public half of {path.name}",
            "another key",
            f"before you send it: ssh-keygen -y -f {path} > {public}",
        )
    return f"ECDSA {key.curve.name}, {fingerprint_of(key.public_key())}, private to its owner"


def check_registration(node: Node) -> str:
    """Check that the SuperLink knows the key; the request has no side effects.

    A signed request to activate the node names a heartbeat interval that the SuperLink rejects.
    Why (decision 10): Flower looks up the key before it reads the interval, so that known and
    unknown keys are refused differently, and nothing changes.
    """
    key = load_key(node.key)
    admits = "admits this node's public key with `dance-flwr deploy admit`"
    # A signed request is sent over TLS only.
    if not node.probe.secure:
        raise unchecked(f"needs a SuperLink reached over TLS; the server operator {admits}")
    known = "the SuperLink knows this key"
    roots = node.root_certificates.read_bytes()
    signer = flower.NodeAuthHttpInterceptor(key, key.public_key())
    client = flower.FleetHttpClient.from_server_address(
        node.superlink, False, roots, interceptors=[signer]
    )
    request = flower.ActivateNodeRequest(
        public_key=flower.public_key_to_bytes(key.public_key()), heartbeat_interval=0.0
    )
    with client:
        try:
            answer = client.ActivateNode(request)
            # Another version of Flower accepted the interval.
            client.DeactivateNode(flower.DeactivateNodeRequest(node_id=answer.node_id))
            return known
        except httpx.HTTPStatusError as error:
            response = error.response
        except (httpx.HTTPError, ValueError) as error:
            raise problem("an answer of the Fleet API", str(error), "try again") from None
    refusal = flower.FlowerError.from_json(response.text)
    code = refusal.code if refusal is not None else None
    if code == flower.ApiErrorCode.FLEET_INVALID_HEARTBEAT_INTERVAL:
        return known
    if code == flower.ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED:
        raise problem(
            f"the SuperLink to know the key {fingerprint_of(key.public_key())}",
            "that it does not",
            f"send the public key to the server operator, who {admits}",
        )
    # A signature holds a time, which the server compares with its own clock.
    if response.status_code == httpx.codes.UNAUTHORIZED:
        raise problem(
            "the signature to be accepted", "it refused", "set this machine's clock (NTP)"
        )
    raise problem(
        "an answer of Flower 1.42's Fleet API",
        f"HTTP status {response.status_code}",
        "compare the versions of flwr with the server operator",
    )


def check_terms(config: Mapping[str, Value]) -> str:
    """Check that the terms of a node bound what a run may ask."""
    terms, clients = terms_of(config), config.get(keys.NUM_PARTITIONS)
    number = client_number(config)
    if clients and terms.min_clients > int(clients):
        raise problem(
            f"{keys.MIN_CLIENTS} up to {clients}, the number of clients ({keys.NUM_PARTITIONS})",
            f"{terms.min_clients}",
            "lower it, or no sum is ever answered",
        )
    if missing := [key for key in _EXPECTED_TERMS if not config.get(key)]:
        raise warning(
            f"terms for every run in --node-config ({', '.join(_EXPECTED_TERMS)})",
            f"none of {', '.join(missing)}",
            "add what this node should demand; docs/deployment.md, Terms of a node",
        )
    return (
        f"client {number}: masked sums of {terms.min_clients} clients or more, "
        f"{terms.max_rounds:g} rounds a run, {terms.max_trainings:g} trainings in all"
    )


def check_agreed(node: Node) -> str:
    """Check that the agreed federation file can be read."""
    agreed = node.agreement
    return (
        f"{counted(len(agreed.class_names), 'class', 'classes')}, encoder {agreed.encoder}, "
        f"protocol {agreed.protocol}"
    )


def check_data(node: Node) -> str:
    """Check that the parts of the folder match: card, files, neighbours, labels, bank, manifest."""
    folder = node.data
    if not (folder / "text" / META).is_file() and (folder / CARD).is_file():
        raise problem("encoded texts", "none", _AGAIN)
    # Not above, as the checks before this one start without torch.
    import torch

    from dance_flwr.client_data.client_data import ClientData

    # Why (decision 20): digests first, as everything below reads these files.
    check_files(folder)
    # This compares the card with ids and neighbour lists.
    data = ClientData(folder, torch.device("cpu"))
    card, bank = data.card, load_slice(folder / "text")
    for what, size in {
        "texts in the bank": len(bank.ptr) - 1,
        "labels": len(data.labels),
        "entries of the split": len(data.split),
    }.items():
        if size != card.num_nodes:
            raise problem(f"{card.num_nodes} {what} in {folder}", str(size), _AGAIN)
    low, high, last = int(data.labels.min()), int(data.labels.max()), len(card.class_names) - 1
    if low < -1 or high > last:
        raise problem(f"labels from -1 to {last} in {folder}", f"{low} to {high}", _AGAIN)
    if not np.isfinite(np.asarray(bank.embeddings[-1:], np.float32)).all():
        raise problem("finite embeddings in the text bank", "others", _AGAIN)
    manifest = folder.parent / MANIFEST
    if manifest.is_file():
        listed, own = read_manifest(manifest), slice(card.client, card.client + 1)
        ids = [client["ids_sha256"] for client in listed["clients"][own]]
        if (listed["sha256"], ids) != (card.partition_sha256, [card.ids_sha256]):
            whole = f"{folder} to be a client folder of the partition in {manifest}"
            raise problem(whole, "one of another partition", _AGAIN)
    # A run writes its states and evidence there, as the user of the SuperNode.
    if not os.access(folder, os.W_OK):
        raise problem(
            f"a folder that this user may write to (runs and evidence are in {folder / 'runs'})",
            "that it is read-only",
            "run the check as the SuperNode's user, make that user the owner (chown), "
            "or mount the folder read-write",
        )
    known = int((data.labels >= 0).sum())
    return (
        f"client {card.client} of {card.clients}, {counted(card.num_nodes, 'node')}, "
        f"{known:,} labelled, {counted(len(bank.tokens), 'chunk')} of text"
    )


def check_permissions(node: Node) -> str:
    """Check that no other user of this machine can open the client's folder or a file in it."""
    folder = node.data
    entries = (folder, *folder.rglob("*"))
    exposed = [path for path in entries if not path.is_symlink() and path.stat().st_mode & 0o077]
    if exposed:
        raise problem(
            "texts, keys and states that only their owner can open",
            f"{len(exposed)} of {len(entries)} files and folders open to others, such as "
            f"{exposed[0]}",
            f"chmod -R go= {folder}",
        )
    return f"no other user can open the {len(entries)} files and folders in {folder}"


def check_encoder(node: Node) -> str:
    """Check that texts are encoded as agreed, with weights that this machine has."""
    if not (node.data / "text" / META).is_file():
        raise problem("encoded texts", "none", _AGAIN)
    meta, agreed = read_meta(node.data / "text"), node.agreement
    expected = {
        "weights_sha256": agreed.encoder_sha256,
        "dim": agreed.text_width,
        "chunk_tokens": agreed.chunk_tokens,
        "max_chunks": agreed.max_chunks,
        "chunker_version": agreed.chunker_version,
    }
    if wrong := [key for key, value in expected.items() if meta.get(key) != value]:
        settings = ", ".join(f"{key} {expected[key]}" for key in wrong)
        raise problem(
            f"texts encoded with {settings} (encoder {agreed.encoder})",
            ", ".join(f"{key} {meta.get(key)}" for key in wrong),
            f"{_AGAIN}, with encoder, chunk-tokens and max-chunks as agreed",
        )
    from dance_flwr.data.text.encoder import resolve_local

    name, sha256 = str(meta.get("encoder")), str(meta.get("weights_sha256"))
    by = f"texts encoded by {name}, sha256 {sha256[:12]} as agreed"
    try:
        # Without the network, and a warning at most: rounds read the encoded texts.
        installed = resolve_local(name, "float32").weights_sha256
    except (DataError, OSError):
        raise warning(
            f"the encoder {name!r} on this machine",
            "none",
            f"rounds do not need it ({by}); install it to encode new texts",
        ) from None
    if installed != sha256:
        raise warning(
            f"weights with sha256 {sha256} for {name!r}, which encoded these texts",
            installed,
            "rounds use the encoded texts as they are; restore the weights before encoding again",
        )
    return f"{by}, and the weights on this machine agree"


def check_labels(node: Node) -> str:
    """Check that the client's class names are the agreed ones, in the same order."""
    names, agreed = read_card(node.data).class_names, node.agreement.class_names
    # The number of a class is its place in this list.
    if wrong := class_mismatch(agreed, names):
        raise problem(
            f"the {len(agreed)} agreed class names",
            wrong,
            "create the client folder again with `dance-flwr site prepare --agreed FILE`, "
            "or agree on a new file",
        )
    return f"the {len(names)} agreed class names, in the same order"


def check_device(node: Node) -> str:
    """Check that the device of `node_config` exists; report the one that a client would use."""
    import torch

    from dance_flwr.federation.client.device import device_label, named_device

    name = str(node.config.get(keys.DEVICE, "auto"))
    device = named_device(name)
    if device.type == "cpu":
        why = f"no CUDA device that torch {torch.__version__} can use"
        why = "as named" if name == "cpu" else why
        return f"CPU, {counted(torch.get_num_threads(), 'thread')}; {why}"
    free, total = torch.cuda.mem_get_info(device)
    label = device_label(device)
    if free < _WARN_BYTES:
        raise warning(
            f"1 GB or more free on {label}",
            f"{free / 1e9:.1f} of {total / 1e9:.1f} GB",
            "stop other processes on it, or name another device in --node-config",
        )
    return f"{label}, {free / 1e9:.1f} of {total / 1e9:.1f} GB free"


def check_disk(node: Node) -> str:
    """Check that there is room for runs and evidence."""
    place = node.data.resolve()
    free = shutil.disk_usage(place).free
    if free < _WARN_BYTES:
        raise warning(
            f"1 GB or more free at {place}",
            f"{free / 1e9:.2f} GB",
            "make room; old runs in the client's folder `runs/` can be deleted",
        )
    return f"{free / 1e9:.0f} GB free at {place}"


def check_software(node: Node) -> str:
    """Check that the installed versions are the agreed ones; Flower's minor version must match."""
    packages = {name: installed_version(name) for name in ("flwr", "torch", "dance-flwr")}
    listed = f"Python {platform.python_version()}, " + ", ".join(
        f"{name} {version}" for name, version in packages.items()
    )
    agreed = node.agreement
    # The app uses names of Flower that may move in any minor release (`federation/flower.py`).
    if packages["flwr"].split(".")[:2] != agreed.flwr.split(".")[:2]:
        raise problem(f"flwr {agreed.flwr}", packages["flwr"], f"pip install flwr=={agreed.flwr}")
    for name, expected in (("flwr", agreed.flwr), ("dance-flwr", agreed.dance_flwr)):
        if packages[name] != expected:
            raise warning(f"{name} {expected}", packages[name], "install the agreed version")
    return f"{listed}; as agreed"


def check_protocol(node: Node) -> str:
    """Check that the installed release speaks the server's protocol."""
    agreed = node.agreement
    # Why (decision 26): releases of one protocol work together, whatever their version.
    if agreed.protocol != PROTOCOL:
        raise problem(
            f"the server's protocol {agreed.protocol}",
            str(PROTOCOL),
            f"install dance-flwr {agreed.dance_flwr} of the server operator, or ask for the latest "
            "agreed file",
        )
    return f"protocol {PROTOCOL}, the server's"


Check = Callable[[Node], str]
# In the order in which a node needs them.
CHECKS: Mapping[str, Check] = {
    "SuperLink": check_address,
    "TLS": check_tls,
    "certificate": check_certificate,
    "clock": check_clock,
    "key": check_key,
    "registration": check_registration,
    "terms": lambda node: check_terms(node.config),
    "agreed file": check_agreed,
    "data": check_data,
    "permissions": check_permissions,
    "encoder": check_encoder,
    "labels": check_labels,
    "device": check_device,
    "disk": check_disk,
    "software": check_software,
    "protocol": check_protocol,
}


def run_checks(node: Node, checks: Mapping[str, Check] = CHECKS) -> dict[str, Result]:
    """Run every check and return its result by name."""
    return {name: result_of(partial(check, node)) for name, check in checks.items()}


def result_of(check: Callable[[], str]) -> Result:
    """Run a check; an exception in it is a PROBLEM."""
    try:
        result = Result(Status.OK, check())
    except PointError as error:
        result = Result(error.status, str(error))
    except UserError as error:
        result = Result(Status.PROBLEM, str(error))
    except Exception as error:  # a line that the operator can pass on, not a traceback
        found = f"{type(error).__name__}: {error}"
        text = f"expected this check to end, found {found}; report it"
        result = Result(Status.PROBLEM, text)
    return Result(result.status, " ".join(result.text.split()))


def can_join(results: Mapping[str, Result]) -> bool:
    """Return whether no result is a PROBLEM."""
    return all(result.status is not Status.PROBLEM for result in results.values())


def lines(results: Mapping[str, Result]) -> list[str]:
    """Return one line per result, then the verdict, which covers only what was checked."""
    rows = [f"{result.status:<12}{name:<14}{result.text}" for name, result in results.items()]
    count = Counter(result.status for result in results.values())
    words = {Status.WARNING: "to look at", Status.UNCHECKED: "not checked"}
    rest = [f"{count[status]} {word}" for status, word in words.items() if count[status]]
    added = f" ({', '.join(rest)})" if rest else ""
    if problems := count[Status.PROBLEM]:
        return [*rows, f"{counted(problems, 'problem')}: this node cannot join yet{added}"]
    verdict = " in what was checked" if count[Status.UNCHECKED] else ": this node can join"
    return [*rows, f"no problem found{verdict}{added}"]
