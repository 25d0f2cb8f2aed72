// What has changed, the newest first.

import { h } from "./preact.mjs";
import { Mark, More, Notes, Row, Service, Table, Time, Title, limited } from "./parts.js";
import { rows } from "./store.js";

export function Timeline() {
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
