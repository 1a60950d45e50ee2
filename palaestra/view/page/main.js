// The page: reads the address, asks for what it needs, draws.
import { html, nothing, render } from "lit";
import { change, link, read } from "palaestra/address";
import { charts } from "palaestra/charts";
import { compare } from "palaestra/compare";
import { ask, askIndex, counted, json, live, onChange, renew } from "palaestra/data";
import { answers, colourBar, explainForm, facts, path, ranked, spread, transcript } from "palaestra/group";
import { causes, chosen, count, HEIGHT, OUTCOMES, ORDERS, sight, SHOWN, table } from "palaestra/groups";
import { judges, problems, rise, settings, signs, time } from "palaestra/tabs";
import { tree } from "palaestra/tree";

const TABS = ["groups", "problems", "signs", "judges", "time", "settings"];
const place = document.getElementById("page");
const excerpts = new Map(); // by "run/table", then by row
let runs = [], top = 0;
let current = 0, wanted = null; // the row of the table that Tab reaches, and one that is to get the focus
let drawn = null, shown = [], scheduled = true; // nothing is drawn before the first answers are there

const mainOf = (run) => runs[run]?.main ?? "training"; // the table that is shown where no other is asked for

const draw = () => {
  if (scheduled) return;
  scheduled = true;
  queueMicrotask(() => {
    scheduled = false;
    paint();
  });
};

function paint() {
  const { parts, query } = read();
  const body = parts[0] === "compare" ? compare(parts.slice(1, 3), query) : ofRun(+(parts[0] ?? 0), parts[1] ?? "groups", parts.slice(2), query);
  render(html`<a class="skip" href="#content" @click=${skip}>to the content</a>${chooser(parts)}<div id="content" tabindex="-1">${body}</div>${keys(query)}`, place);
  if (wanted !== null) document.querySelector(`[data-at="${wanted}"]`)?.focus({ preventScroll: true });
  wanted = null;
  const box = document.getElementById("charts");
  if (box && drawn !== box.dataset.of) {
    drawn = box.dataset.of;
    const metrics = ask(`api/run/${parts[0] ?? 0}/metrics`).value;
    if (metrics) charts(box, metrics, { choose: (step) => change({ step, from: "", to: "" }), span: (from, to) => change({ from, to, step: "" }) });
    else drawn = null;
  } else if (!box) drawn = null;
}

const skip = (e) => {
  e.preventDefault();
  document.getElementById("content").focus();
};

function chooser(parts) {
  if (runs.length < 2) return nothing;
  const now = parts[0] === "compare" ? +parts[1] : +(parts[0] ?? 0), other = parts[0] === "compare" ? +parts[2] : now === 0 ? 1 : 0;
  const select = (name, at, to) => html`<label>${name} <select @change=${(e) => (location.hash = to(+e.target.value))}>
    ${runs.map((r, i) => html`<option value=${i} ?selected=${i === at}>${r.name}</option>`)}</select></label>`;
  return html`<nav class="runs" aria-label="runs">${select("run", now, (i) => (parts[0] === "compare" ? link(["compare", i, other]) : link([i, "groups"])))}
    ${parts[0] === "compare" ? select("with", other, (i) => link(["compare", now, i])) : html`<a href=${link(["compare", now, other])}>compare with another</a>`}
    ${parts[0] === "compare" ? html`<a href=${link([now, "groups"])}>leave</a>` : nothing}</nav>`;
}

function ofRun(run, tab, rest, query) {
  const about = runs[run];
  if (!about) return html`<p class="error" role="alert">There is no run ${run} here.</p>`;
  return html`${header(run, about)}${tab === "group" ? groupPage(run, rest, query) : overview(run, about, TABS.includes(tab) ? tab : "groups", query)}`;
}

const nameOf = (model) => String(model).replace(/\/+$/, "").split("/").at(-1); // of a path its end

