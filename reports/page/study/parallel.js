// Parallel coordinates: a line for each point on a canvas, under axes that filter by a drag or by keys.
"use strict";

const TOP = 46, BOTTOM = 14, HEIGHT = 420, LEAST_GAP = 104;
// Of the room between two values, what the lines through one may take.
const SPREAD = 0.62;

// A colour from the worst to the best; the first ones are hardly seen on the page's ground.
function shade(scheme, quality) {
  const colors = scheme.sequential;
  return colors[Math.round(10 + (colors.length - 11) * quality)];
}

function inkOn(color) {
  const [red, green, blue] = [1, 3, 5].map((at) => Number.parseInt(color.slice(at, at + 2), 16));
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#14181d" : "#ffffff";
}

class Axis {
  constructor(points, column) {
    Object.assign(this, { points, column });
    this.ends = column.isNumber ? this.endsOf() : [];
    this.element = make("div", {
      className: "axis", tabIndex: 0, role: "group", "data-axis": column.name, "aria-label": `${column.title}: filter by arrow keys`,
      on: { pointerdown: (event) => this.down(event), keydown: (event) => this.key(event) },
    });
    this.brush = make("div", { className: "brush", hidden: true });
    const title = make("span", { className: "title", textContent: cut(column.axisTitle ?? column.title, 24), title: column.name });
    this.element.append(title, make("i"), ...this.marks(), this.brush);
  }

  // From 0, above, to 1, below.
  placeOf(row) {
    return this.column.isNumber ? this.placeOfValue(this.column.values[row]) : this.placeOfCode(this.column.codes[row]);
  }

  placeOfCode(code) { return 1 - (code + 0.5) / this.column.labels.length; }

  placeOfValue(value) {
    const [low, high] = this.ends;
    const share = high > low ? (this.column.scaled(value) - low) / (high - low) : 0.5;
    return this.column.most ? 1 - share : share;
  }

  endsOf() {
    let [low, high] = [Infinity, -Infinity];
    for (const row of this.points.data.out) {
      const value = this.column.values[row];
      if (value < low) low = value;
      if (value > high) high = value;
    }
    return [this.column.scaled(low), this.column.scaled(high)];
  }

  valueAt(place) {
    const [low, high] = this.ends;
    return this.column.unscaled(low + (this.column.most ? 1 - place : place) * (high - low));
  }

  marks() {
    const at = (place, words) => make("small", { textContent: cut(words, 16), title: words, style: `top: ${TOP + place * (HEIGHT - TOP - BOTTOM)}px` });
    if (this.column.isNumber) return [0, 0.25, 0.5, 0.75, 1].map((place) => at(place, written(this.valueAt(place))));
    const every = Math.ceil(this.column.labels.length / 14);
    return this.column.labels.flatMap((label, code) => (code % every ? [] : [at(this.placeOfCode(code), label)]));
  }

  shareAt(event) {
    const box = this.element.getBoundingClientRect();
    return Math.max(0, Math.min(1, (event.clientY - box.top - TOP) / (HEIGHT - TOP - BOTTOM)));
  }

  down(event) {
    const from = this.shareAt(event);
    let isDrag = false;
    this.element.setPointerCapture(event.pointerId);
    const move = (next) => {
      const to = this.shareAt(next);
      isDrag ||= Math.abs(to - from) > 0.012;
      if (isDrag) this.filter(Math.min(from, to), Math.max(from, to));
    };
    const up = () => {
      this.element.removeEventListener("pointermove", move);
      if (!isDrag) this.filter();
    };
    this.element.addEventListener("pointermove", move);
    this.element.addEventListener("pointerup", up, { once: true });
  }

  // Only what lies between two places; without them, all.
  filter(from, to) {
    const { column, points } = this;
    if (from === undefined) return column.isNumber ? points.filterRange(column, null) : points.filterValues(column, null);
    if (column.isNumber) return points.filterRange(column, [this.valueAt(from), this.valueAt(to)].sort((one, other) => one - other));
    const codes = column.labels.map((_, code) => code);
    const half = 0.5 / codes.length;
    const wanted = codes.filter((code) => this.placeOfCode(code) + half * 0.8 > from && this.placeOfCode(code) - half * 0.8 < to);
    return wanted.length ? points.filterValues(column, wanted) : undefined;
  }

