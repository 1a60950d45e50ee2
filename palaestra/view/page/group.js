// One group with its tokens: its answers at the left, best first; the chosen one as turns.
import { html, nothing } from "lit";
import { change, link } from "palaestra/address";
import { short, signed } from "palaestra/data";
import { from } from "palaestra/tree";

export const COLOURS = {
  credit: "credit", weight: "weight", surprise: "surprise", ratio: "ratio", author: "who wrote it",
};
const ABOUT = {
  credit: "how much better or worse than expected the method thought the token",
  weight: "what multiplied the gradient of the token's log-prob in the update: above 0 it was made likelier",
  surprise: "how unlikely the token was when it was sampled",
  ratio: "the token's probability in the last update over that of the sampling",
  author: "whose tokens these are, and which are trained on",
  other: "the weight that the other method gives the token",
};
const RARE = [0.9, 0.5, 0.2, 0.05];
const LEVELS = 4;

// Best first; failed ones last. `at` in the address is the place in this order.
export const ranked = (episodes) =>
  episodes.map((e, i) => [e, i]).sort(([a, i], [b, j]) => value(b) - value(a) || i - j).map(([e]) => e);
const failed = (e) => (e.status ?? "").startsWith("error");
const value = (e) => (failed(e) || e.reward === null ? -Infinity : e.reward);

// What another method makes of the same answers: a number for each trained token of each row.
export function spread(episodes, found) {
  const order = episodes.filter((e) => !failed(e) && e.reward !== null);
  const by = new Map();
  order.forEach((e, k) => {
    let n = 0;
    const take = (list) => e.rows.map((r) => r.tokens.map((_, i) => (r.trained[i] && !r.hidden[i] ? (list?.[n++] ?? 0) : null)));
    const weight = take(found.token_weights[0][k]);
    by.set(e, { weight, credit: found.advantages[0][k] });
  });
  return by;
}

export function numbers(e, r, k, colour, other) {
  if (colour === "other") return other?.get(e)?.weight[k] ?? [];
  if (colour === "ratio") return (r.ratio ?? []).map((x) => (x === null ? null : Math.log(x)));
  return (colour === "weight" ? r.weight : r.advantage) ?? [];
}

function largest(episodes, colour, other) {
  let most = 0;
  for (const e of episodes)
    e.rows.forEach((r, k) => numbers(e, r, k, colour, other).forEach((x, i) => {
      if (r.trained?.[i] && Math.abs(x ?? 0) > most) most = Math.abs(x);
    }));
  return most;
}

export function answers(shown, at, pick, other) {
  return html`<ol class="answers" aria-label="answers, best first">
    ${shown.map((e, i) => html`<li><button aria-pressed=${i === at} @click=${() => pick(i)}>
      <b class=${value(e) > 0 ? "good" : "poor"}>${short(e.reward)}</b>
      <span>${e.advantage === null ? "no credit" : `credit ${signed(e.advantage)}`}</span>
      ${other?.get(e) ? html`<span>there ${signed(mean(other.get(e).credit))}</span>` : nothing}
      <span>${e.n_tokens ?? "?"} tokens</span>
      ${e.seconds === null || e.seconds === undefined ? nothing : html`<span>${short(e.seconds)} s</span>`}
      ${remark(e)}${from(shown, i)}
      <q>${(e.text || whatItHas(e)).slice(0, 80)}</q>
    </button></li>`)}
  </ol>`;
}

// Of what was not sampled, the tokens that are trained on.
const whatItHas = (e) => e.rows.flatMap((r) => (r.tokens ?? []).filter((_, i) => r.trained?.[i])).join("");
const mean = (x) => (Array.isArray(x) ? (x.length ? x.reduce((a, b) => a + b, 0) / x.length : 0) : x);
const remark = (e) => [
  e.status === "finished" ? nothing : html`<em>${e.status}</em>`,
  !e.kept || e.kept === "trained" ? nothing : html`<em>${e.kept}</em>`,
  e.muted ? html`<em>muted</em>` : nothing,
];

