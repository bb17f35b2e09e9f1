// The evidence of one node: answer, effects, texts with their marks, proof, verdict, details.

const CONTEXT = 90; // characters beside a span that stay unfolded
// Shape and sign tell the kinds apart where colours do not.
const SIGNS = { for: "▲", against: "▼", none: "●", unknown: "●" };
const proof = document.getElementById("proof");

function tabled(facts) {
  return make("div", { class: "scroll" }, table(facts.caption, facts.head, facts.rows));
}

/** Return a link to what a word of this page means, which shows it on hovering, too. */
function word(name, text) {
  const meaning = document.querySelector(`#word-${name} + dd`).textContent;
  return make("a", { class: "word", href: `#word-${name}`, title: meaning }, text);
}

function folded(title, ...children) {
  return make("details", {}, make("summary", {}, title), ...children);
}

/** Return `place`, or the one before it where that would cut a character in two. */
function whole(text, place) {
  const low = text.charCodeAt(place);
  const high = text.charCodeAt(place - 1);
  return low >= 0xdc00 && low < 0xe000 && high >= 0xd800 && high < 0xdc00 ? place - 1 : place;
}

/** Return a stretch of text without spans: what is beside a span shown, the rest folded. */
function stretch(text, beforeSpan, afterSpan) {
  const head = afterSpan || !beforeSpan ? CONTEXT * (afterSpan || beforeSpan ? 1 : 2) : 0;
  const tail = beforeSpan ? CONTEXT : 0;
  if (text.length <= head + tail + CONTEXT) return [text];
  const start = whole(text, head);
  const end = whole(text, text.length - tail);
  const rest = make("span", { class: "rest", hidden: true }, text.slice(start, end));
  const size = (end - start).toLocaleString("en");
  const button = make("button", { type: "button", class: "fold", "aria-expanded": "false",
    "data-size": size, "aria-label": `Show ${size} more characters` });
  button.addEventListener("click", () => {
    rest.hidden = !rest.hidden;
    button.setAttribute("aria-expanded", String(!rest.hidden));
    button.setAttribute("aria-label", `${rest.hidden ? "Show" : "Hide"} ${size} characters`);
  });
  return [text.slice(0, start), button, rest, text.slice(end)];
}

/** Return a source text, every character of it and no other, with its spans marked. */
function marked(text, spans) {
  const parts = [];
  let at = 0;
  for (const { from, to, rank, kind, effect, sha256, edge } of spans) {
    if (from > at) parts.push(...stretch(text.slice(at, from), true, at > 0));
    // The style sheet draws sign, effect and edge: they are no part of the text.
    const sign = `${SIGNS[kind]} ${effect}${edge ? `, ${edge}` : ""}`;
    parts.push(make("mark", { "data-rank": rank, "data-sign": sign, "data-sha256": sha256, class: kind },
      text.slice(from, to)));
    at = to;
  }
  if (at < text.length) parts.push(...stretch(text.slice(at), false, at > 0));
  return make("div", { class: "source", dir: "auto" }, ...parts.filter((part) => part !== ""));
}

/** Return the article of one evidence node; a text without a mark is folded. */
function article(facts, text) {
  const heading = make("h4", { id: `text-${facts.number}`, tabindex: "-1" },
    `Text ${facts.number}: `, make("bdi", { class: "break" }, facts.name));
  const what = [facts.is];
  if (facts.number > 1) what.push(`importance ${facts.importance.toFixed(2)}`);
  if (facts.label) what.push(`its label was read: ${facts.label}`);
  const notes = [];
  if (facts.unseen) {
    notes.push(make("p", { class: "soft" }, `Characters that do not show, or reorder others: ${facts.unseen}`));
  }
  if (!facts.characters) notes.push(make("p", { class: "soft" }, "This text is empty."));
  const altered = facts.spans.filter((span) => !span.same).map((span) => span.rank);
  if (altered.length) {
    notes.push(make("p", { class: "warning" },
      `Not the text that was read: the sha256 of passage ${altered.join(", ")} is not that of the evidence.`));
  }
  let body = marked(text, facts.spans);
  if (facts.characters && !facts.spans.length && facts.number > 1) {
    body = folded(`No passage marked; ${counted(facts.characters, "character")}`, body);
  }
  return make("article", { "aria-labelledby": `text-${facts.number}`, },
    heading, make("p", { class: "soft" }, what.join(" · ")), ...notes, body);
}

