// Keys against the goal: what each value of a key comes to, and a heat map of two keys.
"use strict";

const medianOf = (sorted) => {
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
};

// The goal's values of points, each list from the least to the most, by a number that each point has.
function collected(points, count, place) {
  const found = Array.from({ length: count }, () => []);
  for (const row of points.shown) found[place(row)].push(points.goal.values[row]);
  return found;
}

const codesOf = (key, group) => key.labels.map((_, code) => code).filter((code) => key.group[code] === group);

class Levels {
  constructor(points, place) {
    Object.assign(this, { points, place });
    place.classList.add("levels");
    this.order();
  }

  // The keys with the most effect first: from the worst to the best median of a value.
  order() {
    const effect = (key) => {
      const medians = collected(this.points, key.groups.length, (row) => key.group[key.codes[row]]).filter((one) => one.length).map(medianOf);
      return medians.length ? Math.max(...medians) - Math.min(...medians) : 0;
    };
    this.keys = this.points.keys.map((key) => [effect(key), key]).sort(([one], [other]) => other - one).map(([, key]) => key);
  }

  // The key with the most effect, and the next one that is not varied together with it: half of all pairs are there.
  pair() {
    const [first, ...others] = this.keys;
    const isFull = (key) => {
      const pairs = new Set(this.points.shown.map((row) => first.group[first.codes[row]] * key.groups.length + key.group[key.codes[row]]));
      return pairs.size >= 0.5 * first.groups.length * key.groups.length;
    };
    return [first, others.find(isFull) ?? others[0]];
  }

  show(changes) {
    if (!changes.has("goal") && !changes.has("filter")) return;
    const { points } = this;
    const values = points.shown.map((row) => points.goal.scaled(points.goal.values[row]));
    const [low, high] = [values[0], values[values.length - 1]];
    const share = (value) => (high > low ? (100 * (points.goal.scaled(value) - low)) / (high - low) : 50);
    this.place.replaceChildren(...this.keys.map((key) => this.chart(key, share)));
  }

  chart(key, share) {
    const lists = collected(this.points, key.groups.length, (row) => key.group[key.codes[row]]);
    const chosen = this.points.chosenValues(key);
    const rows = lists.map((list, group) => {
      const codes = codesOf(key, group);
      const button = make("button", {
        type: "button", textContent: cut(key.groups[group], 28), title: key.groups[group],
        "aria-pressed": String(Boolean(chosen) && codes.every((code) => chosen.has(code))),
        on: { click: () => this.press(key, codes) },
      });
      const bar = make("td", { className: "range" });
      const row = make("tr", { "data-value": key.groups[group], "data-count": list.length }, make("th", { scope: "row" }, button), bar);
      if (!list.length) return [row, row.append(make("td", { className: "number", textContent: "-" }))][0];
      const median = medianOf(list);
      const [from, to] = [share(list[0]), share(list[list.length - 1])];
      bar.append(make("i", { style: `left: ${from}%; width: ${to - from}%` }), make("b", { style: `left: ${share(median)}%` }));
      bar.title = `${written(list[0])} to ${written(list[list.length - 1])}, ${list.length.toLocaleString("en")} points`;
      row.setAttribute("data-median", median);
      row.append(make("td", { className: "number", textContent: written(median) }));
      return row;
    });
    const head = make("caption", { title: key.name }, make("strong", {}, ...breakable(key.title)), ` ${this.points.goal.axisTitle}`);
    return make("table", { "data-key": key.name }, head, make("tbody", {}, ...rows));
  }

  // Takes values into the filter, or out of it; out of the last ones: no filter.
  press(key, codes) {
    const chosen = new Set(this.points.chosenValues(key) ?? []);
    const isIn = codes.every((code) => chosen.has(code));
    for (const code of codes) isIn ? chosen.delete(code) : chosen.add(code);
    this.points.filterValues(key, chosen.size ? chosen : null);
  }
}

class Pair {
  constructor(points, place, first) {
    Object.assign(this, { points, place });
    this.selects = first.map((key, at) => selectOf(["rows", "columns"][at], points.keys, key, () => this.draw()));
    this.of = make("select", { name: "of", on: { change: () => this.draw() } }, new Option("best", "best"), new Option("median", "median"));
    this.table = make("table", { className: "heat" });
    const words = [...this.selects.map(({ label }) => label), make("label", {}, "square: ", this.of)];
    place.append(make("div", { className: "controls" }, ...words), make("div", { className: "scroll", tabIndex: 0 }, this.table));
  }

  show(changes) {
    if (changes.has("goal") || changes.has("filter") || changes.has("scheme")) this.draw();
  }

  draw() {
    const { points } = this;
    const [across, along] = this.selects.map(({ chosen }) => chosen());
    const width = along.groups.length;
    const lists = collected(points, across.groups.length * width, (row) => across.group[across.codes[row]] * width + along.group[along.codes[row]]);
    const best = (list) => (points.goal.most ? list[list.length - 1] : list[0]);
    const values = lists.map((list) => (list.length ? (this.of.value === "best" ? best(list) : medianOf(list)) : NaN));
    const known = values.filter((value) => !Number.isNaN(value));
    const [low, high] = [Math.min(...known), Math.max(...known)].map((value) => points.goal.scaled(value));
    const share = (value) => (high > low ? (points.goal.scaled(value) - low) / (high - low) : 1);
    const quality = (value) => (points.goal.most ? share(value) : 1 - share(value));
    const head = along.groups.map((title) => make("th", { scope: "col", textContent: cut(title, 18), title }));
    const rows = across.groups.map((title, at) => {
      const squares = values.slice(at * width, (at + 1) * width).map((value, to) => this.square(value, quality(value), lists[at * width + to].length, [[across, at], [along, to]]));
      return make("tr", {}, make("th", { scope: "row", textContent: cut(title, 28), title }), ...squares);
    });
    const caption = make("caption", {}, `${this.of.value} ${points.goal.title}; rows: ${across.title}, columns: ${along.title}`);
    this.table.replaceChildren(caption, make("thead", {}, make("tr", {}, make("td"), ...head)), make("tbody", {}, ...rows));
  }

  square(value, quality, count, places) {
    const words = places.map(([key, group]) => key.groups[group]);
    const square = make("td", { "data-row": words[0], "data-column": words[1] });
    if (Number.isNaN(value)) return square;
    const color = shade(this.points.scheme, quality);
    square.setAttribute("data-number", value);
    square.append(make("button", {
      type: "button", textContent: written(value), style: `background: ${color}; color: ${inkOn(color)}`,
      title: `${places.map(([key, group]) => `${key.title} ${key.groups[group]}`).join(", ")}: ${count.toLocaleString("en")} points`,
      on: { click: () => { for (const [key, group] of places) this.points.filterValues(key, codesOf(key, group)); } },
    }));
    return square;
  }
}
