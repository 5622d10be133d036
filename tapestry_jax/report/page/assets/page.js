// What the page does: it lays the graph out, and answers the mouse, the keyboard and the search.

const at = (id) => document.getElementById(id);

class Page {
  constructor(data, viz) {
    this.data = data;
    this.viz = viz;
    this.folds = new Folds(data);
    this.picture = new Picture(at("canvas"), at("view"), data, this.folds, new Measure());
    this.picture.covered = () => this.covered();
    this.chosen = null;
    this.found = [];
    this.hit = -1;
    document.title = `${data.name}: plan`;
    at("title").textContent = data.name;
    const counts = ["operation", "input"].map((kind) => many(data.nodes.filter((node) => node.kind === kind).length, kind));
    const sent = data.sends.reduce((sum, each) => sum + each.bytes * (each.times ?? 1), 0);
    const bytes = sent ? `, ${amount(sent, "B")} sent` : "";
    const collectives = `${many(data.sends.length, "collective")}${data.grad ? " with gradients" : ""}${bytes}`;
    at("about").textContent = [`mesh ${data.mesh}`, ...counts, collectives, data.cost ? `on ${data.cost.machine}: ${duration(data.cost.seconds)}` : "", data.gap === null ? "" : `gap ${Number((100 * data.gap).toPrecision(2))}%`].filter(Boolean).join(" · ");
    this.listen();
    this.refresh();
    this.picture.fit(0.62);
    this.sections();
  }

  // The layout, the table and what is marked, anew; `kept` stays where it is on the screen.
  refresh(kept = null) {
    const before = kept && this.picture.places ? this.picture.place(kept) : null;
    let places;
    try {
      places = layOut(this.viz, this.folds, this.picture.sizes(), edgeWords);
    } catch (error) {
      this.say(`The graph cannot be laid out: ${error.message}`);
      return;
    }
    this.picture.draw(places);
    this.say(places.labelled ? "" : "Too many arrows to label: point at one to read its layout.");
    const after = kept ? this.picture.place(kept) : null;
    if (before && after) {
      const { x, y, scale } = this.picture.at;
      this.picture.move(x + (before.x - after.x) * scale, y + (before.y - after.y) * scale);
      this.picture.show(kept);
    }
    this.tabStop(kept ?? this.picture.view.querySelector(".box")?.dataset.key);
    this.mark();
    at("operations")?.replaceChildren(operationsTable(this.data, this.folds));
  }

  say(words) {
    at("note").textContent = words;
  }

  sections() {
    const found = [
      ["operations", "Operations", operationsTable(this.data, this.folds)],
      ["cost", "Cost", costSection(this.data, this.folds)],
      ["memory", "Memory", memorySection(this.data)],
    ];
    if (this.data.timeline) found.splice(2, 0, ["run", "Run", new Times(this.data).section()]);
    if (this.data.alternatives.length) found.push(["others", "Alternatives", alternativesSection(this.data)]);
    const unplaced = sentParts(this.data, this.data.unplaced, "Sent for no operation");
    if (unplaced.length) found.push(["other", "Other", html("div", {}, ...unplaced)]);
    for (const [id, name, content] of found) {
      at("sections").append(html("a", { href: `#${id}-section` }, name));
      const holder = html("div", { id }, content);
      at("tables").append(html("section", { id: `${id}-section` }, html("h2", {}, name), holder));
    }
  }

  // Choosing

  // Open what is known of a node, or fold and unfold a scope.
  choose(key, { toggle = true } = {}) {
    if (key[0] === "s" && toggle && !this.folds.toggle(Number(key.slice(1)))) {
      this.say(`More than ${MOST} nodes would be seen at once: fold something first.`);
      toggle = false;
    }
    this.chosen = key;
    this.openDetail(key);
    if (key[0] === "s" && toggle) this.refresh(key);
    else this.mark();
    this.focusOn(key);
  }

