// Requests to the service's JSON API, with the visitor's session.

/** What is wrong, and with which fields. */
function inWords({ detail, errors }) {
  const fields = (errors ?? []).filter(({ message }) => !detail?.includes(message));
  const named = fields.map(({ field, message }) => (field ? `${field}: ${message}` : message));
  return named.length ? `${detail ?? "this cannot be read"}: ${named.join("; ")}` : detail;
}

/** What the service refused, in its own words. */
export class Refused extends Error {
  constructor(problem, status) {
    super(inWords(problem) ?? `the service answered ${status}`);
    this.status = status;
    this.code = problem.code;
  }
}

/**
 * The JSON of an answer; null where it is empty.
 * @param {string} method
 * @param {string} path
 * @param {object} [options] `json` for a body of JSON, `body` and `type` for another, `signal`.
 */
export async function call(method, path, { json, body, type, headers, signal } = {}) {
  const said = { Accept: "application/json", ...headers };
  if (json !== undefined) {
    body = JSON.stringify(json);
    said["Content-Type"] = "application/json";
  } else if (type) said["Content-Type"] = type;
  let answer;
  try {
    answer = await fetch(path, { method, headers: said, body, signal, credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused({ detail: "the service cannot be reached; is it running?" }, 0);
  }
  const text = await answer.text();
  let value = null;
  try {
    value = text ? JSON.parse(text) : null;
  } catch {
    value = { detail: text.slice(0, 200) };
  }
  if (!answer.ok) throw new Refused(value ?? {}, answer.status);
  return value;
}
