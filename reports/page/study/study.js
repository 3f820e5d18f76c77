// Sets up a study's page: the bar that stays in sight, the Pareto front in Bokeh's figure, and all other views.
"use strict";

// A select of columns, with its label; `chosen()` is the column.
function selectOf(title, columns, first, changed) {
  const options = columns.map((column) => new Option(column.title, column.name, false, column === first));
  const select = make("select", { name: title, on: { change: changed } }, ...options);
  return { label: make("label", {}, `${title}: `, select), select, chosen: () => columns[select.selectedIndex] };
}

class Bar {
  constructor(points) {
    this.points = points;
    this.goal = selectOf("goal", points.rated, points.goal, () => {
      points.rateBy(this.goal.chosen());
      points.show("goal");
    });
    this.count = make("output", { className: "count" });
    this.filters = make("span", { className: "buttons" });
    this.chosen = make("a", { href: "#points", hidden: true });
    this.place = make("div", { className: "bar", role: "region", "aria-label": "goal and filters" }, this.goal.label, this.count, this.filters, this.chosen);
    document.querySelector("main").prepend(this.place);
  }

  show() {
    const { points } = this;
    const left = points.mask.reduce((sum, one) => sum + one, 0);
    this.count.textContent = `${left.toLocaleString("en")} of ${points.count.toLocaleString("en")} points`;
    const button = (words, id) => make("button", { type: "button", textContent: `${words} \u00d7`, "aria-label": `without the filter ${words}`, on: { click: () => points.clear(id) } });
    const each = [...points.filters].map(([id, { words }]) => button(words, id));
    this.filters.replaceChildren(...each, ...(each.length > 1 ? [button("all filters")] : []));
    this.chosen.hidden = points.chosen < 0;
    if (points.chosen >= 0) this.chosen.textContent = `${points.name(points.chosen)} in the table`;
  }
}

class Front {
  constructor(points, place) {
    Object.assign(this, { points, place: place.closest("section") });
    const { document: figure } = [...Bokeh.index].map((view) => view.model).find((model) => model.document.get_model_by_name("front-points"));
    [this.source, this.bold, this.faint, this.line, this.named, this.xAxis, this.yAxis] = ["points", "shown", "faint", "line", "named", "x", "y"].map((name) => figure.get_model_by_name(`front-${name}`));
    const first = points.data.front.map((name) => points.rated.find((measure) => measure.name === name));
    this.selects = first.map((measure, at) => selectOf(["x", "y"][at], points.rated, measure, () => this.fill()));
    this.count = make("output");
    place.append(make("div", { className: "controls" }, ...this.selects.map(({ label }) => label), this.count));
    this.source.selected.properties.indices.change.connect(() => this.pressed());
    this.fill();
  }

  // Points as they lie by the two measures.
  fill() {
    const { points } = this;
    [this.x, this.y] = this.selects.map(({ chosen }) => chosen());
    const rows = points.data.out;
    this.words ??= rows.map((row) => points.words(row).replaceAll("&", "&amp;").replaceAll("<", "&lt;"));
    this.source.data = this.places(rows, this.words);
    [this.xAxis.axis_label, this.yAxis.axis_label] = [this.x.axisTitle, this.y.axisTitle];
    this.named.data = this.labels();
    this.filtered();
  }

  // Names to the side where there is room; the knee's, which is near the best, a line lower.
  labels() {
    const { points } = this;
    const rows = [...points.names.keys()];
    const found = this.places(rows, rows.map((row) => points.names.get(row).join(", ")));
    const all = this.source.data.x.filter((x) => !Number.isNaN(x));
    const middle = (leastOf(all) + greatestOf(all)) / 2;
    const align = found.x.map((x) => (x > middle ? "right" : "left"));
    const dy = rows.map((row) => (points.names.get(row)[0] === "knee" ? 22 : 5));
    return { ...found, align, dx: align.map((side) => (side === "right" ? -10 : 10)), dy };
  }

  places(rows, words) {
    const of = (measure) => rows.map((row) => measure.scaled(measure.values[row]));
    return { x: of(this.x), y: of(this.y), words };
  }

  // A mark of an axis; Bokeh's own know neither powers of ten of ours nor our numbers.
  tick(axis, place) { return written(this[axis].unscaled(place)); }

  filtered() {
    const { points } = this;
    const places = points.data.out.map((_, at) => at);
    this.bold.indices = places.filter((at) => points.mask[points.data.out[at]]);
    this.faint.indices = places.filter((at) => !points.mask[points.data.out[at]]);
    const front = this.frontOf();
    const { x, y } = this.places(front);
    this.line.data = { x, y };
    this.count.textContent = `${front.length.toLocaleString("en")} on the front`;
  }

  // By x, the best first, each is better in y than all before it.
  frontOf() {
    const cost = (measure, row) => (measure.most ? -measure.values[row] : measure.values[row]);
    const known = this.points.data.out.filter((row) => this.points.mask[row] && !Number.isNaN(this.x.values[row] + this.y.values[row]));
    known.sort((one, other) => cost(this.x, one) - cost(this.x, other) || cost(this.y, one) - cost(this.y, other) || one - other);
    let least = Infinity;
    return known.filter((row) => cost(this.y, row) < least && ((least = cost(this.y, row)), true));
  }

  pressed() {
    const [at] = this.source.selected.indices;
    if (at !== undefined && this.points.data.out[at] !== this.points.chosen) this.points.choose(this.points.data.out[at]);
  }

  show(changes) {
    if (changes.has("filter")) this.filtered();
    if (changes.has("chosen")) {
      const at = this.points.data.out.indexOf(this.points.chosen);
      this.source.selected.indices = at < 0 ? [] : [at];
    }
  }
}

// Once charts are drawn, and whenever light and dark change.
document.addEventListener("dressed", ({ detail }) => {
  const data = document.getElementById("own-data");
  if (!data) return;
  if (!window.study) {
    const points = new Points(JSON.parse(data.textContent));
    const place = (name) => document.querySelector(`[data-view="${name}"]`);
    window.study = points;
    points.scheme = detail;
    points.views.push(new Bar(points), new Table(points, place("table")));
    if (place("axes")) {
      const levels = new Levels(points, place("levels"));
      points.front = new Front(points, place("axes"));
      points.views.push(points.front, new Parallel(points, place("parallel")), levels);
      if (place("pair")) points.views.push(new Pair(points, place("pair"), levels.pair()));
    }
    points.show("filter");
  }
  window.study.scheme = detail;
  window.study.show("scheme");
});