/** Return the table of all marked passages, the most important first. */
function passages(articles) {
  const rows = articles.flatMap((one) => one.spans.map((span) => [one, span]))
    .sort((a, b) => a[1].rank - b[1].rank)
    .map(([one, span]) => [String(span.rank), span.importance, `${SIGNS[span.kind]} ${span.effect}`,
      `text ${one.number}${span.edge ? `, ${span.edge}` : ""}`,
      span.characters.map((place) => place.toLocaleString("en")).join("–"),
      make("code", { class: "break" }, span.sha256), span.same ? "yes" : "NO"]);
  return make("div", { class: "scroll" }, table("Marked passages, the most important first",
    ["passage", "importance", "effect", "of", "characters", "sha256", "same now"], rows));
}

/** Return a number with a sign and two decimals; the minus is as wide as the plus. */
function signed(value) {
  return `${value < 0 ? "\u2212" : "+"}${Math.abs(value).toFixed(2)}`;
}

/** Return a bar from `start` to `end` on a line from `low` to `high`. */
function bar(start, end, low, high) {
  const at = (value) => (100 * (value - low)) / (high - low || 1);
  const zero = make("span", { class: "zero" });
  const length = make("span", { class: end < start ? "bar against" : "bar for" });
  zero.style.left = `${at(0)}%`;
  length.style.left = `${at(Math.min(start, end))}%`;
  length.style.width = `${at(Math.max(start, end)) - at(Math.min(start, end))}%`;
  return make("span", { class: "track", "aria-hidden": "true" }, length, zero);
}

/** Return the steps from the class sizes to the answer against one class; the last bar is their sum. */
function steps({ steps: all, best, probs }, rival, classes) {
  const shown = all.map((step) => ({ ...step, value: (step.adds[best] - step.adds[rival]) / 1000 }));
  const ends = [0];
  for (const { value } of shown) ends.push(ends.at(-1) + value);
  const [low, high, total] = [Math.min(...ends), Math.max(...ends), ends.at(-1)];
  const rows = shown.map(({ is, text, value }, at) => [
    text ? make("a", { href: `#text-${text}` }, is) : is, bar(ends[at], ends[at + 1], low, high), signed(value)]);
  const kept = rows.filter((_, at) => Math.abs(shown[at].value) >= 0.005);
  kept.push([make("strong", {}, "the answer"), bar(0, total, low, high), make("strong", {}, signed(total))]);
  return table(`${classes[best]} (${probs[best]}) against ${classes[rival]} (${probs[rival]})`,
    ["step", "← against · for →", "adds"], kept);
}

/** Return the account of an answer, with a choice of the class that it is compared with. */
function account(facts, classes) {
  if (!facts.rivals.length) return make("p", { class: "soft" }, "There is one class alone, so nothing to compare with.");
  const place = make("div", { class: "scroll" });
  const names = facts.rivals.map((k) => make("option", { value: k }, k === facts.label ? `${classes[k]}, the label` : classes[k]));
  const choice = make("select", {}, ...names);
  const draw = () => place.replaceChildren(steps(facts, Number(choice.value), classes));
  choice.addEventListener("input", draw);
  draw();
  return make("div", { class: "account" }, make("label", { class: "screen" }, "Why not ", choice, "?"), place);
}

let asked = 0; // packs, so that one which opens late does not replace a later one

/** Return the facts of the pack of a row of the index, and its texts. */
async function opened(index, row) {
  const facts = await entry("pack", index.pack[row]);
  facts.digest = index.digests[index.pack[row]];
  return [facts, await Promise.all(facts.articles.map((one) => entry("text", one.node)))];
}

