// Each view is a function that fills <main>. The state is in the URL fragment (#view?...), which
// supports history, bookmarks and reloads.

const $ = (id) => document.getElementById(id);
const state = { table: null, view: "rows", about: null, canWrite: false };

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "style") made.style.cssText = value;
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value != null) made.setAttribute(key, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child != null));
  return made;
}

async function request(endpoint, given = {}, method = "GET") {
  const query = new URLSearchParams({ table: state.table ?? "", at: $("at").value, ...given });
  const reply = await fetch(`api/${endpoint}?${query}`, { method });
  const found = await reply.json();
  if (!reply.ok) throw new Error(found.error);
  return found;
}

// Discard responses that arrive after another view was selected: `generation` counts selections,
// and each view has a `show` function bound to its generation.
let generation = 0;

function painter() {
  const own = ++generation;
  return (...children) => {
    if (own === generation) $("main").replaceChildren(...children.flat(Infinity).filter((child) => child != null));
  };
}

const failed = (error) => element("pre", { class: "error", role: "alert" }, error.message);

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) { count /= 1024; unit += 1; }
  return `${unit ? count.toFixed(1) : count} ${units[unit]}`;
}

const number = (count) => Number(count).toLocaleString("en");
const moment = (text) => text.replace("T", " ").slice(0, 19) + "Z";

// Values

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

function imageAddress(column, row) {
  return `api/image?${new URLSearchParams({ table: state.table, at: $("at").value, column, row })}`;
}

function shown(cell, column, row) {
  if (cell === null) return element("td", { class: "null" }, "null");
  if (cell.number !== undefined) return element("td", { class: "number" }, cell.number);
  if (cell.vector) {
    const numbers = cell.vector.slice(0, 3).map((value) => value?.toPrecision(3) ?? "null").join(", ");
    return element("td", { title: `[${numbers}, …] of ${cell.size}` }, spark(cell.vector), element("span", { class: "faint" }, `${cell.size} values`));
  }
  if (cell.image) return element("td", {}, element("img", { src: imageAddress(column, row), alt: `${column}, ${bytes(cell.bytes)}`, loading: "lazy" }));
  if (cell.binary !== undefined) return element("td", { class: "faint" }, `${cell.binary} (${bytes(cell.bytes)})`);
  return element("td", {}, cell.json ?? cell.text);
}

function unfolded(value) {
  if (value === null || typeof value !== "object") return element("span", {}, JSON.stringify(value));
  const parts = Object.entries(value).map(([key, part]) => {
    const nested = part !== null && typeof part === "object" && Object.keys(part).length;
    return nested
      ? element("details", { open: true }, element("summary", {}, key), element("div", { style: "padding-left:1rem" }, unfolded(part)))
      : element("div", {}, `${key}: `, unfolded(part));
  });
  return element("div", {}, parts);
}

function plainValue(cell) {
  if (cell === null) return null;
  if (cell.json) return JSON.parse(cell.json);
  if (cell.number !== undefined) return Number(cell.exact ?? cell.number);
  return cell.vector ?? cell.text ?? `${cell.bytes} bytes`;
}

