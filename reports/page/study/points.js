// The points of a study: their columns, what filters them, and who shows those that are left.
"use strict";

// An element; attributes are properties, but for those with a dash, and `on` has its listeners.
function make(tag, { on = {}, ...properties } = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-")) element.setAttribute(name, value);
    else element[name] = value;
  }
  for (const [name, listener] of Object.entries(on)) element.addEventListener(name, listener);
  element.append(...children);
  return element;
}

// To four digits, whole where it is large, as the page's other numbers.
function written(value) {
  if (Number.isNaN(value)) return "-";
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(4)));
}

const leastOf = (values) => values.reduce((one, other) => Math.min(one, other), Infinity);
const greatestOf = (values) => values.reduce((one, other) => Math.max(one, other), -Infinity);

// A measure whose greatest number is more than so many times its least is shown on powers of ten.
const SKEWED = 30;

const cut = (words, most) => (words.length <= most ? words : `${words.slice(0, most - 1)}\u2026`);

// Words that may break after each point and underscore, as keys do.
const breakable = (words) => words.split(/(?<=[._])/).flatMap((part, at) => (at ? [make("wbr"), part] : [part]));

// A column whose rows have one of a few texts: a varied key, or a status.
class Labelled {
  constructor({ name, title, labels, codes, groups = [], group = [], options = [] }) {
    Object.assign(this, { name, title, labels, codes, groups, group, options });
    this.isNumber = false;
    this.numbers = labels.map((label) => Number.parseFloat(label));
    // Texts that begin with no number are in their own order.
    this.ranks = this.numbers.some(Number.isFinite) ? this.numbers : labels.map((_, code) => code);
  }

  text(row) { return this.labels[this.codes[row]]; }
  number(row) { return this.numbers[this.codes[row]]; }
  rank(row) { return this.ranks[this.codes[row]]; }
}

class Measure {
  constructor({ name, title, most, first, values }) {
    Object.assign(this, { name, title, most, first });
    this.isNumber = true;
    this.values = Float64Array.from(values, (value) => value ?? NaN);
    const known = this.values.filter((value) => !Number.isNaN(value));
    const [least, greatest] = [leastOf(known), greatestOf(known)];
    this.isLog = least > 0 && greatest > SKEWED * least;
    this.axisTitle = this.isLog ? `${title} (log)` : title;
  }

  // As charts place it: powers of ten where numbers differ by much.
  scaled(value) { return this.isLog ? Math.log10(value) : value; }
  unscaled(place) { return this.isLog ? 10 ** place : place; }

  text(row) { return written(this.values[row]); }
  number(row) { return this.values[row]; }
  rank(row) { return this.values[row]; }
}

function isInSight(place) {
  const { top, bottom } = place.getBoundingClientRect();
  return bottom > 0 && top < innerHeight;
}

class Points {
  constructor(data) {
    this.data = data;
    this.count = data.index.length;
    this.keys = data.keys.map((key) => new Labelled(key));
    this.measures = data.measures.map((measure) => new Measure(measure));
    this.rated = this.measures.filter((measure) => measure.most !== null);
    this.goals = data.goals.map((name) => this.measures.find((measure) => measure.name === name));
    this.status = new Labelled({ name: "status", title: "status", ...data.texts.status });
    this.sentence = new Labelled({ name: "sentence", title: "sentence", ...data.texts.sentence });
    this.names = new Map();
    for (const [name, row] of Object.entries(data.named)) this.names.set(row, [...(this.names.get(row) ?? []), name]);
    this.filters = new Map(); // by an id of its own: {words, holds(row)}
    this.mask = new Uint8Array(this.count).fill(1);
    this.views = [];
    this.chosen = -1;
    this.rateBy(this.goals[0]);
  }

  // Points that came out, by this measure: `ordered` from the least to the most, `quality` from 0, the worst, to 1.
  rateBy(goal) {
    this.goal = goal;
    this.ordered = this.data.out.filter((row) => !Number.isNaN(goal.values[row]));
    this.ordered.sort((one, other) => goal.values[one] - goal.values[other] || one - other);
    this.quality = new Float64Array(this.count);
    const last = Math.max(1, this.ordered.length - 1);
    this.ordered.forEach((row, at) => { this.quality[row] = goal.most ? at / last : 1 - at / last; });
  }

  // Those of `ordered` that no filter leaves out.
  get shown() { return this.ordered.filter((row) => this.mask[row]); }

  name(row) { return `#${this.data.index[row]}${this.names.has(row) ? ` ${this.names.get(row).join(", ")}` : ""}`; }

  words(row) {
    const parts = [...this.keys, ...this.goals].map((column) => `${column.title} ${cut(column.text(row), 40)}`);
    return `${this.name(row)}: ${parts.join("; ")}`;
  }

  // The command that predicts it. What the baseline has is the scenario's own.
  command(row) {
    const { labels, codes } = this.data.commands;
    const options = row === this.data.named.baseline ? [] : this.keys.map((key) => key.options[key.codes[row]]);
    return [labels[codes[row]], ...options.filter(Boolean)].join(" ");
  }

  filter(id, words, holds) {
    if (holds) this.filters.set(id, { words, holds });
    else this.filters.delete(id);
    this.changed();
  }

  // Only points with these values of a key; all of them, or null: no filter.
  filterValues(key, codes) {
    const wanted = codes && new Set(codes);
    const isAll = !wanted || wanted.size === key.labels.length;
    const first = isAll ? "" : key.labels.filter((_, code) => wanted.has(code));
    const words = isAll ? "" : `${key.title}: ${cut(first.length > 3 ? `${first.length} values` : first.join(", "), 40)}`;
    this.filter(`values:${key.name}`, words, isAll ? null : (row) => wanted.has(key.codes[row]));
    if (!isAll) this.filters.get(`values:${key.name}`).codes = wanted;
  }

  // Only points whose measure lies between these.
  filterRange(measure, range) {
    const [low, high] = range ?? [];
    const words = range ? `${measure.title}: ${written(low)} to ${written(high)}` : "";
    this.filter(`range:${measure.name}`, words, range && ((row) => measure.values[row] >= low && measure.values[row] <= high));
    if (range) this.filters.get(`range:${measure.name}`).range = range;
  }

  chosenValues(key) { return this.filters.get(`values:${key.name}`)?.codes; }
  chosenRange(measure) { return this.filters.get(`range:${measure.name}`)?.range; }

  clear(id) {
    if (id === undefined) this.filters.clear();
    else this.filters.delete(id);
    this.changed();
  }

  changed() {
    const tests = [...this.filters.values()].map((filter) => filter.holds);
    for (let row = 0; row < this.count; row++) this.mask[row] = tests.every((holds) => holds(row)) ? 1 : 0;
    this.show("filter");
  }

  // Views in sight are drawn with the next frame, once, whatever has changed until then: "goal", "filter", "scheme" or
  // "chosen". Others are drawn when nothing has changed for a moment, so that a drag is quick.
  show(what) {
    if (!this.pending) {
      this.pending = new Set();
      requestAnimationFrame(() => {
        const changes = this.pending;
        this.pending = null;
        for (const view of this.views) view.missed = new Set([...(view.missed ?? []), ...changes]);
        this.draw(this.views.filter((view) => isInSight(view.place)));
        clearTimeout(this.later);
        this.later = setTimeout(() => this.draw(this.views), 100);
      });
    }
    this.pending.add(what);
  }

  draw(views) {
    for (const view of views.filter(({ missed }) => missed?.size)) {
      view.show(view.missed);
      view.missed = null;
    }
  }

  choose(row) {
    this.chosen = row;
    this.show("chosen");
  }
}
