"""What the tests of the page share: a page that is watched, rollouts that are rewritten, what can be read."""

from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
from palaestra.store.columns import SCHEMA, path


@contextmanager
def opened(browser, url, **given):
    """A page that has read its run. Fails for what the page complained about, and for any address but its own."""
    page, said = browser.new_page(**given), []
    own = (url.split("#")[0].split("?")[0], "data:", "blob:")
    page.set_default_timeout(20_000)
    page.on("pageerror", lambda e: said.append(str(e)))
    page.on("console", lambda m: said.append(m.text) if m.type in ("error", "warning") else None)
    page.on("request", lambda r: said.append(r.url) if not r.url.startswith(own) else None)
    page.goto(url)
    page.wait_for_selector("html[data-ready]")
    yield page
    page.close()
    assert not said


def rewrite(folder, step, **columns):
    """A rollout file with other columns."""
    table = pq.ParquetFile(path(folder, step)).read()
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, SCHEMA.field(name), pa.array(values, SCHEMA.field(name).type))
    pq.write_table(table, path(folder, step))


UNNAMED = """() => [...document.querySelectorAll('input, select, button, a')]
  .filter((e) => !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length)).map((e) => e.outerHTML)"""
# WCAG 2.2, relative luminance; colours that lie over one another are mixed
CONTRAST = """() => {
  const read = (c) => { const n = c.match(/[\\d.]+/g).map(Number); return [n[0], n[1], n[2], n[3] ?? 1]; };
  const over = (a, b) => [0, 1, 2].map((i) => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
  const linear = (v) => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const behind = (e) => {
    const all = [];
    for (let x = e; x; x = x.parentElement) all.unshift(read(getComputedStyle(x).backgroundColor));
    return all.reduce((b, a) => over(a, b), read(getComputedStyle(document.body).backgroundColor));
  };
  const poor = [];
  for (const e of document.querySelectorAll('#page *')) {
    const says = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!says || e.closest('.skip, option, .uplot')) continue;
    const b = behind(e), a = over(read(getComputedStyle(e).color), b);
    const [x, y] = [light(a), light(b)].sort((p, q) => q - p), ratio = (x + 0.05) / (y + 0.05);
    if (ratio < 4.5) poor.push(`${ratio.toFixed(2)} ${e.outerHTML.slice(0, 90)}`);
  }
  return poor.slice(0, 5);
}"""
