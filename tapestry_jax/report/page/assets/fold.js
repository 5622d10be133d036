// What is visible: scopes that are folded stand for all that lies in them. Data in, data out; knows no browser.

const FIRST = 32; // so many nodes at first: as many as can be laid out, and looked at, at once
const MOST = 400; // beyond so many nothing more is unfolded

class Folds {
  constructor(data) {
    this.data = data;
    this.children = new Map([[-1, []]]);
    data.scopes.forEach((_, i) => this.children.set(i, []));
    const order = [];
    data.nodes.forEach((node, i) => order.push({ kind: "node", id: i, parent: node.scope, first: i }));
    // A scope stands where the first of its nodes does.
    const first = data.scopes.map(() => Infinity);
    data.nodes.forEach((node, i) => this.around(node.scope).forEach((s) => (first[s] = Math.min(first[s], i))));
    data.scopes.forEach((scope, i) => order.push({ kind: "scope", id: i, parent: scope.parent, first: first[i] }));
    order.sort((a, b) => a.first - b.first || (a.kind === "scope" ? -1 : 1));
    order.forEach((item) => this.children.get(item.parent).push(item));
    this.size = data.scopes.map(() => 0);
    data.nodes.forEach((node) => this.around(node.scope).forEach((s) => this.size[s]++));
    this.open = new Set();
    this.openAtFirst();
  }

  // The scopes from one outwards.
  around(scope) {
    const found = [];
    for (let s = scope; s >= 0; s = this.data.scopes[s].parent) found.push(s);
    return found;
  }

  // As many levels as there is room for; equal ones in a row, and parts of long lists, stay folded.
  openAtFirst() {
    this.open.clear();
    let room = FIRST - this.children.get(-1).length;
    const waiting = [-1];
    while (waiting.length) {
      for (const item of this.children.get(waiting.shift())) {
        if (item.kind !== "scope") continue;
        const more = this.children.get(item.id).length - 1;
        const kind = this.data.scopes[item.id].kind;
        if (kind === "alike" || kind === "part" || more > room) continue;
        room -= more;
        this.open.add(item.id);
        waiting.push(item.id);
      }
    }
  }

  // One level more everywhere; false where there is no room for it.
  openLevel() {
    const closed = this.items().filter((item) => item.kind === "scope" && !this.open.has(item.id));
    const more = closed.reduce((sum, item) => sum + this.children.get(item.id).length - 1, 0);
    if (this.shown().length + more > MOST) return false;
    closed.forEach((item) => this.open.add(item.id));
    return true;
  }

  toggle(scope) {
    if (this.open.delete(scope)) return true;
    if (this.shown().length + this.children.get(scope).length - 1 > MOST) return false;
    this.open.add(scope);
    return true;
  }

  // Unfold whatever hides a node or a scope.
  reveal(item) {
    const parent = item.kind === "node" ? this.data.nodes[item.id].scope : this.data.scopes[item.id].parent;
    const hidden = this.around(parent).filter((scope) => !this.open.has(scope));
    hidden.forEach((scope) => this.open.add(scope));
    return hidden.length > 0;
  }

  // Everything that is seen, unfolded scopes before what lies in them, with its depth.
  items(scope = -1, depth = 0, found = []) {
    for (const item of this.children.get(scope)) {
      found.push({ kind: item.kind, id: item.id, parent: scope, depth });
      if (item.kind === "scope" && this.open.has(item.id)) this.items(item.id, depth + 1, found);
    }
    return found;
  }

  // What is drawn as a box: nodes, and scopes that are folded.
  shown() {
    return this.items().filter((item) => item.kind === "node" || !this.open.has(item.id));
  }

  // What stands for a node: itself, or the outermost folded scope around it.
  standIn(node) {
    const closed = this.around(this.data.nodes[node].scope).filter((scope) => !this.open.has(scope));
    return closed.length ? `s${closed[closed.length - 1]}` : `n${node}`;
  }

  // Arrows between what is drawn; those that lead the same way are one.
  edges() {
    const found = new Map();
    for (const edge of this.data.edges) {
      const [from, to] = [this.standIn(edge.from), this.standIn(edge.to)];
      // What lies in a folded scope is not seen; an operation may read itself, a turn later.
      if (from === to && (from[0] === "s" || !edge.next)) continue;
      const key = `${from} ${to} ${edge.next ? "next" : ""}`;
      if (!found.has(key)) found.set(key, { from, to, next: Boolean(edge.next), all: [] });
      found.get(key).all.push(edge);
    }
    return [...found.values()];
  }

  // All nodes in a scope.
  inside(scope) {
    return this.data.nodes.map((_, i) => i).filter((i) => this.around(this.data.nodes[i].scope).includes(scope));
  }

  // A scope and all scopes in it.
  scopesInside(scope) {
    return this.data.scopes.map((_, i) => i).filter((i) => this.around(i).includes(scope));
  }

  // The path of a node, in which equal ones in a row go by the name of their row: `decoder/0..11/mlp/up`.
  family(node) {
    let path = this.data.nodes[node].path;
    for (const scope of this.around(this.data.nodes[node].scope)) {
      const { parent, path: own } = this.data.scopes[scope];
      if (parent < 0 || this.data.scopes[parent].kind !== "alike") continue;
      const row = this.data.scopes[parent].name.split("/").pop();
      const above = own.includes("/") ? own.slice(0, own.lastIndexOf("/") + 1) : "";
      path = above + row + path.slice(own.length);
    }
    return path;
  }
}

if (typeof module !== "undefined") module.exports = { Folds };
