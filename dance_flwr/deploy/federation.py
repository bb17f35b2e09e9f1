"""A federation at its server: its folder, the processes that it serves, its sites and its runs.

federation.toml   what all nodes agree on, sites, terms    certificates/, nginx.conf, units
run.toml          the keys of its runs                     invitations/   a file per site
admitted.json     the sites' node ids and public keys      peer-keys      once all are admitted
operator/         Flower's configuration of this user      runs/          results
"""

import json
import os
import re
import shutil
import socket
import time
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from dance_flwr.config.options import Value
from dance_flwr.config.paths import ERROR, HISTORY, PROJECT, RESULT, SETTINGS, check_out
from dance_flwr.config.text import read_config, to_lines
from dance_flwr.config.tree import RunConfig, quorum
from dance_flwr.data.client_folder import Log
from dance_flwr.data.federation_file import new_agreement
from dance_flwr.deploy.certificates import CA, Certificates, check_valid, make_certificates
from dance_flwr.deploy.invitation import (
    AGREED,
    SERVER_UNIT,
    TERMS,
    Invitation,
    folder_with,
    unit_text,
)
from dance_flwr.deploy.network import parse_address
from dance_flwr.deploy.process_tree import ProcessTree, stop
from dance_flwr.deploy.superlink import (
    NAME,
    SuperLink,
    flower_environment,
    follow,
    operator_config,
    superlink_options,
    wait_until_healthy,
)
from dance_flwr.disk import atomic_folder, write_json, write_text
from dance_flwr.errors import UserError, counted
from dance_flwr.federation.node_config import refuse_beyond, terms_of
from dance_flwr.federation.secagg.signatures import fingerprint_of, load_public_key
from dance_flwr.federation.secagg.sums import clients_to_stay
from dance_flwr.federation.wire import keys
from dance_flwr.methods import check_method
from dance_flwr.runs.locks import is_locked, wait_until_left
from dance_flwr.runs.processes import stopping_in_order, tool
from dance_flwr.runs.result import read_result, whole_lines
from dance_flwr.runs.resume import how_to_resume, refuse_earlier, resume_hint
from dance_flwr.runs.run import set_latest_run

INVITATIONS = "invitations"
_RUN, _CERTIFICATES, _OPERATOR, _ADMITTED = "run.toml", "certificates", "operator", "admitted.json"
_GATE, _UPSTREAM = "nginx.conf", "upstream.conf"
# Names of the server for the gate, `flwr` and a container on this machine.
_OWN_HOSTS = ("superlink", "127.0.0.1", "localhost")
# nginx is in a folder of administrators, which the PATH of a user or a unit may lack.
_SYSTEM_PATH = f"{os.defpath}:/usr/sbin:/usr/local/sbin"
# The folders that nginx creates when it starts, whoever starts it; no message is stored there.
_TEMPORARY = "".join(
    f"    {kind}_temp_path gate/{kind};\n"
    for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
)


