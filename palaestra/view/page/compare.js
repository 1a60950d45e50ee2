// Two runs beside one another.
import { html, nothing } from "lit";
import { change, link } from "palaestra/address";
import { ask, many, percent, short } from "palaestra/data";
import { answers, colourBar, facts, ranked, transcript } from "palaestra/group";

const WHO = { left: "only the left one solves", right: "only the right one solves", both: "both solve", neither: "neither solves" };

export function compare([left, right], query) {
  const entry = ask(`api/compare/${left}/${right}`);
  if (entry.error) return html`<p class="error" role="alert">${entry.error}</p>`;
  if (!entry.value) return html`<p class="quiet" role="status">comparing …</p>`;
  const { names, tables, settings, windows, parts_at, counts, problems } = entry.value;
  const who = query.who ?? ["left", "right", "both", "neither"].find((w) => counts[w]) ?? "both";
  const picked = problems.find((p) => p.task_id === query.task);
  if (picked) return beside([left, right], names, tables, picked, query);
  return html`<h2>${names[0]} <em>and</em> ${names[1]}</h2>
    <p>${parts_at === null ? "At no step do their rewards differ beyond chance." : html`Their rewards part from step <b>${parts_at}</b> on, beyond chance.`}
      <span class="quiet">Right minus left, in windows of common steps; intervals hold for all windows at once.</span></p>
    ${windows.length ? html`<table><thead><tr><th>steps</th><th class="number">difference</th><th class="number">95% interval</th></tr></thead>
      <tbody>${windows.map((w) => html`<tr class=${w.low > 0 || w.high < 0 ? "out" : ""}><td>${w.from} to ${w.to}</td><td class="number">${short(w.mean)}</td><td class="number">${w.low === w.high ? "the same" : html`${short(w.low)} to ${short(w.high)}`}</td></tr>`)}</tbody></table>` : html`<p class="quiet">They have no steps in common.</p>`}
    <h3>Settings that differ</h3>
    ${settings.length ? html`<table class="settings"><thead><tr><th>setting</th><th>${names[0]}</th><th>${names[1]}</th></tr></thead>
      <tbody>${settings.map(([k, a, b]) => html`<tr><td>${k}</td><td>${a || "not set"}</td><td>${b || "not set"}</td></tr>`)}</tbody></table>` : html`<p class="quiet">None.</p>`}
    <h3>Problems that both tried, by their last answers</h3>
    <div class="choices" role="group" aria-label="who solves">${Object.entries(WHO).map(([k, t]) => html`<button aria-pressed=${k === who} @click=${() => change({ who: k })}><b>${many(counts[k])}</b> ${t}</button>`)}</div>
    <table><thead><tr><th>problem</th><th class="number">${names[0]}</th><th class="number">${names[1]}</th></tr></thead>
      <tbody>${problems.filter((p) => p.who === who).slice(0, 100).map((p) => html`<tr><td><a href=${link(["compare", left, right], { ...query, task: p.task_id })}>${p.task_id}</a></td><td class="number">${percent(p.left)}</td><td class="number">${percent(p.right)}</td></tr>`)}</tbody></table>`;
}

function beside(runs, names, tables, problem, query) {
  return html`<p class="path"><a href=${link(["compare", ...runs], { who: query.who })}>${names[0]} and ${names[1]}</a> / ${problem.task_id}</p>
    <h2>${problem.task_id}</h2>
    <div class="beside">${runs.map((run, i) => column(run, names[i], i ? problem.right_at : problem.left_at, query, i ? "right" : "left", tables))}</div>`;
}

function column(run, name, [step, group], query, side, tables) {
  const entry = ask(`api/run/${run}/table/${encodeURIComponent(tables[side === "left" ? 0 : 1])}/group/${step}/${group}`);
  const at = +(query[side] ?? 0);
  const head = html`<h3>${name}, <a href=${link([run, "group", step, group])}>step ${step}</a></h3>`;
  if (entry.error) return html`<section>${head}<p class="error">${entry.error}</p></section>`;
  if (!entry.value) return html`<section>${head}<p class="quiet">reading …</p></section>`;
  const shown = ranked(entry.value), e = shown[Math.min(at, shown.length - 1)];
  if (!e) return html`<section>${head}<p class="quiet">not recorded</p></section>`;
  const point = (f) => change({ side, row: f.row, token: f.token }, { quiet: true });
  const focus = query.side === side && query.token !== undefined ? { row: +query.row, token: +query.token } : null;
  return html`<section>${head}${side === "left" ? colourBar(query.colour ?? "credit", shown) : nothing}
    ${answers(shown, at, (i) => change({ [side]: i, token: "" }))}
    ${transcript(e, shown, { colour: query.colour ?? "credit", focus, point })}${facts(e, step)}</section>`;
}
