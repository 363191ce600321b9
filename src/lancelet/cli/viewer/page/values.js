// Cells, tables of rows, and the panel of a row.

import { $, api, bytes, element, failed, fetched, go, hash, number, state } from "./base.js";
import { resizable, roving } from "./widgets.js";

export const rowLabel = () => (state.about?.has_stable_row_ids ? "row id" : "row address");

// The arguments that identify a row: its id, or its number in a result of SQL.
const rowArguments = (found, index) => (found.ids ? { row: found.ids[index] } : { result: found.result ?? "", row: index });

function spark(values) {
  const finite = values.filter((value) => value !== null);
  const low = Math.min(...finite), span = Math.max(...finite) - low || 1;
  const points = values.map((value, index) => `${index},${value === null ? 10 : 20 - (20 * (value - low)) / span}`);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "spark");
  svg.setAttribute("viewBox", `0 0 ${Math.max(values.length - 1, 1)} 20`);
  svg.setAttribute("preserveAspectRatio", "none");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  line.setAttribute("points", points.join(" "));
  svg.append(line);
  return svg;
}

// An image or a player; a row shows no videos.
function media(cell, column, row, isPanel) {
  const src = api("blob", { ...row, column }), size = cell.bytes === undefined ? cell.external : bytes(cell.bytes);
  const label = `${column}, ${size}`;
  if (row.result === "") return `${cell.media}, ${size}`;
  if (cell.media.startsWith("image/")) return element("img", { src, alt: label, loading: "lazy" });
  if (cell.media.startsWith("audio/")) return element("audio", { src, controls: true, preload: "none", "aria-label": label, onclick: (event) => event.stopPropagation() });
  return isPanel ? element("video", { src, controls: true, preload: "metadata", "aria-label": label }) : `${cell.media}, ${size}`;
}

export function shown(cell, column, row) {
  if (cell === null) return element("td", { class: "null" }, "null");
  if (cell.number !== undefined) return element("td", { class: "number" }, cell.number);
  if (cell.vector) {
    const numbers = cell.vector.slice(0, 3).map((value) => value?.toPrecision(3) ?? "null").join(", ");
    return element("td", { title: `[${numbers}, …] of ${cell.size}` }, spark(cell.vector), element("span", { class: "faint" }, `${cell.size} values`));
  }
  if (cell.media && row) return element("td", {}, media(cell, column, row, false));
  if (cell.binary !== undefined) return element("td", { class: "faint" }, `${cell.binary} (${bytes(cell.bytes)})`);
  return element("td", {}, cell.json ?? cell.text ?? cell.external ?? `${cell.media} (${bytes(cell.bytes)})`);
}

function unfolded(value) {
  if (value === null || typeof value !== "object") return element("span", {}, JSON.stringify(value));
  return element("div", {}, Object.entries(value).map(([key, part]) => {
    const nested = part !== null && typeof part === "object" && Object.keys(part).length;
    return nested
      ? element("details", { open: true }, element("summary", {}, key), element("div", { style: "padding-left:1rem" }, unfolded(part)))
      : element("div", {}, `${key}: `, unfolded(part));
  }));
}

// The value of a cell; values that the response shortens are requested in full.
function fullValue(cell, column, row) {
  if (cell === null) return element("span", { class: "faint" }, "null");
  if (cell.media) return media(cell, column, row, true);
  if (cell.json) return unfolded(JSON.parse(cell.json));
  const save = cell.bytes !== undefined && row.result !== "" ? element("a", { href: api("blob", { ...row, column }), download: "" }, `Download ${bytes(cell.bytes)}`) : null;
  const text = cell.vector ? `[${cell.vector.join(", ")}${cell.size > cell.vector.length ? ", …" : ""}]` : cell.text ?? cell.exact ?? cell.number ?? cell.external ?? `${cell.binary} …`;
  const body = element("pre", {}, text), line = cell.vector ? spark(cell.vector) : null;
  const hidden = cell.length ? `${number(cell.length)} characters` : cell.vector && cell.size > cell.vector.length ? `${number(cell.size)} values` : null;
  const all = hidden && row.result !== "" ? element("button", { type: "button", onclick: async () => {
    try {
      const value = await fetched(api("row", { ...row, columns: JSON.stringify([column]) }));
      const found = JSON.parse(value)[column];
      body.textContent = typeof found === "string" ? found : JSON.stringify(found);
      all.remove();
    } catch (error) { all.replaceWith(failed(error)); }
  } }, `Show all ${hidden}`) : null;
  return [line, body, all ?? (hidden && `… ${hidden}`), save];
}

