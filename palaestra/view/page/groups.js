// The table of groups: only the rows in sight are drawn.
import { html, nothing } from "lit";
import { link } from "palaestra/address";
import { counted, many, short } from "palaestra/data";

export const HEIGHT = 34, TALL = 612;
export const OUTCOMES = {
  "": "any outcome", mixed: "rewards differ", solved: "all best", failed: "all worst", cut: "cut off",
  errors: "failed", tools: "a tool failed", stale: "older weights", unused: "not trained on",
};
export const ORDERS = { "": "by step", late: "last step first", spread: "most different first", low: "lowest reward first", long: "longest first" };

const KEEP = {
  mixed: (g) => g.spread > 1e-9,
  solved: (g) => g.spread <= 1e-9 && g.mean > 0,
  failed: (g) => g.spread <= 1e-9 && g.mean <= 0,
  cut: (g) => g.cut > 0,
  errors: (g) => g.errors > 0,
  tools: (g) => g.tools > 0,
  stale: (g) => g.age > 0,
  unused: (g) => g.unused > 0,
};
const BEFORE = {
  late: (a, b) => b.step - a.step || a.group - b.group,
  spread: (a, b) => (b.spread || 0) - (a.spread || 0),
  low: (a, b) => (Number.isFinite(a.mean) ? a.mean : Infinity) - (Number.isFinite(b.mean) ? b.mean : Infinity),
  long: (a, b) => b.length - a.length,
};

// Of all groups those that the query asks for, in its order. `hits`: sorted rows that a search found.
export function chosen(index, query, hits) {
  const code = query.task ? index.columns.task_id.names.indexOf(query.task) : -1;
  const domain = query.domain ? index.columns.domain.names.indexOf(query.domain) : -1;
  const keep = KEEP[query.outcome] ?? (() => true);
  const from = +(query.from || query.step || -Infinity), to = +(query.to || query.step || Infinity);
  const found = index.groups.filter((g) =>
    keep(g) && g.step >= from && g.step <= to &&
    (!query.task || index.columns.task_id.codes[g.start] === code) &&
    (!query.domain || index.columns.domain.codes[g.start] === domain) &&
    (!hits || touches(hits, g)));
  return BEFORE[query.order] ? found.sort(BEFORE[query.order]) : found;
}

function touches(hits, g) {
  let low = 0, high = hits.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (hits[middle] < g.start) low = middle + 1;
    else high = middle;
  }
  return low < hits.length && hits[low] < g.end;
}

export const sight = (top) => Math.max(0, Math.floor(top / HEIGHT) - 4);
export const SHOWN = Math.ceil(TALL / HEIGHT) + 8;

// Of the rows one is among what Tab reaches; arrows go from it to the others.
const WALKS = { ArrowDown: 1, ArrowUp: -1, PageDown: 16, PageUp: -16, Home: -Infinity, End: Infinity };

export function table({ run, index, groups, query, top, current, excerpts, scrolled, walked }) {
  const first = sight(top), rows = groups.slice(first, first + SHOWN);
  const entry = current >= first && current < first + rows.length ? current : Math.min(Math.ceil(top / HEIGHT), first + rows.length - 1);
  const walk = (e) => {
    if (!(e.key in WALKS) || !e.target.dataset.at) return;
    e.preventDefault();
    walked(Math.max(0, Math.min(groups.length - 1, +e.target.dataset.at + WALKS[e.key])), e.currentTarget);
  };
  const range = rewards(index.columns.reward);
  const names = index.columns.task_id;
  return html`<div class="table" role="table" aria-rowcount=${groups.length + 1} aria-label="groups">
    <div class="row head" role="row">
      ${["step", "prompt", "answers", "mean", "spread", "tokens", "age"].map((t) => html`<span role="columnheader">${t}</span>`)}
    </div>
    <div class="scroll" @scroll=${scrolled} @keydown=${walk} role="rowgroup">
      <div class="all" role="presentation" .style=${`height:${groups.length * HEIGHT}px`}>
        ${rows.map((g, i) => html`<div class="row" role="row" aria-rowindex=${first + i + 2} .style=${`top:${(first + i) * HEIGHT}px`}>
          <span role="cell">${g.step}</span>
          <span role="cell" class="said"><a data-at=${first + i} tabindex=${first + i === entry ? 0 : -1} href=${link([run, "group", g.step, g.group], query.table ? { table: query.table } : {})}>${
            (excerpts.get(g.start)?.prompt || names.names[names.codes[g.start]] || "no prompt").replace(/\s+/g, " ")}</a></span>
          <span role="cell" class="strip">${strip(index.columns, g, range)}</span>
          <span role="cell">${short(g.mean)}</span><span role="cell">${short(g.spread)}</span>
          <span role="cell">${short(g.length)}</span><span role="cell">${g.age > 0 ? g.age : nothing}</span>
        </div>`)}
      </div>
    </div>
  </div>
  ${groups.length ? nothing : html`<p class="quiet">No group is like that.</p>`}`;
}

