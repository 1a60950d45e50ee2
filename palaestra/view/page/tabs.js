// Problems, signs, judges, time and settings of a run.
import { html, nothing } from "lit";
import { change, link } from "palaestra/address";
import { many, percent, short } from "palaestra/data";

const FATES = {
  forgotten: "right less often in the last third than in the first, beyond chance",
  never: "never solved",
  learned: "right more often in the last third than in the first, beyond chance",
  solved: "always solved",
  mixed: "some answers right, and no change that can be told from chance",
  unknown: "nobody says which answers are right",
};
const MOST = 100;

export function problems(run, found, query) {
  const fate = query.fate ?? Object.keys(FATES).find((f) => found.some((p) => p.fate === f)) ?? "mixed";
  const inside = found.filter((p) => p.fate === fate).sort((a, b) => b.episodes - a.episodes);
  return html`<p class="quiet">Learned and forgotten are judged for all ${many(found.length)} problems at once: about one in ten of those named is chance.</p>
    <div class="choices" role="group" aria-label="fate">
      ${Object.keys(FATES).map((f) => html`<button aria-pressed=${f === fate} @click=${() => change({ fate: f })}><b>${many(found.filter((p) => p.fate === f).length)}</b> ${f}</button>`)}
    </div>
    <p>${FATES[fate]}</p>
    <table><thead><tr><th>problem</th><th class="number">answers</th><th class="number">first third</th><th class="number">last third</th></tr></thead>
    <tbody>${inside.slice(0, MOST).map((p) => html`<tr><td><a href=${link([run, "groups"], { table: query.table, task: p.task_id })}>${p.task_id || "(no name)"}</a></td>
      <td class="number">${many(p.episodes)}</td><td class="number">${percent(p.first)}</td><td class="number">${percent(p.last)}</td></tr>`)}</tbody></table>
    ${inside.length > MOST ? html`<p class="quiet">and ${many(inside.length - MOST)} more</p>` : nothing}`;
}

const answerLink = (run, index, row) => link([run, "group", index.columns.step[row], index.columns.group[row]], { sample: index.columns.sample[row] });

export function signs(run, found, index) {
  return html`<p class="quiet">Questions to look into. That one stands out is no proof: read the answers that it names.</p>
    ${[...found].sort((a, b) => b.stands_out - a.stands_out).map((s) => html`<section class=${`sign ${s.stands_out ? "out" : ""}`}>
      <h3>${s.stands_out ? "Look: " : ""}${s.name}</h3>
      <p>${s.told}</p>
      ${Object.keys(s.numbers).length ? html`<table><thead><tr><th></th><th class="number">first third</th><th class="number">last third</th></tr></thead>
        <tbody>${Object.entries(s.numbers).map(([k, [a, b]]) => html`<tr><td>${k}</td><td class="number">${short(a)}</td><td class="number">${short(b)}</td></tr>`)}</tbody></table>` : nothing}
      ${(s.pieces ?? []).length ? html`<table><thead><tr><th>piece (digits are 0)</th><th class="number">answers with it, first third</th><th class="number">last third</th><th class="number">paid more by</th></tr></thead>
        <tbody>${s.pieces.map((p) => html`<tr><td><a href=${link([run, "groups"], { q: pattern(p.piece), order: "late" })}><code>${p.piece}</code></a></td>
          <td class="number">${percent(p.share[0])}</td><td class="number">${percent(p.share[1])}</td><td class="number">${short(p.reward)}</td></tr>`)}</tbody></table>` : nothing}
      ${s.rows.length ? html`<p>Read: ${s.rows.map((r, i) => html`${i ? ", " : ""}<a href=${answerLink(run, index, r)}>step ${index.columns.step[r]}, group ${index.columns.group[r]}</a>`)}</p>` : nothing}
    </section>`)}`;
}

// A piece as it may stand in a text: any white space between its words, any digit for 0.
const pattern = (piece) => `/${piece.split(" ").map((w) => w.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&").replace(/0/g, "\\d")).join("\\s*")}/`;

