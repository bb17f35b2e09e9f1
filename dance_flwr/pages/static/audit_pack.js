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

let asked = 0; // packs, so that one which opens late does not replace a later one

/** Fill the evidence section with the pack of a row of the index. */
async function showPack(index, row) {
  const turn = ++asked;
  const facts = await unpack(`pack-${index.pack[row]}`);
  const texts = await Promise.all(facts.articles.map((one) => unpack(`text-${one.node}`)));
  if (turn !== asked) return;
  const { answer, articles } = facts;
  const split = index.splits[index.split[row]];
  document.getElementById("evidence").replaceChildren("Evidence of ", make("bdi", { class: "break" }, index.ids[row]));
  document.getElementById("digest").textContent = facts.digest;
  const name = index.classes[index.predicted[row]];
  document.getElementById("pack").replaceChildren(
    make("p", { class: "says" }, answer.says),
    make("p", { class: answer.wrong ? "bad" : null }, answer.wrong ? `✗ Wrong: ${answer.label}` : answer.label,
      split === "train" ? " It was in training." : ""),
    ...(answer.warning ? [make("p", { class: "warning" }, `⚠ ${answer.warning}`)] : []),
    make("div", { class: "sides" },
      make("div", { class: "side" },
        make("h3", {}, "For and against, by ", word("effect", "effect")), make("div", { class: "parts" }, tabled(facts.parts)),
        make("p", { class: "control" }, answer.control), proof),
      make("div", { class: "texts" },
        make("h3", {}, "What it read"),
        make("p", { class: "soft legend" }, make("span", { class: "sample for" }, "▲ for"), ` ${name}, `,
          make("span", { class: "sample against" }, "▼ against"), ", ", make("span", { class: "sample none" }, "● read"),
          ", no ", word("effect", "effect"), ". Unmarked text is folded."),
        ...articles.map((one, place) => article(one, texts[place]))),
      verdictForm(index, row, facts.digest)),
    make("h3", {}, "Details"),
    folded("Nodes that were not used", tabled(facts.unused)),
    folded("Marked passages as a table", passages(articles)),
    folded("Probabilities by reading", tabled(facts.stages)));
}
