// Draws the page's charts, follows light and dark, and works the controls of timelines.
"use strict";
(() => {
  const schemes = JSON.parse(document.getElementById("schemes").textContent);
  const isDark = matchMedia("(prefers-color-scheme: dark)");
  const views = new Map();
  let isPrinting = false;

  function dress(model, scheme) {
    for (const tag of model.tags ?? []) {
      const [color, property] = String(tag).split(":");
      if (property && scheme[color]) model[property] = scheme[color];
      else if (tag === "sequential") model.palette = scheme.sequential;
    }
    if (model.type.endsWith("Axis")) {
      model.axis_line_color = scheme.grid;
      model.major_label_text_color = model.axis_label_text_color = scheme.muted;
    } else if (model.type === "Grid") {
      model.grid_line_color = scheme.grid;
    } else if (model.type === "Legend") {
      model.label_text_color = scheme.muted;
    }
  }

  function dressAll() {
    const scheme = isDark.matches && !isPrinting ? schemes.dark : schemes.light;
    for (const view of views.values()) view.model.document.all_models.forEach((model) => dress(model, scheme));
    document.dispatchEvent(new CustomEvent("dressed", { detail: scheme })); // for a page's own scripts
  }

  async function draw(place) {
    const name = place.dataset.chart;
    const item = JSON.parse(document.querySelector(`[data-item="${CSS.escape(name)}"]`).textContent);
    const found = await Bokeh.embed.embed_item(item, place);
    const view = found.roots ? found.roots[0] : [...found][0];
    views.set(name, view);
    // A drag on a touch screen is for the page.
    if (matchMedia("(pointer: coarse)").matches && view.model.toolbar) view.model.toolbar.active_drag = null;
  }

  class Timeline {
    constructor(figure) {
      this.figure = figure;
      this.plot = views.get(figure.dataset.timeline).model;
      this.range = this.plot.x_range;
      this.whole = [this.range.start, this.range.end];
      this.source = this.plot.document.get_model_by_name("spans");
      this.filter = this.plot.document.get_model_by_name("shown");
      this.boxes = [...figure.querySelectorAll("[data-operation]")];
      this.window = figure.querySelector(".window");
      this.count = figure.querySelector(".count");
      this.listen();
      this.go(this.first());
      this.show();
    }

    listen() {
      for (const button of this.figure.querySelectorAll("button")) button.addEventListener("click", () => this.press(button.dataset));
      for (const box of this.boxes) box.addEventListener("change", () => this.show());
      this.figure.querySelector(".find").addEventListener("input", (event) => this.find(event.target.value));
      this.range.properties.start.change.connect(() => this.say());
      this.range.properties.end.change.connect(() => this.say());
    }

    first() {
      const place = this.figure.querySelector("[data-from]");
      return place ? [Number(place.dataset.from), Number(place.dataset.until)] : this.whole;
    }

    press(data) {
      const [from, until] = [this.range.start, this.range.end];
      if (data.from) this.go([Number(data.from), Number(data.until)]);
      else if (data.zoom) {
        const half = ((until - from) * Number(data.zoom)) / 2;
        this.go([(from + until) / 2 - half, (from + until) / 2 + half]);
      } else if (data.shift) this.go([from + (until - from) * Number(data.shift), until + (until - from) * Number(data.shift)]);
      else if (data.show) this.choose((box) => data.show === "all" || box.dataset.part === data.show);
      else this.go(this.whole);
    }

    go([from, until]) {
      const length = Math.min(until - from, this.whole[1] - this.whole[0]);
      const start = Math.max(this.whole[0], Math.min(from, this.whole[1] - length));
      this.range.setv({ start, end: start + length });
      this.say();
    }

    find(words) {
      const wanted = words.trim().toLowerCase();
      this.choose((box) => box.dataset.name.toLowerCase().includes(wanted));
    }

    choose(isWanted) {
      for (const box of this.boxes) box.checked = isWanted(box);
      this.source.selected.indices = [];
      this.show();
    }

    show() {
      const wanted = new Set(this.boxes.filter((box) => box.checked).map((box) => Number(box.dataset.operation)));
      const operations = this.source.data.operation;
      const indices = [];
      for (let at = 0; at < operations.length; at++) if (wanted.has(operations[at])) indices.push(at);
      this.filter.indices = indices;
      this.figure.dataset.shown = indices.length;
      this.count.textContent = `${indices.length.toLocaleString("en")} of ${operations.length.toLocaleString("en")} spans`;
    }

    say() {
      const [from, until] = [this.range.start, this.range.end];
      const digits = Math.max(0, Math.min(6, 2 - Math.floor(Math.log10(until - from || 1))));
      this.window.textContent = `${from.toFixed(digits)} to ${until.toFixed(digits)} ms`;
      this.figure.dataset.from = from;
      this.figure.dataset.until = until;
    }

    // The spans of one operation in the window; all others fade.
    mark(name) {
      const wanted = this.boxes.find((box) => box.dataset.name === name);
      const { operation, left, right } = this.source.data;
      const indices = [];
      for (let at = 0; wanted && at < operation.length; at++) {
        const isSeen = right[at] >= this.range.start && left[at] <= this.range.end;
        if (isSeen && operation[at] === Number(wanted.dataset.operation)) indices.push(at);
      }
      this.source.selected.indices = indices;
      this.figure.dataset.marked = indices.length;
    }

    // #timeline?from=12.3&until=12.9&operation=NAME, in ms of the axis
    follow(parameters) {
      const [from, until] = [Number(parameters.get("from")), Number(parameters.get("until"))];
      if (parameters.has("from") && until > from) this.go([from, until]);
      if (parameters.has("operation")) this.mark(parameters.get("operation"));
    }
  }

  // The section of the address, or of a link to it.
  function unfold(hash) {
    const section = document.getElementById(hash.slice(1).split("?")[0]);
    const fold = section?.querySelector(":scope.folded > details");
    if (fold) fold.open = true;
  }

  function filterRows(field) {
    const rows = field.nextElementSibling.querySelectorAll("tbody tr");
    field.addEventListener("input", () => {
      const wanted = field.value.trim().toLowerCase();
      for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    });
  }

  function follow(timelines) {
    unfold(location.hash);
    const [name, rest] = location.hash.slice(1).split("?");
    const section = document.getElementById(name);
    if (!section || rest === undefined) return;
    timelines.forEach((timeline) => timeline.follow(new URLSearchParams(rest)));
    section.scrollIntoView();
  }

  async function begin() {
    for (const place of document.querySelectorAll("[data-chart]")) {
      // Bokeh cannot measure what is folded: it is drawn when it is opened.
      const folded = place.closest("details:not([open])");
      if (folded) folded.addEventListener("toggle", () => draw(place).then(dressAll), { once: true });
      else await draw(place);
    }
    dressAll();
    const timelines = [...document.querySelectorAll("[data-timeline]")].map((figure) => new Timeline(figure));
    follow(timelines);
    document.querySelectorAll("[data-rows]").forEach(filterRows);
    for (const link of document.querySelectorAll("nav a")) link.addEventListener("click", () => unfold(link.hash));
    addEventListener("hashchange", () => follow(timelines));
    isDark.addEventListener("change", dressAll);
    for (const [event, value] of [["beforeprint", true], ["afterprint", false]]) {
      addEventListener(event, () => {
        isPrinting = value;
        dressAll();
      });
    }
    document.documentElement.dataset.ready = "yes";
    const frame = window.frameElement; // of a notebook
    if (frame) new ResizeObserver(() => (frame.style.height = `${document.body.offsetHeight}px`)).observe(document.body);
  }

  begin();
})();
