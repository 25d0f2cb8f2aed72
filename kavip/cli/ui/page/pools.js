// The pools: which address is in use, and by which Service.

import { h } from "./preact.mjs";
import { Mark, More, Notes, Row, Service, Table, Title, limited } from "./parts.js";
import { rows } from "./store.js";

const CELLS = 512; // addresses of a pool that are drawn one by one
const USES = ["Assigned", "Cooling", "Reserved", "Excluded", "Free"];

export function Pools() {
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
