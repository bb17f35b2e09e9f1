"""What left a site in a run, by its own record, as a signed page."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dance_flwr.deploy.site import KEY, Site
from dance_flwr.errors import UserError, counted, reason_of
from dance_flwr.federation.client.sent import FILE
from dance_flwr.federation.secagg.signatures import (
    fingerprint_of,
    is_signed,
    line_of,
    load_key,
    load_public_key,
    sign,
)
from dance_flwr.federation.wire.messages import record_digest
from dance_flwr.pages.document import Page, unpacked
from dance_flwr.runs import privacy_report
from dance_flwr.terminal import size

_EACH = (
    *("time", "round", "message", "what", "how", "who can read it", "bytes of arrays and keys"),
    *("terms that allowed it", "epsilon spent"),
)
_BLOCK = re.compile(r'<script type="application/gzip" id="data-statement">([^<]*)</script>')


@dataclass(frozen=True)
class Statement:
    """What a site sent in a run.

    Attributes
    ----------
    site, federation, run : their names
    lines : the site's record, a line per message
    """

    site: str
    federation: str
    run: str
    lines: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, site: Site, run: str = "") -> "Statement":
        """Return the statement of a run, by default of the newest one."""
        lines = read_sent(site.client_folder, run)
        name = lines[-1].get("folder") or lines[-1]["run"]
        return cls(site.invitation.site, site.invitation.federation, name, lines)

    def sentences(self) -> list[str]:
        """Return what left in plain words: how much, what, and what did not."""
        masks = any(line["stage"] for line in self.lines)
        held = privacy_report.briefs(self.lines, self.lines[-1]["dp"], masks=masks)
        total = size(sum(line["bytes"] for line in self.lines))
        rounds = {line["round"] for line in self.lines if line["round"]}
        first, last = self.lines[0]["at"], self.lines[-1]["at"]
        return [
            f"{self.site} sent {counted(len(self.lines), 'message')} ({total} of arrays and keys) "
            f"in run {self.run}, {counted(len(rounds), 'round')}, from {first} to {last}.",
            f"They held: {', '.join(held)}.",
            *self._spent(),
            f"{privacy_report.NEVER} Refusals are one line each, in the node's log.",
            f"Digest of this record: {self.digest()}. {privacy_report.COMPARE}",
        ]

    def _spent(self) -> list[str]:
        noisy = [line for line in self.lines if "epsilon" in line]
        if not noisy:
            return []
        last = noisy[-1]
        return [
            f"Its updates carried noise ({last['dp']}): this run has spent epsilon "
            f"{last['epsilon']:.4g} at delta {last['delta']:g} here."
        ]

    def digest(self) -> str:
        """Return the `record_digest` of the record, which the server computes from its own."""
        totals: dict[tuple[str, str], list[int]] = {}
        for line in self.lines:
            total = totals.setdefault((line["type"], line["stage"]), [0, 0])
            total[0], total[1] = total[0] + 1, total[1] + line["bytes"]
        return record_digest(totals)

    def rows(self) -> list[tuple[str, ...]]:
        """Return a row per message and kind of content, with the columns `_EACH`."""
        rows: list[tuple[str, ...]] = []
        for line in self.lines:
            head = (line["at"], str(line["round"] or ""), privacy_report.name_of(line))
            # In the order of the declarations; the size is that of the whole message.
            told = sorted(privacy_report.told_by([line]))
            for place, each in enumerate(told):
                whole = ("", "", "")
                if place == 0:
                    spent = f"{line['epsilon']:.4g}" if "epsilon" in line else ""
                    whole = (f"{line['bytes']:,}", line.get("allowed", ""), spent)
                kind = dict(each.under).get(line["dp"], each.kind)
                rows.append((*head, each.what, str(kind), each.readers, *whole))
        return rows

    def page(self, key: str, signature: str) -> Page:
        """Return the page: sentences, rows, and the record with the site's signature.

        Parameters
        ----------
        key : the public key, as `line_of` gives it; signature : hexadecimal, of `signed_text`
        """
        facts = {
            "sentences": self.sentences(),
            "tables": [
                {
                    "caption": f"What {self.site} sent, as the server counts it",
                    "headings": privacy_report.HEADINGS,
                    "rows": privacy_report.table(self.lines),
                },
                {"caption": "Each message", "headings": _EACH, "rows": self.rows()},
            ],
            "fingerprint": fingerprint_of(load_public_key(key.encode(), "the page's key")),
        }
        data = {"statement": asdict(self), "key": key, "signature": signature}
        return Page("sent.html.j2", f"What left {self.site}", facts, {"statement": data})

    def signed_text(self) -> bytes:
        """Return the text that the site's key signs."""
        named = {"purpose": "dance-flwr site privacy", **asdict(self)}
        return json.dumps(named, sort_keys=True, separators=(",", ":")).encode()


def write_statement(site: Site, statement: Statement, out: Path) -> None:
    """Write the page of a statement, signed with the site's key."""
    key = load_key(site.folder / KEY)
    signature = sign(key, statement.signed_text()).hex()
    statement.page(line_of(key.public_key()).decode(), signature).write(out)


def verify_statement(path: Path) -> tuple[Statement, str]:
    """Return the statement of a page and the fingerprint of the key that signed it.

    Raises
    ------
    UserError : the page is none of `write_statement`, or was altered in any byte
    """
    found = f"{path}: expected a page of `dance-flwr site privacy`, found "
    try:
        page = path.read_bytes()
        block = _BLOCK.search(page.decode("utf-8"))
        data = unpacked(block[1]) if block else {}
        statement = Statement(**data["statement"])
        key = load_public_key(data["key"].encode(), str(path))
        valid = is_signed(statement.signed_text(), bytes.fromhex(data["signature"]), key)
        # The page follows from the record, so that it can show nothing else.
        valid = valid and statement.page(data["key"], data["signature"]).html() == page
    except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
        raise UserError(f"{found}{reason_of(error):.80}") from None
    if not valid:
        raise UserError(
            f"{found}one that was altered after it was signed, or made by another version"
        )
    return statement, fingerprint_of(key)


def read_sent(client_folder: Path, run: str = "") -> list[dict[str, Any]]:
    """Return the record of a run, by default of the newest one; its name is in every line.

    Parameters
    ----------
    run : the name of its folder at the server, or its number in Flower

    Raises
    ------
    UserError : there is no such run in the record, or a line cannot be read
    """
    path = client_folder / "runs" / FILE
    try:
        # Greetings and stages of masks name Flower's number of the run alone.
        names, folders = dict[int, str](), dict[int, str]()
        for line in _lines(path):
            names[line["id"]] = line["run"] or names.get(line["id"], "")
            folders[line["id"]] = line.get("folder", "")
        wanted = [n for n, name in names.items() if not run or run in (name, str(n), folders[n])]
        found = [line for line in _lines(path) if wanted and line["id"] == wanted[-1]]
    except FileNotFoundError:
        raise UserError(
            f"{path}: expected the record of what this site sent, found none; it begins with the "
            "first message that `dance-flwr site start` answers"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path}: expected a record of messages, found {reason_of(error):.80}"
        ) from None
    if not found:
        known = ", ".join(folders[n] or name for n, name in names.items()) or "none"
        raise UserError(f"{path}: expected run {run!r} in the record, found {known}")
    return [
        line | {"run": folders[line["id"]] or names[line["id"]] or str(line["id"])}
        for line in found
    ]


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:  # a record may be larger than what memory takes
        yield from map(json.loads, file)
