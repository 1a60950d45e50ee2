// The answers of a group as a tree: what they begin with alike stands once, and each is a leaf.
import { html, nothing } from "lit";
import { many, short } from "palaestra/data";

const SAID = 90; // characters of a branch that are told
const OPEN = 4; // branches below one another that are open

// What was said from the first own token on, of all contexts in their order.
function said(e) {
  return e.rows.flatMap((r) => {
    const begin = (r.author ?? []).findIndex((a) => a && a !== "environment");
    return begin < 0 ? spoken(r) : r.tokens.slice(begin);
  });
}

const spoken = (r) => (r.said ?? []).filter((s) => s.author !== "environment").map((s) => s.text);

// {text, answers, children}: `answers` are numbers of episodes; a leaf has one answer, or several that are the same.
export function branches(episodes) {
  const paths = episodes.map(said);
  const grow = (answers, depth) => {
    let end = depth;
    const first = paths[answers[0]], shortest = Math.min(...answers.map((i) => paths[i].length));
    while (end < shortest && answers.every((i) => paths[i][end] === first[end])) end++;
    const next = new Map();
    for (const i of answers) {
      const token = end < paths[i].length ? paths[i][end] : null; // null: it ends here
      next.set(token, [...(next.get(token) ?? []), i]);
    }
    const children = next.size > 1 ? [...next.values()].map((some) => grow(some, end)) : [];
    return { text: first.slice(depth, end).join(""), answers, children };
  };
  return episodes.length ? grow(episodes.map((_, i) => i), 0) : { text: "", answers: [], children: [] };
}

export function tree(episodes, at, pick) {
  const scored = episodes.map((e) => ((e.status ?? "").startsWith("error") ? null : e.reward));
  const mean = (answers) => {
    const known = answers.map((i) => scored[i]).filter((r) => r !== null && r !== undefined);
    return known.length ? known.reduce((a, b) => a + b, 0) / known.length : null;
  };
  const leaf = (i, text) => html`<li><button aria-pressed=${i === at} @click=${() => pick(i)}><b>${short(scored[i])}</b> <q>${brief(text) || "ends here"}</q>${from(episodes, i)}</button></li>`;
  const node = (b, depth) => {
    if (!b.children.length) return b.answers.map((i) => leaf(i, b.text));
    return html`<li><details ?open=${depth < OPEN || b.answers.includes(at)}><summary><b>${short(mean(b.answers))}</b> <small>mean of ${many(b.answers.length)}</small> <q>${brief(b.text) || "…"}</q></summary>
      <ul>${b.children.map((c) => node(c, depth + 1))}</ul></details></li>`;
  };
  return html`<ul class="answers tree" aria-label="answers, by what they begin with">${node(branches(episodes), 0)}</ul>`;
}

function brief(text) {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > SAID ? `${line.slice(0, SAID / 2)} … ${line.slice(-SAID / 3)}` : line;
}

// Of a forked answer, which one it left and where.
export function from(episodes, i) {
  const { parent, forked_at } = episodes[i];
  if (parent === null || parent === undefined) return nothing;
  const place = episodes.findIndex((e) => e.sample === parent);
  return html` <em>left ${place < 0 ? `sample ${parent}` : `answer ${place + 1}`}${forked_at === null ? nothing : ` at step ${forked_at}`}</em>`;
}
