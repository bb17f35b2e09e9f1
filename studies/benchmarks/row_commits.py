"""Check that the commits that `studies/reproduction/commits.toml` names made the published rows.

    python studies/benchmarks/row_commits.py

For each commit, asks its own code for its `provenance`, and prints the experiments whose rows state
the same. Exits with 1 if one differs, or if rows state a code that no commit is named for. Needs
the history of the repository.
"""

import subprocess
import sys
import tarfile
import tempfile
import tomllib
from io import BytesIO
from pathlib import Path

from dance_flwr_studies.engine.rows import load_rows

REPRODUCTION = Path(__file__).parents[1] / "reproduction"
ASK = "from dance_flwr.fingerprint import provenance; print(provenance())"


def provenance_of(commit: str) -> str:
    """Return what the code of a commit says of itself."""
    archive = ["git", "archive", commit, "dance_flwr"]
    content = subprocess.run(archive, capture_output=True, check=True, cwd=REPRODUCTION.parents[1])
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=BytesIO(content.stdout)) as packed:
            packed.extractall(folder, filter="data")
        asked = [sys.executable, "-c", ASK]  # imports the package in its working directory
        return subprocess.check_output(asked, cwd=folder, text=True).strip()


def main() -> int:
    """Print a line per code of the rows."""
    commits = tomllib.loads((REPRODUCTION / "commits.toml").read_text(encoding="utf-8"))
    made: dict[str, set[str]] = {}
    for name, rows in load_rows(REPRODUCTION / "results.jsonl").by_experiment.items():
        for row in rows:
            if row.result:
                made.setdefault(str(row.result["provenance"]), set()).add(name)
    wrong = 0
    for code, names in made.items():
        commit = commits.get(code, "no commit")
        found = provenance_of(commit) if code in commits else "unknown"
        wrong += found != code
        print(f"{code}  {commit}, which has {found}: {', '.join(sorted(names))}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
