"use strict";
// Shared by all pages. Text from data reaches the page as text nodes and attributes only.

/** Return the content of the data block `name`, which `document.py` packed. */
async function unpack(name) {
  const letters = atob(document.getElementById(`data-${name}`).textContent);
  const bytes = Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

/** Return an entry of numbered blocks, which `in_blocks` of `document.py` made. */
async function entry(name, number) {
  return (await unpack(`${name}-${Math.floor(number / 64)}`))[number];
}

/** Return a number with its noun. */
function counted(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

/** Return a new HTML element with attributes (null and false: none) and children: nodes or strings. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.append(...children);
  return element;
}

/** Return a table; `rows` hold strings, nodes or lists of them, and the first cell of each is its heading. */
function table(caption, headings, rows) {
  const head = headings.map((heading) => make("th", { scope: "col" }, heading));
  const body = rows.map(([first, ...rest]) =>
    make("tr", {}, make("th", { scope: "row" }, first), ...rest.map((cell) => make("td", {}, ...[cell].flat()))));
  return make("table", {}, make("caption", {}, caption),
    make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body));
}