// Rows of a view with pages have a neighbor on the next page.
const hasRow = (found, index) => found.rows[index] !== undefined || (found.turn !== undefined && found.start + index >= 0 && found.start + index < found.total);

// The contents of a row. `step` opens a neighbor.
export function rowContents(found, index, step = null) {
  const row = rowArguments(found, index);
  const status = element("span", { class: "faint", role: "status" });
  const copy = async () => {
    // The text is copied as it is, because numbers of JavaScript lose large integers.
    try { await navigator.clipboard.writeText(await fetched(api("row", row))); status.textContent = "Copied"; } catch (error) { status.textContent = error.message; }
  };
  const button = (id, by, label) => element("button", { id, type: "button", disabled: !hasRow(found, index + by), onclick: () => step(index + by) }, label);
  return [
    element("div", { class: "pager" }, step && [button("previous-row", -1, "Previous row"), button("next-row", 1, "Next row")],
      element("button", { type: "button", id: "copy", disabled: row.result === "", onclick: copy }, "Copy as JSON"),
      found.ids ? element("a", { id: "row-link", href: hash("row", row), onclick: () => $("details").close() }, `${rowLabel()} ${row.row}`) : null, status),
    found.columns.map((name, at) => {
      const cell = found.rows[index][at];
      const near = cell?.vector && found.ids
        ? element("button", { type: "button", onclick: () => { $("details").close(); go("search", { column: name, row: row.row }); } }, "Similar rows")
        : null;
      return element("section", { class: "value" }, element("h2", {}, name), element("div", {}, fullValue(cell, name, row), near));
    }),
  ].flat(Infinity).filter((item) => item != null);
}

export function openPanel(found, index) {
  const focused = document.activeElement?.id;
  const step = async (to) => {
    if (found.rows[to]) return openPanel(found, to);
    try {
      const next = await found.turn(found.start + to);
      openPanel(next, found.start + to - next.start);
    } catch (error) { $("detail").replaceChildren(failed(error)); }
  };
  $("detail").replaceChildren(...rowContents(found, index, step));
  $("details").onkeydown = (event) => {
    const to = index + ({ ArrowRight: 1, ArrowLeft: -1 }[event.key] ?? 0);
    if (to !== index && hasRow(found, to) && !["AUDIO", "VIDEO"].includes(event.target.tagName)) step(to);
  };
  if (!$("details").open) $("details").showModal();
  const again = $(focused);
  if (again && !again.disabled) again.focus(); else $("close").focus();
}

