"use strict";
// Shared by all pages. Text from data reaches the page as text nodes and attributes only.

/** Return the content of the data block `name`, which `document.py` packed. */
async function unpack(name) {
  const letters = atob(document.getElementById(`data-${name}`).textContent);
  const bytes = Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

/** Return a number with its noun. */
function counted(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

/** Give an element attributes (null and false: none) and children (strings: text), and return it. */
function dress(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.append(...children);
  return element;
}

/** Return a new HTML element; `children` are nodes or strings. */
function make(tag, attributes = {}, ...children) {
  return dress(document.createElement(tag), attributes, children);
}

/** Return the drawing that Python computed: `[tag, attributes, ...children]`, children alike or text. */
function drawing([tag, attributes, ...children]) {
  const known = ["svg", "g", "a", "title", "circle", "line", "path", "rect", "text"];
  if (!known.includes(tag)) throw new Error(`no part of a drawing: ${tag}`);
  const parts = children.map((child) => (typeof child === "string" ? child : drawing(child)));
  return dress(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, parts);
}

/** Return a table; `rows` hold strings, nodes or lists of them, and the first cell of each is its heading. */
function table(caption, headings, rows) {
  const head = headings.map((heading) => make("th", { scope: "col" }, heading));
  const body = rows.map(([first, ...rest]) =>
    make("tr", {}, make("th", { scope: "row" }, first), ...rest.map((cell) => make("td", {}, ...[cell].flat()))));
  return make("table", {}, make("caption", {}, caption),
    make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body));
}
