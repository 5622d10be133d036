// What the page would show of a document: `node probe.cjs ASSETS DATA [SCOPES]`, where these are folded or unfolded in turn.

const fs = require("fs");
const vm = require("vm");

const [, , assets, file, keys] = process.argv;
const read = (name) => fs.readFileSync(`${assets}/${name}`, "utf8");
// As scripts of a page: they see each other's names, and no modules.
Object.assign(globalThis, { require, __filename, data: JSON.parse(fs.readFileSync(file, "utf8")), keys: JSON.parse(keys) });
vm.runInThisContext(read("viz-global.js"));
const own = ["fold.js", "layout.js", "words.js", "draw.js", "tables.js", "times.js", "detail.js", "page.js"].map(read);

const look = `
(viz) => {
  const folds = new Folds(data);
  const sizes = {
    node: () => ({ width: 90, height: 40 }),
    title: () => ({ width: 60, height: 18 }),
    label: () => ({ width: 50, height: 13 }),
  };
  const seen = () => {
    const { dot } = dotOf(folds, sizes, edgeWords);
    const places = layOut(viz, folds, sizes, edgeWords);
    const fits = ({ x, y, width, height }) => x >= -1 && y >= -1 && x + width <= places.width + 1 && y + height <= places.height + 1;
    return {
      boxes: folds.items().map((item) => (item.kind === "scope" ? data.scopes[item.id].name : data.nodes[item.id].path)),
      drawn: places.nodes.size,
      clusters: places.clusters.size,
      edges: places.edges.map(({ edge }) => [edge.from, edge.to, edgeWords(edge)]),
      inside: [...places.nodes.values()].every(fits),
      dot,
    };
  };
  const found = [seen()];
  for (const key of keys) found.push(folds.toggle(key) ? seen() : "refused");
  const last = data.nodes.length - 2;
  folds.open.clear();
  folds.reveal({ kind: "node", id: last });
  const families = data.nodes.map((_, i) => folds.family(i));
  return [...found, { revealed: folds.standIn(last) === "n" + last, families }];
}`;
const run = vm.runInThisContext(`${own.join("\n")}\n${look}`);
Viz.instance().then((viz) => console.log(JSON.stringify(run(viz))));
