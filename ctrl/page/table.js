// Tables that reuse the rows of unchanged entries, and formats of values. Inserts all text as text, never as HTML.

const kRows = 200; // rows shown at once; the filter searches all entries

// element("span", {class: "kind"}, "worker"): children are elements or text; null, undefined and "" are skipped.
export function element(tag, attributes = {}, ...children) {
  const out = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== undefined) out.setAttribute(name, value);
  out.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return out;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const integers = new Intl.NumberFormat("en");
export const count = (value) => integers.format(value);
export const counted = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  for (; value >= 1024 && unit + 1 < units.length; ++unit) value /= 1024;
  return `${value.toFixed(unit === 0 || value >= 100 ? 0 : 1)} ${units[unit]}`;
}

export function span(ms) {
  const seconds = Math.floor(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}

export const badge = (text, mood = "plain") => element("span", { class: `badge ${mood}` }, text);
export const muted = (text) => element("span", { class: "muted" }, text);

export function chips(texts) {
  if (texts.length === 0) return muted("none");
  return element("span", { class: "chips" }, ...texts.map((text) => element("span", { class: "chip" }, text)));
}
export const labelChips = (labels) =>
  chips(Object.entries(labels ?? {}).map(([key, value]) => (value === "" ? key : `${key}=${value}`)));

// A table in `view`. A column is {label, cell(entry), class, has(entry)}; a column that has() no value in any entry
// is hidden. An entry is {key, version, ...}; a new version gets a new row, which is highlighted unless the entry is
// quiet.
export class Table {
  #columns;
  #body;
  #more;
  #empty;
  #emptyText;
  #caption;
  #scroller;
  #rows = new Map();

  constructor(view, caption, columns, empty) {
    this.#columns = columns;
    this.#body = element("tbody", { role: "rowgroup" });
    this.#more = element("p", { class: "more" });
    this.#empty = element("p", { class: "empty" });
    this.#emptyText = empty;
    this.#caption = caption;
    // Explicit roles, because CSS lays the rows out as cards on a narrow screen.
    const heads = columns.map((c) => element("th", { role: "columnheader", scope: "col", class: c.class }, c.label));
    this.#scroller = element(
      "div",
      { class: "scroller" },
      element(
        "table",
        { role: "table" },
        element("caption", {}, caption),
        element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...heads)),
        this.#body,
      ),
    );
    view.append(this.#scroller, this.#more, this.#empty);
  }

  show(entries, filtered) {
    const shown = entries.slice(0, kRows);
    const keys = new Set(shown.map((entry) => entry.key));
    for (const [key, row] of this.#rows) {
      if (keys.has(key)) continue;
      row.node.remove();
      this.#rows.delete(key);
    }
    let next = this.#body.firstChild;
    for (const entry of shown) {
      const old = this.#rows.get(entry.key);
      if (!old || old.version !== entry.version) {
        const node = this.#makeRow(entry);
        this.#rows.set(entry.key, { version: entry.version, node, entry });
        if (old) {
          // Highlight a visible row that has changed.
          if (!entry.quiet) node.classList.add("fresh");
          old.node.replaceWith(node);
          if (next === old.node) next = node;
        }
      } else {
        old.entry = entry;
      }
      const { node } = this.#rows.get(entry.key);
      if (node === next) next = next.nextSibling;
      else this.#body.insertBefore(node, next);
    }
    for (const column of this.#columns)
      if (column.has) this.#scroller.classList.toggle(`no-${column.class}`, !entries.some(column.has));
    const hidden = entries.length - shown.length;
    setText(this.#more, hidden > 0 ? `and ${count(hidden)} more: the filter finds them` : "");
    this.#more.hidden = hidden === 0;
    setText(this.#empty, filtered ? `${this.#caption}: nothing matches the filter.` : this.#emptyText);
    this.#empty.hidden = entries.length > 0;
    this.#scroller.hidden = entries.length === 0;
  }

  // Calls `visit` with each shown row and its entry.
  each(visit) {
    for (const { node, entry } of this.#rows.values()) visit(node, entry);
  }

  #makeRow(entry) {
    const row = element("tr", { role: "row", "data-key": entry.key });
    for (const column of this.#columns) {
      const cell = element("td", { role: "cell", class: column.class, "data-label": column.label });
      cell.append(element("span", { class: "value" }, ...[column.cell(entry)].flat()));
      row.append(cell);
    }
    return row;
  }
}
