// Where everything stands: Graphviz is told sizes and numbers alone, and tells places. No text of a user reaches it.

const POINTS = 72;
const LABELLED = 160; // beyond so many arrows none is labelled: labels take places of their own

function dotOf(folds, sizes, labels) {
  const edges = folds.edges();
  const inch = (points) => (points / POINTS).toFixed(3);
  const lines = ["digraph {", "rankdir=LR; nodesep=0.16; ranksep=0.34; compound=true; nslimit=2; mclimit=0.5;"];
  lines.push('node [shape=box, fixedsize=true, label=""]; edge [arrowsize=0.6];');
  const nest = (scope) => {
    for (const item of folds.children.get(scope)) {
      if (item.kind === "scope" && folds.open.has(item.id)) {
        const { width, height } = sizes.title(item.id);
        lines.push(`subgraph cluster_${item.id} {`, `margin=14; label=${box(width, height)}; labeljust=l;`);
        nest(item.id);
        lines.push("}");
      } else {
        const key = `${item.kind === "scope" ? "s" : "n"}${item.id}`;
        const { width, height } = sizes.node(key);
        lines.push(`${key} [width=${inch(width)}, height=${inch(height)}];`);
      }
    }
  };
  nest(-1);
  const labelled = edges.length <= LABELLED;
  edges.forEach((edge, i) => {
    const size = labelled && !edge.next ? sizes.label(labels(edge)) : null;
    const label = size ? `label=${box(size.width, size.height)}, ` : "";
    lines.push(`${edge.from} -> ${edge.to} [${label}id=e${i}${edge.next ? ", constraint=false" : ""}];`);
  });
  lines.push("}");
  return { dot: lines.join("\n"), edges, labelled };
}

// An empty table: room for a text that Graphviz does not see.
function box(width, height) {
  const size = `WIDTH="${Math.ceil(width)}" HEIGHT="${Math.ceil(height)}"`;
  return `<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="0" FIXEDSIZE="TRUE" ${size}><TR><TD></TD></TR></TABLE>>`;
}

// Boxes, titles and curves in points, y downwards.
function placesOf(answer, edges) {
  const [, , width, height] = answer.bb.split(",").map(Number);
  const down = (y) => height - y;
  const places = { width, height, nodes: new Map(), clusters: new Map(), edges: [] };
  for (const each of answer.objects ?? []) {
    if (each.name.startsWith("cluster_")) {
      const [left, low, right, high] = each.bb.split(",").map(Number);
      const scope = Number(each.name.slice("cluster_".length));
      places.clusters.set(scope, { x: left, y: down(high), width: right - left, height: high - low });
    } else {
      const [x, y] = each.pos.split(",").map(Number);
      const [w, h] = [each.width * POINTS, each.height * POINTS];
      places.nodes.set(each.name, { x: x - w / 2, y: down(y) - h / 2, width: w, height: h });
    }
  }
  for (const each of answer.edges ?? []) {
    const parts = each.pos.split(" ");
    let end = null;
    const points = [];
    for (const part of parts) {
      const numbers = part.split(",");
      if (numbers[0] === "e") end = [Number(numbers[1]), down(Number(numbers[2]))];
      else if (numbers[0] !== "s") points.push([Number(numbers[0]), down(Number(numbers[1]))]);
    }
    const label = each.lp ? each.lp.split(",").map(Number) : null;
    const middle = label ? [label[0], down(label[1])] : null;
    places.edges.push({ edge: edges[Number(each.id.slice(1))], points, end, middle });
  }
  return places;
}

function layOut(viz, folds, sizes, labels) {
  const { dot, edges, labelled } = dotOf(folds, sizes, labels);
  const answer = viz.render(dot, { format: "json0" });
  if (answer.status !== "success") throw new Error(answer.errors.map((each) => each.message).join("; "));
  return { ...placesOf(JSON.parse(answer.output), edges), labelled };
}

if (typeof module !== "undefined") module.exports = { dotOf, placesOf, layOut };
