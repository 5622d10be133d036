// The simulated run: a lane for every kind of device and every mesh axis, and the memory over time.

const LANE = 22;
const WIDE = 1000;
const MEMORY = 70;

class Times {
  constructor(data) {
    this.data = data;
    this.times = data.timeline;
    this.from = 0;
    this.to = this.times.makespan || 1;
    this.height = this.times.lanes.length * LANE + MEMORY + 8;
    this.canvas = svg("svg", { class: "times", viewBox: `0 0 ${WIDE} ${this.height}`, height: this.height, preserveAspectRatio: "none", tabindex: 0, role: "img" });
    this.canvas.setAttribute("aria-label", "A run over time; plus and minus zoom, arrows move");
    this.canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      const { left, width } = this.canvas.getBoundingClientRect();
      this.zoom(Math.exp(-event.deltaY * 0.002), (event.clientX - left) / width);
    }, { passive: false });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.draw();
  }

  key(event) {
    const width = this.to - this.from;
    const steps = { ArrowLeft: -0.2, ArrowRight: 0.2 };
    if (steps[event.key]) this.look(this.from + steps[event.key] * width, width);
    else if (event.key === "+" || event.key === "=") this.zoom(1.5, 0.5);
    else if (event.key === "-") this.zoom(1 / 1.5, 0.5);
    else if (event.key === "0") this.look(0, this.times.makespan || 1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  zoom(factor, place) {
    const width = (this.to - this.from) / factor;
    this.look(this.from + place * (this.to - this.from - width), width);
  }

  look(from, width) {
    const all = this.times.makespan || 1;
    const size = Math.min(Math.max(width, all / 1e5), all);
    this.from = Math.min(Math.max(from, 0), all - size);
    this.to = this.from + size;
    this.draw();
  }

  x(seconds) {
    return (WIDE * (seconds - this.from)) / (this.to - this.from);
  }

  draw() {
    const parts = document.createDocumentFragment();
    this.times.lanes.forEach((lane, i) => {
      parts.append(svg("rect", { x: 0, y: i * LANE + 1, width: WIDE, height: LANE - 3, class: "lane" }));
      this.pieces(lane).forEach((piece) => parts.append(this.piece(piece, lane, i * LANE + 1)));
    });
    parts.append(this.memory(this.times.lanes.length * LANE + 6));
    this.canvas.replaceChildren(parts);
    if (this.scale) this.scale.textContent = `${duration(this.from)} to ${duration(this.to)}`;
  }

  // What a lane does in the part that is looked at: what is too narrow to be seen apart is one piece.
  pieces(lane) {
    const found = [];
    for (const [start, seconds, path, kind, turns] of lane.events) {
      for (const [from, to] of this.unfolded(start, seconds, turns ?? [])) {
        if (to < this.from || from > this.to) continue;
        const last = found[found.length - 1];
        const name = this.times.kinds[kind].split(" ").pop();
        if (last && last.name === name && this.x(to) - this.x(from) < 1.2 && this.x(from) - this.x(last.to) < 0.4) {
          last.to = Math.max(last.to, to);
          last.count += 1;
        } else found.push({ from, to, path, kind, name, count: 1 });
      }
    }
    return found;
  }

  // Each time of an event that lies in loops; of more than can be seen, all of them as one.
  unfolded(start, seconds, turns) {
    const count = turns.reduce((product, [times]) => product * times, 1);
    const span = turns.reduce((sum, [times, every]) => sum + (times - 1) * every, seconds);
    if (count > 400) return [[start, start + span]];
    let starts = [start];
    for (const [times, every] of turns) starts = starts.flatMap((own) => Array.from({ length: times }, (_, i) => own + i * every));
    return starts.map((own) => [own, own + seconds]);
  }

  piece({ from, to, path, kind, name, count }, lane, y) {
    const [left, right] = [Math.max(this.x(from), 0), Math.min(this.x(to), WIDE)];
    const rect = svg("rect", { x: left, y, width: Math.max(right - left, 0.6), height: LANE - 3, class: `${lane.sends ? "sends" : "computes"} ${name}` });
    const hint = svg("title");
    const what = count > 1 ? `${count} events from ${this.times.paths[path]} on` : `${this.times.paths[path]}: ${this.times.kinds[kind]}`;
    hint.textContent = `${what}, ${duration(to - from)} from ${duration(from)} on`;
    rect.append(hint);
    return rect;
  }

  memory(top) {
    const most = this.times.peak || 1;
    const y = (size) => top + MEMORY - (MEMORY * size) / most;
    const points = this.times.memory.map(([seconds, size]) => `${this.x(seconds).toFixed(2)},${y(size).toFixed(2)}`);
    const area = svg("polygon", { points: [`${this.x(0)},${top + MEMORY}`, ...points, `${this.x(this.times.makespan)},${top + MEMORY}`].join(" "), class: "alive" });
    const hint = svg("title");
    hint.textContent = `values alive over time, at most ${amount(most, "B")}`;
    area.append(hint);
    return area;
  }

  // The chart with the names of its lanes beside it.
  section() {
    const { makespan, hidden, bubble, peak, lanes } = this.times;
    const names = lanes.map((lane) => html("span", { title: `busy ${duration(lane.busy)}` }, lane.label));
    const left = html("div", { class: "lanes", "aria-hidden": "true" }, ...names, html("span", { class: "tall" }, `memory, ${amount(peak, "B")}`));
    this.scale = html("span", {}, `0 to ${duration(makespan)}`);
    const words = [`One run takes ${duration(makespan)}`, hidden ? `${duration(hidden)} of sending pass beside other work` : "", bubble ? `stages wait ${duration(bubble)}` : ""];
    const press = (text, name, what) => {
      const button = html("button", { type: "button", "aria-label": name }, text);
      button.addEventListener("click", what);
      return button;
    };
    const tools = html("p", { class: "tools" }, press("−", "Zoom out of the run", () => this.zoom(1 / 1.5, 0.5)),
      press("+", "Zoom into the run", () => this.zoom(1.5, 0.5)), press("‹", "Earlier", () => this.look(this.from - 0.2 * (this.to - this.from), this.to - this.from)),
      press("›", "Later", () => this.look(this.from + 0.2 * (this.to - this.from), this.to - this.from)), this.scale);
    const legend = html("p", { class: "legend" }, ...["forward", "again", "backward", "sends"].flatMap((name) => [html("i", { class: name }), `${name} `]));
    const rows = lanes.map((lane) => html("tr", {}, ...[lane.label, duration(lane.busy), duration(Math.max(makespan - lane.busy, 0))].map((text) => html("td", {}, text))));
    return html("div", {}, html("p", {}, `${words.filter(Boolean).join("; ")}.`), tools, html("div", { class: "run" }, left, this.canvas), legend,
      table([["lane"], ["busy"], ["idle"]], rows, "Lanes"));
  }
}
