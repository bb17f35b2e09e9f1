// One evidence pack: bars, ego graph, source texts with their spans, what-if, rounds.

const CONTEXT = 90; // characters beside a span that stay unfolded

/** Return a drawing with its caption and its table. */
function pictured(facts, kind) {
  return make("figure", { class: kind }, make("figcaption", {}, facts.caption),
    make("div", { class: "scroll" }, drawing(facts.drawing)),
    make("details", {}, make("summary", {}, "The same as a table"),
      make("div", { class: "scroll" }, table(facts.caption, facts.head, facts.rows))));
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
  for (const [start, end, rank, weight, sha256, , , , edge] of spans) {
    if (start > at) parts.push(...stretch(text.slice(at, start), true, at > 0));
    // Rank, weight and edge are drawn by the style sheet: they are no part of the text.
    const shade = Number(weight) >= 0.3 ? "strong" : "light";
    parts.push(make("mark", { "data-rank": rank, "data-weight": weight, "data-sha256": sha256, class: shade,
      ...(edge ? { "data-edge": edge } : {}) }, text.slice(start, end)));
    at = end;
  }
  if (at < text.length) parts.push(...stretch(text.slice(at), false, at > 0));
  return make("div", { class: "source", dir: "auto" }, ...parts.filter((part) => part !== ""));
}

/** Return the article of one evidence node. */
function article(facts, text) {
  const heading = make("h4", { id: `text-${facts.number}`, tabindex: "-1" },
    `Text ${facts.number}: `, make("bdi", { class: "break" }, facts.name));
  const chips = [make("span", { class: "chip" }, facts.hop ? `hop ${facts.hop}` : "the node itself"),
    make("span", { class: "chip" }, `gate ${facts.gate.toFixed(3)}`)];
  if (facts.label) {
    const odds = Math.abs(facts.effect).toFixed(2);
    const sign = facts.effect < 0 && Number(odds) ? "−" : "+";
    chips.push(make("span", { class: "chip label" }, `training label ${facts.label}, log-odds ${sign}${odds}`));
  }
  const notes = [];
  if (facts.unseen) {
    notes.push(make("p", { class: "soft" }, `Characters that do not show, or reorder others: ${facts.unseen}`));
  }
  if (!facts.spans.length) notes.push(make("p", { class: "soft" }, "No chunk of this text was selected."));
  if (!facts.characters) notes.push(make("p", { class: "soft" }, "This text is empty."));
  const altered = facts.spans.filter((span) => !span[7]).map((span) => `[${span[2]}]`);
  if (altered.length) {
    notes.push(make("p", { class: "warning" },
      `Not the text that was selected: the sha256 of ${altered.join(", ")} is not the pack's.`));
  }
  return make("article", { "aria-labelledby": `text-${facts.number}`, "data-article": facts.number },
    heading, make("p", {}, ...chips.flatMap((chip) => [chip, " "])), ...notes, marked(text, facts.spans));
}

/** Return the table of all spans of a pack, by rank. */
function spanTable(articles) {
  const rows = articles.flatMap((one) => one.spans.map((span) => [one, span]))
    .sort((a, b) => a[1][2] - b[1][2])
    .map(([one, [, , rank, weight, sha256, start, end, same, edge]]) => [`[${rank}]`, weight,
      `text ${one.number}${edge ? `, ${edge}` : ""}`,
      `${start.toLocaleString("en")}–${end.toLocaleString("en")}`, make("code", { class: "break" }, sha256), same ? "yes" : "NO"]);
  return make("details", {}, make("summary", {}, "Selected spans as a table"), make("div", { class: "scroll" },
    table("Selected spans, heaviest first", ["span", "weight", "of", "characters", "sha256", "same now"], rows)));
}

let asked = 0; // packs, so that one which opens late does not replace a later one

/** Fill the evidence section with the pack of a row of the index. */
async function showPack(index, row) {
  const turn = ++asked;
  const pack = index.pack[row];
  const facts = await unpack(`pack-${pack}`);
  const blocks = new Map();
  for (const one of facts.articles) {
    const [block] = one.text;
    if (!blocks.has(block)) blocks.set(block, await unpack(`texts-${block}`));
  }
  if (turn !== asked) return;
  const label = index.label[row] < 0 ? "label unknown" : `label ${index.classes[index.label[row]]}`;
  const title = document.getElementById("evidence");
  title.replaceChildren("Evidence of ", make("bdi", { class: "break" }, index.ids[row]));
  const graph = facts.graph;
  const rejected = graph.rejected.length ? [make("details", {}, make("summary", {}, "Rejected candidates as a table"),
    table("Candidates with a gate of 0, as drawn", ["node", "hop"], graph.rejected))] : [];
  document.getElementById("pack").replaceChildren(
    make("p", {}, make("strong", {}, `Predicted ${index.classes[index.predicted[row]]}`),
      `, margin ${index.margin[row].toFixed(3)}, ${label}, split ${index.splits[index.split[row]]}. Pack `,
      make("code", { class: "break" }, facts.digest)),
    verdictForm(index, row, facts.digest),
    make("h3", {}, "Prediction"), pictured(facts.stages, "stages"), pictured(facts.parts, "parts"),
    make("h3", {}, "Where the evidence lies"), pictured(graph, "graph"),
    make("p", { class: "soft" }, "Numbers are those of the texts; squares have a training label; the width of a line is the gate; thin lines are edges; small grey marks were considered and rejected. ",
      `${graph.notes.join("; ")}.`), ...rejected,
    make("h3", {}, "Source texts"),
    make("p", { class: "soft" }, "Selected spans are underlined, with rank and weight before them; the rest is folded."),
    ...facts.articles.map((one) => article(one, blocks.get(one.text[0])[one.text[1]])), spanTable(facts.articles),
    make("h3", {}, "What if"),
    ...(facts.whatIf ? [pictured(facts.whatIf, "effects"), make("p", {}, facts.whatIf.said)]
      : [make("p", {}, "Not computed for this node, for the time it takes; a page that names it first with --nodes has it.")]),
    make("h3", {}, "Over the rounds"),
    ...(facts.rounds ? [pictured(facts.rounds, "rounds")]
      : [make("p", {}, "No earlier round kept a pack of this node.")]));
}

/** Light up everything that is of the text with the number `number`; 0: nothing. */
function light(number) {
  for (const part of document.querySelectorAll("#pack [data-article]")) {
    part.classList.toggle("lit", number > 0 && part.dataset.article === String(number));
  }
}
