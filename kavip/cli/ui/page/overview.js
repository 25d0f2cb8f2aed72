// The overview: what is wrong, and which node has which VIP.

import { h } from "./preact.mjs";
import { Badge, Command, Mark, More, Notes, Row, Service, Table, Time, Title, limited } from "./parts.js";
import { isRecent, rows, set, state } from "./store.js";

const CHIPS = 12; // VIPs of a node that the map shows at first

export function Overview() {
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
