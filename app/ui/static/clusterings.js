// The pages of clusterings: the form that starts one, what is under way, and labels as CSV.

import { call } from "./api.js";
import { announce, element, rooted } from "./dom.js";
import { downloadCsv } from "./exports.js";

const form = document.getElementById("start");
const PAUSE_MS = 400;
const LONGEST_PAUSE_MS = 3000;

/** Shows the parameters of the algorithm that is chosen; those of others are not sent. */
function showParameters(form) {
  for (const part of form.querySelectorAll("[data-of]")) {
    part.hidden = part.dataset.of !== form.elements.algorithm.value;
    part.querySelectorAll("input, select").forEach((field) => (field.disabled = part.hidden));
  }
}

function wordsOf(job) {
  if (job.state === "queued") return "Waiting for a worker";
  const { done, total, stage } = job.progress ?? {};
  const share = total ? `, ${Math.floor((100 * done) / total)}%` : "";
  return stage ? `${stage[0].toUpperCase()}${stage.slice(1)}${share}` : "Starting";
}

/** Follows a job to its end; its clustering opens then, if this page asked for it. */
async function follow(id, row, { open }) {
  const words = element("span", {}, "Waiting for a worker");
  const bar = element("progress", { "aria-label": "Progress of the clustering" });
  const cancel = element("button", { type: "button", class: "small" }, "Cancel");
  const failure = element("p", { class: "error", role: "alert" });
  const page = element("a", { href: rooted(`/jobs/${id}`) }, "Its job");
  // Who may only read cancels nothing: the page has no form then.
  row.replaceChildren(words, bar, page, ...(form ? [cancel] : []), failure);
  cancel.addEventListener("click", async () => {
    cancel.disabled = true;
    await call("POST", rooted(`/v1/jobs/${id}/cancel`)).catch((error) => (failure.textContent = error.message));
  });
  let [pause, stage] = [PAUSE_MS, ""];
  for (;;) {
    const job = await call("GET", rooted(`/v1/jobs/${id}`)).catch((error) => ({ state: "failed", error: { detail: error.message } }));
    if (job.state === "succeeded") return finish(job, row, open);
    if (job.state === "failed" || job.state === "cancelled") {
      words.textContent = job.state === "failed" ? "The clustering failed" : "The clustering was cancelled";
      failure.textContent = job.error?.detail ?? "";
      bar.remove();
      cancel.remove();
      return undefined;
    }
    words.textContent = wordsOf(job);
    if (job.progress?.total) [bar.max, bar.value] = [job.progress.total, job.progress.done];
    if (job.progress?.stage && job.progress.stage !== stage) announce((stage = job.progress.stage));
    await new Promise((next) => setTimeout(next, pause));
    pause = Math.min(pause * 1.3, LONGEST_PAUSE_MS);
  }
}

function finish(job, row, open) {
  const address = `${location.pathname}/${job.result.clustering}`;
  announce("The clustering is ready");
  if (open) return location.assign(address);
  return row.replaceChildren("A clustering is ready: ", element("a", { href: address }, "open it"));
}

form?.addEventListener("change", () => showParameters(form));
form?.addEventListener("done", ({ detail: job }) => {
  const row = element("li", { class: "card job", "data-job": job.id });
  document.getElementById("under-way").append(row);
  row.scrollIntoView({ block: "nearest" });
  follow(job.id, row, { open: true });
});
if (form) showParameters(form);
for (const row of document.querySelectorAll("[data-job]")) follow(row.dataset.job, row, { open: false });

for (const button of document.querySelectorAll("[data-labels]")) {
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      const { labels } = await call("GET", button.dataset.labels);
      downloadCsv([["model", "cluster"], ...Object.entries(labels)], button.dataset.name);
    } catch (error) {
      announce(error.message);
    }
    button.disabled = false;
  });
}
