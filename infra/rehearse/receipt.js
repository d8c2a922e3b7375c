"use strict";
// Replays the recorded table and log up to a moment; without it, the page shows the end.
(() => {
  const $ = (id) => document.getElementById(id);
  const record = JSON.parse($("record").textContent);
  const play = $("play"), moment = $("moment"), clock = $("clock"), log = $("log"), line = $("now");
  const rows = [...document.querySelectorAll("#nodes tbody tr")];
  const lines = [...log.querySelectorAll("[data-at]")];
  const last = (list, t) => list.filter((one) => one[0] <= t).at(-1);
  const PLAYED_S = 20;  // the whole rehearsal
  let playing = false, before = 0;

  const showNode = (node, row, t) => {
    const [, state, rank, how] = last(node.changes, t) || [0, "", "", ""];
    const there = record.epochs.filter((one) => one[0] >= node.began && one[0] <= node.ended);
    const [, epoch, loss, speed] = last(there, t) || [0, "", "", ""];
    const cells = row.querySelectorAll("td");
    [state, rank, epoch, loss, speed, how].forEach((text, place) => { cells[place].textContent = text; });
    cells[0].dataset.state = state;
    row.classList.toggle("later", !state);
  };

  const show = (t) => {
    const atEnd = t >= Number(moment.max);
    if (atEnd) t = Infinity;
    record.nodes.forEach((node, place) => showNode(node, rows[place], t));
    lines.forEach((one) => { one.hidden = Number(one.dataset.at) > t; });
    log.querySelectorAll(".gap").forEach((gap) => { gap.hidden = gap.nextElementSibling.hidden; });
    log.scrollTop = log.scrollHeight;
    const place = `${atEnd || !record.total ? 100 : (100 * t) / record.total}%`;
    line.setAttribute("x1", place);
    line.setAttribute("x2", place);
    line.classList.toggle("on", !atEnd);
    clock.textContent = `${Number(moment.value).toFixed(1)} s`;
  };

  const stop = () => { playing = false; play.textContent = "Play"; };

  const step = (now) => {
    if (!playing) return;
    const t = Number(moment.value) + ((now - before) / 1000) * Math.max(1, record.total / PLAYED_S);
    // The slider has steps: keep what is less than one for the next frame.
    if (t - Number(moment.value) >= 0.1) {
      before = now;
      moment.value = t;
      show(Number(moment.value));
    }
    if (Number(moment.value) >= Number(moment.max)) stop();
    else requestAnimationFrame(step);
  };

  play.addEventListener("click", () => {
    if (playing) { stop(); return; }
    if (Number(moment.value) >= Number(moment.max)) { moment.value = 0; show(0); }
    playing = true;
    play.textContent = "Pause";
    before = performance.now();
    requestAnimationFrame(step);
  });
  moment.addEventListener("input", () => { stop(); show(Number(moment.value)); });
  addEventListener("beforeprint", () => {
    stop();
    moment.value = moment.max;
    show(Number(moment.max));
    document.querySelectorAll("details").forEach((one) => { one.open = true; });
  });
})();
