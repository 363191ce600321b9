// Each view is a function that fills <main>.

import { $, abortReads, api, bytes, counted, element, failed, faint, go, hash, moment, number, request, state } from "./base.js";
import { changedRows, grid, plain, planTree, rowContents, rowLabel } from "./values.js";
import { completing, roving } from "./widgets.js";

// Discard responses that arrive after another view was selected: `generation` counts selections,
// and each view has a `show` function bound to its generation.
let generation = 0;
const COLUMNS_MAX = 100;

function painter(view) {
  const own = ++generation;
  abortReads();
  return (...children) => {
    if (own !== generation) return;
    $("main").dataset.view = view;
    // A form that is shown again with its results keeps the focus.
    const focused = document.activeElement;
    $("main").replaceChildren(...children.flat(Infinity).filter((child) => child != null));
    if (focused?.isConnected && focused !== document.body) focused.focus({ preventScroll: true });
  };
}

// Forms

function field(label, name, given, attributes = {}) {
  return element("label", {}, label, element("input", { name, value: given[name] ?? "", ...attributes }));
}

const formValues = (form) => Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== ""));

// A form that opens its view again with its values, and those of `kept`.
function viewForm(view, kept, ...children) {
  const form = element("form", { onsubmit: (event) => { event.preventDefault(); go(view, { ...kept, ...formValues(form) }); } }, children);
  return form;
}

function filterField(given) {
  const box = element("input", { name: "filter", value: given.filter ?? "", placeholder: "price > 3 AND name LIKE 'a%'" });
  return element("label", { class: "wide" }, "Filter (SQL)", completing(box, state.about.filter_words));
}

function choice(label, name, options, chosen) {
  return element("label", {}, label, element("select", { name }, options.map((option) => {
    const [value, text] = Array.isArray(option) ? option : [option, option];
    return element("option", { value, selected: String(value) === String(chosen) }, text);
  })));
}

// Without a choice, the first columns of wide tables are shown.
function withColumns(given) {
  const names = state.about.columns.map((column) => column.name);
  return given.columns || names.length <= COLUMNS_MAX ? given : { ...given, columns: JSON.stringify(names.slice(0, COLUMNS_MAX)) };
}

function columnChooser(view, given) {
  const names = state.about.columns.map((column) => column.name);
  const chosen = new Set(JSON.parse(withColumns(given).columns ?? JSON.stringify(names)));
  const { columns, ...others } = given;
  const apply = () => go(view, (chosen.size === names.length && names.length <= COLUMNS_MAX) || !chosen.size ? others : { ...others, columns: JSON.stringify(names.filter((name) => chosen.has(name))) });
  return element("details", { id: "columns" }, element("summary", {}, `Columns (${chosen.size} of ${names.length})`),
    names.map((name) => element("label", { class: "choice" },
      element("input", { type: "checkbox", value: name, checked: chosen.has(name), onchange: (event) => { if (event.target.checked) chosen.add(name); else chosen.delete(name); } }), name)),
    element("button", { type: "button", onclick: apply }, "Apply"));
}

function exports(given) {
  const { offset, limit, ...selected } = given;
  return element("span", { class: "faint", id: "exports" }, "Export: ", ["csv", "json", "parquet", "arrow"].map((format) => [
    element("a", { href: api("export", { ...selected, format }), download: "" }, format.toUpperCase()), " "]));
}

function bars(values, open) {
  const most = Math.max(...values.map((each) => each.count), 1);
  const each = (value) => element(value.filter ? "button" : "span", { type: value.filter ? "button" : null, style: `height:${Math.max(2, (100 * value.count) / most)}%`, title: `${value.label}: ${number(value.count)}`, "aria-label": `${value.label}: ${value.count}`, onclick: () => value.filter && open(value.filter) });
  return roving(element("div", { class: "bars", role: "group", "aria-label": "Histogram" }, values.map(each)));
}

function factsOf(values) {
  const text = (name, value) => name.endsWith("bytes") && typeof value === "number" ? bytes(value) : value !== null && typeof value === "object" ? JSON.stringify(value) : typeof value === "number" ? number(value) : String(value);
  return element("div", { class: "facts" }, plain(["statistic", "value"], Object.entries(values).map(([name, value]) => [name.replaceAll("_", " "), text(name, value)])));
}

// Views

