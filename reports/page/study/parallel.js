// Parallel coordinates: a line for each point on a canvas, under axes that filter by a drag or by keys.
"use strict";

const TOP = 62, BOTTOM = 14, HEIGHT = 436, LEAST_GAP = 104;
// Of the room between two values, what the lines through one may take.
const SPREAD = 0.62;
const AT_ONCE = 300;
const ROUNDED = 1e-9; // what a value may lose on its way to a place and back

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
    const title = make("span", { className: "title", title: column.name }, ...breakable(column.axisTitle ?? column.title));
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
    const values = this.points.data.out.map((row) => this.column.values[row]).filter((value) => !Number.isNaN(value));
    return [leastOf(values), greatestOf(values)].map((value) => this.column.scaled(value));
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
    this.element.addEventListener("lostpointercapture", up, { once: true });
  }

  // Only what lies between two places; without them, all.
  filter(from, to) {
    const { column, points } = this;
    if (from === undefined) return column.isNumber ? points.filterRange(column, null) : points.filterValues(column, null);
    if (column.isNumber) {
      const [low, high] = [this.valueAt(from), this.valueAt(to)].sort((one, other) => one - other);
      return points.filterRange(column, [low - Math.abs(low) * ROUNDED, high + Math.abs(high) * ROUNDED]);
    }
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
    Object.assign(this, { points, place });
    this.axes = [...points.keys, ...points.goals].map((column) => new Axis(points, column));
    this.canvases = [make("canvas"), make("canvas")]; // of all lines, and of those that are marked
    this.box = make("div", { className: "parallel", style: `min-width: ${this.axes.length * LEAST_GAP}px; height: ${HEIGHT}px` }, ...this.canvases, ...this.axes.map((axis) => axis.element));
    place.append(make("div", { className: "scroll" }, this.box));
    new ResizeObserver(() => this.draw()).observe(this.box);
  }

  show(changes) {
    if (changes.has("goal")) this.places = null;
    for (const axis of this.axes) axis.show();
    if (changes.size > 1 || !changes.has("chosen")) this.draw();
    else this.mark(this.cleared(1));
  }

  // Where each point crosses each axis, in pixels; within a value by the point's place in the order of the goal.
  placesOf() {
    const { points, axes } = this;
    const length = HEIGHT - TOP - BOTTOM;
    const room = axes.map((axis) => (axis.column.isNumber ? 0 : SPREAD / axis.column.labels.length));
    return axes.map((axis, at) => Float32Array.from({ length: points.count }, (_, row) => TOP + (axis.placeOf(row) + room[at] * (0.5 - points.quality[row])) * length));
  }

  draw() {
    if (!this.points.scheme) return;
    this.places ??= this.placesOf();
    const gap = this.box.clientWidth / this.axes.length;
    this.x = this.axes.map((axis, at) => (at + 0.5) * gap);
    this.axes.forEach((axis, at) => { axis.element.style.left = `${this.x[at]}px`; });
    const [context, marks] = [0, 1].map((number) => this.cleared(number));
    this.lines(context);
    this.mark(marks);
  }

  cleared(number) {
    const canvas = this.canvases[number];
    const density = Math.min(2, devicePixelRatio);
    [canvas.width, canvas.height] = [this.box.clientWidth * density, HEIGHT * density]; // this clears it
    const context = canvas.getContext("2d");
    context.scale(density, density);
    return context;
  }

  // The better a point, the higher it lies. The best are drawn at once, and with each frame some others under them.
  lines(context) {
    const { points } = this;
    const left = points.goal.most ? points.shown.reverse() : points.shown;
    context.globalCompositeOperation = "destination-over";
    context.globalAlpha = Math.max(0.25, Math.min(1, 300 / Math.max(1, left.length)));
    const drawing = (this.drawing = {});
    const some = () => {
      if (this.drawing !== drawing) return;
      for (const row of left.splice(0, AT_ONCE)) {
        context.strokeStyle = shade(points.scheme, points.quality[row]);
        this.line(context, row);
      }
      if (left.length) requestAnimationFrame(some);
    };
    some();
  }

  line(context, row) {
    context.beginPath();
    this.x.forEach((x, at) => (at ? context.lineTo(x, this.places[at][row]) : context.moveTo(x, this.places[at][row])));
    context.stroke();
  }

  mark(context) {
    const { points } = this;
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
