// What all pages use: data, actions, elements, and polling that stops while the page is hidden.
const FIRST_MS = 5000, LAST_MS = 60000, SOON_MS = 2000, SLOWER = 1.5;
const csrf = document.querySelector("meta[name=csrf]").content;
export const $ = (id) => document.getElementById(id);

// An element with its attributes and children.  Texts stay texts, whatever they hold.
export const el = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== false && value != null) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child != null && child !== ""));
  return made;
};

const answered = async (answer) => {
  const type = answer.headers.get("content-type") || "";
  const content = type.includes("json") ? await answer.json() : { error: await answer.text() };
  if (!answer.ok) throw new Error(content.error || answer.statusText);
  return content;
};
export const ask = async (url) => answered(await fetch(url));
export const send = async (url, content) => answered(await fetch(url, {
  method: "POST", headers: { "content-type": "application/json", "x-console": csrf }, body: JSON.stringify(content),
}));

// Shows an error until what it is of has none.
const troubles = new Map();
export const trouble = (text, of = "") => {
  troubles.set(of, text);
  $("trouble").textContent = [...new Set(troubles.values())].filter(Boolean).join("\n");
  $("trouble").hidden = !$("trouble").textContent;
};

// Asks the user, and then runs the command; its output is on the page of commands.
export const act = (what, command, content, url = "/data/act") => {
  $("sure-what").textContent = what;
  $("sure-command").textContent = command;
  $("sure").returnValue = "";
  $("sure").onclose = async () => {
    if ($("sure").returnValue !== "yes") return;
    trouble("");
    try {
      location.href = `/commands?id=${(await send(url, content)).number}`;
    } catch (error) { trouble(error.message); }
  };
  $("sure").showModal();
};

// Shows the answer of `url()` now and again: seldom while nothing changes, and not at all while the page is hidden.
// Returns a function that asks at once.
export const poll = (url, show, first = FIRST_MS) => {
  let timer = 0, pause = first, before = "", asked = 0;
  const look = async () => {
    clearTimeout(timer);
    if (document.hidden) return;
    const mine = ++asked;
    try {
      const content = await ask(url());
      if (mine !== asked) return;
      const text = JSON.stringify(content);
      pause = text === before ? Math.min(LAST_MS, pause * SLOWER) : first;
      before = text;
      trouble("", look);
      $("fresh").textContent = `as of ${new Date().toLocaleTimeString()}`;
      show(content);
      if (content.is_awaited) pause = SOON_MS;
    } catch (error) {
      if (mine !== asked) return;
      pause = Math.min(LAST_MS, pause * SLOWER);
      trouble(error instanceof TypeError ? "The console does not answer; it may have ended.  Start it again." : error.message, look);
    }
    timer = setTimeout(look, pause);
  };
  document.addEventListener("visibilitychange", () => { pause = first; look(); });
  look();
  return look;
};

// Fills a table's body with a row for each item, and keeps the cells that have not changed: focus and selection stay.
const filled = new WeakMap();  // a row -> its cells as they were made
export const fill = (body, items, key, cells) => {
  const there = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  items.forEach((item, place) => {
    const made = cells(item), row = there.get(key(item)) || el("tr", { "data-key": key(item) });
    there.delete(key(item));
    const texts = made.map((cell) => cell.outerHTML), before = filled.get(row) || [];
    made.forEach((cell, at) => {
      if (!row.cells[at]) row.append(cell);
      else if (texts[at] !== before[at]) row.cells[at].replaceWith(cell);
    });
    while (row.cells.length > made.length) row.lastElementChild.remove();
    filled.set(row, texts);
    if (body.rows[place] !== row) body.insertBefore(row, body.rows[place] || null);
  });
  there.forEach((row) => row.remove());
};

export const cell = (text, wide = "") => el("td", { class: wide }, text);
export const number = (value, places = 2, wide = "") =>
  el("td", { class: `n ${wide}` }, value == null ? "" : value.toFixed(places));
export const status = (word) => el("td", { class: "is", "data-status": word }, word);
export const time = (text, wide = "") => el("td", { class: wide },
  text ? el("time", { datetime: text }, new Date(text).toLocaleString([], { dateStyle: "short", timeStyle: "short" })) : "");
export const isActive = (word) => ["waiting", "running", "stopping"].includes(word);
export const leftMs = (job) => isActive(job.status) && job.deadline ? new Date(job.deadline) - Date.now() : null;
export const span = (ms) => {
  if (ms == null) return "";
  if (ms < 0) return "passed";
  const minutes = Math.round(ms / 60000), hours = Math.floor(minutes / 60);
  return hours ? `${hours} h ${minutes % 60} min` : `${minutes} min`;
};
export const address = (job) => `on=${encodeURIComponent(job.on)}&name=${encodeURIComponent(job.name)}` +
  (job.region ? `&region=${encodeURIComponent(job.region)}` : "");
