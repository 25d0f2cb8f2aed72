// The page: a head that says whether the picture is current, and five views.

import { h, render } from "./preact.mjs";
import { Badge, Command, Hidden, Mark, More, Row, Service, Table, Time, age, limited } from "./parts.js";
import { connect, isRecent, rows, set, start, state } from "./store.js";

const CHIPS = 12; // VIPs of a node that the map shows at first
const CELLS = 512; // addresses of a pool that are drawn one by one
const USES = ["Assigned", "Resting", "Reserved", "Excluded", "Free"];

// --- head --------------------------------------------------------------------------------------------------------
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

function Notes() {
  const notes = rows("notes");
  if (!notes.length) return null;
  return h(
    "details",
    { class: "notes", open: notes.length < 4 },
    h("summary", null, `What this picture leaves out (${notes.length})`),
    h("ul", null, notes.map((note) => h("li", { key: note.id }, note.text))),
  );
}

function Title({ children }) {
  return h("h1", { tabIndex: -1, id: "main" }, children);
}

// --- overview ----------------------------------------------------------------------------------------------------
function Overview() {
  return h("main", null, h(Problems, null), h(Notes, null), h(Map_, null));
}

function Problems() {
  const problems = rows("problems");
  const vips = rows("vips").filter((vip) => vip.address);
  if (!problems.length) {
    const held = vips.filter((vip) => vip.node).length;
    return h("section", null, h(Title, null, rows("notes").length ? "Nothing is known to be wrong" : "Nothing is wrong"), h("p", { class: "fine" }, `${held} of ${vips.length} VIPs have a known master.`));
  }
  const columns = ["", "What", "Reason", "Message", "Since", "Command"];
  return h(
    "section",
    null,
    h(Title, null, `${problems.length} ${problems.length === 1 ? "thing is" : "things are"} wrong`),
    h(
      Table,
      { caption: "What is wrong, the most urgent first", columns },
      limited("problems", problems, 20).map((each) =>
        h(Row, {
          key: each.id,
          mark: each.level,
          cells: [
            ["", h(Mark, { level: each.level })],
            ["What", [h("span", { class: "kind" }, each.kind), " ", each.service ? h(Service, { name: each.service }) : each.name]],
            ["Reason", each.reason],
            ["Message", each.message],
            ["Since", h(Time, { at: each.since })],
            ["Command", h(Command, { text: each.command })],
          ],
        }),
      ),
    ),
    h(More, { name: "problems", list: problems, step: 20 }),
  );
}

function Map_() {
  const byPlace = new Map();
  for (const vip of rows("vips")) {
    const key = `${vip.group} ${vip.node}`;
    if (!byPlace.has(key)) byPlace.set(key, []);
    byPlace.get(key).push(vip);
  }
  const members = rows("members");
  const named = new Set([...rows("groups").map((each) => each.group), ...rows("vips").map((each) => each.group)]);
  const groups = [...named].sort();
  return h(
    "section",
    null,
    h("div", { class: "titled" }, h("h2", null, "Groups, nodes and their VIPs"), h(WhatIf, { members })),
    groups.length ? null : h("p", null, "There is no KeepalivedGroup."),
    groups.map((name) => h(Group, { key: name, name, members: members.filter((each) => each.group === name), byPlace })),
  );
}

function WhatIf({ members }) {
  const nodes = [...new Set(members.map((each) => each.node))].sort();
  if (!rows("vips").some((each) => each.successor)) return null;
  return h(
    "label",
    { class: "whatif" },
    "If a node fails or is drained: ",
    h(
      "select",
      { value: state.whatIf, onChange: (event) => set({ whatIf: event.target.value }) },
      h("option", { value: "" }, "choose a node"),
      nodes.map((node) => h("option", { key: node, value: node }, node)),
    ),
  );
}

