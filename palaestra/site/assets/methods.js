// The table of methods: sorts by the column that is clicked, filters by what is chosen, and keeps
// both in the address, so that a choice can be passed on. Nothing is fetched.
(() => {
  const start = () => {
    const table = document.getElementById("methods-table");
    if (!table || table.dataset.ready) return;
    table.dataset.ready = "yes";
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const picks = ["text", "family", "changes", "needs", "status"];
    const fields = Object.fromEntries(picks.map((p) => [p, document.getElementById(`pick-${p}`)]));
    const count = document.getElementById("pick-count");
    const order = { key: "", down: false };

    const matches = (row) => picks.every((pick) => {
      const wanted = fields[pick].value;
      if (!wanted) return true;
      if (pick === "text") return row.textContent.toLowerCase().includes(wanted.toLowerCase());
      return row.dataset[pick].split(";").includes(wanted);
    });

    const compare = (key, number) => (a, b) => {
      const [x, y] = [a.dataset[key], b.dataset[key]];
      if (!x || !y) return (x ? 0 : 1) - (y ? 0 : 1); // what is not known stands last, both ways
      const sign = order.down ? -1 : 1;
      return sign * (number ? Number(x) - Number(y) : x.localeCompare(y));
    };

    const show = () => {
      let seen = 0;
      for (const row of rows) {
        row.hidden = !matches(row);
        seen += !row.hidden;
      }
      count.textContent = `${seen} of ${rows.length}`;
      const said = picks.filter((p) => fields[p].value).map((p) => [p, fields[p].value]);
      if (order.key) said.push(["sort", (order.down ? "-" : "") + order.key]);
      const hash = new URLSearchParams(said).toString();
      history.replaceState(null, "", hash ? `#${hash}` : location.pathname);
    };

    const sort = (head) => {
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      if (head) {
        head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
        const number = "number" in head.dataset;
        body.append(...[...rows].sort(compare(head.dataset.key, number)));
      }
      show();
    };

    for (const head of table.tHead.rows[0].cells) {
      head.querySelector("button").addEventListener("click", () => {
        order.down = order.key === head.dataset.key && !order.down;
        order.key = head.dataset.key;
        sort(head);
      });
    }
    for (const pick of picks) fields[pick].addEventListener("input", show);

    const given = new URLSearchParams(location.hash.slice(1));
    for (const pick of picks) if (given.get(pick)) fields[pick].value = given.get(pick);
    const wanted = given.get("sort") || "";
    order.down = wanted.startsWith("-");
    order.key = wanted.replace(/^-/, "");
    sort([...table.tHead.rows[0].cells].find((h) => h.dataset.key === order.key));
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