function detail(found, index) {
  const { columns } = found, cells = found.rows[index], row = found.addresses[index];
  const items = columns.map((name, index) => {
    const cell = cells[index];
    let body;
    if (cell === null) body = element("span", { class: "faint" }, "null");
    else if (cell.image) body = element("img", { src: imageAddress(name, row), alt: name });
    else if (cell.json) body = unfolded(JSON.parse(cell.json));
    else if (cell.vector) body = element("pre", {}, `[${cell.vector.join(", ")}${cell.size > cell.vector.length ? ", …" : ""}]`);
    else body = element("pre", {}, cell.text ?? cell.exact ?? cell.number ?? `${cell.binary} …`, cell.length ? `\n… ${number(cell.length)} characters` : "");
    const near = cell?.vector && row !== undefined
      ? element("button", { type: "button", onclick: () => { $("details").close(); go("search", { column: name, row }); } }, "Similar rows")
      : null;
    return [element("h2", {}, name), body, near];
  });
  const step = (by) => ({ type: "button", disabled: !found.rows[index + by], onclick: () => detail(found, index + by) });
  const copied = element("span", { class: "faint", role: "status" });
  const copy = async () => {
    const values = Object.fromEntries(columns.map((name, at) => [name, plainValue(cells[at])]));
    try { await navigator.clipboard.writeText(JSON.stringify(values)); copied.textContent = "Copied"; } catch (error) { copied.textContent = error.message; }
  };
  items.unshift(element("div", { class: "pager" },
    element("button", { id: "previous-row", ...step(-1) }, "Previous row"), element("button", { id: "next-row", ...step(1) }, "Next row"),
    element("button", { type: "button", onclick: copy }, "Copy as JSON"), copied,
    row === undefined ? null : element("span", { class: "faint", id: "row-address" }, `Row address ${row}`)));
  $("detail").replaceChildren(...items.flat(Infinity).filter((item) => item != null));
  if (!$("details").open) $("details").showModal();
}

function bars(values) {
  const most = Math.max(...values.map((each) => each.count), 1);
  return element("div", { class: "bars", role: "img", "aria-label": values.map((each) => `${each.label}: ${each.count}`).join("; ") },
    values.map((each) => element("span", { style: `height:${Math.max(2, (100 * each.count) / most)}%`, title: `${each.label}: ${number(each.count)}` })));
}

function grid(found, { sortable = false, given = {} } = {}) {
  const types = Object.fromEntries(state.about.columns.map((column) => [column.name, column]));
  const head = found.columns.map((name) => {
    const about = types[name];
    const mark = given.order === name ? (given.descending === "1" ? " ↓" : " ↑") : "";
    const sort = given.order === name ? (given.descending === "1" ? "descending" : "ascending") : "none";
    const label = sortable && about && about.kind !== "nested" && about.kind !== "vector"
      ? element("button", { type: "button", onclick: () => go("rows", { ...given, offset: 0, order: name, descending: given.order === name && given.descending !== "1" ? "1" : "0" }) }, name + mark)
      : name;
    return element("th", { scope: "col", class: about?.number ? "number" : null, "aria-sort": sortable ? sort : null }, label, element("small", {}, about?.type ?? ""));
  });
  const body = found.rows.map((cells, index) => {
    const row = found.addresses[index];
    return element("tr", {
      tabindex: index === 0 ? 0 : -1,
      onclick: () => detail(found, index),
      onkeydown: (event) => {
        const rows = [...event.currentTarget.parentElement.children];
        const step = { ArrowDown: 1, ArrowUp: -1, Home: -rows.length, End: rows.length }[event.key];
        if (step) {
          rows[Math.max(0, Math.min(rows.length - 1, index + step))].focus();
          event.preventDefault();
        } else if (event.key === "Enter") {
          event.preventDefault(); // otherwise Enter would press the focused button of the dialog
          detail(found, index);
        }
      },
    }, cells.map((cell, column) => shown(cell, found.columns[column], row)));
  });
  return element("div", { class: "scroll" }, element("table", {}, element("thead", {}, element("tr", {}, head)), element("tbody", {}, body)));
}

function plain(columns, rows) {
  const head = columns.map((name) => element("th", { scope: "col" }, name));
  const body = rows.map((row) => element("tr", {}, row.map((value) => value instanceof Node
    ? element("td", {}, value)
    : element("td", { class: typeof value === "number" ? "number" : null }, typeof value === "number" ? number(value) : value ?? ""))));
  return element("div", { class: "scroll" }, element("table", {}, element("thead", {}, element("tr", {}, head)), element("tbody", {}, body)));
}

// Views

function field(label, name, given, attributes = {}) {
  return element("label", { class: attributes.wide ? "wide" : null }, label, element("input", { name, value: given[name] ?? "", ...attributes, wide: false }));
}

function formValues(form) {
  return Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== ""));
}

