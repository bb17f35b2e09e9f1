"""A browser for tests of pages: the system's Chromium, driven by playwright, with no network."""

import shutil
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
_FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)


def why_not() -> str:
    """Why there is no browser here; "" if there is one."""
    if find_spec("playwright") is None or find_spec("axe_playwright_python") is None:
        return "no playwright here: pip install 'dance-flwr[dev]'"
    if program() is None:
        return f"no browser here: looked for {', '.join(_NAMES)}; apt-get install chromium"
    return ""


def program() -> str | None:
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


@contextmanager
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=program(), args=list(_FLAGS))
        try:
            yield opened
        finally:
            opened.close()


class Watched:
    """A page, with every address that it asked for and every word on its console."""

    def __init__(self, context):
        self.page = context.new_page()
        self.requests, self.console = [], []
        self.page.set_default_timeout(120_000)  # a busy machine is no failure
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.console.append(message.text))
        self.page.on("pageerror", lambda error: self.console.append(str(error)))
        self.page.on("dialog", self._dialog)

    def renew(self, viewport=None, **media):
        """Make the page what it would be in a new context with these options."""
        self.page.evaluate("try { localStorage.clear(); sessionStorage.clear(); } catch {}")
        self.page.goto("about:blank")
        self.page.set_viewport_size(viewport or {"width": 1280, "height": 720})
        defaults = {"media": "null", "color_scheme": "light", "forced_colors": "none"}
        self.page.emulate_media(**defaults | media)
        self.requests[:], self.console[:] = [], []
        return self

    def _dialog(self, dialog):
        self.console.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def open(self, path: Path):
        self.page.goto(path.as_uri())
        return self.page

    def violations(self) -> list[str]:
        """What axe-core finds, a line each: rule, and the first elements that break it."""
        import axe_playwright_python

        script = Path(axe_playwright_python.__file__).parent / "axe.min.js"
        self.page.evaluate(f"{script.read_text('utf-8')}; undefined")
        # What passes is counted only: to describe it takes axe half of its time.
        read = "axe.run({resultTypes: ['violations']}).then((r) => [r.violations, r.passes.length])"
        found, passes = self.page.evaluate(read)
        assert passes  # it looked at something
        return [
            f"{rule['id']}: {[node['html'][:120] for node in rule['nodes'][:3]]}" for rule in found
        ]