const views = {
  async tables(show) {
    const { tables, groups } = await request("overview");
    const open = (name) => element("button", { type: "button", onclick: () => { state.at = ""; go("rows", { t: name }); } }, name);
    const list = (shown) => plain(["table", "rows", "columns", "size", "version", "committed"],
      shown.map((each) => each.error ? [open(each.name), failed(new Error(each.error))] : [open(each.name), each.rows, each.columns, bytes(each.bytes), each.version, moment(each.committed)]));
    if (!groups) return show(list(tables));
    const facts = new Map(tables.map((each) => [each.name, each]));
    show(groups.map((group) => element("section", { class: "group" }, element("h2", {}, group.name),
      group.tables.length ? list(group.tables.filter((name) => facts.has(name)).map((name) => facts.get(name))) : faint("No tables."))));
  },

  async statistics(show, given) {
    const form = viewForm("statistics", {}, filterField(given), element("button", {}, "Show"));
    show(form, faint("Reading …"));
    let found;
    try { found = await request("statistics", given); } catch (error) { return show(form, failed(error)); }
    const open = (filter) => go("rows", { filter: given.filter ? `(${given.filter}) AND ${filter}` : filter });
    const percent = (share) => `${(100 * share).toPrecision(3).replace(/\.?0+$/, "")} %`;
    const isSample = found.sampled < found.rows;
    const facts = (each) => [
      each.null_filter ? element("button", { type: "button", title: "Show these rows", onclick: () => open(each.null_filter) }, `${percent(each.nulls)} null`) : `${percent(each.nulls)} null`,
      `, ${number(each.distinct)} distinct values${isSample ? " in the sample" : ""}`, each.min === undefined ? null : `, ${each.min} to ${each.max}`];
    const sources = (each) => [each.source ? `Nulls and bounds: ${each.source}.` : null, each.counted_by ? `Counts: ${each.counted_by}.` : null].filter(Boolean).join(" ");
    const source = !isSample ? `From all ${number(found.rows)} rows${given.filter ? " that match" : ""}.`
      : given.filter ? `From the first ${number(found.sampled)} of ${number(found.rows)} rows that match.`
      : `Values are those of ${number(found.sampled)} sampled rows of ${number(found.rows)}; each column names other sources.`;
    show(form, element("p", { class: "faint", id: "sample", role: "status" }, source, found.cut ? ` The first ${found.columns.length} columns.` : null),
      element("div", { class: "cards" }, found.columns.map((each) => element("section", { class: "statistics" }, element("h2", {}, each.name, " ", element("small", { class: "faint" }, each.type)), element("p", { class: "faint" }, facts(each)),
        sources(each) ? element("p", { class: "faint source" }, sources(each)) : null,
        each.histogram ? bars(each.histogram, open) : null,
        each.top ? element("ul", {}, each.top.map((value) => element("li", {},
          value.filter ? element("button", { type: "button", title: "Show these rows", onclick: () => open(value.filter) }, value.label) : value.label, ` ${number(value.count)}`))) : null))));
  },

  async sql(show, given) {
    const box = element("textarea", { name: "query", rows: 4 }, given.query ?? "SELECT * FROM dataset LIMIT 20");
    const form = viewForm("sql", {}, element("label", { class: "wide" }, "SQL; the table is called dataset, and Ctrl+Enter runs the query", completing(box, state.about.sql_words)), element("button", {}, "Run"));
    box.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit(); });
    if (!given.query) return show(form);
    show(form, faint("Running …"));
    try {
      const found = await request("sql", given);
      show(form, element("p", { class: "faint", role: "status" }, `${number(found.rows.length)} rows${found.cut ? ", truncated" : ""}`), grid(found), exports(given));
    } catch (error) { show(form, failed(error)); }
  },

  async rows(show, given) {
    const offset = Number(given.offset ?? 0), limit = Number(given.limit ?? 50);
    const { offset: _, ...kept } = given;
    const form = viewForm("rows", given.columns ? { columns: given.columns } : {},
      filterField(given), element("label", { class: "optional" }, "Rows", element("input", { name: "limit", value: given.limit ?? 50, type: "number", min: 1, max: 500 })), element("button", {}, "Show"));
    show(form, faint("Loading …"));
    try {
      const read = (start) => request("rows", withColumns({ ...given, offset: start }));
      const found = await read(offset);
      // The panel of a row continues on other pages.
      const page = (start, rows) => Object.assign(rows, { start, turn: async (at) => { const next = Math.max(0, at < start ? start - limit : start + limit); return page(next, await read(next)); } });
      const to = (start, label, sign, isPossible) => element("button", { type: "button", "aria-label": label, title: label, disabled: !isPossible, onclick: () => go("rows", { ...given, offset: Math.max(0, start) }) }, sign);
      const hasMore = offset + limit < found.total;
      const pager = element("div", { class: "pager" },
        to(0, "First page", "«", offset > 0), to(offset - limit, "Previous page", "‹", offset > 0),
        element("span", { role: "status", id: "where" }, found.total ? `${number(offset + 1)} to ${number(offset + found.rows.length)} of ${number(found.total)}` : "no rows"),
        to(offset + limit, "Next page", "›", hasMore), to(found.total - limit, "Last page", "»", hasMore), columnChooser("rows", given));
      show(form, pager, grid(page(offset, found), { given, sort: (order) => go("rows", { ...kept, ...order }) }), exports(given));
    } catch (error) { show(form, failed(error)); }
  },

  async row(show, given) {
    const found = await request("rows", { filter: `_rowid = ${/^\d+$/.test(given.row) ? given.row : -1}`, limit: 1 });
    show(found.rows.length ? element("article", { id: "row" }, rowContents(found, 0)) : failed(new Error(`The version contains no row with the ${rowLabel()} ${given.row}.`)));
  },

  async search(show, given) {
    const vectors = state.about.columns.filter((column) => column.kind === "vector").map((column) => column.name);
    const form = viewForm("search", {},
      field("Text", "text", given),
      vectors.length ? [choice("Vectors", "column", vectors, given.column), field("Vector", "vector", given, { placeholder: "0.1, 0.2, …" }), field(`or similar to the ${rowLabel()}`, "row", given, { inputmode: "numeric" })] : [],
      filterField(given), element("button", {}, "Search"));
    if (!given.text && !given.vector && !given.row) return show(form);
    show(form, faint("Searching …"));
    try { show(form, grid(await request("search", given))); } catch (error) { show(form, failed(error)); }
  },

  async schema(show) {
    const columns = state.about.columns;
    show(plain(["column", "type", "nullable"], columns.map((column) => [column.name, column.type, column.nullable ? "yes" : "no"])),
      faint(`File version ${state.about.file_version}.`), element("h2", {}, "Metadata"), element("pre", {}, JSON.stringify(state.about.metadata, null, 2)));
  },

  async versions(show, given) {
    const found = await request("versions");
    const numbers = found.versions.map((each) => each.version);
    $("version-numbers").replaceChildren(...numbers.map((version) => element("option", { value: version })));
    const keys = state.about.columns.filter((column) => column.kind !== "nested" && column.kind !== "vector").map((column) => column.name);
    const form = viewForm("versions", {}, choice("From", "begin", numbers, given.begin ?? numbers[1]), choice("to", "end", numbers, given.end ?? numbers[0]),
      choice("Match rows by", "on", [["", "row ids"], ...keys], given.on ?? ""), element("button", { disabled: numbers.length < 2 }, "Compare"));
    const line = element("ol", { class: "line" }, found.versions.map((each) => element("li", {},
      element("strong", {}, `${each.version} `), each.tags.map((tag) => [element("span", { class: "tag" }, tag), " "]),
      `${each.operation}, ${number(each.rows)} rows in ${number(each.fragments)} fragments, ${bytes(each.bytes)} `,
      element("span", { class: "faint" }, moment(each.committed)), " ",
      element("button", { type: "button", "aria-label": `Open version ${each.version}`, onclick: () => { state.at = String(each.version); go("rows"); } }, "Open"))));
    const branches = found.branches.length
      ? [element("h2", {}, "Branches"), plain(["branch", "from", "version"], found.branches.map((each) => [each.name, each.parent ?? "main", each.version]))]
      : [];
    const timeline = [element("h2", {}, found.branch ? `Branch ${found.branch}` : "Versions"), line, ...branches];
    if (!given.begin) return show(form, timeline);
    show(form, faint("Comparing …"), timeline);
    try {
      const differences = await request("difference", given);
      show(form, element("section", { id: "difference" }, compared(differences)), timeline);
    } catch (error) { show(form, failed(error), timeline); }
  },

  async pages(show) {
    const found = await request("pages");
    if (!found.pages.length) return show(element("p", {}, "The version has no pages."));
    const columns = new Map();
    for (const page of found.pages) columns.set(page.column, [...(columns.get(page.column) ?? []), page]);
    const total = found.pages.reduce((sum, page) => sum + page.bytes, 0) || 1;
    const parts = [...columns].map(([name, pages]) => {
      const size = pages.reduce((sum, page) => sum + page.bytes, 0), share = (100 * size) / total;
      const kinds = [...new Set(pages.map((page) => page.encoding))];
      return element("section", {}, element("h2", {}, `${name}: ${bytes(size)} (${share.toFixed(1)} %)`),
        element("div", { class: "map", "aria-hidden": "true", style: `width:${Math.max(2, share)}%` },
          pages.map((page) => element("span", { style: `flex:${page.bytes}` }))),
        element("p", { class: "faint" }, kinds.join("; ")),
        element("details", {}, element("summary", {}, counted(pages.length, "page")),
          plain(["fragment", "page", "rows", "size", "encoding"], pages.slice(0, 500).map((page) => [page.fragment, page.page, page.rows, bytes(page.bytes), page.encoding]))));
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
      return element("section", {}, element("h2", {}, `${index.name}: ${index.type} on ${index.columns.join(", ")}`),
        element("p", {}, `${number(index.indexed_rows)} indexed rows, ${number(index.other_rows)} unindexed rows, ${counted(index.segments, "segment")}, ${bytes(index.bytes ?? 0)}`),
        index.is_vector ? measure : null, out,
        element("details", {}, element("summary", {}, "Statistics"), factsOf(index.statistics)));
    }));
  },

  async plan(show, given) {
    const form = viewForm("plan", given.columns ? { columns: given.columns } : {}, filterField(given),
      element("label", {}, "Measure", element("input", { type: "checkbox", name: "measure", value: "1", checked: given.measure === "1" })), element("button", {}, "Explain"));
    const chooser = columnChooser("plan", given);
    show(form, chooser, faint("Planning …"));
    try {
      const found = await request("plan", given);
      show(form, chooser, planTree(found.steps), found.measured ? element("p", { id: "measured" }, `measured: ${found.measured}`) : null);
    } catch (error) { show(form, chooser, failed(error)); }
  },

  async health(show, given) {
    const levels = ["present", "footers", "checksums", "decode", "indices"];
    const form = viewForm("health", {}, choice("Level", "level", levels, given.level ?? "footers"), element("button", {}, "Check"));
    show(form, faint("Checking …"));
    try {
      const { findings, steps, counts } = await request("health", given);
      show(form, findings.length
        ? plain(["severity", "path", "what", "advice"], findings.map((each) => [each.severity, each.path, each.what, each.advice]))
        : element("p", { class: "good", id: "healthy" }, "No problems found."),
      element("h2", {}, "Recommended maintenance"),
      steps.length
        ? plain(["step", "index", "reason", "reads"], steps.map((each) => [each.step, each.index, each.reason, bytes(each.bytes)]))
        : element("p", { class: "good" }, "None."),
      element("h2", {}, "Latest version"),
      factsOf(counts));
    } catch (error) { show(form, failed(error)); }
  },

  async change(show, given) {
    const actions = ["delete", "update", "restore", "compact", "tag"];
    const out = element("div", { id: "outcome", role: "status" });
    const act = async (apply) => {
      try {
        const done = await request("change", { ...formValues(form), apply }, "POST");
        out.replaceChildren(element("p", { class: done.applied ? "good" : null }, done.applied ? `Done: version ${done.version}.` : "Preview; nothing has changed:"), element("pre", {}, done.text));
        if (done.applied) { state.at = $("at").value = ""; history.replaceState(null, "", hash("change")); await describe(); }
      } catch (error) { out.replaceChildren(failed(error)); }
    };
    const form = element("form", { onsubmit: (event) => { event.preventDefault(); act("0"); } },
      choice("Change", "action", actions, given.action),
      filterField(given), field("Column", "column", given), field("Value (SQL)", "value", given), field("Name", "name", given),
      element("button", {}, "Preview"),
      state.canWrite ? element("button", { type: "button", id: "apply", onclick: () => act("1") }, "Apply") : faint("Start with --write to apply changes."));
    const used = { delete: ["filter"], update: ["filter", "column", "value"], restore: [], compact: [], tag: ["name"] };
    const choose = () => {
      for (const input of form.querySelectorAll("input")) input.closest("label").hidden = !used[form.elements.action.value].includes(input.name);
    };
    form.elements.action.addEventListener("change", choose);
    choose();
    show(form, out);
  },
};

