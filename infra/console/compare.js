// Ticks many runs at once: those whose row has the words of the filter.
import { $ } from "./console.js";

const rows = [...document.querySelectorAll("#choose tbody tr")], filter = $("filter"), all = $("all");
const box = (row) => row.querySelector("input");
const shown = () => rows.filter((row) => !row.hidden);
const count = () => {
  const ticked = rows.filter((row) => box(row).checked).length;
  $("ticked").textContent = `${ticked} of ${rows.length} ticked`;
  all.checked = shown().length > 0 && shown().every((row) => box(row).checked);
};
filter.addEventListener("input", () => {
  const words = filter.value.toLowerCase().split(/\s+/);
  for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
  count();
});
all.addEventListener("change", () => {
  for (const row of shown()) box(row).checked = all.checked;
  count();
});
$("choose").addEventListener("change", count);
count();
