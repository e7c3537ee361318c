// A job that is followed: its progress as it comes, its end without a reload.

import { announce, element } from "./dom.js";
import { refreshed } from "./live.js";
import { wire } from "./page.js";

const FALLBACK_MS = 3000;
const PATIENCE_MS = 5000;

let part = document.getElementById("job");
let stream = null;
let timer = null;

async function renew() {
  part = await refreshed(part, wire);
  if (!part.dataset.follow) announce(part.querySelector("h2").textContent);
}

/** Adds a stage to those that the page has seen, with the time from the start of the job. */
function noteStage({ progress, started_at: started }) {
  const list = document.getElementById("stages");
  const stage = progress?.stage;
  if (!stage || list.lastElementChild?.dataset.stage === stage) return;
  const seconds = started ? Math.max((Date.now() - new Date(started)) / 1000, 0).toFixed(0) : null;
  list.append(element("li", { "data-stage": stage }, stage, element("span", { class: "quiet" }, seconds ? ` after ${seconds} s` : "")));
  document.getElementById("past").hidden = false;
}

/** Shows a report of progress; what a report lacks, such as the result, the page has. */
async function show(job) {
  const { progress } = job;
  noteStage(job);
  const bar = part.querySelector("progress");
  const drawn = progress?.total > 0;
  if (job.state !== part.dataset.state || job.error || drawn !== Boolean(bar)) {
    await renew();
  } else if (progress) {
    const done = progress.done.toLocaleString("en");
    const amount = drawn ? `, ${done} of ${progress.total.toLocaleString("en")}` : progress.done ? `, ${done}` : "";
    if (drawn) [bar.max, bar.value] = [progress.total, progress.done];
    part.querySelector(".stage").textContent = (progress.stage || "working") + amount;
  }
  if (job.finished_at) stop();
}

function stop() {
  stream?.close();
  stream = null;
  clearInterval(timer);
}

/** Asks the page instead of the stream. */
function askInstead() {
  stop();
  timer = setInterval(() => (part.dataset.follow ? renew() : stop()), FALLBACK_MS);
}

function follow() {
  if (!part.dataset.follow || document.hidden) return;
  stream = new EventSource(part.dataset.follow);
  // The present state comes at once, unless a proxy on the way holds events back.
  timer = setTimeout(askInstead, PATIENCE_MS);
  stream.addEventListener("message", (event) => {
    clearTimeout(timer);
    show(JSON.parse(event.data));
  });
  stream.addEventListener("error", () => {
    // A stream that broke off comes back by itself; one that is refused, as one too many, does not.
    if (stream?.readyState === EventSource.CLOSED) askInstead();
  });
}

document.addEventListener("visibilitychange", () => {
  stop();
  follow();
});
addEventListener("pagehide", stop);
follow();
