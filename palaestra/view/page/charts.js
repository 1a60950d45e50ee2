// Curves over steps with one cursor; a click chooses a step, a drag a span of them.
const WANTED = [
  ["reward", "reward of the training batch"],
  ["loss", "loss"],
  ["length", "answer length, tokens"],
  ["entropy", "entropy, nats a token"],
  ["entropy_sampled", "entropy, nats a token (of what was sampled)"],
  ["truncated", "answers cut off"],
  ["groups_mixed", "groups whose rewards differ"],
  ["kl_behaviour", "KL from the sampling policy"],
  ["age_mean", "age of what is trained, steps"],
  ["grad_norm", "norm of the gradient"],
  ["tokens_per_second", "sampled tokens a second"],
];
const MOST = 6;
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function charts(place, records, { choose, span }) {
  const steps = records.filter((r) => Object.keys(r).some((k) => !/^(step|evaluations?|changed)$/.test(k)));
  const held = new Map(records.filter((r) => Number.isFinite(r.evaluation?.mean)).map((r) => [r.step, r.evaluation.mean]));
  const has = (k) => steps.some((r) => Number.isFinite(r[k]));
  const wanted = WANTED.filter(([k]) => has(k) && !(k === "entropy_sampled" && has("entropy")) && !(k === "loss" && has("reward")));
  const ends = (k) => {
    let low = Infinity, high = -Infinity;
    for (const r of steps) if (Number.isFinite(r[k])) { low = Math.min(low, r[k]); high = Math.max(high, r[k]); }
    return [low, high];
  };
  const moves = ([k]) => ends(k)[1] - ends(k)[0] > 1e-9; // less is the rounding of float32
  place.replaceChildren();
  if (!steps.length) return;
  for (const [k, label] of wanted.filter(moves).slice(0, MOST)) draw(k, label);
  const still = wanted.filter((w) => !moves(w)).map(([k, label]) => `${label}: ${+ends(k)[0].toPrecision(3)} throughout`);
  if (still.length) place.append(element("p", { className: "quiet", textContent: still.join("; ") }));

  function draw(key, label) {
    const beside = key === "reward" && held.size > 0;
    const box = element("figure");
    box.append(element("figcaption", { textContent: beside ? `${label}; points: held-out problems` : label }));
    place.append(box);
    const by = new Map(steps.map((r) => [r.step, r[key] ?? null]));
    const x = [...new Set([...by.keys(), ...(beside ? held.keys() : [])])].sort((a, b) => a - b);
    const series = [{}, { stroke: colour("--train"), width: 1.6, points: { show: x.length < 3 }, spanGaps: true }];
    const data = [x, x.map((s) => by.get(s) ?? null)];
    if (beside) {
      series.push({ stroke: colour("--held"), width: 0, paths: () => null, points: { show: true, size: 7, fill: colour("--held") } });
      data.push(x.map((s) => held.get(s) ?? null));
    }
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const told = (_, ticks) => ticks.map((t) => (t === 0 ? "0" : Math.abs(t) < 1e-3 || Math.abs(t) >= 1e5 ? t.toExponential(0) : String(+t.toPrecision(3))));
    const plot = new uPlot({
      width: Math.max(120, box.clientWidth),
      height: innerWidth < 760 ? 96 : 124,
      cursor: { sync: { key: "steps" }, y: false, drag: { x: true, y: false, setScale: false } },
      legend: { show: false },
      scales: { x: { time: false } },
      axes: [{ ...axis, size: 22 }, { ...axis, size: 46, values: told }],
      series,
      hooks: {
        setSelect: [(u) => u.select.width > 8 && span(Math.ceil(u.posToVal(u.select.left, "x")), Math.floor(u.posToVal(u.select.left + u.select.width, "x")))],
      },
    }, data, box);
    plot.over.addEventListener("click", () => plot.cursor.idx !== null && plot.cursor.idx !== undefined && choose(x[plot.cursor.idx]));
    const known = data[1].filter((v) => v !== null);
    plot.root.setAttribute("role", "img");
    plot.root.setAttribute("aria-label", `${label}: ${+known[0].toPrecision(3)} at step ${x[0]}, ${+known.at(-1).toPrecision(3)} at step ${x.at(-1)}`);
  }
}

const element = (name, given = {}) => Object.assign(document.createElement(name), given);