function compared(found) {
  const kinds = { "+": "added", "-": "removed", "~": "changed" };
  const counts = ["added", "changed", "removed"].map((kind, index) => `${number(found.counts[index])} ${kind}`).join(", ");
  const rows = `${number(found.before)} rows before, ${number(found.after)} after${found.counts[0] === null ? "" : `: ${counts}`}`;
  return [
    element("h2", {}, `Version ${found.begin} to ${found.end}`), element("p", {}, rows),
    found.unknown ? element("p", { class: "faint" }, `Rows cannot be matched: ${found.unknown}. Choose a key column under “Match rows by”.`) : null,
    found.changes.length ? [changedRows(found), found.cut ? faint(`The first ${found.changes.length} changed rows.`) : null] : null,
    found.parts.length ? element("details", { open: !found.changes.length }, element("summary", {}, "Schema, settings, files and indices"),
      plain(["", "part", "name", "before", "after"], found.parts.map((each) => [kinds[each.kind], each.part, each.name, each.before, each.after]))) : null,
  ];
}

// Navigation

async function describe() {
  const about = state.about = await request("describe");
  $("summary").textContent = `version ${about.version}, ${number(about.rows)} rows, ${about.columns.length} columns, ${about.fragments} fragments, ${bytes(about.bytes)}`;
}

