// Every state of the page is an address: #/RUN/TAB/...?name=value
export function read() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  return { parts, query: Object.fromEntries(new URLSearchParams(query)) };
}

export function link(parts, query = {}) {
  const told = Object.entries(query).filter(([, v]) => v !== "" && v !== null && v !== undefined);
  const tail = told.length ? `?${new URLSearchParams(told)}` : "";
  return `#/${parts.map(encodeURIComponent).join("/")}${tail}`;
}

// Changes some of the query; what is only looked at leaves no step behind in the history.
export function change(more, { quiet = false } = {}) {
  const { parts, query } = read();
  const to = link(parts, { ...query, ...more });
  if (quiet) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  dispatchEvent(new Event("moved"));
}