export function judges(run, found, index) {
  if (!found.length) return html`<p class="quiet">No judge with several votes, and none that compares in both orders, is among the rewards of this run.</p>`;
  return found.map((j) => html`<section><h3>${j.name}</h3>
    <dl class="facts"><dt>agreement of its ${j.of}</dt><dd>${percent(j.agreement)}</dd>
      ${j.unread === null ? nothing : html`<dt>could not be read</dt><dd>${percent(j.unread)}</dd>`}
      <dt>correlation with gold</dt><dd>${j.with_gold === undefined ? "nothing to compare with" : short(j.with_gold)}</dd></dl>
    ${j.rows.length ? html`<p>Least agreement first:</p><ol>${j.rows.map((r, i) => html`<li><a href=${answerLink(run, index, r)}>step ${index.columns.step[r]}, group ${index.columns.group[r]}</a> ${percent(j.each[i])}</li>`)}</ol>` : html`<p class="quiet">They always agreed.</p>`}
  </section>`);
}

const BINS = 48;

export function time(run, metrics, index) {
  const steps = metrics.filter((r) => Object.keys(r).some((k) => k.startsWith("seconds/")));
  if (!steps.length) return html`<p class="quiet">This run does not tell the phases of its steps (those of older versions do not); all of it took ${short(metrics.findLast?.((r) => r.seconds)?.seconds)} seconds.</p>`;
  const names = [...new Set(steps.flatMap((r) => Object.keys(r).filter((k) => k.startsWith("seconds/"))))];
  const of = (r) => names.reduce((sum, k) => sum + (r[k] ?? 0), 0);
  const total = Object.fromEntries(names.map((k) => [k, steps.reduce((sum, r) => sum + (r[k] ?? 0), 0)]));
  const all = Object.values(total).reduce((a, b) => a + b, 0);
  const size = Math.ceil(steps.length / BINS), bins = [];
  for (let i = 0; i < steps.length; i += size) bins.push(steps.slice(i, i + size));
  const highest = Math.max(...bins.map((b) => b.reduce((s, r) => s + of(r), 0) / b.length), 1e-9);
  const slow = [...steps].sort((a, b) => of(b) - of(a)).slice(0, 10);
  const longest = longestOf(index, new Set(slow.map((r) => r.step)));
  return html`<div class="stacks" role="img" aria-label="seconds a step by phase; the table below tells them">
      ${bins.map((b) => html`<span class="stack">${names.map((k, i) => html`<i class=${`phase${i % 6}`} .style=${`height:${(100 * b.reduce((s, r) => s + (r[k] ?? 0), 0)) / b.length / highest}%`}></i>`)}</span>`)}
    </div>
    <p class="quiet">steps ${steps[0].step} to ${steps.at(-1).step}; the highest bar is ${short(highest)} seconds a step</p>
    <table><thead><tr><th>phase</th><th class="number">seconds</th><th class="number">share</th></tr></thead>
      <tbody>${names.map((k, i) => html`<tr><td><i class=${`swatch phase${i % 6}`}></i> ${k.slice(8)}</td><td class="number">${short(total[k])}</td><td class="number">${percent(total[k] / all)}</td></tr>`)}</tbody></table>
    <h3>Slowest steps</h3>
    <table><thead><tr><th>step</th><th class="number">seconds</th><th>mostly</th><th class="number">tokens a second</th><th>longest answer</th></tr></thead>
      <tbody>${slow.map((r) => {
        const row = longest.get(r.step), most = names.reduce((a, b) => ((r[a] ?? 0) >= (r[b] ?? 0) ? a : b));
        return html`<tr><td><a href=${link([run, "groups"], { step: r.step })}>${r.step}</a></td><td class="number">${short(of(r))}</td><td>${most.slice(8)}</td><td class="number">${short(r.tokens_per_second)}</td>
          <td>${row === undefined ? "–" : html`<a href=${answerLink(run, index, row)}>${many(index.columns.n_tokens[row])} tokens</a>`}</td></tr>`;
      })}</tbody></table>${slowest(run, index)}${ages(index)}`;
}

const SLOWEST = 10;
const numbered = (x) => x !== null && x !== undefined && x === x;