function filterField(given) {
  const input = field("Filter (SQL)", "filter", given, { wide: true, list: "completions", spellcheck: "false", autocomplete: "off", placeholder: "price > 3 AND name LIKE 'a%'" });
  const list = element("datalist", { id: "completions" });
  const box = input.querySelector("input");
  // Complete the last word; each list entry is the full text with the completed word.
  box.addEventListener("input", () => {
    const [, before, word] = box.value.match(/^(.*?)([\w.]*)$/s);
    const completions = [...state.about.columns.map((column) => column.name), ...state.about.completions];
    const fitting = word ? completions.filter((each) => each.toLowerCase().startsWith(word.toLowerCase())) : [];
    list.replaceChildren(...fitting.slice(0, 12).map((each) => element("option", { value: before + each })));
  });
  return [input, list];
}

function columnChooser(given) {
  const chosen = new Set(given.columns ? JSON.parse(given.columns) : state.about.columns.map((column) => column.name));
  const names = state.about.columns.map((column) => column.name);
  const apply = () => go("rows", { ...given, columns: chosen.size === names.length ? "" : JSON.stringify(names.filter((name) => chosen.has(name))) });
  return element("details", { id: "columns" }, element("summary", {}, `Columns (${chosen.size} of ${names.length})`),
    names.map((name) => element("label", { class: "choice" },
      element("input", { type: "checkbox", checked: chosen.has(name), onchange: (event) => { if (event.target.checked) chosen.add(name); else chosen.delete(name); } }), name)),
    element("button", { type: "button", onclick: apply }, "Apply"));
}

function exports(given) {
  const { offset, limit, ...selected } = given;
  return element("span", { class: "faint", id: "exports" }, "Export: ", ["csv", "json", "parquet", "arrow"].map((format) => [
    element("a", { href: `api/export?${new URLSearchParams({ table: state.table, at: $("at").value, ...selected, format })}`, download: "" }, format.toUpperCase()), " "]));
}

