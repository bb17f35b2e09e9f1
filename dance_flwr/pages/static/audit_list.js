// The node table: filters, confusion matrix, rows by hundreds, and the row that is current.

const ROWS = 100;

/** Return a name in parts, after whose dots and underscores a line may end. */
function breakable(name) {
  return name.split(/(?<=[._])/).flatMap((part) => [part, make("wbr")]);
}

class NodeList {
  /** `index` is the block of that name; `open(row)` shows the evidence of a row of it. */
  constructor(index, open) {
    this.index = index;
    this.open = open;
    this.first = 0;
    this.current = -1;
    this.opened = -1;
    this.by = ""; // the column that orders the rows; "" = as the page orders them
    this.fields = Object.fromEntries(["id", "split", "predicted", "label", "margin", "wrong",
      "disagree", "pack"].map((name) => [name, document.getElementById(`f-${name}`)]));
    const form = document.getElementById("filters");
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", () => this.filter());
    form.addEventListener("reset", () => setTimeout(() => this.filter()));
    document.getElementById("before").addEventListener("click", () => this.turn(-ROWS));
    document.getElementById("after").addEventListener("click", () => this.turn(ROWS));
    this.filter();
  }

  wrong(row) {
    return this.index.label[row] >= 0 && this.index.label[row] !== this.index.predicted[row];
  }

  /** Return whether a row passes all filters but those named in `but`. */
  passes(row, but = []) {
    const { id, split, predicted, label, margin, wrong, disagree, pack } = this.fields;
    const index = this.index;
    const use = (name, field) => !but.includes(name) && field.value !== "";
    return !((use("id", id) && !(index.ids[row].includes(id.value) || index.titles[row].includes(id.value)))
      || (use("split", split) && index.split[row] !== Number(split.value))
      || (use("predicted", predicted) && index.predicted[row] !== Number(predicted.value))
      || (use("label", label) && index.label[row] !== Number(label.value))
      || (use("margin", margin) && !(index.margin[row] < Number(margin.value)))
      || (wrong.checked && !this.wrong(row))
      || (disagree.checked && !index.disagree[row])
      || (pack.checked && index.pack[row] < 0));
  }

  filter() {
    const rows = this.index.ids.map((_, row) => row);
    this.rows = rows.filter((row) => this.passes(row));
    if (this.by) this.rows.sort((a, b) => this.key(a) - this.key(b) || a - b);
    this.first = 0;
    this.current = this.rows.indexOf(this.opened);
    this.drawMatrix(rows.filter((row) => this.passes(row, ["predicted", "label"])));
    this.draw();
  }

  /** Return what a row is ordered by, the rows to look at first. */
  key(row) {
    return this.by === "lead" ? this.index.margin[row] : -this.signs(row).length;
  }

  /** Return the signs that a prediction needs a look. */
  signs(row) {
    const { disagree, margin, lowMargin } = this.index;
    return [this.wrong(row) && "other label", disagree[row] && "disagree", margin[row] < lowMargin && "barely"].filter(Boolean);
  }

  /** Return a heading that orders the rows by its column, and back. */
  heading(column) {
    const button = make("button", { type: "button", class: "order", "aria-pressed": String(this.by === column) },
      `${column}${this.by === column ? " ▲" : ""}`);
    button.addEventListener("click", () => {
      this.by = this.by === column ? "" : column;
      this.filter();
      document.querySelector(`#rows button.order[data-column="${column}"]`)?.focus();
    });
    button.dataset.column = column;
    return button;
  }

  turn(by) {
    this.first = Math.max(0, Math.min(this.first + by, Math.floor((this.rows.length - 1) / ROWS) * ROWS));
    this.draw();
  }

  /** Draw the hundred rows from `first`. */
  draw() {
    const last = Math.min(this.first + ROWS, this.rows.length);
    const index = this.index;
    const found = `${this.rows.length.toLocaleString("en")} of ${counted(index.nodes, "node")}`;
    document.getElementById("count").textContent = this.rows.length
      ? `${found}; rows ${(this.first + 1).toLocaleString("en")} to ${last.toLocaleString("en")}` : found;
    document.getElementById("before").disabled = this.first === 0;
    document.getElementById("after").disabled = last >= this.rows.length;
    const shown = table("Nodes that pass the filters",
      ["node", "model says", "label", this.heading("lead"), this.heading("look"), "verdict"],
      this.rows.slice(this.first, last).map((row) => this.cells(row)));
    shown.className = "wide";
    shown.caption.className = "unseen";
    document.getElementById("rows").replaceChildren(shown);
    this.mark();
  }

