"""Admit sites to a federation, and check a run against what its nodes demand."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dance_flwr.config.paths import ERROR, HISTORY, RESULT
from dance_flwr.config.tree import RunConfig, quorum
from dance_flwr.data.client_folder import Log
from dance_flwr.deploy.federation import Federation
from dance_flwr.deploy.peers import write_peer_keys
from dance_flwr.deploy.superlink import NAME, follow
from dance_flwr.disk import write_json, write_text
from dance_flwr.errors import UserError, counted
from dance_flwr.federation.node_config import refuse_beyond, terms_of
from dance_flwr.federation.secagg.signatures import fingerprint_of, load_public_key
from dance_flwr.federation.secagg.stage_checks import clients_to_stay
from dance_flwr.federation.wire import keys
from dance_flwr.methods import check_method
from dance_flwr.runs.history import whole_lines
from dance_flwr.runs.latest import remember
from dance_flwr.runs.locks import wait_until_left
from dance_flwr.runs.processes import stopping_in_order
from dance_flwr.runs.reader import read_result
from dance_flwr.runs.resume import how_to_resume, resume_hint

_ADMITTED, _ONLINE = "admitted.json", "online"


def peer_keys_path(federation: Federation) -> Path:
    """Return the file of all sites' public keys, which is there when all are admitted."""
    return federation.folder / keys.PEER_KEYS


def admit(federation: Federation, key_file: Path, replace: bool = False) -> str:
    """Register the public key of a site at the SuperLink; return the site's name.

    Parameters
    ----------
    key_file : the NAME.pub that `site join` wrote
    replace : whether the key of a site that is admitted already is exchanged

    Raises
    ------
    UserError : the file is no key of a site of this federation, or the site has another key
    """
    try:
        content = key_file.read_bytes()
    except OSError as error:
        raise UserError(
            f"expected the public key of a site at {key_file}, found {error.strerror}; ask the "
            "site for the file that `dance-flwr site join` wrote"
        ) from None
    load_public_key(content, str(key_file))
    kind, line, *comment = content.decode().split()
    invitation = federation.invitation
    name, _, site = "".join(comment).partition("/")
    if name != invitation.federation or site not in invitation.sites:
        raise UserError(
            f"{key_file}: expected the key of a site of {invitation.federation} "
            f"({', '.join(invitation.sites)}), found {' '.join(comment)!r:.80}; ask for the file "
            "that `dance-flwr site join` wrote"
        )
    admitted = _admitted(federation)
    public = f"{kind} {line}"
    if (entry := admitted.get(site)) is not None:
        if entry["key"] == public:
            return site
        if not replace:
            raise UserError(
                f"{site}: expected the key that was admitted, found another; ask the site whether "
                "it has a new one, then add --replace"
            )
        federation.link.flwr("supernode", "unregister", entry["node"], NAME)
    answer = federation.link.flwr("supernode", "register", str(key_file.resolve()), NAME)
    admitted[site] = {"node": str(answer["node-id"]), "key": public}
    write_json(federation.folder / _ADMITTED, admitted)
    _write_peer_keys(federation, admitted)
    return site


def statuses(federation: Federation) -> dict[str, tuple[str, str]]:
    """Return site -> its state and the fingerprint of its key, in the order of client numbers.

    The state is "online", "offline", "registered" (never connected), or "not admitted".
    """
    admitted = _admitted(federation)
    listed = federation.link.flwr("supernode", "list", NAME)["nodes"] if admitted else []
    states = {node["node-id"]: str(node["status"]) for node in listed}
    rows = dict.fromkeys(federation.invitation.sites, ("not admitted", ""))
    for site, entry in admitted.items():
        key = load_public_key(entry["key"].encode(), _ADMITTED)
        rows[site] = states.get(entry["node"], "unregistered"), fingerprint_of(key)
    return rows