  // What the filter leaves, as places; the whole axis without one.
  window() {
    const { column, points } = this;
    if (column.isNumber) {
      const range = points.chosenRange(column);
      return range ? range.map((value) => this.placeOfValue(value)).sort((one, other) => one - other) : [0, 1];
    }
    const codes = points.chosenValues(column);
    if (!codes) return [0, 1];
    const half = 0.5 / column.labels.length;
    return [this.placeOfCode(Math.max(...codes)) - half, this.placeOfCode(Math.min(...codes)) + half];
  }

  key(event) {
    if (event.key === "Escape") this.filter();
    const direction = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!direction) return;
    event.preventDefault();
    const step = direction / (this.column.isNumber ? 20 : this.column.labels.length);
    let [from, to] = this.window();
    if (event.shiftKey) to += step;
    else from += step;
    [from, to] = [Math.max(0, from), Math.min(1, to)];
    if (to - from > 1e-6) this.filter(from + 1e-9, to - 1e-9);
  }

  show() {
    const [from, to] = this.window();
    this.brush.hidden = from <= 1e-9 && to >= 1 - 1e-9;
    const length = HEIGHT - TOP - BOTTOM;
    this.brush.style.top = `${TOP + from * length}px`;
    this.brush.style.height = `${(to - from) * length}px`;
  }
}

class Parallel {
  constructor(points, place) {
    this.points = points;
    this.axes = [...points.keys, ...points.goals].map((column) => new Axis(points, column));
    this.canvas = make("canvas");
    this.box = make("div", { className: "parallel", style: `min-width: ${this.axes.length * LEAST_GAP}px; height: ${HEIGHT}px` }, this.canvas, ...this.axes.map((axis) => axis.element));
    place.append(make("div", { className: "scroll" }, this.box));
    new ResizeObserver(() => this.draw()).observe(this.box);
  }

  show(changes) {
    if (changes.has("goal")) this.places = null;
    for (const axis of this.axes) axis.show();
    this.draw();
  }

  // Where each point crosses each axis, in pixels; within a value by the point's place in the order of the goal.
  placesOf() {
    const { points, axes } = this;
    const length = HEIGHT - TOP - BOTTOM;
    const room = axes.map((axis) => (axis.column.isNumber ? 0 : SPREAD / axis.column.labels.length));
    return axes.map((axis, at) => Float32Array.from({ length: points.count }, (_, row) => TOP + (axis.placeOf(row) + room[at] * (0.5 - points.quality[row])) * length));
  }

  draw() {
    const { points, canvas } = this;
    if (!points.scheme) return;
    const width = this.box.clientWidth;
    const density = Math.min(2, devicePixelRatio);
    if (canvas.width !== width * density) [canvas.width, canvas.height] = [width * density, HEIGHT * density];
    this.places ??= this.placesOf();
    const gap = width / this.axes.length;
    this.x = this.axes.map((axis, at) => {
      axis.element.style.left = `${(at + 0.5) * gap}px`;
      return (at + 0.5) * gap;
    });
    const context = canvas.getContext("2d");
    context.setTransform(density, 0, 0, density, 0, 0);
    context.clearRect(0, 0, width, HEIGHT);
    this.lines(context);
    this.marked(context);
  }

  // The better a point, the later it is drawn.
  lines(context) {
    const { points } = this;
    const shown = points.goal.most ? points.shown : points.shown.reverse();
    context.lineWidth = 1;
    context.globalAlpha = Math.max(0.25, Math.min(1, 300 / Math.max(1, shown.length)));
    for (const row of shown) {
      context.strokeStyle = shade(points.scheme, points.quality[row]);
      this.line(context, row);
    }
  }

  line(context, row) {
    context.beginPath();
    this.x.forEach((x, at) => (at ? context.lineTo(x, this.places[at][row]) : context.moveTo(x, this.places[at][row])));
    context.stroke();
  }

  marked(context) {
    const { points } = this;
    context.globalAlpha = 1;
    context.strokeStyle = points.scheme.ink;
    const dashes = { best: [], knee: [7, 4], baseline: [2, 3] };
    for (const [row, [name]] of points.names) {
      context.lineWidth = 1.6;
      context.setLineDash(dashes[name]);
      if (points.mask[row]) this.line(context, row);
    }
    context.setLineDash([]);
    context.lineWidth = 3;
    if (points.chosen >= 0) this.line(context, points.chosen);
  }
}
