// The page of all jobs: filters and the order are in the address, so that it can be kept.
import { $, address, ask, cell, el, fill, leftMs, number, poll, span, status, time } from "./console.js";

const filters = $("filters"), given = new URLSearchParams(location.search);
const heads = [...document.querySelectorAll("#jobs th")];
let jobs = [], sort = given.get("sort") || "started", down = given.get("up") === null;

const value = (job) => sort === "left" ? leftMs(job) : job[sort];
const order = (a, b) => {
  const [x, y] = [value(a), value(b)];
  if (x == null || y == null) return (x == null) - (y == null);
  const way = typeof x === "number" ? x - y : String(x).localeCompare(String(y), undefined, { numeric: true });
  return down ? -way : way;
};
const fits = (job) => {
  const words = filters.q.value.toLowerCase();
  return ["status", "backend", "region"].every((name) => !filters[name].value || job[name] === filters[name].value) &&
    (!words || `${job.name} ${job.progress} ${job.reason}`.toLowerCase().includes(words));
};

const left = (job) => {
  const ms = leftMs(job);
  return ms < 0 ? el("td", { class: "n" }, el("a", { href: "/leaks", class: "bad" }, "✕ passed")) : el("td", { class: "n" }, span(ms));
};
const cells = (job) => [
  el("th", { scope: "row" }, el("a", { href: `/job?${address(job)}` }, job.name)),
  status(job.status), cell(job.backend, "wide"), cell(job.region || "", "wide"),
  number(job.nodes || null, 0, "wide"), time(job.started, "wide"),
  left(job), number(job.usd_per_hour, 2, "wide"), number(job.usd), number(job.usd_at_most, 2, "wide"),
  cell(job.progress || job.reason, "wide words"),
];

const show = () => {
  const shown = jobs.filter(fits).sort(order);
  fill(document.querySelector("#jobs tbody"), shown, (job) => address(job), cells);
  heads.forEach((head) => {
    if (head.dataset.sort === sort) head.setAttribute("aria-sort", down ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  });
  const kept = new URLSearchParams([...new FormData(filters)].filter(([, text]) => text));
  if (sort !== "started") kept.set("sort", sort);
  if (!down) kept.set("up", "");
  history.replaceState(null, "", kept.size ? `?${kept}` : location.pathname);
  return shown.length;
};

const choices = (name) => {
  const select = filters[name], chosen = select.value || given.get(name) || "";
  const words = [...new Set(jobs.map((job) => job[name]).filter(Boolean))].sort();
  if (chosen && !words.includes(chosen)) words.push(chosen);
  select.replaceChildren(el("option", { value: "" }, "all"), ...words.map((word) => el("option", { value: word }, word)));
  select.value = chosen;
};

filters.q.value = given.get("q") || "";
filters.addEventListener("input", show);
filters.addEventListener("submit", (event) => event.preventDefault());
heads.forEach((head) => head.firstElementChild.addEventListener("click", () => {
  down = head.dataset.sort === sort ? !down : true;
  sort = head.dataset.sort;
  show();
}));
const showJobs = (found) => {
  jobs = found;
  ["status", "backend", "region"].forEach(choices);
  show();
};
const look = () => poll(() => "/data/jobs", (listing) => {
  showJobs(listing.jobs);
  const running = jobs.filter((job) => job.status === "running").length;
  $("summary").textContent = jobs.length
    ? `${jobs.length} jobs, ${running} running, ${listing.usd_per_hour.toFixed(2)} USD per hour now${listing.left_out.length ? ", where it could be asked" : ""}`
    : "No jobs yet.  To see one, on this machine and for free: make demo";
  $("left-out").replaceChildren(...listing.left_out.map((text) => el("li", {}, text)));
}, 10000);
ask("/data/here").then((listing) => showJobs(listing.jobs)).catch(() => {}).finally(look);  // look() shows errors