@dataclass(frozen=True)
class Federation:
    """The folder of a federation at its server.

    Attributes
    ----------
    folder : absolute path
    """

    folder: Path

    @classmethod
    def open(cls, folder: Path | None) -> "Federation":
        """Return the federation in this folder; None = the one in or below the working folder.

        Raises
        ------
        UserError : there is none, or more than one, or its certificate has ended
        """
        opened = cls(folder_with(_RUN, folder, "--federation"))
        check_valid(opened.certificates)
        return opened

    @cached_property
    def invitation(self) -> Invitation:
        """Sites, address and terms."""
        return Invitation.read(self.folder / AGREED)

    @cached_property
    def link(self) -> SuperLink:
        """The SuperLink, as the operator's commands reach it."""
        home = self.folder / _OPERATOR
        return SuperLink(home, flower_environment(home), self.folder / "superlink.log")

    @property
    def address(self) -> str:
        """Address of the SuperLink on this machine, host:port."""
        content = tomllib.loads((self.link.home / "config.toml").read_text(encoding="utf-8"))
        return str(content["superlink"][NAME]["address"])

    @property
    def certificates(self) -> Certificates:
        """The TLS files."""
        return Certificates.of(self.folder / _CERTIFICATES)

    @property
    def peer_keys(self) -> Path:
        """The file of all sites' public keys, written when the last site is admitted."""
        return self.folder / keys.PEER_KEYS

    @property
    def admitted(self) -> dict[str, dict[str, str]]:
        """Site -> its node id and public key, of the admitted sites."""
        path = self.folder / _ADMITTED
        content: dict[str, dict[str, str]] = json.loads(path.read_text()) if path.is_file() else {}
        return content

    def config(
        self, files: Sequence[Path], pairs: Sequence[str], name: str, resume: Path | None
    ) -> RunConfig:
        """Return the configuration of a run, from run.toml, then the files, then the pairs.

        Parameters
        ----------
        name : of the run's folder; "" = the method and the time
        resume : folder of an interrupted run, whose own configuration counts; None = a new one

        Raises
        ------
        UserError : the folder holds a run, or has none to resume
        """
        if resume is not None:
            return read_config([resume.expanduser().resolve() / SETTINGS], [], {})
        values: dict[str, Value] = {"clients": len(self.invitation.sites)}
        if self.invitation.masks:
            values["node-keys"] = str(self.peer_keys)
        config = read_config([self.folder / _RUN, *files], pairs, values)
        folder = self.folder / "runs" / (name or time.strftime(f"{config.method}-%Y%m%d-%H%M%S"))
        config = replace(config, out=str(folder))
        refuse_earlier(config, folder)
        return config

    def serve(self, log: Log) -> None:
        """Run SuperLink and gate until SIGTERM, Ctrl-C, or the end of one of them.

        Raises
        ------
        UserError : one does not start, or ends
        """
        port = parse_address(self.invitation.superlink)[1]
        options = superlink_options(*parse_address(self.address), self.certificates)
        superlink = [str(tool("flower-superlink")), *options]
        superlink += ["--database", str(self.folder / "superlink.db")]
        settings = "daemon off; pid gate.pid;"
        gate = [_nginx(), "-p", f"{self.folder}/", "-c", _GATE, "-e", "stderr", "-g", settings]
        commands = {
            "superlink": (superlink, self.address),
            "gate": (gate, f"127.0.0.1:{port}"),
        }
        # Before anything starts: a second server would write over the log of the first.
        for name, (_, address) in commands.items():
            with suppress(OSError), socket.create_connection(parse_address(address), 1):
                raise UserError(
                    f"{address}: expected a free port for the {name}, found a program that listens "
                    "there; stop it if it is an earlier `dance-flwr deploy serve`"
                )
        # The server's key of checkpoints belongs to the federation.
        os.environ.setdefault("DANCE_FLWR_HOME", str(self.folder / "data"))
        os.umask(0o077)
        with stopping_in_order(), ExitStack() as stack:
            running: dict[str, ProcessTree] = {}
            try:
                for name, (command, address) in commands.items():
                    file, home = self.folder / f"{name}.log", self.folder / name
                    home.mkdir(0o700, exist_ok=True)
                    tree = ProcessTree(command, flower_environment(home), home, file)
                    stack.callback(stop, tree)
                    running[name] = tree
                    wait_until_healthy(tree, f"https://{address}", file, self.certificates.ca)
                    log(f"{name:<12}{address}, log {file}")
                log(f"serving     {self.invitation.superlink}; Ctrl-C or SIGTERM stops it")
                while all(tree.poll() is None for tree in running.values()):
                    time.sleep(0.5)
            except KeyboardInterrupt:
                log("stopped")
                return
            ended = next(name for name, tree in running.items() if tree.poll() is not None)
            raise UserError(
                f"{ended}: expected it to run, found it ended; see {self.folder}/{ended}.log"
            )

    def admit(self, key_file: Path, replace: bool = False) -> str:
        """Register the public key of a site at the SuperLink; return the site's name.

        Parameters
        ----------
        key_file : the NAME.pub that `site join` wrote
        replace : whether to exchange the key of an admitted site

        Raises
        ------
        UserError : the file is no key of a site of this federation, or the site has another key
        """
        site, public = self._read_key(key_file)
        admitted = self.admitted
        # With one key for two clients, one node could sign as both.
        if other := [n for n, of in admitted.items() if of["key"] == public and n != site]:
            raise UserError(
                f"{key_file}: expected a key of its own, found that of {other[0]}; ask {site} for "
                "the file that `dance-flwr site join` wrote"
            )
        if (entry := admitted.get(site)) is not None:
            if entry["key"] == public:
                return site
            if not replace:
                raise UserError(
                    f"{site}: expected the key that was admitted, found another; ask the site "
                    "whether it has a new one, then add --replace"
                )
            self.link.flwr("supernode", "unregister", entry["node"], NAME)
        answer = self.link.flwr("supernode", "register", str(key_file.resolve()), NAME)
        admitted[site] = {"node": str(answer["node-id"]), "key": public}
        write_json(self.folder / _ADMITTED, admitted)
        self.peer_keys.unlink(missing_ok=True)
        sites = self.invitation.sites
        if self.invitation.masks and admitted.keys() == set(sites):
            lines = [f"{client} {admitted[name]['key']}\n" for client, name in enumerate(sites)]
            write_text(self.peer_keys, "".join(lines))
        return site

    def _read_key(self, key_file: Path) -> tuple[str, str]:
        try:
            content = key_file.read_bytes()
        except OSError as error:
            raise UserError(
                f"expected the public key of a site at {key_file}, found {error.strerror}; ask the "
                "site for the file that `dance-flwr site join` wrote"
            ) from None
        load_public_key(content, str(key_file))
        kind, line, *comment = content.decode().split()
        federation, sites = self.invitation.federation, self.invitation.sites
        name, _, site = "".join(comment).partition("/")
        if name != federation or site not in sites:
            raise UserError(
                f"{key_file}: expected the key of a site of {federation} ({', '.join(sites)}), "
                f"found {' '.join(comment)!r:.80}; ask for the file that `dance-flwr site join` "
                "wrote"
            )
        return site, f"{kind} {line}"

    def statuses(self) -> dict[str, tuple[str, str]]:
        """Return site -> its state and the fingerprint of its key, in the order of client numbers.

        The state is "online", "offline", "registered" (never connected), or "not admitted".
        """
        admitted = self.admitted
        listed = self.link.flwr("supernode", "list", NAME)["nodes"] if admitted else []
        states = {node["node-id"]: str(node["status"]) for node in listed}
        rows = dict.fromkeys(self.invitation.sites, ("not admitted", ""))
        for site, entry in admitted.items():
            key = load_public_key(entry["key"].encode(), _ADMITTED)
            rows[site] = states.get(entry["node"], "unregistered"), fingerprint_of(key)
        return rows

    def check_run(self, config: RunConfig) -> None:
        """Refuse a run that the proposed terms or the server would refuse, before it is sent.

        Raises
        ------
        UserError : the first reason, or the sites that are missing
        """
        check_method(config)
        sites, terms = self.invitation.sites, terms_of(self.invitation.terms)
        if config.clients != len(sites):
            raise UserError(
                f"clients: expected {len(sites)}, the sites of {self.invitation.federation}, "
                f"found {config.clients}; leave it out"
            )
        refuse_beyond(terms, config)
        if terms.masks and not config.privacy.secure_aggregation:
            raise UserError(
                f"privacy.secure-aggregation: expected true ({keys.DEMANDS_MASKS} of the nodes), "
                "found false; leave it out"
            )
        if config.privacy.secure_aggregation:
            stay = clients_to_stay(config.clients, config)
            if stay < terms.min_clients:
                raise UserError(
                    f"privacy.threshold: expected at least {terms.min_clients} clients that stay "
                    f"({keys.MIN_CLIENTS} of the nodes), found {stay} of {config.clients}; raise it"
                )
        states = {site: state for site, (state, _) in self.statuses().items()}
        missing = [f"{site} ({state})" for site, state in states.items() if state != "online"]
        needed, online = quorum(config, len(sites)), len(sites) - len(missing)
        if online < needed:
            raise UserError(
                f"expected {needed} of {len(sites)} sites online, found {online}; "
                f"missing: {', '.join(missing)}; let them run `dance-flwr site start`"
            )

    def run(self, config: RunConfig, log: Log) -> dict[str, Any]:
        """Check a run, submit it, and follow it to its end; return its result.

        Ctrl-C stops the run at the nodes, too.

        Raises
        ------
        UserError : nodes would refuse it, or it failed; the message is the ServerApp's own
        """
        self.check_run(config)
        folder, clients = Path(config.out), config.clients
        # The server outlives this command; a second one beside it could not even write why it ends.
        if is_locked(folder):
            raise UserError(
                f"{folder}: expected a run at which nobody works, found its server at work; "
                f"see `dance-flwr status {folder}`"
            )
        if line := cannot_lose_one(clients, config):
            log(f"warning     {line}")
        done = whole_lines(folder / HISTORY)
        (folder / ERROR).unlink(missing_ok=True)  # of the start that is resumed
        log(
            f"run         {config.method}, {counted(config.rounds, 'round')}, "
            f"{counted(clients, 'site')}, {folder}"
        )

        def on_round(row: Mapping[str, Any]) -> None:
            score = row["val_accuracy"]
            text = "" if score is None else f", validation accuracy {score:.4f}"
            for client, reason in row["absent"].items():
                text += f"; {self.invitation.sites[int(client)]}: {reason}"
            log(f"round       {row['round']} of {config.rounds}{text}")

        set_latest_run(folder)
        number = self.link.submit(config)
        try:
            with stopping_in_order(), resume_hint(folder):
                follow(self.link, number, folder, on_round, len(done))
        except KeyboardInterrupt:
            self.link.flwr("stop", number, NAME)
            raise UserError(f"the run was stopped; {how_to_resume(folder)}") from None
        except UserError as error:
            # The server knows clients by their numbers; the operator knows sites.
            text = str(error)
            for client, site in enumerate(self.invitation.sites):
                text = re.sub(rf"\bclient {client}\b", f"{site} (client {client})", text)
            error.args = (text,)
            raise
        wait_until_left(folder)
        log(f"result      {folder / RESULT}")
        return read_result(folder)