function rewards(reward) {
  let low = 0, high = 0;
  for (const r of reward) if (r === r && r !== null) { if (r < low) low = r; if (r > high) high = r; }
  return { low, high: high > low ? high : low + 1 };
}

// One mark an answer: its height is the reward, hatched where it was cut off, hollow where it failed.
function strip({ reward, status }, g, { low, high }) {
  const marks = [];
  for (let i = g.start; i < Math.min(g.end, g.start + 32); i++) {
    const r = reward[i], told = status.names[status.codes[i]];
    const kind = told.startsWith("error") ? "failed" : told.startsWith("truncated") ? "cut" : r > 0 ? "good" : "poor";
    const share = r === null || r !== r ? 0 : (r - low) / (high - low);
    marks.push(html`<i class=${kind} .style=${`--share:${share.toFixed(3)}`}></i>`);
  }
  const label = `${g.end - g.start} answers, mean reward ${short(g.mean)}${g.cut ? `, ${g.cut} cut off` : ""}${g.errors ? `, ${g.errors} failed` : ""}`;
  return html`<span class="marks" role="img" aria-label=${label}>${marks}</span>`;
}

// Why answers are in the outcome that is asked for: each cause with how often it came and the first answer of it.
const CAUSES = {
  cut: (c, i) => (told(c.status, i).startsWith("truncated") ? told(c.status, i) : null),
  errors: (c, i) => (told(c.status, i).startsWith("error") ? told(c.status, i) : null),
  tools: (c, i) => (c.tool_failed?.[i] ? "a call that failed, or could not be read" : null),
  unused: (c, i) => (["trained", ""].includes(told(c.kept, i)) ? null : told(c.kept, i)),
  stale: (c, i, step) => {
    const age = step - 1 - (c.oldest_version[i] ?? c.policy_version[i] ?? step - 1);
    return age > 0 ? `weights ${age} ${age === 1 ? "step" : "steps"} old` : null;
  },
};
const told = ({ codes, names }, i) => names[codes[i]];

export function causes(run, index, groups, query) {
  const why = CAUSES[query.outcome];
  if (!why) return nothing;
  const found = new Map();
  let all = 0;
  for (const g of groups)
    for (let i = g.start; i < g.end; i++, all++) {
      const cause = why(index.columns, i, g.step);
      if (cause === null) continue;
      const known = found.get(cause) ?? found.set(cause, { n: 0, first: i, g }).get(cause);
      known.n++;
    }
  const lines = [...found].sort(([, a], [, b]) => b.n - a.n);
  if (!lines.length) return nothing;
  return html`<table class="causes"><thead><tr><th>why</th><th class="number">answers</th><th class="number">of those in these groups</th><th>first</th></tr></thead>
    <tbody>${lines.slice(0, 12).map(([cause, { n, first, g }]) => html`<tr><td>${cause}</td><td class="number">${many(n)}</td><td class="number">${((100 * n) / all).toFixed(1)}%</td>
      <td><a href=${link([run, "group", g.step, g.group], { table: query.table, sample: index.columns.sample[first] })}>step ${g.step}, group ${g.group}</a></td></tr>`)}</tbody></table>`;
}

export const count = (groups, hits) =>
  `${counted(groups.length, "group")}${hits ? `, ${counted(hits.length, "answer matches", "answers match")}` : ""}`;