function Group({ name, members, byPlace }) {
  const group = rows("groups").find((each) => each.group === name);
  const stray = byPlace.get(`${name} `) || [];
  return h(
    "section",
    { class: `group ${group ? group.level : "warning"}` },
    h(
      "h3",
      null,
      group ? h(Mark, { level: group.level }) : null,
      h("span", null, name || "no group"),
      group
        ? h("span", { class: "about" }, [group.interface, group.mode, `${group.ready} of ${group.desired} pods ready`, `${group.current} with the newest configuration`].filter(Boolean).join(" · "))
        : h("span", { class: "about" }, "this group cannot be read, or does not exist"),
    ),
    group && group.level !== "ok" ? h("p", { class: "why" }, `${group.state}: ${group.message}`) : null,
    h(
      "ul",
      { class: "nodes" },
      members.map((member) => h(Member, { key: member.id, member, vips: byPlace.get(`${name} ${member.node}`) || [] })),
      stray.length ? h(Stray, { key: "", vips: stray, name }) : null,
    ),
  );
}

function Member({ member, vips }) {
  const badges = [
    member.ready === false && ["not ready", "error"],
    member.agent === "Silent" && member.ready !== false && ["agent silent", "error"],
    member.drained && ["drained", "warning"],
    member.cordoned && ["cordoned", "plain"],
  ].filter(Boolean);
  const falls = state.whatIf === member.node;
  return h(
    "li",
    { class: `node ${member.level}${falls ? " falls" : ""}` },
    h(
      "h4",
      null,
      h(Mark, { level: member.level }),
      h("span", null, member.node),
      badges.map(([text, level]) => h(Badge, { key: text, level }, text)),
      h("span", { class: "about" }, `${vips.length} ${vips.length === 1 ? "VIP" : "VIPs"}`),
    ),
    member.problems.length ? h("ul", { class: "why" }, member.problems.map((text, index) => h("li", { key: index }, text))) : null,
    h(Chips, { name: member.id, vips, falls }),
  );
}

function Stray({ vips, name }) {
  const level = vips.some((each) => each.level === "error") ? "error" : "warning";
  return h(
    "li",
    { class: `node ${level}` },
    h("h4", null, h(Mark, { level }), h("span", null, "On no node"), h("span", { class: "about" }, vips.length)),
    h(Chips, { name: `${name} `, vips, falls: false }),
  );
}

function Chips({ name, vips, falls }) {
  return [
    h(
      "ul",
      { class: "chips" },
      limited(`chips ${name}`, vips, CHIPS).map((vip) =>
        h(
          "li",
          { key: vip.id, class: `chip ${vip.level}${isRecent(vip.id) ? " moved" : ""}` },
          vip.level === "ok" ? null : h(Mark, { level: vip.level }),
          h("span", { class: "address" }, vip.address || vip.state),
          h("span", { class: "of" }, vip.service ? h(Service, { name: vip.service }) : "of the group"),
          isRecent(vip.id) ? h(Badge, { level: "plain" }, "moved") : null,
          falls ? h("span", { class: "successor" }, vip.successor ? `→ ${vip.successor}` : "→ not known") : null,
        ),
      ),
    ),
    h(More, { name: `chips ${name}`, list: vips, step: CHIPS }),
  ];
}