const views = {
  async tables(show) {
    const { tables } = await request("overview");
    const open = (name) => element("button", { type: "button", onclick: () => go("rows", { t: name }) }, name);
    show(plain(["table", "rows", "columns", "size", "version", "committed"],
      tables.map((each) => [open(each.name), each.rows, each.columns, bytes(each.bytes), each.version, moment(each.committed)])));
  },

  async statistics(show) {
    show(element("p", { class: "faint" }, "Reading …"));
    const found = await request("statistics");
    const percent = (share) => `${(100 * share).toPrecision(3).replace(/\.?0+$/, "")} %`;
    const facts = (each) => [`${percent(each.nulls)} null`, `${number(each.distinct)} distinct values`, each.min === undefined ? null : `${each.min} to ${each.max}`].filter(Boolean).join(", ");
    show(element("p", { class: "faint", id: "sample" }, found.sampled < found.rows ? `From ${number(found.sampled)} evenly spaced rows of ${number(found.rows)}.` : `From all ${number(found.rows)} rows.`),
      found.columns.map((each) => element("section", { class: "statistics" }, element("h2", {}, each.name), element("p", { class: "faint" }, facts(each)),
        each.histogram ? bars(each.histogram) : null,
        each.top ? element("ul", {}, each.top.map((value) => element("li", {},
          value.filter ? element("button", { type: "button", title: "Show these rows", onclick: () => go("rows", { filter: value.filter }) }, value.label) : value.label, ` ${number(value.count)}`))) : null)));
  },

  async sql(show, given) {
    const form = element("form", { onsubmit: (event) => { event.preventDefault(); go("sql", formValues(form)); } },
      element("label", { class: "wide" }, "SQL; the table is called dataset", element("textarea", { name: "query", rows: 3, spellcheck: "false" }, given.query ?? "SELECT * FROM dataset LIMIT 20")),
      element("button", {}, "Run"));
    if (!given.query) return show(form);
    show(form, element("p", { class: "faint" }, "Running …"));
    try {
      const found = await request("sql", given);
      show(form, element("p", { class: "faint", role: "status" }, `${number(found.rows.length)} rows${found.cut ? ", truncated" : ""}`), grid(found));
    } catch (error) { show(form, failed(error)); }
  },

  async rows(show, given) {
    const offset = Number(given.offset ?? 0), limit = Number(given.limit ?? 50);
    const form = element("form", { onsubmit: (event) => { event.preventDefault(); go("rows", formValues(form)); } },
      filterField(given), field("Rows", "limit", { limit: 50, ...given }, { type: "number", min: 1, max: 500 }), element("button", {}, "Show"));
    show(form, element("p", { class: "faint" }, "Loading …"));
    try {
      const found = await request("rows", given);
      const move = (to) => () => go("rows", { ...given, offset: to });
      const pager = element("div", { class: "pager" },
        element("button", { type: "button", disabled: offset === 0, onclick: move(0) }, "First"),
        element("button", { type: "button", disabled: offset === 0, onclick: move(Math.max(0, offset - limit)) }, "Previous"),
        element("span", { role: "status", id: "where" }, found.total ? `${number(offset + 1)} to ${number(offset + found.rows.length)} of ${number(found.total)}` : "no rows"),
        element("button", { type: "button", disabled: offset + limit >= found.total, onclick: move(offset + limit) }, "Next"),
        element("button", { type: "button", disabled: offset + limit >= found.total, onclick: move(Math.max(0, found.total - limit)) }, "Last"));
      show(form, columnChooser(given), pager, grid(found, { sortable: true, given }), exports(given));
    } catch (error) { show(form, failed(error)); }
  },

  async search(show, given) {
    const vectors = state.about.columns.filter((column) => column.kind === "vector").map((column) => column.name);
    const column = element("select", { name: "column" }, vectors.map((name) => element("option", { selected: name === given.column }, name)));
    const form = element("form", { onsubmit: (event) => { event.preventDefault(); go("search", formValues(form)); } },
      field("Text", "text", given, { wide: true }),
      vectors.length ? [element("label", {}, "Vectors", column), field("Vector", "vector", given, { placeholder: "0.1, 0.2, …" }), field("or similar to row", "row", given)] : [],
      filterField(given), element("button", {}, "Search"));
    if (!given.text && !given.vector && !given.row) return show(form);
    show(form, element("p", { class: "faint" }, "Searching …"));
    try { show(form, grid(await request("search", given))); } catch (error) { show(form, failed(error)); }
  },

  async schema(show) {
    const columns = state.about.columns;
    show(plain(["column", "type", "nullable"], columns.map((column) => [column.name, column.type, column.nullable ? "yes" : "no"])),
      element("h2", {}, "Metadata"), element("pre", {}, JSON.stringify(state.about.metadata, null, 2)));
  },

  async versions(show, given) {
    const found = await request("versions");
    const numbers = found.versions.map((each) => each.version);
    $("version-numbers").replaceChildren(...numbers.map((version) => element("option", { value: version })));
    const pick = (name, chosen) => element("select", { name }, numbers.map((version) => element("option", { selected: String(version) === String(chosen) }, version)));
    const form = element("form", { onsubmit: (event) => { event.preventDefault(); go("versions", formValues(form)); } },
      element("label", {}, "From", pick("begin", given.begin ?? numbers[1])), element("label", {}, "to", pick("end", given.end ?? numbers[0])),
      element("button", { disabled: numbers.length < 2 }, "Compare"));
    const line = element("ol", { class: "line" }, found.versions.map((each) => element("li", {},
      element("strong", {}, `${each.version} `), each.tags.map((tag) => [element("span", { class: "tag" }, tag), " "]),
      `${each.operation}, ${number(each.rows)} rows in ${number(each.fragments)} fragments, ${bytes(each.bytes)} `,
      element("span", { class: "faint" }, moment(each.committed)), " ",
      element("button", { type: "button", onclick: () => { $("at").value = each.version; open(); } }, "Open"))));
    const branches = found.branches.length
      ? [element("h2", {}, "Branches"), plain(["branch", "from", "version"], found.branches.map((each) => [each.name, each.parent ?? "main", each.version]))]
      : [];
    const parts = [form, element("h2", {}, found.branch ? `Branch ${found.branch}` : "Versions"), line, ...branches];
    show(parts);
    if (given.begin) {
      try { form.after(element("pre", { id: "difference" }, (await request("difference", given)).text)); } catch (error) { form.after(failed(error)); }
    }
  },

  async pages(show) {
    const found = await request("pages");
    const columns = new Map();
    for (const page of found.pages) columns.set(page.column, [...(columns.get(page.column) ?? []), page]);
    const total = found.pages.reduce((sum, page) => sum + page.bytes, 0) || 1;
    const parts = [...columns].map(([name, pages]) => {
      const size = pages.reduce((sum, page) => sum + page.bytes, 0);
      const kinds = [...new Set(pages.map((page) => page.encoding))];
      return [element("h2", {}, `${name}: ${bytes(size)} in ${pages.length} pages`),
        element("div", { class: "map", role: "img", "aria-label": `${name} takes ${((100 * size) / total).toFixed(1)} % of the bytes`, style: `width:${Math.max(2, (100 * size) / total)}%` },
          pages.map((page) => element("span", { style: `flex:${page.bytes}`, title: `fragment ${page.fragment}, page ${page.page}: ${number(page.rows)} rows, ${bytes(page.bytes)}` }))),
        element("p", { class: "faint" }, kinds.join("; "))];
    });
    show(parts, found.cut ? element("p", {}, "The list of pages is truncated.") : null);
  },

  async indices(show) {
    const { indices } = await request("indices");
    if (!indices.length) return show(element("p", {}, "The table has no indices."));
    show(indices.map((index) => {
      const out = element("div", {});
      const measure = element("button", { type: "button", onclick: async () => {
        out.replaceChildren("Measuring …");
        try { out.replaceChildren(element("pre", {}, (await request("recall", { column: index.columns[0] })).text)); } catch (error) { out.replaceChildren(failed(error)); }
      } }, "Measure recall");
      return [element("h2", {}, `${index.name}: ${index.type} on ${index.columns.join(", ")}`),
        element("p", {}, `${number(index.indexed_rows)} indexed rows, ${number(index.other_rows)} unindexed rows, ${index.segments} segments, ${bytes(index.bytes ?? 0)}`),
        index.is_vector ? measure : null, out,
        element("details", {}, element("summary", {}, "Statistics"), element("pre", {}, JSON.stringify(index.statistics, null, 2)))];
    }).flat(Infinity));
  },

  async plan(show, given) {
    const form = element("form", { onsubmit: (event) => { event.preventDefault(); go("plan", formValues(form)); } },
      filterField(given), field("Columns", "columns", given, { placeholder: "all" }),
      element("label", {}, "Measure", element("input", { type: "checkbox", name: "measure", value: "1", checked: given.measure === "1" })), element("button", {}, "Explain"));
    show(form);
    try { show(form, element("pre", { id: "plan" }, (await request("plan", given)).text)); } catch (error) { show(form, failed(error)); }
  },

  async health(show, given) {
    const levels = ["present", "footers", "checksums", "decode", "indices"];
    const form = element("form", { onsubmit: (event) => { event.preventDefault(); go("health", formValues(form)); } },
      element("label", {}, "Level", element("select", { name: "level" }, levels.map((level) => element("option", { selected: level === (given.level ?? "footers") }, level)))), element("button", {}, "Check"));
    show(form, element("p", { class: "faint" }, "Checking …"));
    try {
      const { findings } = await request("check", given);
      show(form, findings.length
        ? plain(["severity", "path", "what", "advice"], findings.map((each) => [each.severity, each.path, each.what, each.advice]))
        : element("p", { class: "good", id: "healthy" }, "No problems found."));
    } catch (error) { show(form, failed(error)); }
  },

  async change(show, given) {
    const actions = ["delete", "update", "restore", "compact", "tag"];
    const out = element("div", { id: "outcome" });
    const act = async (apply) => {
      try {
        const done = await request("change", { ...formValues(form), apply }, "POST");
        out.replaceChildren(element("p", { class: done.applied ? "good" : null }, done.applied ? `Done: version ${done.version}.` : "Preview; nothing has changed:"), element("pre", {}, done.text));
        if (done.applied) { $("at").value = ""; await describe(); }
      } catch (error) { out.replaceChildren(failed(error)); }
    };
    const form = element("form", { onsubmit: (event) => { event.preventDefault(); act("0"); } },
      element("label", {}, "Change", element("select", { name: "action" }, actions.map((name) => element("option", { selected: name === given.action }, name)))),
      filterField(given), field("Column", "column", given), field("Value (SQL)", "value", given), field("Name", "name", given),
      element("button", {}, "Preview"),
      state.canWrite ? element("button", { type: "button", id: "apply", onclick: () => act("1") }, "Apply") : element("span", { class: "faint" }, "Start with --write to apply changes."));
    const used = { delete: ["filter"], update: ["filter", "column", "value"], restore: [], compact: [], tag: ["name"] };
    const choose = () => {
      for (const input of form.querySelectorAll("input")) input.closest("label").hidden = !used[form.elements.action.value].includes(input.name);
    };
    form.elements.action.addEventListener("change", choose);
    choose();
    show(form, out);
  },
};

