// One Service: each step from the request to the wire, and what to do.

import { h } from "./preact.mjs";
import { Badge, Command, Mark, Row, Table, Time, Title } from "./parts.js";
import { state } from "./store.js";

export function ServiceView() {
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
