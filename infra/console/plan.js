// The page that plans a job: the plan of the form's settings, while one types.
import { $, act, ask, el, trouble } from "./console.js";

const TYPED_MS = 400;
const form = $("settings"), { on, billed } = $("plan").dataset;
const inputs = document.querySelectorAll("#settings [data-flag]");  // a form's own fields are hidden by settings of their names
let timer = 0, asked = 0, found = null;

const values = () => Object.fromEntries([...new FormData(form)].filter(([, value]) => value.trim()));
const tile = (word, text) => el("div", { class: "tile" }, el("dt", {}, word), el("dd", {}, text));
const usd = (value) => value == null ? "not known" : `${value.toFixed(2)} USD`;
const span = (s) => s == null ? "not known" : s < 5400 ? `${Math.max(1, Math.round(s / 60))} min` : `${(s / 3600).toFixed(1)} h`;

const tiles = (quote) => !quote ? [] : [
  tile("Expected time", span(quote.expected_s)),
  ...(billed === "true" ? [tile("Expected", (quote.expected_is_bound ? "at most " : "") + usd(quote.expected_usd)),
    tile("At most", usd(quote.most_usd)), tile("Per hour", usd(quote.usd_per_hour))] : []),
];

// Marks the settings whose flags begin a line of the error.
const mark = (text) => {
  const flags = text.split("\n").map((line) => line.split(" ")[0].replace(/:$/, ""));
  for (const one of inputs) one.setAttribute("aria-invalid", flags.includes(one.dataset.flag));
};

const show = (plan, problem) => {
  found = plan;
  $("state").textContent = problem || (plan.price ? `${plan.price[0].toUpperCase()}${plan.price.slice(1)}.` : "This plan costs nothing.");
  $("state").classList.toggle("trouble", Boolean(problem));
  mark(problem);
  $("price").replaceChildren(...(plan ? tiles(plan.quote) : []));
  $("command").textContent = plan ? plan.command : "";
  $("text").textContent = plan ? plan.text : "";
  $("copy").disabled = !plan;
  $("rehearse").disabled = !plan;
  $("start").disabled = !plan || Boolean(plan.problem);
};

const look = async () => {
  const mine = ++asked, query = new URLSearchParams({ on, ...values() });
  $("plan").setAttribute("aria-busy", "true");
  try {
    const plan = await ask(`/data/plan?${query}`);
    if (mine !== asked) return;
    history.replaceState(null, "", `/plan?${query}`);  // not of a plan that was refused: it may have been a secret
    show(plan, plan.problem);
  } catch (error) {
    if (mine === asked) show(null, error.message);
  }
  if (mine === asked) $("plan").removeAttribute("aria-busy");
};

form.addEventListener("input", () => {
  clearTimeout(timer);
  ["start", "rehearse"].forEach((id) => { $(id).disabled = true; });  // they are for the plan that is shown
  timer = setTimeout(look, TYPED_MS);
});
form.addEventListener("submit", (event) => event.preventDefault());
$("copy").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(found.command);
    $("copy").textContent = "Copied";
    setTimeout(() => { $("copy").textContent = "Copy"; }, 2000);
  } catch { trouble("The browser does not allow copying; select the command instead."); }
});
const start = (what, command, more) => act(what, command, { on, values: values(), ...more }, "/data/plan/start");
$("rehearse").addEventListener("click", () => start("Rehearse this job on this machine?", found.rehearsal, { rehearse: true }));
$("start").addEventListener("click", () => start(
  found.price ? `Start this job, for ${found.price}?` : "Start this job?", found.start, { most_usd: found.most_usd }));
look();
