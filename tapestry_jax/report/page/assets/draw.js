// The graph as SVG. Texts are set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";
const LINES = { name: { size: 12.5, weight: 600, height: 16 }, small: { size: 10.5, weight: 400, height: 14 } };
const PAD = 9;

function svg(tag, attributes = {}, children = []) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

class Measure {
  constructor() {
    this.context = document.createElement("canvas").getContext("2d");
  }

  width(text, { size, weight }) {
    this.context.font = `${weight} ${size}px ${FONT}`;
    return this.context.measureText(text).width;
  }
}

class Picture {
  constructor(canvas, view, data, folds, measure) {
    Object.assign(this, { canvas, view, data, folds, measure });
    this.at = { x: 0, y: 0, scale: 1 };
    this.known = new Map();
  }

  // What is written on a box, line by line.
  lines(key) {
    if (!this.known.has(key)) {
      const [kind, id] = [key[0], Number(key.slice(1))];
      this.known.set(key, kind === "n" ? this.nodeLines(this.data.nodes[id]) : this.scopeLines(id));
    }
    return this.known.get(key);
  }

  nodeLines(node) {
    const scope = node.scope >= 0 ? this.data.scopes[node.scope].path : "";
    const name = shortened(nameIn(node.path, scope), 28);
    const sends = sendsInShort((node.sent ?? []).map((i) => this.data.sends[i]).filter((each) => !each.backward));
    if (node.kind === "sent") {
      const what = node.what.startsWith(`${node.sends} `) ? node.what.slice(node.sends.length + 1) : node.what;
      return [["name", node.sends], ...(what === node.sends ? [] : [["small", cut(what, 34)]])];
    }
    const dims = (node.dims ?? []).map(([dim, where]) => (where ? `${dim}:${where}` : dim)).join(" ");
    const told = { operation: dims, input: node.types?.[0], output: node.types?.[0], merge: node.what }[node.kind] ?? "";
    const lines = [["name", name]];
    if (told) lines.push(["small", cut(told, 38)]);
    if (node.kind !== "input") sends.slice(0, 2).forEach((each) => lines.push(["sends", cut(each, 38)]));
    return lines;
  }

  scopeLines(id) {
    const scope = this.data.scopes[id];
    const above = scope.parent >= 0 ? this.data.scopes[scope.parent] : null;
    const shortName = scope.kind === "alike" ? scope.name : nameIn(scope.name, above?.path);
    const count = scope.count ? ` ×${scope.count}` : "";
    const size = this.folds.size[id];
    const inside = this.sendsInside(id);
    const words = scope.kind === "repeat" || scope.kind === "time" ? `${scope.what}; ${many(size, "node")}` : many(size, "node");
    const lines = [["name", `▸ ${shortened(shortName, 26)}${count}`], ["small", cut(words, 38)]];
    inside.slice(0, 2).forEach((each) => lines.push(["sends", cut(each, 38)]));
    if (inside.length > 2) lines.push(["sends", `and ${inside.length - 2} more kinds`]);
    return lines;
  }

  // What is sent forwards by a scope itself and by all in it.
  sendsInside(id) {
    const { sent } = totals(this.data, this.folds, id);
    return sendsInShort(sent.map((i) => this.data.sends[i]).filter((each) => !each.backward));
  }

  titleText(id) {
    const scope = this.data.scopes[id];
    const words = scope.kind === "repeat" || scope.kind === "time" ? `, ${scope.what}` : "";
    const own = sendsInShort((scope.sent ?? []).map((i) => this.data.sends[i]).filter((each) => !each.backward));
    return cut(`▾ ${scope.name}${words}${own.length ? ` · ${own.join(", ")}` : ""}`, 100);
  }

  // Sizes for the layout.
  sizes() {
    const width = (lines) => Math.max(...lines.map(([kind, text]) => this.measure.width(text, LINES[kind] ?? LINES.small)));
    return {
      node: (key) => {
        const lines = this.lines(key);
        const height = lines.reduce((sum, [kind]) => sum + (LINES[kind] ?? LINES.small).height, 0);
        return { width: Math.max(width(lines), 34) + 2 * PAD, height: height + 10 };
      },
      title: (id) => ({ width: this.measure.width(this.titleText(id), LINES.name) + 8, height: 18 }),
      label: (text) => ({ width: this.measure.width(text, LINES.small) + 4, height: 13 }),
    };
  }

  draw(places) {
    this.places = places;
    const parts = document.createDocumentFragment();
    const outer = [...places.clusters].sort(([a], [b]) => this.folds.around(a).length - this.folds.around(b).length);
    outer.forEach(([id, place]) => parts.append(this.cluster(id, place)));
    places.edges.forEach((each) => parts.append(this.edge(each)));
    // In the order of the program, which is the order of the tab key.
    for (const item of this.folds.shown()) {
      const key = `${item.kind === "scope" ? "s" : "n"}${item.id}`;
      parts.append(this.box(key, places.nodes.get(key)));
    }
    this.view.replaceChildren(parts);
  }

  cluster(id, place) {
    const scope = this.data.scopes[id];
    const text = svg("text", { x: place.x + 8, y: place.y + 17, class: "name" });
    text.textContent = this.titleText(id);
    const bar = svg("rect", { x: place.x, y: place.y, width: place.width, height: 26, rx: 8, class: "bar" });
    const title = svg("g", { class: "title", "data-key": `s${id}`, role: "button", tabindex: -1, "aria-expanded": "true" }, [bar, text]);
    title.setAttribute("aria-label", `${scope.path || scope.name}, unfolded`);
    const { x, y, width, height } = place;
    const back = svg("rect", { x, y, width, height, rx: 8, class: `cluster ${scope.kind}` });
    return svg("g", {}, [back, title]);
  }