function header(run, { name, config, summary, tables }) {
  const said = ask(`api/run/${run}/verdict`).value;
  const recipe = summary.recipe ?? config.recipe ?? nameOf(summary.model ?? "run"), task = summary.task ?? config.task ?? "";
  document.title = `${recipe} on ${task}: ${name}`;
  const ends = (said?.ends ?? []).map((e, i) => html`${i ? " → " : ""}<b>${e.mean}</b> <small>(${e.low} to ${e.high})</small>`);
  const rows = tables.training?.rows ?? 0, steps = tables.training?.files ?? 0;
  const attempts = Object.entries(tables).filter(([t]) => t !== "training").reduce((sum, [, t]) => sum + t.rows, 0);
  const size = rows || !attempts ? `${counted(rows, "rollout")} in ${counted(steps, "step")}` : `${counted(attempts, "answer")} to held-out problems`;
  return html`<header><h1><a href=${link([run, "groups"])}>${recipe}</a>${task ? html` <em>on</em> ${task}` : nothing}</h1>
    <p class="quiet">${name} · ${size}${summary.steps === undefined ? " · not finished" : ""}</p>
    ${said ? html`<p class="verdict">${ends.length ? html`${said.what} ${ends}. ` : nothing}${said.words}</p>` : nothing}</header>`;
}

// What an entry gives, or that it is awaited, or why it does not come.
function shownWith(entries, f) {
  const bad = entries.find((e) => e.error);
  if (bad) return html`<p class="error" role="alert">${bad.error}</p>`;
  return entries.every((e) => e.value !== undefined) ? f(...entries.map((e) => e.value)) : html`<p class="quiet" role="status">reading …</p>`;
}

function overview(run, about, tab, query) {
  const name = query.table ?? mainOf(run);
  const tables = Object.keys(about.tables);
  const here = { table: query.table };
  const metrics = ask(`api/run/${run}/metrics`);
  const stamp = `${run}/${metrics.value?.length ?? 0}`;
  return html`<section class="charts" id="charts" data-of=${stamp} aria-label="curves"></section>
    <nav class="tabs" aria-label="views">${TABS.map((t) => html`<a aria-current=${t === tab ? "page" : nothing} href=${link([run, t], here)}>${t}</a>`)}
      ${tables.length > 1 ? html`<label>episodes of <select @change=${(e) => change({ table: e.target.value === mainOf(run) ? "" : e.target.value, task: "" })}>
        ${tables.map((t) => html`<option ?selected=${t === name} value=${t}>${t}</option>`)}</select></label>` : nothing}</nav>
    ${{
      groups: () => shownWith([askIndex(run, name)], (index) => groupsTab(run, name, index, query)),
      problems: () => shownWith([ask(`api/run/${run}/table/${encodeURIComponent(name)}/problems`)], (found) => problems(run, found, query)),
      signs: () => shownWith([ask(`api/run/${run}/signs`), askIndex(run, mainOf(run))], (found, index) => signs(run, found, index)),
      judges: () => shownWith([ask(`api/run/${run}/judges`), askIndex(run, mainOf(run))], (found, index) => judges(run, found, index)),
      time: () => shownWith([metrics, askIndex(run, mainOf(run))], (found, index) => time(run, found, index)),
      settings: () => shownWith([ask(`api/run/${run}/settings`)], settings),
    }[tab]()}`;
}

function groupsTab(run, name, index, query) {
  const search = query.q ? ask(`api/run/${run}/table/${encodeURIComponent(name)}/search?q=${encodeURIComponent(query.q)}`) : null;
  const hits = search?.value ?? null;
  shown = search && !search.value ? [] : chosen(index, query, hits);
  const at = `${run}/${name}`;
  if (!excerpts.has(at)) excerpts.set(at, new Map());
  wantExcerpts(run, name, excerpts.get(at));
  const select = (field, of, label) => html`<select aria-label=${label} @change=${(e) => { top = current = 0; change({ [field]: e.target.value }); }}>
    ${Object.entries(of).map(([k, t]) => html`<option value=${k} ?selected=${(query[field] ?? "") === k}>${t}</option>`)}</select>`;
  const span = query.from ? ask(`api/run/${run}/rise?from=${query.from}&to=${query.to}`) : ask(`api/run/${run}/rise`);
  const part = (field, text) => (query[field] ? html`<button @click=${() => change({ [field]: "" })} aria-label=${`${text} ${query[field]}, remove`}>${text} ${query[field]} ×</button>` : nothing);
  return html`${name === "training" ? rise(run, span.value, query) : nothing}
    <form class="filters" role="search" @submit=${(e) => e.preventDefault()}>
      <input type="search" placeholder="search prompts, answers and results of tools; /regular expression/" aria-label="search prompts, answers and results of tools" .value=${query.q ?? ""} @change=${(e) => { top = current = 0; change({ q: e.target.value }); }} />
      ${select("outcome", OUTCOMES, "outcome")} ${select("order", ORDERS, "order")}
      <label>step <input type="number" min="0" .value=${query.step ?? ""} @change=${(e) => { top = current = 0; change({ step: e.target.value, from: "", to: "" }); }} /></label>
      ${part("task", "problem")}${part("domain", "domain")}
      <output>${search && !search.value ? (search.error ?? "searching …") : count(shown, hits)}</output>
    </form>
    ${causes(run, index, shown, query)}
    ${table({ run, index, groups: shown, query, top, current, excerpts: excerpts.get(at), scrolled: (e) => { top = e.target.scrollTop; draw(); }, walked })}`;
}