def check_run(federation: Federation, config: RunConfig) -> None:
    """Check before anything is sent what nodes, or the server at the start, would refuse.

    The terms are those that the federation proposed to its sites.

    Raises
    ------
    UserError : the first that is refused, or the sites that are missing
    """
    check_method(config)
    sites, terms = federation.invitation.sites, terms_of(federation.invitation.terms)
    if config.clients != len(sites):
        raise UserError(
            f"clients: expected {len(sites)}, the sites of {federation.invitation.federation}, "
            f"found {config.clients}; leave it out"
        )
    refuse_beyond(terms, config)
    if terms.masks and not config.privacy.secure_aggregation:
        raise UserError(
            f"privacy.secure-aggregation: expected true ({keys.DEMANDS_MASKS} of the nodes), found "
            "false; leave it out"
        )
    if config.privacy.secure_aggregation:
        stay = clients_to_stay(config.clients, config)
        if stay < terms.min_clients:
            raise UserError(
                f"privacy.threshold: expected at least {terms.min_clients} clients that stay "
                f"({keys.MIN_CLIENTS} of the nodes), found {stay} of {config.clients}; raise it"
            )
    states = {site: state for site, (state, _) in statuses(federation).items()}
    missing = [f"{site} ({state})" for site, state in states.items() if state != _ONLINE]
    needed, online = quorum(config, len(sites)), len(sites) - len(missing)
    if online < needed:
        raise UserError(
            f"expected {needed} of {len(sites)} sites online, found {online}; "
            f"missing: {', '.join(missing)}; let them run `dance-flwr site start`"
        )


def cannot_lose_one(clients: int, config: RunConfig) -> str:
    """Return that a masked run ends with the first missing site, if that is so; else ""."""
    if not config.privacy.secure_aggregation or clients_to_stay(clients, config) < clients:
        return ""
    return (
        f"under masks all {clients} sites must stay, as fewer may not be summed: a missing one "
        "ends the run, which is resumed with it; invite a fourth site to be able to spare one"
    )


def run_federation(federation: Federation, config: RunConfig, log: Log) -> dict[str, Any]:
    """Check a run, submit it, and follow it to its end; return its result.

    Ctrl-C stops the run at the nodes, too.

    Raises
    ------
    UserError : nodes would refuse it, or it failed; the message is the ServerApp's own
    """
    check_run(federation, config)
    folder, link, clients = Path(config.out), federation.link, config.clients
    if line := cannot_lose_one(clients, config):
        log(f"warning     {line}")
    done = whole_lines(folder / HISTORY)
    (folder / ERROR).unlink(missing_ok=True)  # of the start that is resumed
    log(
        f"run         {config.method}, {counted(config.rounds, 'round')}, "
        f"{counted(clients, 'site')}, {folder}"
    )

    def on_round(row: Mapping[str, Any]) -> None:
        score, absent = row["val_accuracy"], row["absent"]
        text = "" if score is None else f", validation accuracy {score:.4f}"
        for client, reason in absent.items():
            text += f"; {federation.invitation.sites[int(client)]}: {reason}"
        log(f"round       {row['round']} of {config.rounds}{text}")

    remember(folder)
    number = link.submit(config)
    try:
        with stopping_in_order(), resume_hint(folder):
            follow(link, number, folder, on_round, len(done))
    except KeyboardInterrupt:
        link.flwr("stop", number, NAME)
        raise UserError(f"the run was stopped; {how_to_resume(folder)}") from None
    except UserError as error:
        # The server knows clients by their numbers; the operator knows sites.
        error.args = (_with_names(str(error), federation.invitation.sites),)
        raise
    wait_until_left(folder)
    log(f"result      {folder / RESULT}")
    return read_result(folder)


def _with_names(text: str, sites: Sequence[str]) -> str:
    """Return a text of the server with the name of its site before every "client K"."""
    for client, site in enumerate(sites):
        text = re.sub(rf"\bclient {client}\b", f"{site} (client {client})", text)
    return text


def _admitted(federation: Federation) -> dict[str, dict[str, str]]:
    """Return site -> its node id and public key, of the admitted sites."""
    path = federation.folder / _ADMITTED
    content: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.is_file() else {}
    return content


def _write_peer_keys(federation: Federation, admitted: dict[str, dict[str, str]]) -> None:
    """Collect the keys of all sites, once all are there."""
    path, sites = peer_keys_path(federation), federation.invitation.sites
    path.unlink(missing_ok=True)
    if not federation.invitation.masks or admitted.keys() != set(sites):
        return
    files = [federation.folder / "keys" / f"{site}.pub" for site in sites]
    for site, file in zip(sites, files, strict=True):
        write_text(file, admitted[site]["key"] + "\n")
    write_peer_keys(path, files)
