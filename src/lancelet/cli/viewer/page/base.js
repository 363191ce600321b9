// The state of the page, requests, and elements.

export const $ = (id) => document.getElementById(id);
export const state = { table: null, at: "", about: null, canWrite: false };

export function element(name, attributes = {}, ...children) {
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

export const api = (endpoint, given = {}) => `api/${endpoint}?${new URLSearchParams({ table: state.table ?? "", at: state.at, ...given })}`;

// The server stops queries whose requests were aborted.
let reads = new AbortController();
export function abortReads() { reads.abort(); reads = new AbortController(); }

// Return the text of a response; an error of the server is thrown with its message.
export async function fetched(address, method = "GET") {
  const reply = await fetch(address, { method, signal: method === "GET" ? reads.signal : null });
  const text = await reply.text();
  if (!reply.ok) throw new Error(JSON.parse(text).error);
  return text;
}

export const request = async (endpoint, given = {}, method = "GET") => JSON.parse(await fetched(api(endpoint, given), method));

export const failed = (error) => element("pre", { class: "error", role: "alert" }, error.message);
export const faint = (...children) => element("p", { class: "faint" }, ...children);

export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) { count /= 1024; unit += 1; }
  return `${unit ? count.toFixed(1) : count} ${units[unit]}`;
}

export const number = (count) => Number(count).toLocaleString("en");
export const counted = (count, noun) => `${number(count)} ${noun}${Number(count) === 1 ? "" : "s"}`;
export const moment = (text) => text.replace("T", " ").slice(0, 19) + "Z";

// The state of a view is in the URL fragment (#view?...), which supports history and bookmarks.
export const hash = (view, given = {}) => `#${view}?${new URLSearchParams({ t: state.table, ...(state.at ? { at: state.at } : {}), ...given })}`;

export function go(view, given = {}) {
  const address = hash(view, given);
  if (location.hash === address) dispatchEvent(new HashChangeEvent("hashchange")); else location.hash = address;
}
