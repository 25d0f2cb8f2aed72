// The state of the page: the picture as the server sent it, and what the reader has chosen.
//
// A picture arrives whole, then as changes: by section, rows to set and ids that are gone. Rows sort by id.

const KEY = "kavip-ui-key";
const TOKEN = /^#([A-Za-z0-9_-]{40,})$/;
const SECTIONS = ["problems", "groups", "members", "vips", "pools", "timeline", "notes"];
const RECENT = 15000; // milliseconds for which a move is marked

export const state = {
  connection: "starting", // starting, open, lost, refused
  refusal: "",
  server: null, // the last "state" event
  heard: 0, // when it arrived
  version: 0, // counts pictures
  rows: emptyRows(),
  moved: new Map(), // id of a VIP -> when it moved
  route: { view: "overview", argument: "" },
  filter: "",
  onlyProblems: false,
  limits: {}, // how many rows of a list are shown, by name
  whatIf: "",
  copied: "",
  page: null, // of a Service: {name, data, error}
};

let listener = () => {};
let announce = () => {};
let source = null;

export function start(onChange, onAnnounce) {
  listener = onChange;
  announce = onAnnounce;
  window.addEventListener("hashchange", followRoute);
  setInterval(listener, 1000); // ages count on
  open();
}

export function set(values) {
  Object.assign(state, values);
  listener();
}

function emptyRows() {
  return Object.fromEntries(SECTIONS.map((section) => [section, new Map()]));
}

// The rows of a section, sorted; kept until the section changes.
const sorted = new Map();
export function rows(section) {
  if (!sorted.has(section)) {
    const found = [...state.rows[section].values()];
    sorted.set(section, found.sort((a, b) => (a.id < b.id ? -1 : a.id > b.id ? 1 : 0)));
  }
  return sorted.get(section);
}

// --- session -----------------------------------------------------------------------------------------------------
async function open() {
  const token = TOKEN.exec(location.hash);
  if (token) {
    history.replaceState(null, "", "#/");
    const answer = await fetch("/session", { method: "POST", body: token[1] }).catch(() => null);
    if (answer && answer.ok) {
      sessionStorage.setItem(KEY, (await answer.json()).key);
    } else if (!sessionStorage.getItem(KEY)) {
      return set({ connection: "refused", refusal: answer ? await answer.text() : "kavip ui does not answer" });
    }
  }
  followRoute();
  if (!sessionStorage.getItem(KEY)) {
    return set({ connection: "refused", refusal: "Open the link that kavip ui printed last; each works once." });
  }
  connect();
}

function withKey(path) {
  return `${path}${path.includes("?") ? "&" : "?"}key=${encodeURIComponent(sessionStorage.getItem(KEY) || "")}`;
}

export function connect() {
  if (source) source.close();
  source = new EventSource(withKey("/events"));
  source.addEventListener("picture", (event) => {
    state.rows = emptyRows();
    apply(JSON.parse(event.data), false);
  });
  source.addEventListener("change", (event) => apply(JSON.parse(event.data), true));
  source.addEventListener("state", (event) => {
    set({ server: JSON.parse(event.data), heard: Date.now(), connection: "open" });
  });
  source.onerror = async () => {
    if (source.readyState !== EventSource.CLOSED) return set({ connection: "lost" });
    const answer = await fetch(withKey("/events")).catch(() => null); // an EventSource does not say why
    if (answer && answer.body && answer.ok) answer.body.cancel();
    if (answer && answer.ok) return connect();
    set({ connection: "refused", refusal: answer ? await answer.text() : "kavip ui does not answer" });
  };
}

// --- the picture -------------------------------------------------------------------------------------------------
function apply(changes, isLater) {
  const now = Date.now();
  const before = state.rows.problems.size;
  for (const [section, change] of Object.entries(changes)) {
    if (!SECTIONS.includes(section)) continue;
    const known = state.rows[section];
    for (const id of change.drop) known.delete(id);
    for (const row of change.set) {
      const old = known.get(row.id);
      if (section === "vips" && isLater && old && old.node !== row.node) {
        state.moved.set(row.id, now);
        announce(`${row.address} of ${row.service || row.group} moved from ${old.node || "no node"} to ${row.node || "no node"}`);
      }
      known.set(row.id, row);
    }
    sorted.delete(section);
  }
  for (const [id, at] of state.moved) if (now - at > RECENT) state.moved.delete(id);
  const count = state.rows.problems.size;
  if (isLater && count !== before) announce(`${count} ${count === 1 ? "problem" : "problems"}`);
  state.version += 1;
  if (state.route.view === "service") loadService(state.route.argument);
  listener();
}

export function isRecent(id) {
  return Date.now() - (state.moved.get(id) || 0) < RECENT;
}

// --- views -------------------------------------------------------------------------------------------------------
const VIEWS = ["overview", "vips", "pools", "timeline", "service"];

function followRoute() {
  const [view, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  const known = VIEWS.includes(view) ? view : "overview";
  const argument = rest.map(decoded).join("/");
  set({ route: { view: known, argument } });
  if (known === "service") loadService(argument);
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function serviceLink(name) {
  return `#/service/${name.split("/").map(encodeURIComponent).join("/")}`;
}

let loading = 0;
async function loadService(name) {
  const number = ++loading;
  if (!state.page || state.page.name !== name) set({ page: { name, data: null, error: "" } });
  if (!sessionStorage.getItem(KEY)) return;
  const answer = await fetch(withKey(`/service?name=${encodeURIComponent(name)}`)).catch(() => null);
  const page = { name, data: null, error: "" };
  if (answer && answer.ok) page.data = await answer.json();
  else page.error = answer ? await answer.text() : "kavip ui does not answer";
  if (number === loading) set({ page });
}

export async function copy(text) {
  await navigator.clipboard.writeText(text).catch(() => {});
  set({ copied: text });
  announce("copied");
}
