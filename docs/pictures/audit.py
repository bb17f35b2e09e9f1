"""Take the picture of the audit page: `python docs/pictures/audit.py PAGE.html PICTURE.png`.

Needs playwright and the system's Chromium. The picture has 64 colours at most, to stay small.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.browser import browser


def picture(page_file: Path, out: Path) -> None:
    """Write what a window shows of a page: the evidence of its first node, beside the list."""
    with browser() as opened:
        page = opened.new_page(viewport={"width": 1440, "height": 900})
        page.goto(page_file.resolve().as_uri())
        page.wait_for_selector("#pack article")
        page.screenshot(path=out)
    from PIL import Image

    image = Image.open(out).convert("RGB").quantize(64, dither=Image.Dither.NONE)
    image.save(out, optimize=True)


if __name__ == "__main__":
    picture(Path(sys.argv[1]), Path(sys.argv[2]))