def cannot_lose_one(clients: int, config: RunConfig) -> str:
    """Return a warning if a run ends with the first missing site; else ""."""
    masks = config.privacy.secure_aggregation
    if (clients_to_stay(clients, config) if masks else quorum(config, clients)) < clients:
        return ""
    key = "privacy.threshold" if masks else "min-valid-replies"
    spare = "invite sites until there are four" if clients < 4 else f"lower {key}"
    return (
        f"all {clients} sites must stay: a missing one ends the run, which is resumed with it; "
        f"{spare} to be able to spare one"
    )


def create(
    folder: Path,
    hosts: Sequence[str],
    classes: Sequence[str],
    sites: Sequence[str],
    values: Mapping[str, Value],
    config: RunConfig,
    *,
    port: int = 9092,
    superlink_port: int = 8000,
) -> Federation:
    """Write the folder of a new federation; it appears whole or not at all.

    Parameters
    ----------
    folder : its name is that of the federation
    hosts : DNS names and IP addresses of the server; nodes connect to the first
    classes : names of the classes, in the order of their numbers
    sites : names of the sites, in the order of their client numbers
    values : keys of every run, as they are written to run.toml; config : the same, parsed
    port : of the gate, for nodes; superlink_port : on loopback, for the gate and the operator

    Raises
    ------
    UserError : `folder` exists, or a name or an address is invalid
    DataError : a server would refuse the classes, or the encoder is not on this machine
    """
    federation = Federation(folder.expanduser().resolve())
    if federation.folder.exists():
        raise UserError(f"expected a new folder, found {folder}; choose another name")
    check_out(federation.folder, "name")
    agreement = new_agreement(tuple(classes), config)
    terms = dict(TERMS)
    if not config.privacy.secure_aggregation:
        del terms[keys.DEMANDS_MASKS], terms[keys.MIN_CLIENTS]
    if config.method not in terms_of(terms).methods:
        terms[keys.METHODS] = f"{config.method}, {terms[keys.METHODS]}"
    host = f"[{hosts[0]}]" if ":" in hosts[0] else hosts[0]
    gate = (PROJECT / "deploy" / _GATE).read_text(encoding="utf-8")
    gate = gate.replace("listen 9092 ssl", f"listen {port} ssl")
    # With folders of its own, any user can start nginx.
    gate = gate.replace("    access_log off;\n", f"    access_log off;\n{_TEMPORARY}")
    with atomic_folder(federation.folder) as draft:
        names = list(dict.fromkeys((*hosts, *_OWN_HOSTS)))
        ca = make_certificates(draft / _CERTIFICATES, names).ca.read_text("utf-8")
        name, superlink = federation.folder.name, f"{host}:{port}"
        invitation = Invitation(name, superlink, tuple(sites), ca, terms)
        write_text(draft / AGREED, invitation.text(agreement))
        for site in sites:
            text = replace(invitation, site=site).text(agreement)
            write_text(draft / INVITATIONS / f"{site}.toml", text)
        write_text(draft / _RUN, "\n".join(to_lines(values)) + "\n")
        write_text(draft / _GATE, gate)
        address = f"127.0.0.1:{superlink_port}"
        write_text(draft / _UPSTREAM, f"server {address};\n")
        authority = federation.folder / _CERTIFICATES / CA
        write_text(draft / _OPERATOR / "config.toml", operator_config(address, authority))
        write_text(draft / SERVER_UNIT, unit_text(SERVER_UNIT, str(federation.folder), []))
    return federation


def _nginx() -> str:
    path = f"{os.environ.get('PATH', '')}:{_SYSTEM_PATH}"
    if (program := shutil.which("nginx", path=path)) is None:
        raise UserError(
            "expected nginx, the gate that keeps nodes from the operator's commands, found none; "
            "install it (`apt install nginx`)"
        )
    return program