/** Return what is said of a node before its texts: answer, label, advice, account. */
function said({ answer, advice, account: facts }, index, row) {
  const trained = index.splits[index.split[row]] === "train" ? " It was in training." : "";
  return [
    make("p", { class: "says" }, answer.says.replaceAll(" %", "\u00a0%")),
    make("p", { class: answer.wrong ? "bad" : null }, `${answer.wrong ? "✗ " : ""}${answer.label}${trained}`),
    make("p", { class: "advice" }, advice),
    make("h3", {}, "How it comes to this ", word("account", "answer")), account(facts, index.classes)];
}

/** Return what the marks of passages mean, for the class that a model says. */
function legend(name, more) {
  return make("p", { class: "soft legend" }, "Passages, by the ", word("effect", "effect"), " of leaving them out: ",
    make("span", { class: "sample for" }, "▲ for"), ` ${name}, `,
    make("span", { class: "sample against" }, "▼ against"), ", ", make("span", { class: "sample none" }, "● none"), `. ${more}`);
}

function read(articles, texts) {
  return articles.map((one, place) => article(one, texts[place]));
}

/** Fill the evidence section with the pack of a row of the index. */
async function showPack(index, row) {
  const turn = ++asked;
  const [facts, texts] = await opened(index, row);
  if (turn !== asked) return;
  document.getElementById("evidence").replaceChildren(make("bdi", { class: "break" }, index.titles[row] || "(empty text)"),
    make("small", { class: "soft" }, " ", make("bdi", { class: "break" }, index.ids[row])));
  document.getElementById("digest").textContent = facts.digest;
  const [says, label, advice, ...why] = said(facts, index, row);
  const name = index.classes[index.predicted[row]];
  document.getElementById("pack").replaceChildren(says, label, advice,
    make("div", { class: "sides" },
      make("div", { class: "side" }, ...why, proof),
      make("div", { class: "texts" },
        make("h3", {}, "What it read"),
        legend(name, "Unmarked text is folded."),
        ...read(facts.articles, texts)),
      verdictForm(index, row, facts.digest)),
    make("h3", {}, "Details"),
    folded("Without the marked text", make("p", { class: "control" }, facts.answer.control)),
    folded("Nodes that were not used", tabled(facts.unused)),
    folded("Marked passages as a table", passages(facts.articles)),
    folded("Probabilities by reading", tabled(facts.stages)));
}

/** Print every node with a verdict, one after the other. */
async function printJudged(index) {
  const rows = index.ids.map((_, row) => row).filter((row) => index.pack[row] >= 0 && verdicts.get(index.digests[index.pack[row]]));
  const all = await Promise.all(rows.map(async (row) => {
    const [facts, texts] = await opened(index, row);
    return make("section", { class: "judged" },
      make("h2", {}, make("bdi", {}, index.titles[row]), " ", make("small", {}, make("bdi", {}, index.ids[row]))),
      make("p", { class: "verdict-line" }, `Verdict: ${sentence(verdicts.get(facts.digest))}`),
      ...said(facts, index, row), ...read(facts.articles, texts),
      make("p", { class: "soft" }, "Digest of this evidence: ", make("code", { class: "break" }, facts.digest)));
  }));
  const place = document.getElementById("judged");
  // The ids of texts are those of the page, so that this copy has none.
  for (const one of all.flatMap((section) => [...section.querySelectorAll("[id]")])) one.removeAttribute("id");
  const { client, model } = index.source;
  place.replaceChildren(...(all.length ? [
    make("p", {}, `Evidence of ${client}, model ${model}: ${proof.querySelector(".chip").textContent}.`),
    legend("what the model says", "The steps add up to the answer, effects do not."), ...all,
  ] : [make("p", {}, "No node has a verdict yet.")]));
  document.body.classList.add("printing");
  print();
  document.body.classList.remove("printing");
  place.replaceChildren();
}
