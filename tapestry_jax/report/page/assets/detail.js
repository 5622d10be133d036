// What is known of one node or scope: its dimensions, its cost, what it sends, and its boxes.

function pairs(rows) {
  const cells = rows.filter(([, value]) => value !== undefined && value !== "" && value !== null);
  return html("dl", {}, ...cells.flatMap(([name, value]) => [html("dt", {}, name), html("dd", {}, value)]));
}

function list(items) {
  return html("ul", {}, ...items.map((item) => html("li", {}, item)));
}

function detailOf(data, folds, key) {
  const id = Number(key.slice(1));
  return key[0] === "s" ? scopeDetail(data, folds, id) : nodeDetail(data, id);
}

function scopeDetail(data, folds, id) {
  const scope = data.scopes[id];
  const sum = totals(data, folds, id);
  const words = { repeat: "a loop of the program", time: "a loop in time", alike: "equal scopes in a row", part: "part of a long list" };
  const rows = [
    ["what", words[scope.kind] ?? "a scope"],
    ["turns", scope.kind === "repeat" || scope.kind === "time" ? scope.what : ""],
    ["nodes", String(folds.size[id])],
    ["FLOP", amount(sum.flops)],
    ["bytes", amount(sum.bytes, "B")],
    ["time", data.cost ? duration(sum.seconds) : ""],
  ];
  return [html("h2", {}, fullName(scope)), pairs(rows), ...sentParts(data, sum.sent, "Sends, with all in it")];
}

// The path of a scope; of several in a row, and of a part of a list, what is written on it.
function fullName(scope) {
  return scope.kind === "alike" || scope.kind === "part" ? [scope.path, scope.name].filter(Boolean).join(": ") : scope.path;
}

function nodeDetail(data, id) {
  const node = data.nodes[id];
  const words = { input: "input", operation: "operation", sent: "a change of layout that sends", merge: "merges states", output: "output" };
  const cost = node.cost;
  const values = (node.types ?? []).map((type, i) => `${type}: ${node.layouts?.[i] ?? ""}`);
  const rows = [
    ["what", `${words[node.kind]}${node.times > 1 ? `, ${node.times} times` : ""}`],
    ["does", node.kind === "input" || node.kind === "output" ? "" : node.what],
    ["kernel", (node.kernels ?? []).join("; ")],
    ["gives", values.length ? list(values) : ""],
    ["FLOP", node.flops === undefined ? "" : `${amount(node.flops)} a block`],
    ["bytes", node.bytes === undefined ? "" : `${amount(node.bytes, "B")} a block`],
    ["time", cost ? costWords(cost) : ""],
  ];
  const dims = (node.dims ?? []).map(([dim, where]) => html("tr", {}, html("td", {}, dim), html("td", {}, where || "whole")));
  return [
    html("h2", {}, node.path),
    pairs(rows),
    ...(dims.length ? [html("h3", {}, "Where its dimensions go"), html("table", { class: "plain" }, html("tbody", {}, ...dims))] : []),
    ...sentParts(data, node.sent ?? [], "Sends"),
    ...neighbours(data, id),
    ...(node.blocks ?? []).flatMap((i) => blocksPart(data.blocks[i])),
  ];
}

function costWords(cost) {
  const parts = [["forward", cost.forward], ["backward", cost.backward], ["again", cost.again]].filter(([, own]) => own);
  const limit = cost.limit ? `; waits for ${cost.limit}` : "";
  return `${duration(cost.seconds)} (${parts.map(([name, own]) => `${name} ${duration(own)}`).join(", ")})${limit}`;
}

function sentParts(data, sent, title) {
  if (!sent.length) return [];
  const found = new Map();
  for (const number of sent) {
    const words = sendText(data.sends[number]);
    found.set(words, (found.get(words) ?? 0) + 1);
  }
  return [html("h3", {}, title), list([...found].map(([words, times]) => (times > 1 ? `${times} × ${words}` : words)))];
}

function neighbours(data, id) {
  const link = (i, edge) => {
    const notes = [edge.layout, edge.change, edge.next ? "next turn" : ""].filter(Boolean).join(", ");
    const to = html("button", { type: "button", class: "link", "data-key": `n${i}` }, data.nodes[i].path);
    return html("span", {}, to, html("small", {}, ` ${notes}`));
  };
  const reads = data.edges.filter((edge) => edge.to === id).map((edge) => link(edge.from, edge));
  const read = data.edges.filter((edge) => edge.from === id).map((edge) => link(edge.to, edge));
  const parts = [];
  if (reads.length) parts.push(html("h3", {}, "Reads"), list(reads));
  if (read.length) parts.push(html("h3", {}, "Is read by"), list(read));
  return parts;
}

function blocksPart(family) {
  const dims = family.box.map(([dim, range]) => `${dim} ${range}`).join(", ");
  const count = `${family.count.toLocaleString("en")} block${family.count === 1 ? "" : "s"}`;
  const formula = [
    ["index box", dims || "a single index"],
    ["reads", family.reads.join(" ") || "nothing"],
    ["makes", family.makes.join(" ")],
  ];
  const heads = [["where"], ...family.box.map(([dim]) => [dim]), ["reads"], ["makes"]];
  const rows = family.rows.map(([where, box, reads, makes]) =>
    html("tr", {}, ...[where, ...box, reads.join(" "), makes.join(" ")].map((text) => html("td", {}, text))));
  const more = family.count - family.rows.length;
  return [
    html("h3", {}, `Boxes: ${count}`),
    pairs(formula),
    table(heads, rows, "Boxes"),
    more > 0 ? html("p", {}, `and ${more.toLocaleString("en")} more, by the same formula`) : "",
  ].filter((each) => each !== "");
}