// The colours that these answers have numbers for, and the first of them where the one that is asked for is not among these.
function coloursOf(shown, other) {
  const known = Object.keys(COLOURS).filter((c) => c === "author" || (c === "surprise" ? any(shown, "logp") : any(shown, { credit: "advantage" }[c] ?? c)));
  return other ? [...known, "other"] : known;
}
export function colourOf(asked, shown, other) {
  const all = coloursOf(shown, other);
  return all.includes(asked) ? asked : all[0];
}

export function colourBar(colour, shown, other, where) {
  const all = coloursOf(shown, other), at = colourOf(colour, shown, other);
  const scale = largest(shown, at, other);
  return html`<fieldset class="colours">
    <legend>colour</legend>
    ${all.map((c) => html`<label><input type="radio" name="colour" .checked=${c === at} @change=${() => change({ colour: c })} />${c === "other" ? `as ${where}` : COLOURS[c]}</label>`)}
    <span class="key">${key(at, scale)}</span>
  </fieldset>
  <p class="quiet">${ABOUT[at]}${at === "other" ? ` (${where})` : ""}.</p>`;
}

const any = (shown, column) => shown.some((e) => e.rows.some((r) => r[column]?.some((x) => x !== null)));

function key(colour, scale) {
  if (colour === "surprise") return html`probability <i>over 0.9</i>${RARE.map((p, i) => html`<i class=${`rare${i + 1}`}>under ${p}</i>`)}`;
  if (colour === "author") return html`<i class="mine">trained</i><i class="kept">sampled, not trained</i><i class="forced">another's</i><i class="other">the environment</i>`;
  if (!scale) return html`<i>0 everywhere</i>`;
  const told = colour === "ratio" ? (x) => short(Math.exp(x)) : signed;
  return html`<i class="down4">${told(-scale)}</i><i class="down2">&nbsp;</i><i>${colour === "ratio" ? "1" : "0"}</i><i class="up2">&nbsp;</i><i class="up4">${told(scale)}</i>`;
}

// The contexts of an episode: turns, with tool calls, results and pictures in their places.
export function transcript(e, shown, { colour: asked, other, focus, point }) {
  const colour = colourOf(asked, shown, other);
  const scale = largest(shown, colour, other);
  const several = e.rows.length > 1;
  return html`${alike(e, colour)}
    ${e.rows.map((r, k) => html`<section class="context" aria-label=${title(r, k, several)}>
      ${several || r.thread ? html`<h3>${title(r, k, several)}</h3>` : nothing}
      ${turns(r).map((t) => turn(e, r, k, t, { colour, scale, other, focus, point }))}
    </section>`)}`;
}

function alike(e, colour) {
  if (colour !== "credit") return nothing;
  const found = new Set(e.rows.flatMap((r) => (r.advantage ?? []).filter((_, i) => r.trained[i])));
  return found.size === 1 ? html`<p class="quiet">Every token of this answer has the same credit: ${signed([...found][0])}.</p>` : nothing;
}

const title = (r, k, several) => [r.seat || (several ? `context ${k + 1}` : "context"), r.thread].filter(Boolean).join(", ");
const isOwn = (author) => Boolean(author) && author !== "environment";

// How models of several families write a call, and how its result begins.
const CALL = /<tool_call>|<\|python_tag\|>|"arguments"\s*:|<search>|<code>|<function=/;
const RESULT = /^\s*(<\|?tool(_response)?\|?>|<tool_result>|<information>|<\|im_start\|>tool)/;

