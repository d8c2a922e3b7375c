// The page of leaks, and of what an account lacks.
import { $, act, address, cell, el, fill, number, poll } from "./console.js";

const verb = (leak) => leak.is_leak ? "Remove" : "Stop";
const cells = (leak) => [
  el("th", { scope: "row" }, el("a", { href: `/job?${address({ ...leak, name: leak.job })}` }, leak.job)),
  cell(`${leak.on} ${leak.region}`, "wide"),
  el("td", { class: leak.is_leak ? "bad" : "" }, leak.is_leak ? "✕ leak" : "no"), cell(leak.why, "wide"),
  el("td", { class: "wide" }, el("details", {}, el("summary", {}, String(leak.resources.length)),
    ...leak.resources.map((one) => el("div", {}, Object.values(one).join(" · "))))),
  number(leak.usd_per_hour, 3),
  el("td", {}, leak.remove ? el("button", {
    type: "button", class: leak.is_leak ? "" : "quiet", "aria-label": `${verb(leak)} ${leak.job}`,
    click: () => act(`${verb(leak)} all of ${leak.job}?`, leak.remove, { verb: "stop", on: leak.on, name: leak.job, region: leak.region }),
  }, `${verb(leak)} …`) : "by hand"),
];

poll(() => "/data/leaks", ({ jobs, left_out: leftOut, examined }) => {
  fill($("leaks"), jobs, (leak) => `${leak.on} ${leak.region} ${leak.job}`, cells);
  const leaks = jobs.filter((leak) => leak.is_leak), sum = leaks.reduce((total, leak) => total + leak.usd_per_hour, 0);
  $("summary").textContent = leaks.length
    ? `${leaks.length} leak${leaks.length === 1 ? "" : "s"}, ${sum.toFixed(2)} USD per hour`
    : leftOut.length ? "No leak where it could be checked." : "No leaks.";
  $("left-out").replaceChildren(...leftOut.map((text) => el("li", {}, text)));
  if ($("doctor").children.length) return;
  $("doctor").append(...examined.map((on) => el("button", {
    type: "button", class: "quiet",
    click: () => act(`Examine the account for ${on}?`, `python -m launch.doctor --for ${on}`, { verb: "doctor", on }),
  }, `Examine for ${on} …`)));
}, 30000);
