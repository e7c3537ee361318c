// Runs before the page is drawn, so that a chosen theme never flashes; hence no module.
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  try {
    const chosen = localStorage.getItem("modelkin-theme");
    if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
  } catch {
    // Without storage the system's theme is used.
  }
})();