// Neighbours of one author and turn stand in one block.
export function turns(r) {
  const found = [], spoken = [...(r.said ?? [])];
  const speak = (i) => {
    while (spoken.length && spoken[0].at <= i) {
      const { author, turn, text } = spoken.shift();
      found.push({ who: `${author} ${turn} without tokens`, author: author || "environment", turn, at: [], text });
    }
  };
  (r.tokens ?? []).forEach((_, i) => {
    speak(i);
    const author = r.author?.[i] || "environment", who = `${author} ${r.turn?.[i]} ${r.hidden?.[i]}`;
    if (found.at(-1)?.who !== who) found.push({ who, author, hidden: r.hidden?.[i], turn: r.turn?.[i], at: [] });
    found.at(-1).at.push(i);
  });
  speak(Infinity);
  let called = false, begun = false;
  for (const t of found) {
    const text = t.text ?? t.at.map((i) => r.tokens[i]).join("");
    t.own = isOwn(t.author);
    t.kind = t.own ? t.author === "policy" ? r.seat || "policy" : t.author : begun ? (called || RESULT.test(text) ? "tool result" : "environment") : "prompt";
    t.calls = t.own && CALL.test(text);
    if (t.own) { called = t.calls; begun = true; }
  }
  return found;
}

const medium = (address) => address.startsWith("data:audio/")
  ? html`<audio controls src=${address} aria-label="sound that the policy heard"></audio>`
  : html`<img src=${address} alt="picture that the policy saw" />`;

function turn(e, r, k, t, { colour, scale, other, focus, point }) {
  const here = focus && focus.row === k ? focus.token : -1;
  if (t.text !== undefined) return html`<div class=${`turn ${t.kind === "tool result" ? "result" : ""}`}>
    <small>${t.kind}${t.own && r.seat && t.kind !== r.seat ? ` as ${r.seat}` : ""}${t.calls ? ", calls a tool" : ""}, turn ${t.turn ?? 0}, without tokens</small><div class="tokens">${seen(t.text)}</div></div>`;
  const values = numbers(e, r, k, colour, other);
  const tokens = t.at.map((i) => html`${r.shown?.[i] ? medium(r.shown[i]) : nothing}<i data-i=${i} class=${`${look(r, i, colour, values, scale)}${i === here ? " here" : ""}`}>${r.shown?.[i] !== undefined ? "" : seen(r.tokens[i])}</i>`);
  const click = (x) => x.target.dataset.i && point({ row: k, token: +x.target.dataset.i });
  const heading = `${t.kind}${t.calls ? ", calls a tool" : ""}${t.hidden ? ", hidden when trained" : ""}`;
  // prettier-ignore
  return html`<div class=${`turn ${t.own ? "own" : ""} ${t.hidden ? "hidden" : ""} ${t.kind === "tool result" ? "result" : ""}`}>
    <small>${heading}, turn ${t.turn ?? 0}</small>
    <div class="tokens" role="group" aria-label=${`tokens of ${heading}`} tabindex="0" @click=${click} @keydown=${(x) => walk(x, t.at, k, here, point)}>${tokens}</div>
    ${t.at.includes(here) ? html`<p class="told" role="status">${told(e, r, k, here, other)}</p>` : nothing}
  </div>`;
}

function walk(event, at, row, here, point) {
  const step = { ArrowRight: 1, ArrowLeft: -1, Home: -1e9, End: 1e9 }[event.key];
  if (!step) return;
  event.preventDefault();
  const now = at.indexOf(here);
  const next = now < 0 ? (step > 0 && step < 1e9 ? 0 : step < 0 ? 0 : at.length - 1) : Math.max(0, Math.min(at.length - 1, now + step));
  point({ row, token: at[next] });
}

function look(r, i, colour, values, scale) {
  if (colour === "author") return r.trained[i] && !r.hidden?.[i] ? "mine" : r.logp?.[i] !== null ? "kept" : isOwn(r.author?.[i]) ? "forced" : "other";
  if (colour === "surprise") {
    const x = r.logp?.[i];
    if (x === null || x === undefined) return "";
    const level = RARE.filter((p) => Math.exp(x) < p).length;
    return level ? `rare${level}` : "";
  }
  const x = values[i];
  if (!r.trained?.[i] || !x || !scale) return "";
  return (x > 0 ? "up" : "down") + Math.max(1, Math.min(LEVELS, Math.ceil((LEVELS * Math.abs(x)) / scale - 1e-6)));
}

