// Files of supports, dropped or chosen, and sent as they are. A checkpoint is never read: its support
// is computed where it lies, by the command that stands in its place here.

import { announce, copyText, counted, element, nameInPath, pageData, sizeText } from "./dom.js";
import { onFiles } from "./files.js";
import { classify, KINDS, originOf } from "./upload_kinds.js";

const MAX_FILES = 200;

const part = document.getElementById("upload");
const about = pageData("about");
const list = document.getElementById("uploads");
const owner = document.getElementById("owner");
const tags = document.getElementById("upload-tags");
const sendButton = document.getElementById("send");
const origins = new Map();
const rows = [];

const tagsNow = () => tags.value.split(",").map((tag) => tag.trim()).filter(Boolean);

/** The name that a model gets of a file, until the visitor gives another. */
function modelName(file) {
  const name = file.name.replace(/\.safetensors\.index\.json$/i, "").replace(/\.(mks[pgb]|roaring|npy|json|safetensors|gguf)$/i, "");
  return owner.value.trim() ? `${owner.value.trim()}/${name}` : name;
}

/** A word of a command line as a shell takes it. */
export function quoted(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** The command that computes the support of a checkpoint and pushes it to this space. */
function command(file, name) {
  const where = file.name.startsWith("-") ? `./${file.name}` : file.name;
  const words = ["modelkin", "push", where, "--url", about.service, "--space", about.space, "--model", name];
  if (about.importance === "delta") words.push("--base", `PATH OF ${about.base ?? "THE BASE"}`);
  for (const tag of tagsNow()) words.push("--tag", tag);
  return words.map(quoted).join(" ");
}

class Row {
  constructor(file, kind) {
    [this.file, this.kind, this.state] = [file, kind, kind.refused ? "refused" : "ready"];
    const id = `file-${rows.length}`;
    this.name = element("input", { id, value: modelName(file), spellcheck: "false", autocomplete: "off", maxlength: "200" });
    this.status = element("p", { class: "status", role: "status" }, kind.refused ?? kind.text + (kind === KINDS.checkpoint && about.keys ? " It reads your key from MODELKIN_API_KEY." : ""));
    this.bar = element("progress", { max: 1, value: 0, hidden: true, "aria-label": `Progress of ${file.name}` });
    this.item = element("li", { class: "card" },
      element("div", { class: "toolbar" }, element("b", {}, file.name), element("span", { class: "quiet" }, sizeText(file.size))));
    if (kind.refused) this.status.classList.add("error");
    else this.item.append(element("label", { for: id }, "Model"), this.name);
    this.item.append(this.status, this.bar);
    if (kind.type === "checkpoint") this.item.append(this.code());
    const remove = element("button", { type: "button", class: "small", "aria-label": `Leave out ${file.name}` }, "Leave out");
    remove.addEventListener("click", () => this.remove());
    this.removal = remove;
    this.item.append(remove);
    this.edited = false;
    this.name.addEventListener("input", () => {
      this.edited = true;
      this.update();
    });
  }

  code() {
    this.shown = element("code");
    const copy = element("button", { type: "button", class: "plain small", "aria-label": `Copy the command of ${this.file.name}` }, "Copy");
    copy.addEventListener("click", async () => {
      await copyText(this.shown.textContent);
      copy.textContent = "Copied";
      announce("Copied");
    });
    const box = element("pre", { tabindex: "0", "aria-label": `command of ${this.file.name}` }, this.shown);
    return element("div", { class: "code" }, box, copy);
  }

  /** Follows what stands above all files: owner and tags. */
  update() {
    if (!this.edited) this.name.value = modelName(this.file);
    if (this.shown) this.shown.textContent = command(this.file, this.name.value.trim());
  }

  get waits() {
    return this.kind.send && (this.state === "ready" || this.state === "failed");
  }

  remove() {
    const next = rows[rows.indexOf(this) + 1] ?? rows[rows.indexOf(this) - 1];
    rows.splice(rows.indexOf(this), 1);
    this.item.remove();
    (next?.removal ?? document.getElementById("files")).focus();
    showSend();
  }

  say(text, state) {
    this.state = state;
    this.status.classList.toggle("error", state === "failed");
    this.status.replaceChildren(text);
  }

  async send() {
    const name = this.name.value.trim();
    if (!name) return this.say("Give the model a name.", "failed");
    this.say("is sent …", "sending");
    try {
      const query = new URLSearchParams(tagsNow().map((tag) => ["tag", tag]));
      for (const [key, value] of await originOf(this.file, origins, about)) query.append(key, value);
      const address = `${part.dataset.api}/${this.kind.send.where}/${nameInPath(name)}?${query}`;
      const model = await put(address, this.file, this.kind.send.type, this.bar);
      this.say("", "done");
      const link = element("a", { href: `${part.dataset.pages}/models/${nameInPath(model.model)}` }, model.model);
      this.status.append("Stored as ", link, `, revision ${model.revision}.`);
      this.name.readOnly = true;
      this.removal.hidden = true;
    } catch (error) {
      this.say(`Refused: ${error.message}`, "failed");
    }
    this.bar.hidden = true;
  }
}

/** Sends a file; `fetch` says nothing of how far it is. */
function put(address, file, type, bar) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("PUT", address);
    request.setRequestHeader("Content-Type", type);
    request.setRequestHeader("Accept", "application/json");
    request.upload.addEventListener("progress", (event) => {
      bar.hidden = false;
      [bar.max, bar.value] = [event.total || 1, event.loaded];
    });
    request.addEventListener("error", () => reject(new Error("the service cannot be reached; is it running?")));
    request.addEventListener("load", () => {
      let said = {};
      try {
        said = JSON.parse(request.responseText);
      } catch {
        said = { detail: request.responseText.slice(0, 200) };
      }
      if (request.status < 300) resolve(said);
      else reject(new Error(said.detail || `the service answered ${request.status}`));
    });
    request.send(file);
  });
}

function showSend() {
  const waiting = rows.filter((row) => row.waits).length;
  sendButton.hidden = !waiting;
  sendButton.textContent = `Send ${waiting} file${waiting === 1 ? "" : "s"}`;
  document.getElementById("common").hidden = !rows.some((row) => !row.kind.refused);
}

async function take(files) {
  for (const file of files.slice(0, MAX_FILES)) {
    const kind = await classify(file, about);
    if (kind === KINDS.origin) {
      origins.set(file.name.replace(/\.origin\.json$/i, ""), file);
      continue;
    }
    const row = new Row(file, kind);
    rows.push(row);
    row.update();
    list.append(row.item);
  }
  for (const [name] of origins) {
    if (!rows.some((row) => row.file.name === name)) announce(`Choose ${name}, too: the other file says where it comes from`);
  }
  if (files.length > MAX_FILES) announce(`The first ${MAX_FILES} files are here; send those before the others`);
  showSend();
  announce(`${counted(rows.length, "file")} listed`);
}

async function sendAll() {
  sendButton.disabled = true;
  const waiting = rows.filter((row) => row.waits);
  for (const row of waiting) await row.send();
  sendButton.disabled = false;
  const failed = rows.filter((row) => row.state === "failed").length;
  announce(failed ? `${failed} files were refused` : "All files are stored");
  showSend();
}

onFiles(take);
for (const field of [owner, tags]) field.addEventListener("input", () => rows.forEach((row) => row.update()));
sendButton.addEventListener("click", sendAll);