// Goes to a row, and brings it into sight.
function walked(row, box) {
  current = wanted = row;
  if (row * HEIGHT < box.scrollTop) box.scrollTop = row * HEIGHT;
  else if ((row + 1) * HEIGHT > box.scrollTop + box.clientHeight) box.scrollTop = (row + 1) * HEIGHT - box.clientHeight;
  top = box.scrollTop;
  draw();
}

let asked = 0;
async function wantExcerpts(run, name, known) {
  const first = sight(top), rows = shown.slice(first, first + SHOWN).map((g) => g.start).filter((r) => !known.has(r));
  if (!rows.length || !live) return;
  const mine = ++asked;
  await new Promise((done) => setTimeout(done, 40));
  if (mine !== asked) return; // still scrolling
  const found = await json(`api/run/${run}/table/${encodeURIComponent(name)}/excerpts?rows=${rows.join(",")}`).catch(() => []);
  found.forEach((e, i) => known.set(rows[i], e));
  draw();
}

function groupPage(run, [step, group], query) {
  const name = query.table ?? mainOf(run);
  const address = `api/run/${run}/table/${encodeURIComponent(name)}/group/${step}/${group}`;
  return html`${path(run, query, step, group)}${shownWith([ask(address)], (episodes) => {
    if (!episodes.length) return html`<p class="quiet">This group is not recorded.</p>`;
    const order = ranked(episodes);
    const asked = query.sample !== undefined ? order.findIndex((e) => String(e.sample) === query.sample) : -1;
    const at = asked >= 0 ? asked : Math.max(0, Math.min(+(query.at ?? 0), order.length - 1));
    const e = order[at], entry = query.explain ? ask(`api/run/${run}/explain/${encodeURIComponent(query.explain)}/${step}/${group}`) : null;
    const other = entry?.value ? spread(order, entry.value) : null;
    const colour = query.colour === "other" && !other ? "credit" : query.colour || "credit";
    const focus = query.token !== undefined ? { row: +(query.row ?? 0), token: +query.token } : null;
    const methods = live ? ask("api/methods").value : null;
    return html`<h2>${e.task_id || "no name"}</h2>
      <p><a href=${link([run, "groups"], { table: query.table, task: e.task_id })}>all attempts at this problem</a></p>
      <div class=${`sides ${query.tree ? "wide" : ""}`}><div>${listOrTree(query)}${(query.tree ? tree : (...x) => answers(...x, other))(order, at, (i) => change({ at: i, sample: "", token: "", row: "" }))}</div>
      <article>${colourBar(colour, order, other, query.explain)}
        ${transcript(e, order, { colour, other, focus, point: (f) => change({ row: f.row, token: f.token }, { quiet: true }) })}
        ${facts(e, +step)}
        ${live && name === "training" ? explainForm(methods, query.explain, entry) : nothing}
        <p class="quiet">Replay: <code>palaestra explain METHOD --rollouts ${runs[run].name}/rollouts/step-${String(step).padStart(6, "0")}.parquet</code></p>
      </article></div>`;
  })}`;
}