// Control characters are drawn; a line break is seen and breaks.
const seen = (t) => (t ?? "").replace(/[\u0000-\u0009\u000b-\u001f\u007f]/g, (c) => (c === "\u007f" ? "␡" : String.fromCharCode(0x2400 + c.charCodeAt(0)))).replace(/\n/g, "↵\n");

function told(e, r, k, i, other) {
  const found = [`token ${i} “${seen(r.tokens[i]).trimEnd()}”`, `by ${r.author?.[i] || "the environment"}`];
  const logp = r.logp?.[i];
  if (logp !== null && logp !== undefined) found.push(`probability ${short(Math.exp(logp))} (log-prob ${short(logp)})`);
  if (!r.trained?.[i]) return [...found, "not trained on"].join(", ");
  found.push(`credit ${signed(r.advantage?.[i])}`);
  if (r.weight?.[i] !== null && r.weight?.[i] !== undefined) found.push(`weight ${signed(r.weight[i])}`);
  if (r.ratio?.[i] !== null && r.ratio?.[i] !== undefined) found.push(`ratio ${short(r.ratio[i])}`);
  const there = other?.get(e)?.weight[k]?.[i];
  if (there !== undefined && there !== null) found.push(`weight there ${signed(there)}`);
  return found.join(", ");
}

export function facts(e, step) {
  const line = (k, v) => html`<dt>${k}</dt><dd>${v}</dd>`;
  const oldest = e.oldest_version ?? e.policy_version;
  return html`<dl class="facts">
    ${line("reference", e.answer ?? "none")}
    ${line("solved", e.solved === null || e.solved === undefined ? "nobody says" : e.solved ? "yes" : "no")}
    ${Object.entries(e.reward_parts ?? {}).map(([k, v]) => line(`part ${k}`, short(v)))}
    ${(e.verdicts ?? []).map((v) => line(`${v.judge} said ${short(v.score)}`, v.said))}
    ${e.kept ? line("in the update", e.kept) : nothing}
    ${oldest === null || oldest === undefined ? nothing : line("weights", oldest === e.policy_version ? `of step ${oldest}, ${step - 1 - oldest || "no"} steps old` : `of steps ${oldest} to ${e.policy_version}`)}
    ${e.seconds === null || e.seconds === undefined ? nothing : line("seconds", `${short(e.seconds)}, waiting for others included`)}
    ${Object.entries(e.facts ?? {}).map(([k, v]) => line(k, typeof v === "string" ? v : JSON.stringify(v)))}
  </dl>`;
}

export function explainForm(methods, now, entry) {
  const show = (method) => change({ explain: method, colour: "other" });
  const picked = (x) => (methods ?? []).includes(x.target.value) && x.target.value !== now && show(x.target.value);
  return html`<form class="explain" @submit=${(x) => { x.preventDefault(); show(new FormData(x.target).get("method")); }}>
    <label>explain as <input name="method" list="methods" .value=${now ?? ""} required placeholder="rloo" autocomplete="off" @change=${picked} /></label>
    <datalist id="methods">${(methods ?? []).map((m) => html`<option value=${m}></option>`)}</datalist>
    <button>show its weights</button>
    ${now ? html`<button type="button" @click=${() => change({ explain: "", colour: "" })}>leave ${now}</button>` : nothing}
    ${entry?.error ? html`<p class="error" role="alert">${entry.error}</p>` : now && !entry?.value ? html`<p class="quiet" role="status">working it out with the run's model …</p>` : nothing}
    ${(entry?.value?.notes ?? []).map((n) => html`<p class="quiet">${n}</p>`)}
  </form>`;
}

export const path = (run, query, step, group) => html`<p class="path">
  <a href=${link([run, "groups"], { table: query.table })}>groups</a> / <a href=${link([run, "groups"], { table: query.table, step })}>step ${step}</a> / group ${group}</p>`;
