// A checkpoint that a worker reads, for pages.

/** One file; the tasks of `worker.js` follow each other. */
export class Checkpoint {
  #worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
  #stopped = null;

  /**
   * What the worker answers to a task.
   * @param {(share: number) => void} [saw] is called with the share that is read.
   */
  ask(task, options = {}, saw = () => {}) {
    return new Promise((resolve, reject) => {
      this.#stopped = reject;
      this.#worker.onmessage = ({ data }) => {
        if (data.share !== undefined) saw(data.share);
        else if (data.failed) reject(new Error(data.failed));
        else resolve(data.done);
      };
      this.#worker.onerror = (event) => {
        event.preventDefault();
        reject(new Error("this browser cannot read it: the command does"));
      };
      this.#worker.postMessage({ task, ...options });
    });
  }

  /** Ends the worker, with what it is at; its memory is free. */
  stop() {
    this.#worker.terminate();
    this.#stopped?.(new Error("stopped"));
  }
}
