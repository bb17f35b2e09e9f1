// The reviewer's verdicts: kept in this browser by the digest of the pack, exported on request.

const WORDS = ["right", "wrong", "cannot tell"];
const REVIEWER = "dance-flwr/reviewer";

const verdicts = {
  found: new Map(),
  kept: true,
  key: (digest) => `dance-flwr/verdict/${digest}`,

  /** Return the verdict on a pack: {verdict, class, note, at}, or undefined. */
  get(digest) {
    if (this.found.has(digest)) return this.found.get(digest);
    let stored = null;
    try {
      stored = JSON.parse(localStorage.getItem(this.key(digest)));
    } catch {
      this.kept = false;
    }
    const known = stored && WORDS.includes(stored.verdict)
      ? Object.fromEntries(["verdict", "class", "note", "at"].map((name) => [name, String(stored[name] ?? "")])) : undefined;
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

/** Return a verdict in words, its class and note included. */
function sentence({ verdict, class: name, note, at }) {
  const which = verdict === "wrong" && name ? `, it is ${name}` : "";
  const reviewer = document.getElementById("reviewer").value;
  return `${verdict}${which}${note ? `; ${note}` : ""} (${reviewer ? `${reviewer}, ` : ""}${at.slice(0, 10)})`;
}

/** Return the form for the verdict on one pack. */
function verdictForm(index, row, digest) {
  const known = verdicts.get(digest);
  const note = make("textarea", { id: "verdict-note", rows: "2", cols: "60" }, known ? known.note : "");
  const others = index.classes.filter((_, k) => k !== index.predicted[row]);
  const classes = make("select", { id: "verdict-class", "aria-label": "Class that is right" },
    make("option", { value: "" }, "(class)"), ...others.map((name) => make("option", { value: name }, name)));
  classes.value = known && known.verdict === "wrong" ? known.class : "";
  const inputs = WORDS.map((word) => {
    const input = make("input", { type: "radio", name: "verdict", id: `verdict-${word.replace(" ", "-")}`, value: word });
    input.checked = Boolean(known) && known.verdict === word;
    return input;
  });
  const [right, wrong, unknown] = inputs;
  const clear = make("button", { type: "button" }, "Clear");
  const save = () => {
    const chosen = inputs.find((input) => input.checked);
    if (!wrong.checked) classes.value = "";
    verdicts.set(digest, chosen ? { verdict: chosen.value, class: right.checked ? index.classes[index.predicted[row]] : classes.value,
      note: note.value, at: new Date().toISOString() } : undefined);
    countVerdicts(index);
  };
  clear.addEventListener("click", () => {
    for (const input of inputs) input.checked = false;
    note.value = "";
    save();
  });
  classes.addEventListener("input", () => { wrong.checked = true; });
  const form = make("form", { class: "verdict" }, make("fieldset", {},
    make("legend", {}, `Your verdict: is ${index.classes[index.predicted[row]]} right?`),
    make("div", { class: "row" }, make("label", {}, right, " right "),
      make("span", {}, make("label", {}, wrong, " wrong, it is "), classes), make("label", {}, unknown, " cannot tell "), clear),
    make("label", { for: "verdict-note" }, "Note"), make("br"), note));
  form.addEventListener("input", save);
  form.addEventListener("submit", (event) => event.preventDefault());
  return form;
}

/** Keep the reviewer's name in this browser, as far as it keeps anything. */
function keepReviewer() {
  const field = document.getElementById("reviewer");
  try {
    field.value = localStorage.getItem(REVIEWER) ?? "";
    field.addEventListener("input", () => localStorage.setItem(REVIEWER, field.value));
  } catch {
    verdicts.kept = false;
  }
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
    format: 2,
    reviewer: document.getElementById("reviewer").value,
    source: index.source,
    exported: new Date().toISOString(),
    verdicts: found.map(([row, digest, verdict]) => ({
      node: index.ids[row], predicted: index.classes[index.predicted[row]], pack_sha256: digest, ...verdict })),
  }, null, 1);
}

function download(text) {
  const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  make("a", { href: address, download: "verdicts.json" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
