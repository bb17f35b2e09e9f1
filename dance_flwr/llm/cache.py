"""The cache of replies: one file per question in the client's folder, which never leaves it."""

import hashlib
import json
from pathlib import Path

from dance_flwr.disk import write_json
from dance_flwr.llm.model import Completion
from dance_flwr.llm.template import Prompt

FOLDER = "llm"  # in a client's folder
_FIELDS = ("text", "prompt_tokens", "completion_tokens", "finish")
# Bounds the memory that a damaged or foreign file can take; replies are far shorter.
_LARGEST_FILE = 8_000_000  # bytes


def question_sha256(model: str, prompt: Prompt, limit: int, seed: int) -> str:
    """Return the key of a question, the sha256 of everything that its reply depends on."""
    # Why (decision 21): the key contains everything that a reply depends on. The model's name has
    # the back end, its version and the hash of its weights; a changed wording needs another version
    # of the template.
    template = prompt.template
    content = {
        "model": model,
        "template": [template.name, template.version],
        "messages": [[message.role, message.text] for message in prompt.messages],
        "schema": template.schema,
        # A shorter limit may cut the same reply off.
        "limit": limit,
        "temperature": 0,
        "seed": seed,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class Cache:
    """Cached replies in `llm/` of a client's folder; each file has a hash of question and reply."""

    def __init__(self, client_folder: Path) -> None:
        self._folder = client_folder / FOLDER

    def find(self, key: str) -> Completion | None:
        """Return the cached reply; None if there is none, or its file is damaged or misplaced."""
        path = self._path(key)
        try:
            if path.stat().st_size > _LARGEST_FILE:
                return None
            entry = json.loads(path.read_text("utf-8"))
            completion = Completion(**{name: entry[name] for name in _FIELDS})
            return completion if entry["sha256"] == _digest(key, completion) else None
        # Unreadable files count as missing, so the question is asked and written again.
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None

    def keep(self, key: str, completion: Completion) -> None:
        """Write a reply atomically."""
        facts = {name: getattr(completion, name) for name in _FIELDS}
        write_json(self._path(key), facts | {"sha256": _digest(key, completion)})

    def _path(self, key: str) -> Path:
        # Folders by the first two digits, so that none has too many files.
        return self._folder / key[:2] / f"{key}.json"


def _digest(key: str, completion: Completion) -> str:
    """Return a hash over question and reply, by which a damaged or misplaced file is detected."""
    facts = [key, *(getattr(completion, name) for name in _FIELDS)]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