  // Unfold all around a node, look at it and choose it.
  goTo(key) {
    const item = { kind: key[0] === "s" ? "scope" : "node", id: Number(key.slice(1)) };
    this.chosen = key;
    if (this.folds.reveal(item)) this.refresh(key);
    this.openDetail(key);
    this.mark();
    this.picture.show(key);
    this.tabStop(key);
  }

  openDetail(key) {
    const close = html("button", { type: "button", id: "close", "aria-label": "Close", title: "Close (Esc)" }, "✕");
    at("detail").replaceChildren(close, ...detailOf(this.data, this.folds, key));
    at("detail").hidden = false;
    at("detail").scrollTop = 0;
  }

  // How much of the graph lies behind what is known of a node.
  covered() {
    const { offsetWidth: width, offsetHeight: height, hidden } = at("detail");
    if (hidden) return { right: 0, below: 0 };
    return width < at("canvas").clientWidth ? { right: width, below: 0 } : { right: 0, below: height };
  }

  close() {
    at("detail").hidden = true;
    const key = this.chosen;
    this.chosen = null;
    this.mark();
    if (key) this.focusOn(key);
  }

  mark() {
    const hits = new Set(this.found.map((key) => (key[0] === "n" ? this.folds.standIn(Number(key.slice(1))) : key)));
    for (const each of this.picture.view.querySelectorAll("[data-key]")) {
      each.classList.toggle("chosen", each.dataset.key === this.chosen);
      each.classList.toggle("hit", hits.has(each.dataset.key));
    }
    for (const each of this.picture.view.querySelectorAll(".edge")) {
      each.classList.toggle("near", this.chosen !== null && [each.dataset.from, each.dataset.to].includes(this.chosen));
    }
  }

  focusOn(key) {
    this.tabStop(key);
    this.picture.element(key)?.focus({ preventScroll: true });
    this.picture.show(key);
  }

  // The tab key leads to one box of the graph; arrows lead on from there.
  tabStop(key) {
    this.picture.view.querySelector('[tabindex="0"]')?.setAttribute("tabindex", "-1");
    if (key) this.picture.element(key)?.setAttribute("tabindex", "0");
  }

  // The nearest box in a direction.
  beside(key, [alongX, alongY]) {
    const middle = (place) => [place.x + place.width / 2, place.y + place.height / 2];
    const [x, y] = middle(this.picture.place(key));
    let best = null;
    let least = Infinity;
    for (const each of this.picture.view.querySelectorAll("[data-key]")) {
      const own = each.dataset.key;
      if (own === key) continue;
      const [otherX, otherY] = middle(this.picture.place(own));
      const along = (otherX - x) * alongX + (otherY - y) * alongY;
      const aside = Math.abs((otherX - x) * alongY) + Math.abs((otherY - y) * alongX);
      if (along > 4 && along + 2.5 * aside < least) [best, least] = [own, along + 2.5 * aside];
    }
    return best;
  }

  // Searching

  search(text) {
    const wanted = text.trim().toLowerCase();
    const inPath = (path) => path.toLowerCase().includes(wanted);
    const nodes = this.data.nodes.map((node, i) => [`n${i}`, node.path]);
    const scopes = this.data.scopes.map((scope, i) => [`s${i}`, scope.path]).filter(([key]) => {
      return !["alike", "part"].includes(this.data.scopes[Number(key.slice(1))].kind);
    });
    this.found = wanted ? [...nodes, ...scopes].filter(([, path]) => inPath(path)).map(([key]) => key) : [];
    this.hit = -1;
    at("found").textContent = wanted ? `${this.found.length} found` : "";
    this.mark();
  }

  nextHit(step) {
    if (!this.found.length) return;
    this.hit = (this.hit + step + this.found.length) % this.found.length;
    at("found").textContent = `${this.hit + 1} of ${this.found.length}`;
    this.goTo(this.found[this.hit]);
  }

  // Listening