  cells(row) {
    const index = this.index;
    const pack = index.pack[row];
    const title = make("bdi", { class: "break" }, index.titles[row] || "(empty text)");
    const name = pack < 0 ? title : make("button", { type: "button", class: "node", "data-row": row }, title);
    if (pack >= 0) name.addEventListener("click", () => this.choose(row));
    const first = make("span", {}, name, make("small", { class: "soft id" }, make("bdi", {}, ...breakable(index.ids[row]))));
    const signs = this.signs(row);
    return [first, breakable(index.classes[index.predicted[row]]),
      index.label[row] < 0 ? "unknown" : this.wrong(row) ? breakable(index.classes[index.label[row]]) : "same",
      index.margin[row].toFixed(3),
      make("span", { class: signs.includes("other label") ? "bad" : null }, signs.join(", ")),
      make("span", { "data-verdict": pack < 0 ? null : index.digests[pack] },
        pack < 0 ? "" : wordOf(verdicts.get(index.digests[pack])))];
  }

  choose(row) {
    this.select(row);
    this.open(row);
  }

  select(row) {
    this.opened = row;
    this.current = this.rows.indexOf(row);
    this.mark();
  }

  /** Mark the row whose evidence is shown. */
  mark() {
    for (const button of document.querySelectorAll("#rows button.node")) {
      const here = Number(button.dataset.row) === this.opened;
      if (here) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    }
  }

  /** Open the next (by = 1) or the previous (-1) row that has evidence. */
  turnTo(by) {
    const place = this.nextPlace(this.current, by);
    if (place === undefined) return;
    this.page(place);
    this.choose(this.rows[place]);
  }

  /** Return the place of the next row that has evidence, after `place` in steps of `by`. */
  nextPlace(place, by) {
    for (place += by; place >= 0 && place < this.rows.length; place += by) {
      if (this.index.pack[this.rows[place]] >= 0) return place;
    }
    return undefined;
  }

  /** Move the focus by one row that has evidence, onto another hundred where need be. */
  step(by) {
    let place = this.current;
    const focused = document.activeElement && document.activeElement.dataset.row;
    if (focused !== undefined) place = this.rows.indexOf(Number(focused));
    else if (place < 0 && by < 0) return;
    place = this.nextPlace(place, by);
    if (place !== undefined) this.focus(place);
  }

  /** Draw the hundred rows that `place` is in. */
  page(place) {
    if (place < this.first || place >= this.first + ROWS) {
      this.first = Math.floor(place / ROWS) * ROWS;
      this.draw();
    }
  }

  focus(place) {
    this.current = place;
    this.page(place);
    const button = document.querySelector(`#rows button[data-row="${this.rows[place]}"]`);
    button.focus();
    button.scrollIntoView({ block: "nearest" });
  }

  /** Draw how often each class is predicted for each label, of rows that pass the other filters. */
  drawMatrix(rows) {
    const { classes, label, predicted } = this.index;
    const counts = classes.map(() => classes.map(() => 0));
    let known = 0;
    for (const row of rows) {
      if (label[row] >= 0) {
        counts[label[row]][predicted[row]] += 1;
        known += 1;
      }
    }
    const place = document.getElementById("matrix");
    if (!known) {
      place.replaceChildren(make("p", {}, "No label is known of these nodes."));
      return;
    }
    const heads = ["label \\ model says", ...classes.map((name, k) => make("span", { title: name }, `${k} ${name}`))];
    place.replaceChildren(table(`Labels by predicted class, ${counted(known, "node")}`, heads,
      counts.map((row, k) => [`${k} ${classes[k]}`,
        ...row.map((count, other) => (count ? this.cell(count, k, other) : "0"))])));
  }

  cell(count, label, predicted) {
    const { classes } = this.index;
    const chosen = this.fields.label.value === String(label) && this.fields.predicted.value === String(predicted);
    const button = make("button", { type: "button", "aria-pressed": String(chosen),
      class: label === predicted ? "cell right" : "cell",
      "aria-label": `${count} of label ${classes[label]} predicted ${classes[predicted]}` }, count.toLocaleString("en"));
    button.addEventListener("click", () => {
      this.fields.label.value = chosen ? "" : String(label);
      this.fields.predicted.value = chosen ? "" : String(predicted);
      this.filter();
      const again = [...document.querySelectorAll("#matrix button")]
        .find((one) => one.getAttribute("aria-label") === button.getAttribute("aria-label"));
      if (again) again.focus();
    });
    return button;
  }
}
