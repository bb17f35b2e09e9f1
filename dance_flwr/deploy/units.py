"""Units of systemd for the two foreground commands, from the files of the release."""

from dance_flwr.config.paths import PROJECT
from dance_flwr.runs.processes import tool

SERVER_UNIT, SITE_UNIT = "dance-flwr-superlink.service", "dance-flwr-supernode@.service"
# Folders of the two units as they are in the release.
_STATE = {
    SERVER_UNIT: "/var/lib/dance-flwr/superlink",
    SITE_UNIT: "/var/lib/dance-flwr/%i",
}


def unit_text(name: str, folder: str, addresses: list[str]) -> str:
    """Return a unit of the release for a folder of this machine.

    Parameters
    ----------
    name : `SERVER_UNIT` or `SITE_UNIT`
    folder : absolute path of the federation's or the site's folder
    addresses : of the SuperLink, the only ones that a site's unit may connect to
    """
    text = (PROJECT / "deploy" / name).read_text(encoding="utf-8")
    # The folder exists, so systemd need not create one.
    text = text.replace(f"StateDirectory={_STATE[name].removeprefix('/var/lib/')}\n", "")
    text = text.replace("StateDirectoryMode=0700\n", f"ReadWritePaths={folder}\n")
    text = text.replace(
        "IPAddressAllow=localhost", " ".join(["IPAddressAllow=localhost", *addresses])
    )
    text = text.replace("/opt/dance-flwr/bin", str(tool("python").parent))
    return text.replace(_STATE[name], folder).replace("%i", folder.rpartition("/")[2])
