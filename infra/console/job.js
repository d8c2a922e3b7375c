// The page of one job.
import { $, act, address, ask, cell, el, fill, isActive, leftMs, number, poll, span, trouble } from "./console.js";

const job = { ...$("job").dataset }, where = address(job);
const asList = (pairs) => pairs.flatMap(([word, text]) => [el("dt", {}, word), el("dd", {}, text)]);
const tile = (word, text, more = "") =>
  el("div", { class: "tile" }, el("dt", {}, word), el("dd", {}, text, more ? el("small", {}, ` ${more}`) : null));
const usd = (value) => value == null ? "" : value.toFixed(2);
const WORDS = { stop: "Stop", attach: "Attach to" };

const showJob = ({ job: found, timeline }) => {
  const row = found.row;
  $("headline").textContent = found.headline;
  $("tiles").replaceChildren(...[
    tile("Status", row.status),
    tile("Where", row.backend, row.region || ""),
    row.nodes ? tile("Machines", String(row.nodes)) : null,
    row.usd == null ? null : tile("Cost so far", usd(row.usd), "USD"),
    row.usd_per_hour && isActive(row.status) ? tile("Cost now", usd(row.usd_per_hour), "USD/hour") : null,
    row.usd_at_most == null || !isActive(row.status) ? null : tile("At most", usd(row.usd_at_most), "USD"),
    leftMs(row) == null ? null : tile("Time left", span(leftMs(row))),
  ].filter(Boolean));
  $("actions").replaceChildren(
    ...Object.entries(found.commands).map(([verb, command]) => el("button", {
      type: "button", class: verb === "stop" ? "" : "quiet",
      click: () => act(`${WORDS[verb]} ${row.name}?`, command, { verb, ...job }),
    }, `${WORDS[verb]} …`)),
    found.receipt ? el("a", { href: `/receipt?${where}`, target: "_blank" }, "The rehearsal's receipt: timeline, nodes, requests, files") : "",
  );
  $("time").hidden = !timeline.trim();
  $("timeline").innerHTML = timeline;  // the server has escaped it
  $("facts").replaceChildren(...asList(found.facts), ...found.notes.map((note) => el("dd", {}, note)));
  $("tables").replaceChildren(...found.tables.map((text) =>
    el("pre", { class: "command", tabindex: "0" }, text)));
};

// Shows the curves that the server has drawn; a picture that has not changed stays.
const showCurves = (pictures) => {
  const there = new Map([...$("curves").children].map((one) => [one.id, one]));
  $("curves").replaceChildren(...pictures.map((picture) => {
    const figure = there.get(`curve-${picture.name}`) ||
      el("figure", { id: `curve-${picture.name}` }, el("div", { class: "picture" }, el("img", {})));
    const image = figure.querySelector("img");
    if (image.getAttribute("src") !== picture.src) Object.assign(image, { src: picture.src, alt: picture.alt });
    return figure;
  }));
};

const showTraining = ({ pictures, records, settings }) => {
  showCurves(pictures);
  $("training").hidden = !records.length;
  if (records.length) {
    const names = [...new Set(records.flatMap(Object.keys))];
    $("records").tHead.replaceChildren(el("tr", {}, ...names.map((name) => el("th", { scope: "col", class: "n" }, name))));
    fill($("records").tBodies[0], records.map((record, place) => [place, record]), ([place]) => String(place),
      ([, record]) => names.map((name) => number(record[name], Number.isInteger(record[name]) ? 0 : 4)));
  }
  $("with-settings").hidden = !Object.keys(settings).length;
  $("settings").replaceChildren(...asList(Object.entries(settings)));
};

// ---- the log: a window of the newest lines; the server searches
const MOST_LINES = 2000, log = $("log"), search = $("search").q;
let last = -1, words = "";
const lineOf = ([place, node, at, text]) => el("li", { "data-place": place },
  at ? el("time", { datetime: at }, new Date(at).toLocaleTimeString()) : null,
  node == null ? null : el("b", { title: `machine ${node}` }, `[${node}]`), el("span", {}, text));

const showLog = (found) => {
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  if (last < 0) log.replaceChildren();
  log.append(...found.lines.map(lineOf));
  while (log.children.length > MOST_LINES) log.firstElementChild.remove();
  if (last < 0) $("earlier").hidden = !found.has_earlier;
  if (last < 0 || atEnd) log.scrollTop = log.scrollHeight;
  if (words && last < 0) $("found").textContent = `${found.found} of ${found.end} lines`;
  if (!words) $("found").textContent = found.end ? `${found.end} lines` : found.nothing;
  last = found.end - 1;
};
const logUrl = () => `/data/log?${where}&q=${encodeURIComponent(words)}&after=${last}`;
const lookAtLog = poll(logUrl, showLog);
let typed = 0;
search.addEventListener("input", () => {
  clearTimeout(typed);
  typed = setTimeout(() => { words = search.value; last = -1; lookAtLog(); }, 250);
});
$("search").addEventListener("submit", (event) => event.preventDefault());
$("earlier").addEventListener("click", async () => {
  const first = log.firstElementChild?.dataset.place || 0;
  try {
    const found = await ask(`/data/log?${where}&q=${encodeURIComponent(words)}&before=${first}`);
    const height = log.scrollHeight;
    log.prepend(...found.lines.map(lineOf));
    log.scrollTop += log.scrollHeight - height;
    $("earlier").hidden = !found.has_earlier;
  } catch (error) { trouble(error.message); }
});

poll(() => `/data/job?${where}`, showJob, 10000);
poll(() => `/data/curves?${where}`, showTraining, 15000);
