"""The commands that a document shows."""

import re
import shlex

# A fence, its language, and what it holds up to the fence that ends it.
BLOCK = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```\s*$", re.MULTILINE | re.DOTALL)


def commands_of(path):
    """The words of each `dance-flwr` in the shell blocks of a document; continued lines joined."""
    for language, block in BLOCK.findall(path.read_text(encoding="utf-8")):
        if language not in ("bash", "sh", "console", ""):
            continue
        for line in block.replace("\\\n", " ").splitlines():
            start = re.search(r"(?:^|[\s(])dance-flwr\s", line)
            if start and not line.lstrip().startswith(("#", "pip", "error", "docker")):
                words = re.split(r"\s#\s|[|;]|&&|\s>", line[start.end() :])[0]
                yield [word.strip("[]") for word in shlex.split(words)]
