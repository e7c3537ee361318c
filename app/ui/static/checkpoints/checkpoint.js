// A checkpoint that a worker reads, for pages.

/** One file; the tasks of `worker.js` follow each other. */
export class Checkpoint {
  #worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
  #stop = null;
  #isStopped = false;

  /**
   * What the worker answers to a task; an error once it is stopped.
   * @param {(share: number) => void} [saw] is called with the share that is read.
   */
  ask(task, options = {}, saw = () => {}) {
    if (this.#isStopped) return Promise.reject(new Error("stopped"));
    return new Promise((resolve, reject) => {
      this.#stop = reject;
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
    this.#isStopped = true;
    this.#worker.terminate();
    this.#stop?.(new Error("stopped"));
  }
}
