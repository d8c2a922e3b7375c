// The page of what this console has started.
import { $, el, poll } from "./console.js";

const EVERY_MS = 1500, chosen = new URLSearchParams(location.search).get("id") || "";
const ended = (code) => code == null ? "runs" : code === 0 ? "done" : `ended with exit code ${code}`;
let last = "";

const look = poll(() => `/data/actions?id=${chosen}`, (commands) => {
  if (JSON.stringify(commands) !== last) {
    $("commands").replaceChildren(...commands.map((one) => el("li", {},
      el("a", { href: `/commands?id=${one.number}` }, el("code", {}, one.command)), ` ${ended(one.code)}`,
      one.lines ? el("pre", { class: "log", tabindex: "0", "aria-label": "Output" }, one.lines.join("\n")) : null)));
    last = JSON.stringify(commands);
  }
  if (!commands.length) $("summary").textContent = "Nothing was started from here yet.";
  if (commands.some((one) => one.lines && one.code == null)) setTimeout(look, EVERY_MS);
});
