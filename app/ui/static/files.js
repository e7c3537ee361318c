// Files that a visitor chooses, or drops anywhere on the page.

/** Gives `take` the files, as an array, each time that some come. */
export function onFiles(take) {
  const chooser = document.getElementById("files");
  const drop = document.getElementById("drop");
  chooser.addEventListener("change", () => {
    const chosen = [...chooser.files];
    chooser.value = ""; // the same file may be chosen again, once it is mended
    take(chosen);
  });
  for (const type of ["dragenter", "dragover"]) {
    document.addEventListener(type, (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      drop.classList.add("over");
    });
  }
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) drop.classList.remove("over");
  });
  document.addEventListener("drop", (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    drop.classList.remove("over");
    take([...event.dataTransfer.files]);
  });
}