  listen() {
    const pressed = (id, what) => at(id).addEventListener("click", what);
    pressed("fit", () => this.picture.fit());
    pressed("in", () => this.picture.zoom(1.3));
    pressed("out", () => this.picture.zoom(1 / 1.3));
    pressed("theme", switchTheme);
    pressed("fold", () => {
      this.folds.open.clear();
      this.refresh();
      this.picture.fit(0.62);
    });
    pressed("unfold", () => {
      if (this.folds.openLevel()) {
        this.refresh();
        this.picture.fit(0.62);
      } else this.say(`More than ${MOST} nodes would be seen at once: unfold scopes one by one.`);
    });
    at("search").addEventListener("input", (event) => this.search(event.target.value));
    at("search").addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.nextHit(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") {
        event.target.value = "";
        this.search("");
        event.target.blur();
      }
      event.stopPropagation();
    });
    // Links to nodes, in tables and in what is known of one.
    for (const part of ["tables", "detail"]) {
      at(part).addEventListener("click", (event) => {
        const link = event.target.closest("button");
        if (link?.id === "close") this.close();
        else if (link?.dataset.key) this.followed(link.dataset.key, part);
      });
    }
    this.listenToMouse();
    document.addEventListener("keydown", (event) => this.key(event));
  }

  followed(key, part) {
    if (key[0] === "s" && part === "tables") {
      this.choose(key);
      at("operations").querySelector(`[data-key="${key}"]`)?.focus({ preventScroll: true });
    } else this.goTo(key);
  }

  listenToMouse() {
    const canvas = at("canvas");
    let from = null;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button === 0) from = { x: event.clientX, y: event.clientY, ...this.start(), moved: false, id: event.pointerId };
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!from || event.pointerId !== from.id) return;
      const [x, y] = [event.clientX - from.x, event.clientY - from.y];
      if (!from.moved && Math.hypot(x, y) < 4) return;
      // Taken only now, so that what is pressed and not moved is a click on what lies there.
      if (!from.moved) canvas.setPointerCapture(event.pointerId);
      from.moved = true;
      this.picture.move(from.left + x, from.top + y);
    });
    const over = () => {
      this.dragged = from?.moved ?? false;
      from = null;
    };
    canvas.addEventListener("pointerup", over);
    canvas.addEventListener("pointercancel", over);
    canvas.addEventListener("click", (event) => {
      const key = event.target.closest("[data-key]")?.dataset.key;
      if (key && !this.dragged) this.choose(key);
      this.dragged = false;
    });
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const { left, top } = canvas.getBoundingClientRect();
      this.picture.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016)), event.clientX - left, event.clientY - top);
    }, { passive: false });
  }

  start() {
    return { left: this.picture.at.x, top: this.picture.at.y };
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const inGraph = at("graph").contains(document.activeElement) && !at("detail").contains(document.activeElement);
    const key = document.activeElement?.closest?.("#view [data-key]")?.dataset.key;
    const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.key === "/") {
      at("search").focus();
      at("search").select();
    } else if (event.key === "Escape") this.close();
    else if ((event.key === "Enter" || event.key === " ") && key) this.choose(key);
    else if (ways[event.key] && key) {
      const next = this.beside(key, ways[event.key]);
      if (next) this.focusOn(next);
    } else if (event.key === "+" || event.key === "=") this.picture.zoom(1.3);
    else if (event.key === "-") this.picture.zoom(1 / 1.3);
    else if (event.key === "0" && (inGraph || document.activeElement === document.body)) this.picture.fit();
    else return;
    event.preventDefault();
  }
}

// Dark or light: as the system says until somebody switches.
function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
}

if (typeof document !== "undefined") {
  const data = JSON.parse(at("data").textContent);
  Viz.instance().then(
    (viz) => {
      globalThis.page = new Page(data, viz);
      document.documentElement.dataset.ready = String(Math.round(performance.now()));
    },
    (error) => {
      at("note").textContent = `Graphviz does not start here: ${error.message}`;
    },
  );
}