export function grid(found, { sort = null, given = {} } = {}) {
  const about = Object.fromEntries(state.about.columns.map((column) => [column.name, column]));
  const head = found.columns.map((name, index) => {
    const column = about[name];
    const direction = given.order !== name ? "none" : given.descending === "1" ? "descending" : "ascending";
    const mark = { none: "", ascending: " ↑", descending: " ↓" }[direction];
    const label = sort && column && column.kind !== "nested" && column.kind !== "vector"
      ? element("button", { type: "button", onclick: () => sort({ order: name, descending: direction === "ascending" ? "1" : "0" }) }, name + mark)
      : name;
    const isNumber = found.rows.some((cells) => cells[index]?.number !== undefined);
    return element("th", { scope: "col", class: isNumber ? "number" : null, "aria-sort": sort ? direction : null }, label, element("small", { title: found.types[index] }, found.types[index]));
  });
  const body = found.rows.map((cells, index) => {
    const row = rowArguments(found, index);
    const open = () => openPanel(found, index);
    return element("tr", {
      onclick: open,
      onkeydown: (event) => {
        if (event.key !== "Enter" || event.target !== event.currentTarget) return;
        event.preventDefault(); // otherwise Enter would press the focused button of the dialog
        open();
      },
    }, found.ids ? element("td", { class: "id" }, element("a", { href: hash("row", { row: row.row }), tabindex: -1, onclick: (event) => event.stopPropagation() }, row.row)) : null,
    cells.map((cell, column) => shown(cell, found.columns[column], row)));
  });
  const table = element("table", {}, element("thead", {}, element("tr", {}, found.ids ? element("th", { scope: "col", class: "id" }, rowLabel()) : null, head)), roving(element("tbody", {}, body)));
  resizable(table, found.columns, found.ids ? 1 : 0);
  return element("div", { class: "scroll" }, table);
}

export function plain(columns, rows) {
  const isNumber = (index) => rows.length && rows.every((row) => typeof row[index] === "number");
  const head = columns.map((name, index) => element("th", { scope: "col", class: isNumber(index) ? "number" : null }, name));
  const body = rows.map((row) => element("tr", {}, row.map((value) => value instanceof Node
    ? element("td", {}, value)
    : element("td", { class: typeof value === "number" ? "number" : null }, typeof value === "number" ? number(value) : value ?? ""))));
  return element("div", { class: "scroll" }, element("table", {}, element("thead", {}, element("tr", {}, head)), element("tbody", {}, body)));
}

// Changed rows of two versions: updated cells show the value before and after.
export function changedRows(found) {
  const marks = { insert: ["+", "added"], delete: ["−", "removed"], update: ["~", "changed"] };
  const head = ["", rowLabel(), ...found.columns].map((name) => element("th", { scope: "col" }, name));
  const body = found.changes.map((change) => {
    const [mark, label] = marks[change.kind];
    return element("tr", { class: label }, element("td", { title: label, "aria-label": label }, mark), element("td", { class: "id" }, element("a", { href: hash("row", { row: change.id, at: change.kind === "delete" ? found.begin : found.end }), tabindex: -1 }, change.id)),
      change.cells.map((cell, at) => {
        const after = shown(cell, found.columns[at], null);
        if (!change.changed[at]) return after;
        const before = shown(change.before[at], found.columns[at], null);
        return element("td", { class: "changed" }, element("del", {}, ...before.childNodes), " ", element("ins", {}, ...after.childNodes));
      }));
  });
  return element("div", { class: "scroll" }, element("table", { id: "changes" }, element("thead", {}, element("tr", {}, head)), roving(element("tbody", {}, body))));
}

// Steps of a plan as a tree; measured steps have a bar of their time.
export function planTree(steps) {
  const root = element("div", { id: "plan" }), stack = [root];
  const slowest = Math.max(...steps.map((step) => Number(step.metrics.elapsed_ms ?? 0)), 1e-9);
  for (const step of steps) {
    const metrics = Object.entries(step.metrics);
    const time = step.metrics.elapsed_ms === undefined ? null : element("span", { class: "time", style: `width:${(6 * step.metrics.elapsed_ms) / slowest}rem`, title: `${step.metrics.elapsed_ms} ms` });
    const facts = (pairs, label) => (pairs.length ? element("p", { class: "faint" }, `${label}: `, pairs.map(([name, value]) => [element("span", { class: "fact" }, `${name.replaceAll("_", " ")} `, element("b", {}, /^\d+$/.test(value) ? number(value) : value)), " "])) : null);
    const node = element("details", { open: true, class: "step" }, element("summary", {}, element("strong", {}, step.name), step.text ? ` ${step.text} ` : " ", time), facts(step.properties, "plan"), facts(metrics, "measured"));
    stack.length = Math.max(1, Math.min(stack.length, step.depth + 1));
    stack.at(-1).append(node);
    stack.push(node);
  }
  return root;
}
