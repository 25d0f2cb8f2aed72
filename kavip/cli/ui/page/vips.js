// All VIPs, with a filter.

import { h } from "./preact.mjs";
import { Mark, More, Notes, Row, Service, Table, Time, Title, limited } from "./parts.js";
import { isRecent, rows, set, state } from "./store.js";

export function VIPs() {
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
