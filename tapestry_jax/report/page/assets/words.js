// Numbers and short texts, as people read them.

function amount(value, unit = "") {
  for (const [factor, prefix] of [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (value >= factor) return `${Number((value / factor).toPrecision(3))} ${prefix}${unit}`;
  }
  return `${Math.round(value)} ${unit}`.trim();
}

// `1 input`, `1,542 inputs`.
function many(count, word) {
  return `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
}

function duration(seconds) {
  for (const [unit, factor] of [["s", 1], ["ms", 1e-3], ["µs", 1e-6]]) {
    if (seconds >= factor) return `${Number((seconds / factor).toPrecision(3))} ${unit}`;
  }
  return seconds ? `${Number((seconds / 1e-9).toPrecision(3))} ns` : "0";
}

// The end of a path, in so many characters at most: what tells neighbours apart stands at its end.
function shortened(text, most = 30) {
  return text.length <= most ? text : `…${text.slice(text.length - most + 1)}`;
}

function cut(text, most) {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}

// What is left of a path inside of a scope: `bias` of `params/decoder/0/bias` in `decoder/0`.
function nameIn(path, scopePath) {
  const start = `/${path}`.indexOf(`/${scopePath}/`);
  return scopePath && start >= 0 ? path.slice(start + scopePath.length + 1) : path;
}

function sendText(send) {
  const times = send.times > 1 ? ` ×${send.times}` : "";
  const when = send.backward ? ", gradient" : "";
  return `${send.kind} over ${send.axes.join("+")}, ${amount(send.bytes, "B")}${times}${when}`;
}

// Collectives in a few words: `all-reduce model ×2`.
function sendsInShort(sends) {
  const found = new Map();
  for (const send of sends) {
    const name = `${send.kind} ${send.axes.join("+")}`;
    found.set(name, (found.get(name) ?? 0) + (send.times ?? 1));
  }
  return [...found].map(([name, times]) => (times > 1 ? `${name} ×${times}` : name));
}

if (typeof module !== "undefined") module.exports = { amount, many, duration, shortened, cut, nameIn, sendText, sendsInShort };
