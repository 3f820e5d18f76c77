// The table of all points: sorted by a column, filtered under its head, some rows at a time; and the chosen point.
"use strict";

const ROWS = 25;

// What is typed under a head, as a test of a row; null where it filters nothing.
function testOf(column, typed) {
  const words = typed.trim().toLowerCase();
  if (!words) return null;
  const number = (text) => Number(text.replaceAll(",", ""));
  const compared = words.match(/^(<=|>=|<|>|=)\s*(-?[\d.,]+(?:e[+-]?\d+)?)\s*%?$/);
  if (compared) {
    const bound = number(compared[2]);
    const tests = { "<": (one) => one < bound, "<=": (one) => one <= bound, ">": (one) => one > bound, ">=": (one) => one >= bound, "=": (one) => one === bound };
    return (row) => tests[compared[1]](column.number(row));
  }
  const range = words.match(/^(-?[\d.,]+?)\s*(?:\.\.|to)\s*(-?[\d.,]+)$/);
  if (range) {
    const [low, high] = [number(range[1]), number(range[2])];
    return (row) => column.number(row) >= low && column.number(row) <= high;
  }
  if (words.startsWith("=")) return (row) => column.text(row).toLowerCase() === words.slice(1).trim();
  return (row) => column.text(row).toLowerCase().includes(words);
}

class Table {
  constructor(points, place) {
    Object.assign(this, { points, place });
    const index = { name: "index", title: "point", isNumber: false, text: (row) => points.name(row), number: (row) => points.data.index[row], rank: (row) => points.data.index[row] };
    const hasFailed = points.status.labels.some((label) => label !== "done");
    this.columns = [index, ...points.keys, ...points.measures, ...(hasFailed ? [points.status, points.sentence] : [])];
    this.hidden = new Set(points.measures.filter((measure) => !measure.first).map((measure) => measure.name));
    this.hasRuns = points.data.runs.some(Boolean);
    this.first = 0;
    this.build(place);
    this.sortBy(points.goal, points.goal.most);
  }

  build(place) {
    const find = make("input", { type: "search", className: "find", placeholder: "points with \u2026", "aria-label": "show points with this text anywhere", on: { input: () => this.find(find.value) } });
    this.finder = find;
    const boxes = this.columns.slice(1).map((column) => make("label", {}, make("input", { type: "checkbox", checked: !this.hidden.has(column.name), on: { change: () => this.toggle(column) } }), column.title));
    const columns = make("details", { className: "columns" }, make("summary", { textContent: "Columns" }), make("div", { className: "operations" }, ...boxes));
    this.detail = make("div", { className: "detail", "aria-live": "polite", hidden: true });
    this.table = make("table", { className: "points" });
    this.where = make("output");
    const turn = (words, by) => make("button", { type: "button", textContent: words, "data-turn": by, on: { click: () => this.turn(by) } });
    const pages = make("div", { className: "controls" }, make("span", { className: "buttons" }, turn("first", -Infinity), turn("\u2190", -1), turn("\u2192", 1), turn("last", Infinity)), this.where);
    place.append(make("div", { className: "controls" }, find), columns, this.detail, make("div", { className: "scroll" }, this.table), pages);
    this.heads();
  }

  seen() { return this.columns.filter((column) => !this.hidden.has(column.name)); }

  toggle(column) {
    if (!this.hidden.delete(column.name)) this.hidden.add(column.name);
    this.points.filters.delete(`words:${column.name}`); // its field is gone
    this.heads();
    this.points.changed();
  }

  heads() {
    const head = (column) => make("th", { scope: "col", className: column.isNumber ? "number" : "", "data-column": column.name, "aria-sort": "none" }, make("button", { type: "button", title: column.name, on: { click: () => this.press(column) } }, ...breakable(column.title)));
    const field = (column) => {
      const typed = make("input", { type: "search", "data-filter": column.name, "aria-label": `filter by ${column.title}`, on: { input: () => this.type(column, typed.value) } });
      return make("td", {}, typed);
    };
    const more = this.hasRuns ? [make("th", { scope: "col", textContent: "run" })] : [];
    this.body = make("tbody");
    this.table.replaceChildren(make("thead", {}, make("tr", {}, ...this.seen().map(head), ...more), make("tr", {}, ...this.seen().map(field))), this.body);
    this.say();
  }

  say() {
    for (const head of this.table.querySelectorAll("th[data-column]")) {
      const isIt = head.dataset.column === this.column?.name;
      head.setAttribute("aria-sort", isIt ? (this.down ? "descending" : "ascending") : "none");
    }
  }

