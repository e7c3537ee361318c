// Checkpoints that are read in the browser: dropped or chosen, compared at once, stored if wanted.
// What is sent is a support and a fingerprint, which hold no weight.

import { call } from "./api.js";
import { comparison, linesTable, neighboursTable, sentence } from "./checkpoints/answers.js";
import { Checkpoint } from "./checkpoints/checkpoint.js";
import { fittingSpaces, neighbours, supportPath } from "./checkpoints/spaces.js";
import { announce, counted, element, nameInPath, pageData, rooted, sizeText } from "./dom.js";
import { onFiles } from "./files.js";

const MAX_FILES = 20;
const FINGERPRINT = "application/vnd.modelkin.fingerprint+zstd";
const SUPPORT = "application/vnd.modelkin.support";
const REFUSED = [
  [/-\d{5}-of-\d{5}\.(safetensors|gguf)$/i, "It is a part of a checkpoint, and a browser opens no other file beside it: the command reads all parts."],
  [/\.(pt|pth|ckpt|pkl|pickle|joblib|bin)$/i, "It is a pickle by its name, which may run whatever its maker wants, so nothing here opens one. Save the model as .safetensors."],
];

const about = pageData("about");
const forms = pageData("forms");
const list = document.getElementById("checks");
let last = Promise.resolve();
let number = 0;

class Check {
  constructor(file) {
    this.file = file;
    this.id = `check-${(number += 1)}`;
    this.status = element("p", { class: "status", role: "status" }, "waits for the files before it …");
    this.bar = element("progress", { max: 1, value: 0, hidden: true, "aria-label": `Progress of ${file.name}` });
    this.button = element("button", { type: "button", class: "small", "aria-label": `Stop reading ${file.name}` }, "Stop");
    this.button.addEventListener("click", () => this.remove());
    this.answers = element("div", {});
    const right = element("p", {}, element("span", { class: "quiet" }, sizeText(file.size)), " ", this.button);
    const head = element("div", { class: "toolbar" }, element("h2", { id: this.id }, file.name), right);
    this.item = element("li", { class: "card", "aria-labelledby": this.id }, head, this.status, this.bar, this.answers);
    this.supports = new Map();
    this.requests = new AbortController();
  }

  say(text, isError = false) {
    this.status.classList.toggle("error", isError);
    this.status.textContent = text;
  }

  remove() {
    this.removed = true;
    this.requests.abort();
    this.checkpoint?.stop();
    const next = this.item.nextElementSibling ?? this.item.previousElementSibling;
    this.item.remove();
    (next?.querySelector("button") ?? document.getElementById("files")).focus();
  }

