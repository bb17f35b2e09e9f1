// The reviewer's verdicts: kept in this browser by the digest of the pack, exported on request.

const WORDS = ["agree", "disagree", "unsure"];

const verdicts = {
  found: new Map(),
  kept: true,
  key: (digest) => `dance-flwr/verdict/${digest}`,

  /** Return the verdict on a pack: {verdict, note, at}, or undefined. */
  get(digest) {
    if (this.found.has(digest)) return this.found.get(digest);
    let stored = null;
    try {
      stored = JSON.parse(localStorage.getItem(this.key(digest)));
    } catch {
      this.kept = false;
    }
    const known = stored && WORDS.includes(stored.verdict)
      ? { verdict: stored.verdict, note: String(stored.note), at: String(stored.at) } : undefined;
    this.found.set(digest, known);
    return known;
  },

  set(digest, verdict) {
    this.found.set(digest, verdict);
    try {
      if (verdict) localStorage.setItem(this.key(digest), JSON.stringify(verdict));
      else localStorage.removeItem(this.key(digest));
    } catch {
      this.kept = false; // this browser keeps nothing for files; the page still does
    }
  },
};

function wordOf(verdict) {
  return verdict ? verdict.verdict : "";
}

/** Return the form for the verdict on one pack. */
function verdictForm(index, row, digest) {
  const known = verdicts.get(digest);
  const note = make("textarea", { id: "verdict-note", rows: "2", cols: "60" }, known ? known.note : "");
  const choices = WORDS.map((word) => {
    const input = make("input", { type: "radio", name: "verdict", id: `verdict-${word}`, value: word });
    input.checked = Boolean(known) && known.verdict === word;
    return [input, make("label", {}, input, ` ${word} `)];
  });
  const clear = make("button", { type: "button" }, "Clear");
  const inputs = choices.map(([input]) => input);
  const save = () => {
    const chosen = inputs.find((input) => input.checked);
    verdicts.set(digest, chosen ? { verdict: chosen.value, note: note.value, at: new Date().toISOString() } : undefined);
    countVerdicts(index);
  };
  clear.addEventListener("click", () => {
    for (const input of inputs) input.checked = false;
    note.value = "";
    save();
  });
  const form = make("form", { class: "verdict" }, make("fieldset", {}, make("legend", {}, "Your verdict"),
    make("div", { class: "row" }, ...choices.map(([, label]) => label), clear),
    make("label", { for: "verdict-note" }, "Note"), make("br"), note));
  form.addEventListener("input", save);
  form.addEventListener("submit", (event) => event.preventDefault());
  return form;
}

/** Say how many packs have a verdict, here and in the table. */
function countVerdicts(index) {
  const known = index.digests.map((digest) => verdicts.get(digest)).filter(Boolean);
  const parts = WORDS.map((word) => `${known.filter((one) => one.verdict === word).length} ${word}`);
  document.getElementById("verdict-count").textContent = `${known.length} of ${counted(index.digests.length, "node")}: ${parts.join(", ")}.`
    + (verdicts.kept ? "" : " This browser keeps nothing for a file: export before you close the page.");
  for (const place of document.querySelectorAll("#rows [data-verdict]")) {
    place.textContent = wordOf(verdicts.get(place.dataset.verdict));
  }
}

/** Return all verdicts of this page, as JSON text. */
function exported(index) {
  const of = index.pack.map((pack, row) => [pack, row]).filter(([pack]) => pack >= 0);
  const found = of.map(([pack, row]) => [row, index.digests[pack], verdicts.get(index.digests[pack])]).filter((one) => one[2]);
  return JSON.stringify({
    format: 1,
    source: index.source,
    exported: new Date().toISOString(),
    verdicts: found.map(([row, digest, { verdict, note, at }]) => ({
      node: index.ids[row], predicted: index.classes[index.predicted[row]], pack_sha256: digest, verdict, note, at })),
  }, null, 1);
}

function download(text) {
  const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  make("a", { href: address, download: "verdicts.json" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
