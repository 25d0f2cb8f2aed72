// Small parts that several views use. Each value becomes a text node or an attribute, never markup.

import { h } from "./preact.mjs";
import { copy, rows, serviceLink, set, state } from "./store.js";

const MARKS = { ok: ["✓", "well"], warning: ["!", "warning"], error: ["✕", "error"] };

export function Mark({ level }) {
  const [sign, word] = MARKS[level] || MARKS.warning;
  return h("span", { class: `mark ${MARKS[level] ? level : "warning"}` }, h("span", { "aria-hidden": "true" }, sign), h(Hidden, null, word));
}

export function Hidden({ children }) {
  return h("span", { class: "hidden" }, children);
}

export function Service({ name }) {
  return h("a", { href: serviceLink(name) }, name);
}

export function Badge({ children, level }) {
  return h("span", { class: `badge ${level || "plain"}` }, children);
}

export function Command({ text }) {
  if (!text) return null;
  const done = state.copied === text;
  return h(
    "span",
    { class: "command" },
    h("code", null, text),
    h("button", { type: "button", onClick: () => copy(text), "aria-label": `copy: ${text}` }, done ? "Copied" : "Copy"),
  );
}

// A table whose cells say on a narrow window which column they are of. The roles keep its meaning there.
export function Table({ caption, columns, children }) {
  return h(
    "table",
    { role: "table" },
    h("caption", { class: "hidden" }, caption),
    h(
      "thead",
      { role: "rowgroup" },
      h("tr", { role: "row" }, columns.map((name) => h("th", { scope: "col", role: "columnheader", key: name }, name))),
    ),
    h("tbody", { role: "rowgroup" }, children),
  );
}

export function Row({ cells, mark }) {
  return h(
    "tr",
    { role: "row", class: mark },
    cells.map(([label, content], index) => h("td", { role: "cell", "data-label": label, key: index }, content)),
  );
}

// The first rows of a long list, and a button for more: a screen reader and a keyboard pass through it like any list.
export function limited(name, list, step = 100) {
  return list.slice(0, state.limits[name] || step);
}

export function More({ name, list, step = 100 }) {
  const shown = Math.min(list.length, state.limits[name] || step);
  if (shown === list.length) return null;
  const next = Math.min(step, list.length - shown);
  return h(
    "p",
    { class: "more" },
    `${shown} of ${list.length} are shown. `,
    h("button", { type: "button", onClick: () => set({ limits: { ...state.limits, [name]: shown + step } }) }, `Show ${next} more`),
  );
}

// A time of the server as the reader's clock shows it, with the whole instant as a title.
export function Time({ at }) {
  const found = new Date(at);
  if (!at || Number.isNaN(found.getTime())) return at || "";
  const isToday = found.toDateString() === new Date().toDateString();
  const text = isToday ? found.toLocaleTimeString() : found.toLocaleString();
  return h("time", { dateTime: at, title: at }, text);
}

export function age(seconds) {
  if (seconds < 90) return `${seconds} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

export function Notes() {
  const notes = rows("notes");
  if (!notes.length) return null;
  return h(
    "details",
    { class: "notes", open: notes.length < 4 },
    h("summary", null, `What this picture leaves out (${notes.length})`),
    h("ul", null, notes.map((note) => h("li", { key: note.id }, note.text))),
  );
}

export function Title({ children }) {
  return h("h1", { tabIndex: -1, id: "main" }, children);
}