  #seen = (words) => (share) => {
    this.bar.hidden = false;
    this.bar.value = share;
    this.say(`${words}: ${Math.floor(100 * share)}%`);
  };

  async run() {
    if (this.removed) return;
    const refused = REFUSED.find(([pattern]) => pattern.test(this.file.name));
    try {
      if (refused) throw new Error(refused[1]);
      this.checkpoint = new Checkpoint();
      await this.#read();
      this.say("Compared with what is stored; nothing of it is kept.");
      this.offer();
      announce(`${this.file.name} is compared`);
    } catch (error) {
      if (this.removed) return;
      this.say(sentence(error.message), true);
      announce(`${this.file.name} is not read`);
    } finally {
      this.checkpoint?.stop();
      this.bar.hidden = true;
      this.button.textContent = "Remove";
      this.button.setAttribute("aria-label", `Remove ${this.file.name}`);
    }
  }

  async #read() {
    this.say("Its header is read …");
    this.opened = await this.checkpoint.ask("open", { file: this.file, forms });
    const { tensors, parameters, dtypes } = this.opened;
    this.answers.append(element("p", { class: "quiet" }, `${counted(tensors.length, "tensor")}, ${counted(parameters, "parameter")} of ${dtypes.join(", ")}`));
    this.spaces = await fittingSpaces(tensors, this.requests.signal);
    for (const space of this.spaces.filter((each) => !each.against).slice(0, 3)) await this.#inSpace(space);
    this.fingerprint = await this.checkpoint.ask("fingerprint", {}, this.#seen("Its lines are read"));
    this.say("Its fingerprint is compared …");
    const send = { body: this.fingerprint.bytes, type: FINGERPRINT, signal: this.requests.signal };
    const [anatomy, relatives] = [await call("POST", rooted("/v1/anatomy"), send), await call("POST", rooted("/v1/relatives?k=12"), send)];
    this.answers.append(linesTable(this.id, anatomy, relatives));
  }

  async #inSpace(space) {
    const same = `${space.k} ${space.names.join("\0")}`;
    if (!this.supports.has(same)) {
      this.supports.set(same, await this.checkpoint.ask("support", { names: space.names, k: space.k }, this.#seen("Its largest weights are found")));
    }
    space.support = this.supports.get(same);
    this.say(`Its support is compared in ${space.name} …`);
    this.answers.append(neighboursTable(`${this.id}-${space.name}`, space, await neighbours(space, space.support.bytes, this.requests.signal)));
  }

  /** The form that stores it, or why there is none. */
  offer() {
    const fitting = this.spaces.filter(({ support }) => support);
    this.answers.append(comparison(this));
    if (!about.can_write) {
      this.answers.append(element("p", { class: "quiet" }, "Your key may not write: it is compared, and cannot be stored."));
      return;
    }
    this.name = element("input", { id: `${this.id}-name`, value: this.file.name.replace(/\.(safetensors|gguf)$/i, ""), maxlength: 200, spellcheck: "false", autocomplete: "off", required: true });
    this.place = element("select", { id: `${this.id}-place` }, ...fitting.map(({ name }) => element("option", { value: name }, `in space ${name}`)), element("option", { value: "" }, "its fingerprint alone"));
    this.outcome = element("p", { class: "outcome", role: "alert" });
    this.form = element("form", {},
      element("div", { class: "halves" },
        element("div", {}, element("label", { for: this.name.id }, "Store it as"), this.name),
        element("div", {}, element("label", { for: this.place.id }, "Where"), this.place)),
      element("p", {}, element("button", { class: "primary" }, "Store")), this.outcome);
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.store(this.name.value.trim(), fitting.find(({ name }) => name === this.place.value));
    });
    this.answers.append(this.form);
  }

  async store(name, space) {
    const button = this.form.querySelector("button"), headers = { "If-None-Match": "*" };
    button.disabled = true;
    this.outcome.textContent = "";
    this.outcome.classList.remove("error");
    try {
      const links = [];
      if (space) {
        await this.#storeSupport(name, space, headers);
        links.push(" in ", element("a", { href: rooted(`/spaces/${encodeURIComponent(space.name)}/models/${nameInPath(name)}`) }, space.name));
      }
      const fingerprint = element("a", { href: rooted(`/anatomies/${nameInPath(name)}`) }, "fingerprint");
      const isNew = await this.#storeFingerprint(name, headers, Boolean(space));
      links.push(...(isNew ? [", with its ", fingerprint] : ["; the ", fingerprint, " of that name was there before, and stays"]));
      this.form.replaceChildren(element("p", {}, `Stored as ${name}`, ...links, "."));
      announce(`Stored as ${name}`);
    } catch (error) {
      button.disabled = false;
      this.outcome.classList.add("error");
      this.outcome.textContent = error.status === 412 ? `There is a model ${name} already: give another name.` : sentence(error.message);
    }
  }

  /** Once: where what follows failed, the next try begins behind it. */
  async #storeSupport(name, space, headers) {
    const place = supportPath(space.name, name);
    if (this.stored === place) return;
    const query = new URLSearchParams({ importance: "weight", ...(space.digest && { layout: space.digest }) });
    await call("PUT", `${place}?${query}`, { body: space.support.bytes, type: SUPPORT, headers });
    this.stored = place;
  }

  /** Whether it is new; beside a support that is stored, one of its name may be there. */
  async #storeFingerprint(name, headers, isBeside) {
    try {
      await call("PUT", rooted(`/v1/fingerprints/${nameInPath(name)}?file_bytes=${this.file.size}`), { body: this.fingerprint.bytes, type: FINGERPRINT, headers });
      return true;
    } catch (error) {
      if (isBeside && error.status === 412) return false;
      throw error;
    }
  }
}

function take(files) {
  const some = files.slice(0, MAX_FILES);
  for (const file of some) {
    const check = new Check(file);
    list.append(check.item);
    last = last.then(() => check.run());
  }
  announce(files.length > MAX_FILES ? `The first ${MAX_FILES} files are read; drop the others after them` : `${counted(some.length, "file")} listed`);
}

onFiles(take);
