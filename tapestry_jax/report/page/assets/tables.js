// The tables below the graph: operations, cost, memory, schedule, alternatives.

function html(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((each) => each !== "" && each !== undefined && each !== null));
  return made;
}

function table(heads, rows, name) {
  const head = html("tr", {}, ...heads.map(([text, kind]) => html("th", { scope: "col", class: kind }, text)));
  const wide = html("table", { "aria-label": name }, html("thead", {}, head), html("tbody", {}, ...rows));
  return html("div", { class: "wide", tabindex: 0, role: "region", "aria-label": `${name}, scrolls` }, wide);
}

// The sum over a scope of what a node has.
function totals(data, folds, id) {
  const sum = { flops: 0, bytes: 0, seconds: 0, sent: [] };
  folds.scopesInside(id).forEach((scope) => {
    sum.seconds += data.scopes[scope].cost?.seconds ?? 0;
    sum.sent.push(...(data.scopes[scope].sent ?? []));
  });
  for (const i of folds.inside(id)) add(sum, data, i);
  return sum;
}

function add(sum, data, i) {
  const node = data.nodes[i];
  sum.flops += (node.flops ?? 0) * node.times;
  sum.bytes += (node.bytes ?? 0) * node.times;
  sum.seconds += node.cost?.seconds ?? 0;
  sum.sent.push(...(node.sent ?? []));
}

// One row for everything that is seen in the graph; scopes say what lies in them comes to.
function operationsTable(data, folds) {
  const heads = [["operation"], ["dimensions"], ["FLOP", "number"], ["bytes", "number"], ["communication"]];
  if (data.cost) heads.splice(4, 0, ["time", "number"]);
  const rows = folds.items().map((item) => operationRow(data, folds, item)).filter(Boolean);
  return table(heads, rows, "Operations");
}

function operationRow(data, folds, item) {
  const isScope = item.kind === "scope";
  const node = isScope ? null : data.nodes[item.id];
  if (!isScope && node.kind === "output") return null;
  const open = isScope && folds.open.has(item.id);
  const scope = isScope ? data.scopes[item.id] : null;
  const above = item.parent >= 0 ? data.scopes[item.parent] : null;
  const key = `${isScope ? "s" : "n"}${item.id}`;
  const sum = { flops: 0, bytes: 0, seconds: 0, sent: [] };
  if (isScope) Object.assign(sum, totals(data, folds, item.id));
  else add(sum, data, item.id);
  const mark = isScope ? (open ? "▾ " : "▸ ") : "";
  const name = isScope ? `${scope.name}${scope.count ? ` ×${scope.count}` : ""}` : nameIn(node.path, above?.path);
  const times = !isScope && node.times > 1 ? ` ×${node.times}` : "";
  const label = node?.kind === "sent" ? `${node.what}` : `${mark}${name}${times}`;
  const link = html("button", { type: "button", class: "link", "data-key": key, "aria-expanded": isScope ? String(open) : undefined }, label);
  const first = html("td", { class: `path deep${Math.min(item.depth, 9)}`, title: isScope ? scope.path : node.path }, link);
  const dims = isScope ? scope.what ?? "" : rowWords(node);
  const sends = sendsInShort(sum.sent.map((i) => data.sends[i]));
  const shown = !open && (isScope || node.kind === "operation");
  const cells = [first, html("td", { class: "dims" }, cut(dims, 90))];
  cells.push(html("td", { class: "number" }, shown ? amount(sum.flops) : ""));
  cells.push(html("td", { class: "number" }, shown ? amount(sum.bytes) : ""));
  if (data.cost) cells.push(html("td", { class: "number" }, shown ? duration(sum.seconds) : ""));
  cells.push(html("td", { class: "sends" }, open ? "" : sends.join(", ")));
  return html("tr", { class: isScope ? "scope" : node.kind }, ...cells);
}

function rowWords(node) {
  if (node.kind === "input") return `${node.types[0]}: ${node.layouts[0]}`;
  if (node.kind === "operation") return (node.dims ?? []).map(([dim, where]) => (where ? `${dim}:${where}` : dim)).join(" ");
  return node.kind === "sent" ? "" : node.what ?? "";
}