  press(column) { this.sortBy(column, this.column === column ? !this.down : column.most === true); }

  // What is unknown is last, and equal ones are in the points' order.
  sortBy(column, down) {
    [this.column, this.down, this.first] = [column, down, 0];
    const ranks = Float64Array.from({ length: this.points.count }, (_, row) => column.rank(row));
    const sign = down ? -1 : 1;
    this.order = Array.from(ranks.keys()).sort((one, other) => {
      const [isOne, isOther] = [Number.isNaN(ranks[one]), Number.isNaN(ranks[other])];
      if (isOne || isOther) return isOne - isOther || one - other;
      return sign * (ranks[one] - ranks[other]) || one - other;
    });
    this.say();
    this.draw();
  }

  type(column, typed) {
    this.first = 0;
    this.points.filter(`words:${column.name}`, `${column.title}: ${typed.trim()}`, testOf(column, typed));
  }

  find(typed) {
    const words = typed.trim().toLowerCase();
    this.texts ??= Array.from({ length: this.points.count }, (_, row) => [...this.columns.filter((column) => !(column instanceof Measure)), this.points.status].map((column) => column.text(row)).join("\n").toLowerCase());
    this.first = 0;
    this.points.filter("find", `with: ${words}`, words ? (row) => this.texts[row].includes(words) : null);
  }

  turn(by) {
    const last = Math.floor(Math.max(0, this.rows.length - 1) / ROWS) * ROWS;
    this.first = Math.max(0, Math.min(last, Math.abs(by) === Infinity ? by : this.first + by * ROWS));
    this.draw();
  }

  show(changes) {
    if (changes.has("goal")) this.sortBy(this.points.goal, this.points.goal.most);
    if (changes.has("filter")) this.emptied();
    if (changes.has("chosen")) this.seek();
    if (changes.has("goal") || changes.has("filter") || changes.has("chosen")) this.draw();
    if (changes.has("chosen")) this.describe();
  }

  // Fields whose filter was taken away elsewhere are empty.
  emptied() {
    const { filters } = this.points;
    for (const field of this.table.querySelectorAll("[data-filter]")) if (!filters.has(`words:${field.dataset.filter}`)) field.value = "";
    if (!filters.has("find")) this.finder.value = "";
    this.first = 0;
  }

  seek() {
    const at = this.order.filter((row) => this.points.mask[row]).indexOf(this.points.chosen);
    if (at >= 0) this.first = Math.floor(at / ROWS) * ROWS;
  }

  draw() {
    const { points } = this;
    this.rows = this.order.filter((row) => points.mask[row]);
    const shown = this.rows.slice(this.first, this.first + ROWS);
    this.body.replaceChildren(...shown.map((row) => this.line(row)));
    const all = this.rows.length.toLocaleString("en");
    this.where.textContent = shown.length ? `${(this.first + 1).toLocaleString("en")} to ${(this.first + shown.length).toLocaleString("en")} of ${all}` : "no point is left";
  }

  line(row) {
    const { points } = this;
    const [, ...others] = this.seen();
    const choose = make("button", { type: "button", textContent: points.name(row), on: { click: () => points.choose(row) } });
    const cells = others.map((column) => {
      const words = column.text(row);
      return make("td", { className: column.isNumber ? "number" : "", textContent: cut(words, 60), title: words.length > 60 ? words : "" });
    });
    const href = points.data.runs[row];
    const link = href ? [make("a", { href, textContent: "run", "aria-label": `run of ${points.name(row)}` })] : [];
    if (this.hasRuns) cells.push(make("td", {}, ...link));
    return make("tr", { "data-row": row, className: row === points.chosen ? "chosen" : "" }, make("th", { scope: "row" }, choose), ...cells);
  }

  describe() {
    const { points } = this;
    const row = points.chosen;
    this.detail.hidden = row < 0;
    if (row < 0) return;
    const facts = [...points.keys, ...points.measures].filter((column) => column.text(row) !== "-").map((column) => make("span", {}, make("small", { textContent: `${column.title} ` }), column.text(row)));
    const parts = [make("h3", { textContent: points.name(row) }), make("p", {}, ...facts)];
    if (points.sentence.text(row)) parts.push(make("p", { textContent: `${points.status.text(row)}: ${points.sentence.text(row)}` }));
    parts.push(make("pre", { tabIndex: 0, textContent: points.command(row) }));
    if (points.data.runs[row]) parts.push(make("p", {}, make("a", { href: points.data.runs[row], textContent: "its run" })));
    this.detail.replaceChildren(...parts);
  }
}