// Navigation

function go(view, given = {}) {
  const address = `#${view}?${new URLSearchParams({ t: state.table, ...given })}`;
  if (location.hash === address) route(); else location.hash = address;
}

async function describe() {
  state.about = await request("describe");
  const about = state.about;
  $("summary").textContent = `version ${about.version}, ${number(about.rows)} rows, ${about.columns.length} columns, ${about.fragments} fragments, ${bytes(about.bytes)}, file version ${about.file_version}`;
  document.title = `${state.table} · lancelet`;
}

async function open() {
  try { await describe(); } catch (error) { state.about = null; $("summary").textContent = ""; return painter()(failed(error)); }
  await route();
}

async function route() {
  const [view, given = ""] = location.hash.slice(1).split("?");
  const { t, ...rest } = Object.fromEntries(new URLSearchParams(given));
  if (t !== undefined && t !== state.table) { state.table = t; $("tables").value = t; return open(); }
  state.view = views[view] ? view : "rows";
  for (const tab of $("views").children) tab.setAttribute("aria-selected", String(tab.id === `view-${state.view}`));
  if (!state.about) return;
  const show = painter();
  try { await views[state.view](show, rest); } catch (error) { show(failed(error)); }
}

async function start() {
  const names = { rows: "Rows", tables: "Tables", statistics: "Statistics", sql: "SQL", search: "Search", schema: "Schema", versions: "Versions", pages: "Encodings", indices: "Indices", plan: "Plan", health: "Health", change: "Change" };
  $("views").append(...Object.entries(names).map(([view, label]) => element("button", { type: "button", role: "tab", id: `view-${view}`, onclick: () => go(view) }, label)));
  $("close").addEventListener("click", () => $("details").close());
  $("at").addEventListener("change", open);
  $("tables").addEventListener("change", () => { $("at").value = ""; state.table = $("tables").value; history.replaceState(null, "", "#rows"); open(); });
  $("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  addEventListener("hashchange", route);
  try {
    const found = await request("list_tables");
    state.canWrite = found.can_write;
    $("tables").replaceChildren(...found.tables.map((name) => element("option", {}, name)));
    if (!found.tables.length) return painter()(element("p", {}, `No tables in ${found.root}.`));
    const requested = new URLSearchParams(location.hash.split("?")[1]).get("t");
    state.table = found.tables.includes(requested) ? requested : found.tables[0];
    $("tables").value = state.table;
    await open();
  } catch (error) { painter()(failed(error)); }
}

start();