// Bars of one length, cut in shares.
function bars(rows, most, name) {
  const body = rows.map(({ label, value, text, kind, key }) => {
    const bar = svg("svg", { class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
    bar.append(svg("rect", { x: 0, y: 0, width: (100 * value) / (most || 1), height: 10, class: kind ?? "" }));
    const named = key ? html("button", { type: "button", class: "link", "data-key": key }, label) : label;
    return html("tr", {}, html("td", { class: "path", title: label }, named), html("td", { class: "bars" }, bar), html("td", { class: "number" }, text));
  });
  return html("div", { class: "wide", tabindex: 0, role: "region", "aria-label": `${name}, scrolls` }, html("table", { class: "barred", "aria-label": name }, html("tbody", {}, ...body)));
}

const LONGEST_LIST = 20;

// Where the cost goes: computing and sending as a whole, then operations and collectives, equal layers together.
function costSection(data, folds) {
  if (!data.cost) return html("p", {}, "No machine was named. plan.show(path, machine=\"h100\") prices the plan.");
  const cost = data.cost;
  const found = new Map();
  const put = (name, seconds, kind, key) => {
    const row = found.get(name) ?? { seconds: 0, times: 0, kind, key };
    found.set(name, { ...row, seconds: row.seconds + seconds, times: row.times + 1 });
  };
  data.nodes.forEach((node, i) => {
    if (node.cost) put(folds.family(i), node.cost.seconds, "compute", `n${i}`);
    for (const number of node.sent ?? []) {
      const { kind, axes, seconds } = data.sends[number];
      if (seconds) put(`${kind} over ${axes.join("+")}, ${folds.family(i)}`, seconds, "sends", `n${i}`);
    }
  });
  data.scopes.forEach((scope, i) => {
    if (scope.cost) put(`${scope.path}, copies`, scope.cost.seconds, "compute", `s${i}`);
    for (const number of scope.sent ?? []) {
      const { kind, axes, seconds } = data.sends[number];
      if (seconds) put(`${kind} over ${axes.join("+")}, ${scope.path}`, seconds, "sends", `s${i}`);
    }
  });
  const rows = [...found].sort(([, a], [, b]) => b.seconds - a.seconds);
  const most = rows.length ? rows[0][1].seconds : 0;
  const share = (seconds) => `${duration(seconds)}, ${Math.round((100 * seconds) / ((cost.compute + cost.communication) || 1))}%`;
  const whole = [
    { label: "computing", value: cost.compute, kind: "compute" },
    { label: "sending", value: cost.communication, kind: "sends" },
    { label: "of it behind computing", value: cost.hidden, kind: "hidden" },
    ...(cost.bubble ? [{ label: "of computing: stages that wait", value: cost.bubble, kind: "hidden" }] : []),
    ...cost.axes.map(([axes, value]) => ({ label: `sending over ${axes}`, value, kind: "sends" })),
  ].map((row) => ({ ...row, text: duration(row.value) }));
  const listed = rows.slice(0, LONGEST_LIST).map(([name, row]) => ({
    label: row.times > 1 ? `${name} ×${row.times}` : name, value: row.seconds, text: share(row.seconds), kind: row.kind, key: row.key,
  }));
  const rest = rows.slice(LONGEST_LIST);
  const more = rest.length ? html("p", {}, `and ${rest.length} more, ${duration(rest.reduce((sum, [, row]) => sum + row.seconds, 0))}`) : "";
  const head = html("p", {}, `One run${cost.gradients ? " with gradients" : ""} on ${cost.machine}: ${duration(cost.seconds)}. ${cost.lies}`);
  return html("div", {}, head, bars(whole, Math.max(cost.compute, cost.communication), "Cost as a whole"), html("h3", {}, "What takes longest"), bars(listed, most, "Cost by operation"), more);
}

function memorySection(data) {
  const memory = data.memory;
  if (memory.total === undefined) {
    const words = `Values alive at once on one device: ${amount(memory.alive, "B")}, before anything is fused or reused. `;
    return html("p", {}, words, "plan.show(path, memory=True) traces the program and counts its buffers.");
  }
  const parts = ["arguments", "results", "temporaries"].map((name) => ({ label: name, value: memory[name], text: amount(memory[name], "B"), kind: "compute" }));
  const live = memory.live.map((each) => ({
    label: `${each.path ?? "an argument"}${each.backward ? " (gradient)" : ""}  ${each.type}${each.times > 1 ? ` ×${each.times}` : ""}`,
    value: each.bytes * each.times, text: amount(each.bytes * each.times, "B"), kind: each.backward ? "backward" : "compute",
  }));
  if (memory.rest) live.push({ label: "the rest", value: memory.rest, text: amount(memory.rest, "B"), kind: "hidden" });
  const most = Math.max(...live.map((row) => row.value), 1);
  return html("div", {}, html("p", {}, `One device needs ${amount(memory.total, "B")}${data.grad ? ", with gradients" : ""}.`),
    bars(parts, memory.total, "Memory as a whole"), html("h3", {}, "Alive at the peak"), bars(live, most, "Alive at the peak"));
}

// The plan beside others: the shortest run first to be seen, not first in the list. Candidates of a search come last.
function alternativesSection(data) {
  const longest = Math.max(...data.alternatives.map((each) => each.seconds ?? 0));
  const weighed = data.alternatives.some((each) => each.why);
  const bytes = (count) => (count === null ? "" : amount(count, "B"));
  const rows = data.alternatives.map((each) => {
    const bar = svg("svg", { class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
    bar.append(svg("rect", { x: 0, y: 0, width: (100 * (each.seconds ?? 0)) / (longest || 1), height: 10 }));
    const more = each.more ? [`${many(each.more, "place")} of operations, arguments and results`] : [];
    const otherwise = [...each.otherwise, ...more];
    const cells = [each.name, each.seconds === null ? "" : duration(each.seconds), bar, bytes(each.alive), each.collectives === null ? "" : many(each.collectives, "collective"), bytes(each.sent)];
    const told = otherwise.length ? html("td", { class: "otherwise" }, ...otherwise.map((text) => html("div", {}, text))) : html("td", {}, "");
    const searched = weighed ? [html("td", { class: "number" }, bytes(each.memory)), html("td", { class: "why" }, each.why)] : [];
    return html("tr", {}, ...cells.map((cell, i) => html("td", { class: ["", "number", "bars", "number", "", "number"][i] }, cell)), ...searched, told);
  });
  const heads = [["plan"], ["time", "number"], [""], ["alive", "number"], ["sends"], ["bytes", "number"], ...(weighed ? [["memory", "number"], ["not taken"]] : []), ["otherwise"]];
  return table(heads, rows, "Alternatives");
}