// --- VIPs --------------------------------------------------------------------------------------------------------
function VIPs() {
  const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const found = rows("vips").filter((vip) => {
    if (state.onlyProblems && vip.level === "ok") return false;
    const text = `${vip.address} ${vip.service} ${vip.group} ${vip.pool} ${vip.node} ${vip.state}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const columns = ["", "VIP", "Service", "Node", "Since", "State", "Pool", "Group"];
  return h(
    "main",
    null,
    h(Title, null, "VIPs and Services"),
    h(Notes, null),
    h(
      "div",
      { class: "filters", role: "search" },
      h("label", null, "Filter ", h("input", { type: "search", value: state.filter, placeholder: "address, Service, node, state", onInput: (event) => set({ filter: event.target.value }) })),
      h("label", null, h("input", { type: "checkbox", checked: state.onlyProblems, onChange: (event) => set({ onlyProblems: event.target.checked }) }), " only what is not well"),
      h("output", null, `${found.length} of ${rows("vips").length}`),
    ),
    h(
      Table,
      { caption: "VIPs by address", columns },
      limited("vips", found).map((vip) =>
        h(Row, {
          key: vip.id,
          mark: vip.level + (isRecent(vip.id) ? " moved" : ""),
          cells: [
            ["", h(Mark, { level: vip.level })],
            ["VIP", h("span", { class: "address" }, vip.address || "none")],
            ["Service", vip.service ? h(Service, { name: vip.service }) : "the group itself"],
            ["Node", vip.node || "none"],
            ["Since", h(Time, { at: vip.since })],
            ["State", vip.message ? `${vip.state}: ${vip.message}` : vip.state],
            ["Pool", vip.pool],
            ["Group", vip.group],
          ],
        }),
      ),
    ),
    h(More, { name: "vips", list: found }),
  );
}

// --- pools -------------------------------------------------------------------------------------------------------
function Pools() {
  const pools = rows("pools");
  return h(
    "main",
    null,
    h(Title, null, "Pools and their addresses"),
    h(Notes, null),
    h("ul", { class: "legend" }, USES.map((use) => h("li", { key: use }, h("span", { class: `cell ${use}`, "aria-hidden": "true" }), use.toLowerCase()))),
    pools.length ? null : h("p", null, "There is no VIPPool."),
    pools.map((pool) => h(Pool, { key: pool.id, pool })),
  );
}

function Pool({ pool }) {
  const counts = USES.filter((use) => pool.counts[use] && pool.counts[use] !== "0").map((use) => `${short(pool.counts[use])} ${use.toLowerCase()}`);
  const used = pool.spans.filter((span) => span.use !== "Free" && span.use !== "Excluded");
  const about = [`priority ${pool.priority}`, pool.autoAssign ? "" : "only on request", pool.interface].filter(Boolean).join(" · ");
  return h(
    "section",
    { class: `pool ${pool.level}` },
    h("h2", null, h(Mark, { level: pool.level }), h("span", null, pool.pool), h("span", { class: "about" }, about)),
    pool.level !== "ok" ? h("p", { class: "why" }, pool.message ? `${pool.state}: ${pool.message}` : pool.state) : null,
    h("p", null, counts.join(", ") || "no addresses"),
    h(Addresses, { pool, counts }),
    used.length
      ? h(
          "details",
          { open: used.length <= 20 },
          h("summary", null, `Who has what (${used.length})`),
          h(
            Table,
            { caption: `Addresses in use of pool ${pool.pool}`, columns: ["Address", "Use", "Service"] },
            limited(`pool ${pool.pool}`, used).map((span) =>
              h(Row, { key: span.first, mark: "", cells: [["Address", h("span", { class: "address" }, span.first)], ["Use", span.use.toLowerCase()], ["Service", h(Holders, { names: span.holder })]] }),
            ),
          ),
          h(More, { name: `pool ${pool.pool}`, list: used }),
        )
      : null,
    pool.omitted ? h("p", { class: "about" }, `${pool.omitted} more ranges are not shown.`) : null,
  );
}

function Holders({ names }) {
  return names.split(", ").map((name, index) => [index ? ", " : "", h(Service, { key: name, name })]);
}

function Addresses({ pool, counts }) {
  const sizes = pool.spans.map((span) => Number(span.size));
  const total = sizes.reduce((sum, size) => sum + size, 0);
  const label = `Addresses of pool ${pool.pool}: ${counts.join(", ")}`;
  if (!total || pool.omitted || total > CELLS) return h(Bar, { pool, label });
  const cells = pool.spans.flatMap((span, index) =>
    Array.from({ length: sizes[index] }, (_, offset) => {
      return h("span", { key: `${span.first} ${offset}`, class: `cell ${span.use}`, title: `${sizes[index] > 1 ? `${span.first} to ${span.last}` : span.first}: ${span.use.toLowerCase()}${span.holder ? ` ${span.holder}` : ""}` });
    }),
  );
  return h("div", { class: "cells", role: "img", "aria-label": label }, cells);
}

// Of a large pool, the share of each use; what is in use is at least visible.
function Bar({ pool, label }) {
  const numbers = USES.map((use) => Number(pool.counts[use] || 0));
  const total = numbers.reduce((sum, number) => sum + number, 0);
  if (!total) return null;
  const widths = numbers.map((number) => (number ? Math.max(4, (1000 * number) / total) : 0));
  const whole = widths.reduce((sum, width) => sum + width, 0);
  let at = 0;
  return h(
    "svg",
    { class: "bar", viewBox: `0 0 ${whole} 20`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    USES.map((use, index) => {
      const rect = h("rect", { key: use, class: use, x: at, y: 0, width: widths[index], height: 20 });
      at += widths[index];
      return widths[index] ? rect : null;
    }),
  );
}

function short(text) {
  return text.length > 12 ? Number(text).toExponential(2) : text;
}

// --- timeline ----------------------------------------------------------------------------------------------------
function Timeline() {
  const found = [...rows("timeline")].reverse();
  return h(
    "main",
    null,
    h(Title, null, "What has changed"),
    h(Notes, null),
    found.length ? null : h("p", null, "Nothing has changed since kavip ui was started, and kavip has reported no Events."),
    found.length
      ? h(
          Table,
          { caption: "Changes, the newest first", columns: ["", "Time", "What", "Reason", "Change"] },
          limited("timeline", found).map((each) =>
            h(Row, {
              key: each.id,
              mark: each.level,
              cells: [
                ["", h(Mark, { level: each.level })],
                ["Time", h(Time, { at: each.at })],
                ["What", [h("span", { class: "kind" }, each.kind), " ", each.kind === "Service" ? h(Service, { name: each.name }) : each.name]],
                ["Reason", each.reason],
                ["Change", each.text],
              ],
            }),
          ),
        )
      : null,
    h(More, { name: "timeline", list: found }),
  );
}

// --- one Service -------------------------------------------------------------------------------------------------
function ServiceView() {
  const { name, data, error } = state.page || { name: state.route.argument };
  return h(
    "main",
    null,
    h(Title, null, `Service ${name}`),
    error ? h("p", { class: "why" }, error) : null,
    data ? h(ServicePage, { data }) : error ? null : h("p", null, "Loading"),
  );
}

function ServicePage({ data }) {
  return [
    h("p", { class: "headline" }, data.headline),
    data.advice.length
      ? h("section", null, h("h2", null, "What to do"), h("ul", null, data.advice.map((each, index) => h("li", { key: index }, each.isCommand ? h(Command, { text: each.text }) : each.text))))
      : null,
    h(
      "section",
      null,
      h("h2", null, "The way to the wire"),
      h(
        "ol",
        { class: "steps" },
        data.steps.map((step, index) =>
          h(
            "li",
            { key: index, class: step.level },
            h("h3", null, h(Mark, { level: step.level }), h("span", null, step.title), h(Badge, { level: step.level }, step.reason), step.since ? h("span", { class: "about" }, "since ", h(Time, { at: step.since })) : null),
            h("p", null, step.message),
          ),
        ),
      ),
    ),
    h(
      "section",
      null,
      h("h2", null, "What it asks for"),
      h("dl", { class: "facts" }, data.annotations.flatMap((each) => [h("dt", { key: `t${each.name}` }, each.name), h("dd", { key: `d${each.name}` }, each.value)])),
    ),
    data.pools.length ? h(Rules, { pools: data.pools }) : null,
    data.notes.length ? h("section", null, h("h2", null, "Notes"), h("ul", null, data.notes.map((text, index) => h("li", { key: index }, text)))) : null,
  ];
}

function Rules({ pools }) {
  const levels = new Map([[true, "ok"], [false, "error"]]);
  return h(
    "section",
    null,
    h("h2", null, "Pools, in the order in which they are tried"),
    pools.map((pool) =>
      h(
        "details",
        { key: pool.name },
        h("summary", null, `${pool.name}: ${pool.role}`),
        h(
          Table,
          { caption: `Rules of pool ${pool.name}`, columns: ["", "Rule", "Result"] },
          pool.rules.map((rule, index) =>
            h(Row, { key: index, mark: "", cells: [["", levels.has(rule.holds) ? h(Mark, { level: levels.get(rule.holds) }) : ""], ["Rule", rule.rule], ["Result", rule.text]] }),
          ),
        ),
      ),
    ),
  );
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
