"""The server's folder of a federation, and the processes that it serves.

federation.toml   what all nodes agree on, sites, terms    certificates/, nginx.conf, units
run.toml          the keys of its runs                     invitations/   a file per site
admitted.json     the sites' node ids and public keys      peer-keys      once all are admitted
operator/         Flower's configuration of this user      runs/          results
"""

import os
import shutil
import time
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from dance_flwr.config.options import Value
from dance_flwr.config.paths import PROJECT, SETTINGS
from dance_flwr.config.reading import read_config
from dance_flwr.config.text import to_lines
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.client_folder import Log
from dance_flwr.data.federation_file import new_agreement
from dance_flwr.deploy.certificates import CA, Certificates, make_certificates
from dance_flwr.deploy.invitation import AGREED, TERMS, Invitation, folder_with
from dance_flwr.deploy.network import parse_address
from dance_flwr.deploy.process_tree import ProcessTree, stop
from dance_flwr.deploy.superlink import (
    NAME,
    SuperLink,
    flower_environment,
    wait_until_healthy,
)
from dance_flwr.deploy.units import SERVER_UNIT, unit_text
from dance_flwr.disk import atomic_folder, write_text
from dance_flwr.errors import UserError
from dance_flwr.federation.node_config import terms_of
from dance_flwr.federation.wire import keys
from dance_flwr.runs.processes import stopping_in_order, tool
from dance_flwr.runs.resume import refuse_earlier

RUN, INVITATIONS, CERTIFICATES = "run.toml", "invitations", "certificates"
_GATE, _UPSTREAM, _OPERATOR = "nginx.conf", "upstream.conf", "operator"
# Names of the server under which the gate, `flwr` and a container on this machine reach it.
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
        UserError : there is none, or more than one
        """
        return cls(folder_with(RUN, folder, "--federation"))

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
        return Certificates.of(self.folder / CERTIFICATES)

    def config(
        self, files: Sequence[Path], pairs: Sequence[str], name: str, resume: Path | None
    ) -> RunConfig:
        """Return the configuration of a run: run.toml, then files and pairs, then what follows.

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
        named: dict[str, Value] = {"clients": len(self.invitation.sites)}
        if self.invitation.masks:
            named["node-keys"] = str(self.folder / keys.PEER_KEYS)
        config = read_config([self.folder / RUN, *files], pairs, named)
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
        host, inner = parse_address(self.address)
        superlink = [
            str(tool("flower-superlink")),
            *superlink_options(host, inner, self.certificates),
        ]
        superlink += ["--database", str(self.folder / "superlink.db")]
        settings = "daemon off; pid gate.pid;"
        gate = [_nginx(), "-p", f"{self.folder}/", "-c", _GATE, "-e", "stderr", "-g", settings]
        commands = {
            "superlink": (superlink, self.address),
            "gate": (gate, f"127.0.0.1:{port}"),
        }
        # The server's key of checkpoints belongs to the federation, however it is served.
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


@dataclass(frozen=True)
class Plan:
    """What a new federation is.

    Attributes
    ----------
    hosts : DNS names and IP addresses of the server; nodes connect to the first
    classes : names of the classes, in the order of their numbers
    sites : names of the sites, in the order of their client numbers
    port : of the gate, for nodes; superlink_port : on loopback, for the gate and the operator
    """

    hosts: tuple[str, ...]
    classes: tuple[str, ...]
    sites: tuple[str, ...]
    port: int = 9092
    superlink_port: int = 8000


def create(folder: Path, plan: Plan, values: Mapping[str, Value], config: RunConfig) -> Federation:
    """Write the folder of a new federation; it appears whole or not at all.

    Parameters
    ----------
    folder : its name is that of the federation
    values : keys of every run, as they are written to run.toml; config : the same, parsed

    Raises
    ------
    UserError : `folder` exists, or a name or an address is none
    DataError : a server would refuse the classes, or the encoder is not on this machine
    """
    federation = Federation(folder.expanduser().resolve())
    if federation.folder.exists():
        raise UserError(f"expected a new folder, found {folder}; choose another name")
    agreement = new_agreement(plan.classes, config)
    with atomic_folder(federation.folder) as draft:
        hosts = dict.fromkeys((*plan.hosts, *_OWN_HOSTS))
        ca = make_certificates(draft / CERTIFICATES, list(hosts)).ca.read_text("utf-8")
        whole = _invitation(federation.folder.name, plan, config, ca)
        write_text(draft / AGREED, whole.text(agreement))
        for site in plan.sites:
            text = replace(whole, site=site).text(agreement)
            write_text(draft / INVITATIONS / f"{site}.toml", text)
        write_text(draft / RUN, "\n".join(to_lines(values)) + "\n")
        write_text(draft / _GATE, _gate_text(plan.port))
        address = f"127.0.0.1:{plan.superlink_port}"
        write_text(draft / _UPSTREAM, f"server {address};\n")
        authority = federation.folder / CERTIFICATES / CA
        write_text(draft / _OPERATOR / "config.toml", operator_config(address, authority))
        write_text(draft / SERVER_UNIT, unit_text(SERVER_UNIT, str(federation.folder), []))
    return federation


def superlink_options(host: str, port: int, certificates: Certificates) -> list[str]:
    """Return the options of a SuperLink under TLS that knows its nodes by their keys."""
    # Flower authenticates nodes under TLS only.
    options = ["--host", host, "--port", str(port), "--enable-supernode-auth"]
    options += ["--ssl-ca-certfile", str(certificates.ca), "--ssl-keyfile", str(certificates.key)]
    options += ["--ssl-certfile", str(certificates.certificate)]
    return [*options, "--disable-runtime-dependency-installation"]


def operator_config(address: str, authority: Path) -> str:
    """Return the `config.toml` with which `flwr` reaches a SuperLink."""
    return (
        f'[superlink]\ndefault = "{NAME}"\n\n[superlink.{NAME}]\naddress = "{address}"\n'
        f'root-certificates = "{authority}"\n'
    )


def _invitation(name: str, plan: Plan, config: RunConfig, ca: str) -> Invitation:
    terms = dict(TERMS)
    if not config.privacy.secure_aggregation:
        del terms[keys.DEMANDS_MASKS], terms[keys.MIN_CLIENTS]
    if config.method not in terms_of(terms).methods:
        terms[keys.METHODS] = f"{config.method}, {terms[keys.METHODS]}"
    host = f"[{plan.hosts[0]}]" if ":" in plan.hosts[0] else plan.hosts[0]
    return Invitation(name, f"{host}:{plan.port}", plan.sites, ca, terms)


def _gate_text(port: int) -> str:
    """Return the gate of the release for this port, which any user can start."""
    text = (PROJECT / "deploy" / _GATE).read_text(encoding="utf-8")
    text = text.replace("listen 9092 ssl", f"listen {port} ssl")
    return text.replace("    access_log off;\n", f"    access_log off;\n{_TEMPORARY}")


def _nginx() -> str:
    path = f"{os.environ.get('PATH', '')}:{_SYSTEM_PATH}"
    if (program := shutil.which("nginx", path=path)) is None:
        raise UserError(
            "expected nginx, the gate that keeps nodes from the operator's commands, found none; "
            "install it (`apt install nginx`)"
        )
    return program
