"""The invitation of a site, and what the folders of a server and of a site have in common.

An invitation is all that a site needs to join a federation, in one file without a secret: the
agreed `federation.toml` with two more tables, `[invitation]`, and `[terms]`, the terms that the
federation proposes for every node. The server keeps the same file without a site's name.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dance_flwr.config.options import Value
from dance_flwr.config.paths import PROJECT
from dance_flwr.config.text import to_lines
from dance_flwr.data.federation_file import Agreement, agreement_text, read_agreement
from dance_flwr.deploy.network import parse_address
from dance_flwr.errors import UserError, reason_of
from dance_flwr.federation.node_config import terms_of
from dance_flwr.federation.wire import keys
from dance_flwr.runs.processes import tool

AGREED = "federation.toml"
# Why these (decision 8): masks, a floor of clients and bounds of work suit every node. An epsilon
# does not: few clients cannot afford one.
TERMS: Mapping[str, Value] = {
    keys.DEMANDS_MASKS: True,
    keys.MIN_CLIENTS: 3,
    keys.METHODS: "dance, fedavg-full",
    keys.MAX_ROUNDS: 100,
    keys.MAX_TRAININGS: 1000,
    keys.MAX_LOCAL_EPOCHS: 5,
    keys.MAX_HIDDEN_DIM: 256,
    keys.LIMITS: "max-chunks=16, condensation-ratio=0.2, learning-rate=0.1",
}
# A name becomes a folder, a file and a comment of a key.
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,40}")
_OF_NODE = {
    *(keys.PARTITION_ID, keys.NUM_PARTITIONS, keys.DATA_PATH, keys.DEVICE, keys.MEMORY_RATIO),
    *(keys.SIGNING_KEY, keys.PEER_KEYS),
}
_TABLE, _TERMS = "invitation", "terms"


@dataclass(frozen=True)
class Invitation:
    """Content of an invitation.

    Attributes
    ----------
    federation : its name; superlink : host:port that nodes connect to
    sites : names of all sites, in the order of their client numbers
    ca : certificate of the authority, PEM
    terms : terms that the federation proposes for every node
    site : name of the invited site; "" in the file that the server keeps
    """

    federation: str
    superlink: str
    sites: tuple[str, ...]
    ca: str
    terms: Mapping[str, Value]
    site: str = ""

    def __post_init__(self) -> None:
        """Check the names; an invitation comes from another institution.

        Raises
        ------
        UserError : a name is invalid or occurs twice, or the address or a term is invalid
        """
        for name in (self.federation, *self.sites):
            if not _NAME.fullmatch(name):
                raise UserError(
                    "expected names of lower case letters, digits and '-' for a federation and its "
                    f"sites, found {name!r:.60}; rename it"
                )
        if len(set(self.sites)) < len(self.sites) or self.site not in ("", *self.sites):
            invited = f", one of them {self.site!r}" if self.site else ""
            raise UserError(
                f"--sites: expected different names{invited}, found {', '.join(self.sites)}; "
                "rename one"
            )
        parse_address(self.superlink)
        terms_of(self.terms)
        # A node's operator decides on the places of its data and keys.
        if local := sorted(self.terms.keys() & _OF_NODE):
            raise UserError(
                f"[{_TERMS}]: expected demands of a run, found {local[0]}; leave it out"
            )

    @property
    def client(self) -> int:
        """The site's client number."""
        return self.sites.index(self.site)

    @property
    def masks(self) -> bool:
        """Whether nodes answer under secure aggregation only."""
        return bool(self.terms.get(keys.DEMANDS_MASKS))

    def text(self, agreement: Agreement) -> str:
        """Return the invitation, with what all nodes agree on, as TOML."""
        values: dict[str, Value] = {
            "federation": self.federation,
            "superlink": self.superlink,
            "sites": ",".join(self.sites),
            "ca": self.ca,
        }
        if self.site:
            values["site"] = self.site
        lines = [*to_lines(values, _TABLE), "", *to_lines(self.terms, _TERMS)]
        return agreement_text(agreement) + "\n" + "\n".join(lines) + "\n"

    @classmethod
    def read(cls, path: Path) -> "Invitation":
        """Read an invitation.

        Raises
        ------
        UserError : the file is missing, damaged, or no invitation
        """
        read_agreement(path)
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        try:
            values = dict(content[_TABLE])
            terms = dict(content[_TERMS])
            if not all(isinstance(value, str) for value in values.values()):
                raise ValueError("a value that is no text")
            if not all(isinstance(value, str | int | float) for value in terms.values()):
                raise ValueError("a term that is no text or number")
            return cls(**values | {"sites": tuple(values["sites"].split(","))}, terms=terms)
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{path}: expected an invitation of `dance-flwr deploy init`, found "
                f"{reason_of(error)}; ask the server operator for the file again"
            ) from None


def folder_with(file: str, folder: Path | None, option: str) -> Path:
    """Return the folder that a command works on, which holds this file.

    Parameters
    ----------
    folder : as named by the user; None = the working folder or a folder in it
    option : that names it on the command line

    Raises
    ------
    UserError : there is none, or more than one
    """
    places = [folder] if folder else [Path(), *sorted(p for p in Path().iterdir() if p.is_dir())]
    matches = [place.resolve() for place in places if (place / file).is_file()]
    if len(matches) != 1:
        listed = ", ".join(place.name for place in matches) or "none here"
        raise UserError(f"{option}: expected one folder with {file}, found {listed}; name it")
    return matches[0]


SERVER_UNIT, SITE_UNIT = "dance-flwr-superlink.service", "dance-flwr-supernode@.service"


def unit_text(name: str, folder: str, addresses: list[str]) -> str:
    """Return a systemd unit of the release for a folder of this machine.

    Parameters
    ----------
    name : `SERVER_UNIT` or `SITE_UNIT`
    folder : absolute path of the federation's or the site's folder
    addresses : of the SuperLink; a site's unit may connect to these alone
    """
    text = (PROJECT / "deploy" / name).read_text(encoding="utf-8")
    state = "dance-flwr/superlink" if name == SERVER_UNIT else "dance-flwr/%i"
    allowed = " ".join(["IPAddressAllow=localhost", *addresses])
    for old, new in {
        f"StateDirectory={state}\n": "",  # the folder exists
        "StateDirectoryMode=0700\n": f"ReadWritePaths={folder}\n",
        "IPAddressAllow=localhost": allowed,
        "/opt/dance-flwr/bin": str(tool("python").parent),
        f"/var/lib/{state}": folder,
        "%i": folder.rpartition("/")[2],
    }.items():
        text = text.replace(old, new)
    return text