async function route() {
  const [requested, text = ""] = location.hash.slice(1).split("?");
  const { t = state.table, at = "", ...given } = Object.fromEntries(new URLSearchParams(text));
  const view = Object.hasOwn(views, requested) ? requested : "rows";
  [...$("views").children].forEach((tab) => {
    const isSelected = tab.id === `view-${view}`;
    tab.setAttribute("aria-selected", String(isSelected));
    tab.tabIndex = isSelected || (view === "row" && tab.id === "view-rows") ? 0 : -1;
    if (isSelected) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
  });
  const show = painter(view);
  try {
    if (view === "tables") document.title = "lancelet";
    else if (!state.about || t !== state.about.table || at !== state.about.at) {
      Object.assign(state, { table: t, at, about: null });
      $("tables").value = t;
      $("at").value = at;
      $("summary").textContent = "";
      await describe();
      Object.assign(state.about, { table: t, at });
    }
    if (view !== "tables") document.title = `${state.table} · lancelet`;
    await views[view](show, given);
  } catch (error) { show(failed(error)); }
}

async function start() {
  const names = { tables: "Tables", rows: "Rows", statistics: "Statistics", sql: "SQL", search: "Search", schema: "Schema", versions: "Versions", pages: "Encodings", indices: "Indices", plan: "Plan", health: "Health", change: "Change" };
  $("views").append(...Object.entries(names).map(([view, label]) => element("button", { type: "button", role: "tab", id: `view-${view}`, onclick: () => go(view) }, label)));
  roving($("views"));
  $("close").addEventListener("click", () => $("details").close());
  $("at").addEventListener("change", () => { state.at = $("at").value.trim(); go("rows"); });
  $("tables").addEventListener("change", () => { state.at = ""; go("rows", { t: $("tables").value }); });
  $("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  try {
    const found = await request("list_tables");
    state.canWrite = found.can_write;
    const options = (names) => names.map((name) => element("option", {}, name));
    $("tables").replaceChildren(...(found.groups ? found.groups.filter((group) => group.tables.length).map((group) => element("optgroup", { label: group.name }, options(group.tables))) : options(found.tables)));
    if (!found.tables.length) return painter("")(element("p", {}, `No tables in ${found.root}.`));
    state.table = found.tables[0];
    if (!location.hash && found.tables.length > 1) history.replaceState(null, "", hash("tables"));
    addEventListener("hashchange", route);
    await route();
  } catch (error) { painter("")(failed(error)); }
}

start();
