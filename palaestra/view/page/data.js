// What the page knows of runs: asked of the server, or found in the page itself where it is a file.
const { tableFromIPC } = globalThis.fl;
const place = document.getElementById("held");
const held = place ? JSON.parse(place.textContent) : null;
export const live = !held;
let known = new Map();
let changed = () => {};

export const onChange = (f) => (changed = f);
export const forget = () => (known = new Map());

async function bytes(path) {
  if (held) {
    const packed = held[path.split("?")[0]];
    if (packed === undefined || path.includes("?"))
      throw new Error("this is not part of the file; open the run folder with `palaestra view`");
    const data = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
    return new Response(new Blob([data]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
  }
  const found = await fetch(path, { headers: { "X-Palaestra": "view" } });
  if (!found.ok) throw new Error(await found.text());
  return found.arrayBuffer();
}

export const json = async (path) => JSON.parse(new TextDecoder().decode(await bytes(path)));

// {value}, {error} or {} while it is under way; the page is drawn anew when it has come.
export function ask(path, read = json) {
  if (!known.has(path)) {
    const entry = {};
    known.set(path, entry);
    read(path).then(
      (value) => { entry.value = value; changed(); },
      (error) => { entry.error = String(error.message ?? error); changed(); },
    );
  }
  return known.get(path);
}

export const askIndex = (run, table) => ask(`api/run/${run}/table/${encodeURIComponent(table)}/index`, readIndex);

// Takes in a run that goes on: what is shown stays until the rest is there.
export async function renew(paths) {
  for (const path of paths) {
    const read = path.endsWith("/index") ? readIndex : json;
    const value = await read(path).catch(() => null);
    if (value !== null) known.set(path, { value });
  }
  for (const path of [...known.keys()]) if (!paths.includes(path) && !/explain|methods/.test(path)) known.delete(path);
  changed();
}

// Columns by name: arrays of numbers, and of names {codes, names}.
async function readIndex(path) {
  const table = tableFromIPC(new Uint8Array(await bytes(path)), { useDate: false });
  const columns = {};
  for (const { name, type } of table.schema.fields) {
    const column = table.getChild(name);
    columns[name] = type.typeId === -1 ? coded(column) : column.toArray();
  }
  return { n: table.numRows, columns, groups: groupsOf(table.numRows, columns) };
}

function coded(column) {
  const names = [], seen = new Map(), codes = new Int32Array(column.length);
  let i = 0;
  for (const name of column) {
    let code = seen.get(name);
    if (code === undefined) {
      code = names.length;
      seen.set(name, code);
      names.push(name);
    }
    codes[i++] = code;
  }
  return { codes, names };
}

// Rows [start, end) of one step and group, with what the table shows and sorts by.
function groupsOf(n, c) {
  if (!n) return [];
  const failed = c.status.names.map((s) => s.startsWith("error"));
  const cut = c.status.names.map((s) => s.startsWith("truncated"));
  const used = c.kept.names.map((k) => k === "trained" || k === "");
  const groups = [];
  for (let start = 0; start < n;) {
    const g = { start, step: c.step[start], group: c.group[start], errors: 0, tools: 0, cut: 0, unused: 0, age: 0, seconds: 0 };
    let end = start, sum = 0, squares = 0, valid = 0, tokens = 0;
    while (end < n && c.step[end] === g.step && c.group[end] === g.group) {
      const r = c.reward[end], code = c.status.codes[end], version = c.oldest_version[end] ?? c.policy_version[end];
      if (failed[code]) g.errors++;
      else if (r !== null && r === r) {
        sum += r;
        squares += r * r;
        valid++;
      }
      if (cut[code]) g.cut++;
      if (c.tool_failed?.[end]) g.tools++;
      if (!used[c.kept.codes[end]]) g.unused++;
      if (version !== null && version === version) g.age = Math.max(g.age, g.step - 1 - version);
      tokens += c.n_tokens[end] ?? 0;
      if (c.seconds?.[end] > g.seconds) g.seconds = c.seconds[end];
      end++;
    }
    const mean = valid ? sum / valid : NaN;
    const spread = valid ? Math.sqrt(Math.max(0, squares / valid - mean * mean)) : NaN;
    groups.push({ ...g, end, mean, spread, length: tokens / (end - start) });
    start = end;
  }
  return groups;
}

export const short = (x) =>
  x === null || x === undefined || x !== x ? "–" : String(+Number(x).toPrecision(3)).replace("-", "−");
export const signed = (x) => (x === null || x === undefined ? "none" : (x > 0 ? "+" : "") + short(x));
export const percent = (x) => (x === null || x === undefined ? "–" : `${(100 * x).toFixed(0)}%`);
export const counted = (n, one, more = `${one}s`) => `${many(n)} ${n === 1 ? one : more}`;
export const many = (n) => Number(n).toLocaleString("en");
