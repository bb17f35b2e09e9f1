"""Take the picture of the audit page: `python docs/pictures/audit.py PAGE.html PICTURE.png`.

Needs playwright and the system's Chromium. The picture has 64 colours at most, to stay small.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.browser import browser


def picture(page_file: Path, out: Path) -> None:
    """Open the evidence of the first node of a page and write what a window of it shows."""
    with browser() as opened:
        page = opened.new_page(viewport={"width": 1500, "height": 2150})
        page.goto(page_file.resolve().as_uri())
        page.wait_for_selector("#rows button.node")
        page.locator("#rows button.node").first.click()
        page.wait_for_selector("#pack article")
        page.evaluate("document.activeElement.blur()")
        # What says most, side by side: the head and the form of the verdict are left out.
        page.evaluate("document.querySelector('#pack form').hidden = true")
        page.evaluate("document.querySelector('nav').scrollIntoView()")
        page.evaluate("document.getElementById('list').style.maxHeight = 'none'")
        page.screenshot(path=out)
    from PIL import Image

    image = (
        Image.open(out).convert("RGB").resize((1200, 1720)).quantize(64, dither=Image.Dither.NONE)
    )
    image.save(out, optimize=True)


if __name__ == "__main__":
    picture(Path(sys.argv[1]), Path(sys.argv[2]))