  edge({ edge, points, end, middle }) {
    const [first, ...rest] = points;
    const curve = `M${first} C${rest.map(([x, y]) => `${x},${y}`).join(" ")}`;
    const group = svg("g", { class: `edge${edge.next ? " next" : ""}`, "data-from": edge.from, "data-to": edge.to });
    group.append(svg("path", { d: curve, class: "line" }));
    if (end) group.append(svg("path", { d: arrow(points[points.length - 1], end), class: "head" }));
    const words = edgeWords(edge);
    if (middle && words) {
      const size = this.sizes().label(words);
      const [x, y] = middle;
      const box = { x: x - size.width / 2, y: y - size.height / 2, width: size.width, height: size.height };
      group.append(svg("rect", { ...box, class: "label" }));
      const text = svg("text", { x, y: y + 3.5, class: "small", "text-anchor": "middle" });
      text.textContent = words;
      group.append(text);
    }
    const hint = svg("title");
    hint.textContent = edge.all
      .slice(0, 12)
      .map((each) => {
        const [from, to] = [this.data.nodes[each.from].path, this.data.nodes[each.to].path];
        const notes = [each.layout, each.change, each.next ? "read in the next turn" : ""].filter(Boolean);
        return `${from} → ${to}: ${each.type}, ${notes.join(", ")}`;
      })
      .join("\n");
    group.append(hint);
    return group;
  }

  box(key, place) {
    const isScope = key[0] === "s";
    const id = Number(key.slice(1));
    const kind = isScope ? `folded ${this.data.scopes[id].kind}` : this.data.nodes[id].kind;
    const path = isScope ? this.data.scopes[id].path || this.data.scopes[id].name : this.data.nodes[id].path;
    const group = svg("g", { class: `box ${kind}`, "data-key": key, role: "button", tabindex: -1 });
    group.setAttribute("aria-label", `${path}, ${isScope ? "folded scope" : this.data.nodes[id].kind}`);
    if (isScope) group.setAttribute("aria-expanded", "false");
    const { x, y, width, height } = place;
    const round = { input: height / 2, output: height / 2, sent: 4, merge: 4 }[kind] ?? 7;
    if (isScope) group.append(svg("rect", { x: x + 4, y: y + 4, width, height, rx: round, class: "behind" }));
    group.append(svg("rect", { x, y, width, height, rx: round, class: "shape" }));
    let down = y + 5;
    for (const [line, words] of this.lines(key)) {
      const style = LINES[line] ?? LINES.small;
      down += style.height;
      const text = svg("text", { x: x + width / 2, y: down - 3.5, class: line, "text-anchor": "middle" });
      text.textContent = words;
      group.append(text);
    }
    const hint = svg("title");
    hint.textContent = path;
    group.append(hint);
    return group;
  }

  element(key) {
    return this.view.querySelector(`[data-key="${key}"]`);
  }

  // Where a box, or the title of an unfolded scope, stands.
  place(key) {
    const cluster = this.places.clusters.get(Number(key.slice(1)));
    return this.places.nodes.get(key) ?? (key[0] === "s" && cluster ? { ...cluster, height: 26 } : undefined);
  }

  // Looking at it

  move(x, y, scale = this.at.scale) {
    this.at = { x, y, scale };
    this.view.setAttribute("transform", `translate(${x} ${y}) scale(${scale})`);
  }

  zoom(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    const scale = Math.min(Math.max(this.at.scale * factor, 0.03), 4);
    const grown = scale / this.at.scale;
    this.move(x - (x - this.at.x) * grown, y - (y - this.at.y) * grown, scale);
  }

  // All of it; with a scale that stays readable only what comes first, if there is no room for the rest.
  fit(least = 0) {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const whole = Math.min((width - 24) / this.places.width, (height - 24) / this.places.height, 1.25);
    const scale = Math.max(whole, least);
    const [x, y] = [width - this.places.width * scale, height - this.places.height * scale];
    const first = this.places.nodes.values().next().value ?? { y: 0, height: 0 };
    const begin = height / 2 - (first.y + first.height / 2) * scale;
    this.move(x >= 24 ? x / 2 : 12, y >= 24 ? y / 2 : Math.min(12, Math.max(begin, y - 12)), scale);
  }

  // Bring a box into sight.
  show(key) {
    const place = this.place(key);
    if (!place) return;
    const { x, y, scale } = this.at;
    const [left, top] = [place.x * scale + x, place.y * scale + y];
    const [width, height] = [Math.min(place.width, 300) * scale, place.height * scale];
    const edge = 24;
    const shift = (low, size, room) =>
      low < edge ? edge - low : low + size > room - edge ? room - edge - low - size : 0;
    const covered = this.covered();
    const right = shift(left, width, this.canvas.clientWidth - covered.right);
    const down = shift(top, height, this.canvas.clientHeight - covered.below);
    if (right || down) this.move(x + right, y + down);
  }
}

// What is written on an arrow: the layout that is read; of several, how many there are.
function edgeWords(edge) {
  const layouts = [...new Set(edge.all.map((each) => each.layout))];
  return cut(layouts.length === 1 ? layouts[0] : `${edge.all.length} values`, 30);
}

function arrow([x, y], [tipX, tipY]) {
  const length = Math.hypot(tipX - x, tipY - y) || 1;
  const [alongX, alongY] = [(tipX - x) / length, (tipY - y) / length];
  const [sideX, sideY] = [-alongY * 2.6, alongX * 2.6];
  return `M${tipX},${tipY} L${x + sideX},${y + sideY} L${x - sideX},${y - sideY} Z`;
}