const listOrTree = (query) => html`<div class="choices" role="group" aria-label="answers as">
  ${[["", "list"], ["1", "tree"]].map(([to, name]) => html`<button aria-pressed=${(query.tree ?? "") === to} @click=${() => change({ tree: to })}>${name}</button>`)}</div>`;

// ---- keyboard

const KEYS = [["/", "search"], ["1 to 6", "the views"], ["n, p", "next and previous answer of a group"], ["↑ ↓", "along the groups, once one of them has the focus"], ["→ ←", "along the tokens, once one of them has the focus"], ["c", "next colour"], ["t", "answers as a list or a tree"], ["Escape", "back to the groups"], ["?", "these keys"]];
const keys = (query) => (query.keys ? html`<dialog open aria-label="keys"><h3>Keys</h3><dl class="facts">${KEYS.map(([k, t]) => html`<dt><kbd>${k}</kbd></dt><dd>${t}</dd>`)}</dl>
  <button @click=${() => change({ keys: "" }, { quiet: true })}>close</button></dialog>` : html`<footer><button class="link" @click=${() => change({ keys: 1 }, { quiet: true })}>keys</button></footer>`);

addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) return;
  const { parts, query } = read(), run = parts[0] ?? "0", inGroup = parts[1] === "group";
  if (e.key === "/") {
    e.preventDefault();
    document.querySelector("input[type=search]")?.focus();
  } else if (e.key === "?") change({ keys: query.keys ? "" : 1 }, { quiet: true });
  else if (e.key === "Escape") query.keys ? change({ keys: "" }, { quiet: true }) : inGroup && (location.hash = link([run, "groups"], { table: query.table }));
  else if (/^[1-6]$/.test(e.key) && parts[0] !== "compare") location.hash = link([run, TABS[+e.key - 1]], { table: query.table });
  else if (inGroup && (e.key === "n" || e.key === "p")) {
    const buttons = [...document.querySelectorAll(".answers button")], now = buttons.findIndex((b) => b.getAttribute("aria-pressed") === "true");
    buttons[now + (e.key === "n" ? 1 : -1)]?.click();
  } else if (inGroup && e.key === "t") change({ tree: query.tree ? "" : "1" });
  else if (e.key === "c") {
    const radios = [...document.querySelectorAll(".colours input")], now = radios.findIndex((r) => r.checked);
    radios[(now + 1) % radios.length]?.click();
  }
});

// ---- a run that goes on

const EVERY = 3000;
async function follow() {
  const found = await json("api/runs").catch(() => null);
  if (!found) return;
  const before = runs;
  runs = found;
  const moved = found.map((r, i) => [r, i]).filter(([r, i]) => JSON.stringify([r.log, r.tables, r.summary.steps]) !== JSON.stringify([before[i]?.log, before[i]?.tables, before[i]?.summary.steps]));
  if (!moved.length) return;
  const { parts, query } = read(), now = moved.find(([, i]) => i === +(parts[0] ?? 0));
  if (now) await renew([`api/run/${now[1]}/table/${encodeURIComponent(query.table ?? mainOf(now[1]))}/index`, `api/run/${now[1]}/metrics`, `api/run/${now[1]}/verdict`]);
  else draw();
}

onChange(draw);
for (const name of ["hashchange", "moved", "popstate"])
  addEventListener(name, () => {
    draw();
    if (name === "hashchange") { top = current = 0; scrollTo(0, 0); }
  });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { drawn = null; draw(); });
let wide = innerWidth;
addEventListener("resize", () => { if (Math.abs(innerWidth - wide) > 40) { wide = innerWidth; drawn = null; draw(); } });

try {
  runs = await json("api/runs");
  const { parts } = read();
  const run = parts[0] === "compare" ? 0 : +(parts[0] ?? 0);
  if (runs[run]) {
    const first = [askIndex(run, read().query.table ?? mainOf(run)), ask(`api/run/${run}/metrics`)];
    while (first.some((e) => e.value === undefined && !e.error)) await new Promise((done) => setTimeout(done, 5));
  }
  place.replaceChildren();
  scheduled = false;
  paint();
  if (live) setInterval(follow, EVERY);
} catch (error) {
  place.textContent = String(error.message ?? error);
}
document.documentElement.dataset.ready = performance.now().toFixed(0);
