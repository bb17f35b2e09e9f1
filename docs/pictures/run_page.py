"""Take the picture of a run's page: `python docs/pictures/run_page.py PAGE.html OUT.png`.

Needs playwright and the system's Chromium. The picture has 64 colours at most, to stay small.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.browser import browser


def picture(page_file: Path, out: Path) -> None:
    """Write what a window shows of the top of a page."""
    with browser() as opened:
        page = opened.new_page(viewport={"width": 1280, "height": 860})
        page.goto(page_file.resolve().as_uri())
        page.screenshot(path=out)
    from PIL import Image

    image = Image.open(out).convert("RGB").quantize(64, dither=Image.Dither.NONE)
    image.save(out, optimize=True)


if __name__ == "__main__":
    picture(Path(sys.argv[1]), Path(sys.argv[2]))
