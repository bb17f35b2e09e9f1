// Start: the index, the list, and the keys.

async function start() {
  keepReviewer(); // before anything is waited for, or it would replace a name typed meanwhile
  const index = await unpack("index");
  const title = document.getElementById("evidence");
  const list = new NodeList(index, async (row) => {
    await showPack(index, row);
    title.focus();
  });
  const first = list.nextPlace(-1, 1);
  if (first !== undefined) {
    // Without moving the focus, which starts at the top of the page.
    list.select(list.rows[first]);
    await showPack(index, list.opened);
  }
  document.getElementById("previous").addEventListener("click", () => list.turnTo(-1));
  document.getElementById("next").addEventListener("click", () => list.turnTo(1));
  countVerdicts(index);
  document.getElementById("print").addEventListener("click", () => printJudged(index));
  document.getElementById("export").addEventListener("click", () => download(exported(index)));
  document.getElementById("as-text").addEventListener("click", () => {
    document.getElementById("exported").hidden = false;
    const text = document.getElementById("export-text");
    text.value = exported(index);
    text.focus();
  });
  keys(list, title);
}

/** Let single keys work where nobody types, as long as they are switched on. */
function keys(list, title) {
  const help = document.getElementById("help");
  const on = document.getElementById("keys-on");
  document.getElementById("help-open").addEventListener("click", () => help.showModal());
  const pick = (word) => {
    const input = document.getElementById(`verdict-${word}`);
    if (input) input.click();
  };
  const does = {
    j: () => list.step(1),
    k: () => list.step(-1),
    l: () => (list.current >= 0 ? list.focus(list.current) : list.step(1)),
    1: () => pick("right"),
    2: () => pick("wrong"),
    3: () => pick("cannot-tell"),
    n: () => document.getElementById("verdict-note")?.focus(),
    "?": () => help.showModal(),
  };
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input:not([type=checkbox]):not([type=radio]), textarea, select");
    if (!on.checked || typing || help.open || event.ctrlKey || event.altKey || event.metaKey) return;
    if (does[event.key]) {
      event.preventDefault();
      does[event.key]();
    }
  });
}

start();
