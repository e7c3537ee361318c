// Times as people say them, in the reader's language; the exact one stays in the title.

const STEPS = [
  [60, "second", 1],
  [3600, "minute", 60],
  [86400, "hour", 3600],
  [86400 * 30, "day", 86400],
  [86400 * 365, "month", 86400 * 30],
  [Infinity, "year", 86400 * 365],
];
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

/** "5 minutes ago", of a Date. */
export function ago(moment, now = new Date()) {
  const seconds = (moment - now) / 1000;
  const [, unit, size] = STEPS.find(([limit]) => Math.abs(seconds) < limit);
  return relative.format(Math.round(seconds / size), unit);
}

/** Shows the times below `root` relative to now, and goes on to. */
export function showTimes(root = document) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const moment = new Date(time.dateTime);
    if (Number.isNaN(moment.valueOf())) continue;
    if (!time.title) time.title = time.textContent;
    time.textContent = ago(moment);
  }
}
