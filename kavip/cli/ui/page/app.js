// The page: a head that says whether the picture is current, and one of five views.

import { Overview } from "./overview.js";
import { Badge, Hidden, Title, age } from "./parts.js";
import { Pools } from "./pools.js";
import { h, render } from "./preact.mjs";
import { ServiceView } from "./service.js";
import { connect, rows, start, state } from "./store.js";
import { Timeline } from "./timeline.js";
import { VIPs } from "./vips.js";

function Head() {
  const count = rows("problems").length;
  const links = [
    ["overview", "Overview", count],
    ["vips", "VIPs", 0],
    ["pools", "Pools", 0],
    ["timeline", "Timeline", 0],
  ];
  return h(
    "header",
    null,
    h("a", { class: "skip", href: "#main", onClick: skip }, "Skip to the content"),
    h("span", { class: "brand" }, "kavip"),
    h(
      "nav",
      { "aria-label": "Views" },
      links.map(([view, title, number]) =>
        h(
          "a",
          { key: view, href: `#/${view}`, "aria-current": state.route.view === view ? "page" : undefined },
          title,
          number ? h("span", { class: "count" }, number, h(Hidden, null, " problems")) : null,
        ),
      ),
    ),
    h(Currency, null),
  );
}

function skip(event) {
  event.preventDefault();
  document.querySelector("main h1").focus();
}

function Currency() {
  const { server, connection, heard } = state;
  const silent = Math.round((Date.now() - heard) / 1000);
  const [level, text] = currency(server, connection, silent);
  return h(
    "span",
    { class: `currency ${level}` },
    h("span", { class: "source" }, server ? server.source : ""),
    h(Badge, { level }, text),
  );
}

function currency(server, connection, silent) {
  if (connection === "refused") return ["error", "not connected"];
  if (!server) return ["warning", "connecting"];
  if (connection === "lost" || silent > 15) return ["error", `kavip ui does not answer; ${age(silent)} old`];
  if (!server.isLive) return ["plain", "files, not live"];
  if (server.error) return ["error", `API server away; ${age(server.age + silent)} old`];
  return ["ok", "live"];
}

// --- all ---------------------------------------------------------------------------------------------------------
const VIEWS = { overview: Overview, vips: VIPs, pools: Pools, timeline: Timeline, service: ServiceView };

function Refused() {
  return h(
    "main",
    null,
    h(Title, null, "This page is not connected"),
    h("p", null, state.refusal),
    h("p", null, h("button", { type: "button", onClick: connect }, "Try again")),
  );
}

function App() {
  const View = state.connection === "refused" ? Refused : state.server ? VIEWS[state.route.view] : Waiting;
  return [h(Head, { key: "head" }), h(View, { key: state.route.view })];
}

function Waiting() {
  return h("main", null, h(Title, null, "Connecting"));
}

let isDue = false;
let shown = "";
function redraw() {
  if (isDue) return;
  isDue = true;
  setTimeout(() => {
    isDue = false;
    render(h(App, null), document.getElementById("root"));
    moveFocus(`${state.route.view}/${state.route.argument}`);
  }, 0);
}

// A reader who follows a link to another view continues at its heading.
function moveFocus(place) {
  if (shown && shown !== place) {
    scrollTo(0, 0);
    document.querySelector("main h1").focus();
  }
  shown = place;
}

function announce(text) {
  document.getElementById("announcer").textContent = text;
}

start(redraw, announce);