// Answers that took longest. To find them no more than as many are kept in order.
function slowest(run, index) {
  const { seconds, n_tokens, step, status } = index.columns, found = [];
  for (let i = 0; i < index.n; i++) {
    if (!numbered(seconds?.[i]) || (found.length === SLOWEST && seconds[found.at(-1)] >= seconds[i])) continue;
    found.splice(found.findIndex((j) => seconds[j] < seconds[i]) >>> 0, 0, i);
    found.length = Math.min(found.length, SLOWEST);
  }
  if (!found.length) return html`<p class="quiet">Files of this run do not tell how long an answer took (those of older versions do not).</p>`;
  return html`<h3>Slowest answers</h3><p class="quiet">From its beginning to its end, waiting for others included.</p>
    <table><thead><tr><th>answer</th><th class="number">seconds</th><th class="number">tokens</th><th>how it ended</th></tr></thead>
      <tbody>${found.map((i) => html`<tr><td><a href=${answerLink(run, index, i)}>step ${step[i]}, group ${index.columns.group[i]}</a></td><td class="number">${short(seconds[i])}</td><td class="number">${many(n_tokens[i] ?? 0)}</td><td>${status.names[status.codes[i]]}</td></tr>`)}</tbody></table>`;
}

// By how many steps the weights that sampled an answer's oldest token were behind those that it trained.
function ages(index) {
  const { step, oldest_version, policy_version } = index.columns, by = new Map();
  let n = 0;
  for (let i = 0; i < index.n; i++) {
    const version = oldest_version[i] ?? policy_version[i];
    if (!numbered(version)) continue;
    const age = Math.max(0, step[i] - 1 - version); // of an evaluation the weights are those of its step
    by.set(age, (by.get(age) ?? 0) + 1);
    n++;
  }
  if (!n) return nothing;
  const known = [...by].sort(([a], [b]) => a - b);
  if (known.length === 1 && known[0][0] === 0) return html`<p class="quiet">Every answer was sampled with the weights that its step trained: none is older.</p>`;
  return html`<h3>Age of the weights</h3><p class="quiet">How many steps old the weights were that sampled an answer's first tokens.</p>
    <table><thead><tr><th class="number">steps old</th><th class="number">answers</th><th class="number">share</th></tr></thead>
      <tbody>${known.slice(0, 20).map(([age, k]) => html`<tr><td class="number">${age}</td><td class="number">${many(k)}</td><td class="number">${percent(k / n)}</td></tr>`)}</tbody></table>`;
}

function longestOf(index, steps) {
  const found = new Map(), { step, n_tokens } = index.columns;
  for (let i = 0; i < index.n; i++) if (steps.has(step[i]) && !(n_tokens[found.get(step[i])] >= n_tokens[i])) found.set(step[i], i);
  return found;
}

export const settings = (found) => html`<table class="settings"><thead><tr><th>setting</th><th>value</th></tr></thead>
  <tbody>${found.map(([k, v]) => html`<tr><td>${k}</td><td>${v}</td></tr>`)}</tbody></table>`;

export function rise(run, found, query) {
  if (!found || found.change === undefined) return nothing;
  const field = found.by === "domains" ? "domain" : "task";
  const ends = ([a, b]) => `${short(a)} → ${short(b)}`;
  return html`<details class="rise" ?open=${Boolean(query.from)}><summary>Why the reward changed${query.from ? ` between steps ${query.from} and ${query.to}` : ""}: <b>${short(found.change)}</b> from the first half to the second</summary>
    ${found.by ? html`<p>${short(found.same)} from the same ${found.by} answered otherwise, ${short(found.drawn)} from other ${found.by} drawn. Most:
      ${found.most.map(([name, x], i) => html`${i ? ", " : ""}<a href=${link([run, "groups"], { ...query, [field]: name })}>${name || "no name"}</a> ${short(x)}`)}.</p>`
      : html`<p>Few problems were drawn in both halves, so answers and problems cannot be told apart.</p>`}
    ${Object.keys(found.parts).length ? html`<p>Parts of the reward: ${Object.entries(found.parts).map(([k, x], i) => `${i ? ", " : ""}${k} ${ends(x)}`)}.</p>` : nothing}
    <p>Tokens an answer: ${ends(found.length)}. Share cut off: ${ends(found["cut off"])}.
      <a href=${link([run, "groups"], { order: "spread", from: query.from, to: query.to })}>Groups that differ most</a></p>
    ${query.from ? html`<button @click=${() => change({ from: "", to: "" })}>all steps</button>` : html`<p class="quiet">Drag over a curve to ask about a span of steps; click it to see a step.</p>`}
  </details>`;
}
