"""A site's folder: its key, its data, its terms, and the node that it starts.

federation.toml   the invitation     node.key, NAME.pub   the site's key
ca.crt            the authority      client/              the prepared graph
site.toml         the node config    peer-keys            the keys of all sites
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from dance_flwr.config.options import Value
from dance_flwr.config.paths import check_out
from dance_flwr.config.plugins import METHODS
from dance_flwr.config.text import to_lines
from dance_flwr.data.client_folder import Log
from dance_flwr.data.federation_file import read_agreement
from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.data.institution import make_folder
from dance_flwr.deploy.bundle import ACCEPTED, REFUSED, accepted_code, append_digest, digests_in
from dance_flwr.deploy.certificates import CA, make_key
from dance_flwr.deploy.checks import (
    CHECKS,
    Node,
    Result,
    Status,
    parse_node_config,
    run_checks,
    unchecked,
)
from dance_flwr.deploy.invitation import AGREED, SITE_UNIT, Invitation, folder_with, unit_text
from dance_flwr.deploy.network import addresses_of, parse_address
from dance_flwr.deploy.supernode import run_supernode
from dance_flwr.disk import atomic_folder, write_text
from dance_flwr.errors import UserError
from dance_flwr.federation.secagg.signatures import (
    fingerprint_of,
    line_of,
    load_key,
    read_peer_keys,
)
from dance_flwr.federation.wire import keys
from dance_flwr.fingerprint import VERSION, provenance
from dance_flwr.methods import foreign_code

KEY, CLIENT = "node.key", "client"
SETTINGS = "site.toml"  # the terms of the node, and where its files are
_HEAD = """\
# The terms of this node: a run that asks for more is refused before the data are opened. Change
# them as you like; docs/deployment.md, "Terms of a node", explains every key.
"""
# What may have changed since `site join`; the node itself reads the data and checks the terms.
_AT_START = ("SuperLink", "TLS", "certificate", "clock", "key", "registration", "protocol")


@dataclass(frozen=True)
class Site:
    """The folder of a site.

    Attributes
    ----------
    folder : absolute path
    """

    folder: Path

    @classmethod
    def open(cls, folder: Path | None) -> "Site":
        """Return the site in this folder; None = the one in or below the working folder.

        Raises
        ------
        UserError : there is none, or more than one
        """
        return cls(folder_with(SETTINGS, folder, "--site"))

    @cached_property
    def invitation(self) -> Invitation:
        """The invitation that the site has joined with."""
        return Invitation.read(self.folder / AGREED)

    @property
    def client_folder(self) -> Path:
        """The folder of the prepared graph, `data-path` of site.toml; it must be there."""
        settings = parse_node_config(str(self.folder / SETTINGS))
        path = Path(str(settings.get(keys.DATA_PATH, self.folder / CLIENT)))
        if not path.is_dir():
            raise UserError(
                f"{path}: expected the folder of the prepared graph, found none; move it back, or "
                f"correct {keys.DATA_PATH} in {self.folder / SETTINGS}"
            )
        return path

    @property
    def public_key(self) -> Path:
        """The file to hand to the server operator."""
        return self.folder / f"{self.invitation.site}.pub"

    @property
    def node(self) -> Node:
        """The site, as the checks read it."""
        return Node(
            superlink=self.invitation.superlink,
            root_certificates=self.folder / CA,
            key=self.folder / KEY,
            data=self.client_folder,
            agreed=self.folder / AGREED,
            node_config=str(self.folder / SETTINGS),
        )

    def check_joined(self) -> dict[str, Result]:
        """Return the result of every check but the registration, which comes later."""
        later = f"the server operator admits {self.public_key.name} with `dance-flwr deploy admit`"

        def registration(node: Node) -> str:
            raise unchecked(later)

        return run_checks(self.node, {**CHECKS, "registration": registration})

    def set_peer_keys(self, path: Path) -> dict[str, str]:
        """Copy the file of all sites' public keys; return the fingerprint of each site.

        Raises
        ------
        UserError : the file is damaged, or holds another key of this site
        """
        peers, own = read_peer_keys(path), load_key(self.folder / KEY).public_key()
        sites = self.invitation.sites
        mine = peers.get(self.invitation.client)
        if len(peers) != len(sites) or mine is None or line_of(mine) != line_of(own):
            raise UserError(
                f"{path}: expected the keys of {len(sites)} sites, this one's as client "
                f"{self.invitation.client}, found others; ask for the file that `dance-flwr deploy "
                "admit` wrote"
            )
        write_text(self.folder / keys.PEER_KEYS, path.read_text(encoding="utf-8"))
        return {sites[client]: fingerprint_of(key) for client, key in sorted(peers.items())}

    def start(self, log: Log) -> None:
        """Run the site's SuperNode in this process, unless it cannot join.

        Raises
        ------
        UserError : the installed code was not accepted, keys are missing, or a check is a PROBLEM
        """
        check_installed(self.folder)
        if self.invitation.masks and not (self.folder / keys.PEER_KEYS).is_file():
            raise UserError(
                f"expected the public keys of all sites at {self.folder / keys.PEER_KEYS}, found "
                "none; give the file that `dance-flwr deploy admit` wrote as --peer-keys"
            )
        node = self.node
        results = run_checks(node, {name: CHECKS[name] for name in _AT_START})
        for name, result in results.items():
            if result.status is Status.PROBLEM:
                raise UserError(f"{name}: {result.text}")
            if result.status is not Status.OK:
                log(f"{result.status}: {name}: {result.text}")
        # Ledgers and Flower's files belong to the site. What the user has set stays.
        os.environ.setdefault("DANCE_FLWR_HOME", str(self.folder / "data"))
        os.environ.setdefault("FLWR_HOME", str(self.folder / "flwr"))
        os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
        os.umask(0o077)
        arguments = ["--superlink", node.superlink]
        arguments += ["--root-certificates", str(node.root_certificates)]
        arguments += ["--auth-supernode-private-key", str(node.key)]
        log(f"site        {self.invitation.site} of {self.invitation.federation}, {node.superlink}")
        run_supernode([*arguments, "--node-config", node.node_config], site=self.folder)


def join(
    invitation: Path, graph: TextGraph, folder: Path, *, encoder: str = "", log: Log = print
) -> Site:
    """Create the folder of a site: key, prepared graph, terms; it appears whole or not at all.

    Parameters
    ----------
    graph : the site's own; folder : new
    encoder : path of the agreed encoder on this machine; "" = look up its name

    Raises
    ------
    UserError : the file is no site's invitation, or `folder` exists
    DataError : the graph has a class that was not agreed, or the encoder is another one
    """
    content = Invitation.read(invitation)
    if not content.site:
        raise UserError(f"{invitation}: expected a site's invitation, found the server's own file")
    site = Site(folder.expanduser().resolve())
    if site.folder.exists():
        raise UserError(
            f"--out: expected a new folder, found {folder}; a key that is overwritten is lost"
        )
    check_out(site.folder)
    number, sites = content.client, len(content.sites)
    with atomic_folder(site.folder) as draft:
        write_text(draft / AGREED, invitation.read_text(encoding="utf-8-sig"))
        write_text(draft / CA, content.ca)
        public = make_key(draft / KEY)
        # The key's comment tells the server the site.
        line = f"{public.read_text().strip()} {content.federation}/{content.site}\n"
        write_text(draft / f"{content.site}.pub", line)
        public.unlink()
        agreement = read_agreement(invitation)
        make_folder(graph, agreement, number, sites, draft / CLIENT, encoder=encoder, log=log)
        settings: dict[str, Value] = {
            **content.terms,
            keys.PARTITION_ID: number,
            keys.NUM_PARTITIONS: sites,
            keys.DATA_PATH: str(site.folder / CLIENT),
        }
        if content.masks:
            settings[keys.SIGNING_KEY] = str(site.folder / KEY)
            settings[keys.PEER_KEYS] = str(site.folder / keys.PEER_KEYS)
        write_text(draft / SETTINGS, _HEAD + "\n".join(to_lines(settings)) + "\n")
        for digest in installed_code(draft):
            accept_code(draft, digest)  # by installing it
        try:
            addresses = addresses_of([parse_address(content.superlink)[0]])
        except UserError:  # `SuperLink` of the checks says so
            addresses = []
        unit = draft / SITE_UNIT.replace("@", f"-{content.site}")
        write_text(unit, unit_text(SITE_UNIT, str(site.folder), addresses))
    return site


def installed_code(folder: Path) -> Mapping[str, str]:
    """Return digest -> description of the installed code that the site's node may run.

    That is dance-flwr, and the packages of the other methods that the site's terms allow.
    """
    settings = parse_node_config(str(folder / SETTINGS))
    allowed = [name.strip() for name in str(settings.get(keys.METHODS, "")).split(",")]
    codes = {provenance(): f"dance-flwr {VERSION} as installed"}
    for method in METHODS.names() if keys.METHODS not in settings else allowed:
        if method in METHODS and method not in METHODS.builtin:
            codes |= {
                digest: f"{name} as installed" for digest, name in foreign_code(method).items()
            }
    return codes


def waiting_code(folder: Path) -> Mapping[str, str]:
    """Return digest -> description of the installed and the refused code not accepted yet."""
    codes = {**installed_code(folder), **digests_in(folder / REFUSED)}
    return {digest: what for digest, what in codes.items() if digest not in accepted_code(folder)}


def accept_code(folder: Path, digest: str) -> str:
    """Accept code that waits; return its description.

    Raises
    ------
    UserError : no code of this digest waits
    """
    if (what := waiting_code(folder).get(digest)) is None:
        listed = ", ".join(waiting_code(folder)) or "none"
        raise UserError(f"expected a digest that waits ({listed}), found {digest!r:.40}")
    append_digest(
        folder / ACCEPTED, digest, f"{what}; accepted {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    )
    return what


def check_installed(folder: Path) -> None:
    """Check that the site's operator has accepted the installed code, the only code of a node.

    Raises
    ------
    UserError : its provenance was not accepted
    """
    accepted = accepted_code(folder)
    for digest, what in installed_code(folder).items():
        if digest not in accepted:
            raise UserError(
                f"{folder / ACCEPTED}: expected code that was accepted, found {what} with "
                f"provenance {digest}; read its changelog, then run `dance-flwr site accept "
                f"{digest} --site {str(folder)!r}`"
            )
