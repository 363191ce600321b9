// Keyboard movement within lists, completion of words, and widths of columns.

import { element, state } from "./base.js";

// One item is a tab stop; arrow keys, Home and End move between the items.
export function roving(container, selected = 0) {
  const items = [...container.children];
  items.forEach((item, index) => { item.tabIndex = index === selected ? 0 : -1; });
  container.addEventListener("keydown", (event) => {
    const at = items.indexOf(event.target);
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1, Home: -at, End: items.length }[event.key];
    if (at < 0 || step === undefined) return;
    const next = items[Math.max(0, Math.min(items.length - 1, at + step))];
    items[at].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
    event.preventDefault();
  });
  return container;
}

let boxes = 0;

// Complete the word before the caret: Tab and Enter accept, arrows choose, Escape closes, and
// Ctrl+Space lists all words.
export function completing(box, words) {
  const id = `options-${++boxes}`;
  const list = element("ul", { id, role: "listbox", class: "options", "aria-label": "Completions", hidden: true });
  for (const [key, value] of Object.entries({ role: "combobox", "aria-autocomplete": "list", "aria-controls": id, "aria-expanded": "false", autocomplete: "off", autocapitalize: "off", spellcheck: "false" })) box.setAttribute(key, value);
  let fitting = [], active = -1;
  const before = () => box.value.slice(0, box.selectionStart);
  const typed = () => before().match(/[`"]?[\p{L}\p{N}_.]*$/u)[0];
  const bare = (word) => word.replace(/[`"]/g, "").toLowerCase();

  const draw = () => {
    list.replaceChildren(...fitting.map((word, index) => element("li", { role: "option", id: `${id}-${index}`, "aria-selected": String(index === active), onpointerdown: (event) => { event.preventDefault(); accept(word); } }, word)));
    list.hidden = !fitting.length;
    box.setAttribute("aria-expanded", String(!list.hidden));
    if (active >= 0) { box.setAttribute("aria-activedescendant", `${id}-${active}`); list.children[active].scrollIntoView({ block: "nearest" }); } else box.removeAttribute("aria-activedescendant");
  };
  const close = () => { fitting = []; active = -1; draw(); };
  const suggest = (all) => {
    const word = bare(typed());
    const isText = before().split("'").length % 2 === 0;
    fitting = (word && !isText) || all ? words.filter((each) => bare(each).startsWith(word)).slice(0, 50) : [];
    // Enter must submit a word that is complete.
    const isComplete = fitting.some((each) => bare(each) === word);
    if (isComplete && fitting.length === 1) fitting = [];
    active = isComplete || !fitting.length ? -1 : 0;
    draw();
  };
  const accept = (word) => {
    const start = box.selectionStart - typed().length;
    box.setRangeText(word, start, box.selectionStart, "end");
    close();
    box.focus();
  };

  box.addEventListener("input", () => suggest(false));
  box.addEventListener("blur", close);
  box.addEventListener("keydown", (event) => {
    if (event.key === " " && event.ctrlKey) { suggest(true); event.preventDefault(); return; }
    if (list.hidden) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) active = (Math.max(active, step > 0 ? -1 : 0) + step + fitting.length) % fitting.length;
    if (step) draw();
    else if (event.key === "Escape") close();
    else if ((event.key === "Enter" || event.key === "Tab") && active >= 0 && !event.ctrlKey) accept(fitting[active]);
    else { if (event.key === "Enter") close(); return; }
    event.preventDefault();
  });
  return element("span", { class: "completing" }, box, list);
}

// Widths are stored by table and column name.
const MIN_WIDTH = 40, STEP = 16;
const key = () => `widths ${state.table}`;
const widths = () => { try { return JSON.parse(localStorage.getItem(key())) ?? {}; } catch { return {}; } };

function setWidth(table, column, width) {
  const css = width ? `${width}px` : "";
  for (const row of table.rows) {
    const { style } = row.cells[column];
    style.width = style.minWidth = style.maxWidth = css;
  }
}

export function resizable(table, names, offset) {
  const stored = widths();
  names.forEach((name, index) => {
    const column = index + offset, cell = table.tHead.rows[0].cells[column];
    const save = (width) => {
      setWidth(table, column, width);
      const { [name]: _, ...others } = widths();
      localStorage.setItem(key(), JSON.stringify(width ? { ...others, [name]: width } : others));
      if (width) handle.setAttribute("aria-valuenow", width); else handle.removeAttribute("aria-valuenow");
    };
    const by = (change) => save(Math.max(MIN_WIDTH, Math.round(cell.getBoundingClientRect().width + change)));
    const handle = element("span", {
      class: "resize", role: "separator", tabindex: 0, "aria-orientation": "vertical", "aria-label": `Width of ${name}`, "aria-valuenow": stored[name], title: "Drag, or press the arrow keys; double-click to reset",
      onpointerdown: (event) => { handle.setPointerCapture(event.pointerId); event.preventDefault(); handle.focus(); },
      onpointermove: (event) => { if (handle.hasPointerCapture(event.pointerId)) save(Math.max(MIN_WIDTH, Math.round(event.clientX - cell.getBoundingClientRect().left))); },
      ondblclick: () => save(0),
      onkeydown: (event) => {
        if (event.key === "ArrowLeft") by(-STEP); else if (event.key === "ArrowRight") by(STEP); else if (event.key === "Home") save(0); else return;
        event.preventDefault();
      },
    });
    cell.append(handle);
    if (stored[name]) setWidth(table, column, stored[name]);
  });
}
